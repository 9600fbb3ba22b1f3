//! Webhooks and their deliveries, without sending anything: what is sent is tested where the sender is.

use std::time::Duration;

use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::process::Task;
use serde_json::{Value, json};

use crate::support::client::document;
use crate::support::{Partner, TestService, schema, unknown_id};

fn create(partner: &Partner, types: &[&str]) -> Value {
    let body = json!({ "url": "https://timing.example/hook", "types": types, "label": "gate" });
    partner.call("/webhooks/create", &body).ok()
}

/// Every operation on one webhook, with a valid request.
fn operations(webhook: &Value, delivery: &Value) -> Vec<(&'static str, Value)> {
    let on_webhook = json!({ "webhookId": webhook });
    let on_delivery = json!({ "webhookId": webhook, "deliveryId": delivery });
    vec![
        ("/webhooks/get", on_webhook.clone()),
        ("/webhooks/update", json!({ "webhookId": webhook, "label": "mine now" })),
        ("/webhooks/rotate", on_webhook.clone()),
        ("/webhooks/test", on_webhook.clone()),
        ("/webhooks/deliveries/list", on_webhook.clone()),
        ("/webhooks/deliveries/get", on_delivery.clone()),
        ("/webhooks/redeliver", on_delivery),
        ("/webhooks/delete", on_webhook),
    ]
}

#[test]
fn a_webhook_shows_its_secret_once() {
    let service = TestService::start();
    let partner = service.partner();
    let mut created = create(&partner, &["photo.ready"]);
    let secret = created["secret"].take();
    assert!(secret.as_str().unwrap().starts_with("whsec_"), "{secret}");
    created.as_object_mut().unwrap().remove("secret");
    let webhook = json!({ "webhookId": created["id"] });
    assert_eq!(partner.call("/webhooks/get", &webhook).ok(), created);
    assert_eq!(partner.call("/webhooks/list", &json!({})).ok()["webhooks"], json!([created]));
    let rotated = partner.call("/webhooks/rotate", &webhook).ok();
    assert_ne!(rotated["secret"], secret);
    let by_default = partner.call("/webhooks/create", &json!({ "url": "https://timing.example/" })).ok();
    let all_but_ready =
        ["photo.failed", "album.idle", "album.deleted", "credits.low", "person.erased", "album.expiring"];
    assert_eq!(by_default["types"], json!(all_but_ready));
    let told = create(&partner, &["person.erased", "album.expiring"])["types"].clone();
    assert_eq!(told, json!(["person.erased", "album.expiring"]));
    assert_eq!((&by_default["enabled"], &by_default["albumId"]), (&json!(true), &json!(null)));
}

#[test]
fn a_url_that_is_not_public_is_an_issue_of_the_url() {
    let service = TestService::start();
    let partner = service.partner();
    let refused = json!({ "url": "https://private.example/hook" });
    let expected = [("[\"url\"]".to_owned(), "address_refused".to_owned())];
    assert_eq!(partner.call("/webhooks/create", &refused).issues(), expected);
    let webhook = create(&partner, &["album.idle"])["id"].clone();
    let change = json!({ "webhookId": webhook, "url": "https://private.example/hook" });
    assert_eq!(partner.call("/webhooks/update", &change).issues(), expected);
    let unchanged = partner.call("/webhooks/get", &json!({ "webhookId": webhook })).ok();
    assert_eq!(unchanged["url"], json!("https://timing.example/hook"));
    let of_unknown_album = json!({ "url": "https://timing.example/hook", "albumId": unknown_id() });
    partner.call("/webhooks/create", &of_unknown_album).defined_error(404, "NOT_FOUND");
}

#[test]
fn a_tenant_has_twenty_webhooks_in_pages() {
    let service = TestService::start();
    let partner = service.partner();
    let created: Vec<Value> = (0..20).map(|_| create(&partner, &["album.idle"])["id"].clone()).collect();
    let one_more = json!({ "url": "https://timing.example/hook" });
    let refused = partner.call("/webhooks/create", &one_more).defined_error(409, "CONFLICT");
    assert_eq!(refused["data"], json!({ "code": "TOO_MANY_WEBHOOKS" }));
    let first = partner.call("/webhooks/list", &json!({ "limit": 15 })).ok();
    let second = partner.call("/webhooks/list", &json!({ "cursor": first["nextCursor"] })).ok();
    let ids = |page: &Value| -> Vec<Value> {
        page["webhooks"].as_array().unwrap().iter().map(|webhook| webhook["id"].clone()).collect()
    };
    assert_eq!([ids(&first), ids(&second)].concat(), created);
    assert_eq!((&second["nextCursor"], &second["total"]), (&json!(null), &json!(20)));
    partner.call("/webhooks/delete", &json!({ "webhookId": created[0] })).ok();
    partner.call("/webhooks/create", &one_more).ok();
    let other = service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL);
    assert_eq!(other.call("/webhooks/list", &json!({})).ok()["total"], json!(0));
}

#[test]
fn a_test_is_a_delivery_that_can_be_looked_at() {
    let service = TestService::start();
    let partner = service.partner();
    let webhook = create(&partner, &["album.idle"])["id"].clone();
    let tested = partner.call("/webhooks/test", &json!({ "webhookId": webhook })).ok();
    assert_eq!((&tested["type"], &tested["state"]), (&json!("webhook.test"), &json!("delivered")));
    let body = json!({ "webhookId": webhook, "deliveryId": tested["id"] });
    let detail = partner.call("/webhooks/deliveries/get", &body).ok();
    assert_eq!(detail["body"]["data"], json!({ "webhookId": webhook }));
    let sent = &document()["webhooks"]["event"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(schema::check(document(), &sent["schema"], &detail["body"]), Ok(()));
    let expected = json!([{ "at": "1970-01-01T00:00:00Z", "status": 204, "durationMs": 7, "error": null,
        "answer": "thanks" }]);
    assert_eq!(detail["history"], expected);
    let listed = partner.call("/webhooks/deliveries/list", &json!({ "webhookId": webhook })).ok();
    assert_eq!((&listed["deliveries"], &listed["total"]), (&json!([tested]), &json!(1)));
    let body = json!({ "webhookId": webhook, "state": "failed" });
    assert_eq!(partner.call("/webhooks/deliveries/list", &body).ok()["deliveries"], json!([]));
}

#[test]
fn an_event_waits_for_its_delivery_and_is_cancelled_when_its_webhook_is_disabled() {
    let service = TestService::start();
    let partner = service.partner();
    let webhook = create(&partner, &["album.deleted"])["id"].clone();
    let (album, _) = partner.create_album();
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    let hour = Duration::from_secs(3600);
    let taken = service.store.tasks.take(Task::EventPublisher, ProcessId::generate(), hour);
    let lease = service.block_on(taken).unwrap().unwrap();
    service.block_on(service.store.event_publisher.publish(lease)).unwrap();
    let on_webhook = json!({ "webhookId": webhook });
    assert_eq!(partner.call("/webhooks/get", &on_webhook).ok()["pending"], json!(1));
    let delivery = partner.call("/webhooks/deliveries/list", &on_webhook).ok()["deliveries"][0].clone();
    let event = partner.call("/events/list", &json!({})).ok()["events"][0].clone();
    assert_eq!((&delivery["eventId"], &delivery["attempts"]), (&event["id"], &json!(0)));
    let on_delivery = json!({ "webhookId": webhook, "deliveryId": delivery["id"] });
    let mut body = partner.call("/webhooks/deliveries/get", &on_delivery).ok()["body"].clone();
    body["id"] = event["id"].clone();
    assert_eq!(body, event, "a webhook tells what the list says");
    let disable = json!({ "webhookId": webhook, "enabled": false });
    assert_eq!(partner.call("/webhooks/update", &disable).ok()["pending"], json!(0));
    let state = partner.call("/webhooks/deliveries/get", &on_delivery).ok()["state"].clone();
    assert_eq!(state, json!("cancelled"));
    partner.call("/webhooks/redeliver", &on_delivery).defined_error(409, "CONFLICT");
    partner.call("/webhooks/update", &json!({ "webhookId": webhook, "enabled": true })).ok();
    let since = json!({ "webhookId": webhook, "since": "2026-01-01T00:00:00Z" });
    assert_eq!(partner.call("/webhooks/redeliver", &since).ok()["queued"], json!(1));
    assert_eq!(partner.call("/webhooks/redeliver", &since).ok()["queued"], json!(0));
    let neither = partner.call("/webhooks/redeliver", &on_webhook).issues();
    assert_eq!(neither, [("[]".to_owned(), "required".to_owned())]);
}

#[test]
fn a_redelivery_names_one_delivery_or_a_time() {
    let service = TestService::start();
    let partner = service.partner();
    let webhook = create(&partner, &["album.idle"])["id"].clone();
    let issues = |mut body: Value| {
        body["webhookId"] = webhook.clone();
        partner.call("/webhooks/redeliver", &body).issues()
    };
    let issue = |path: &str, code: &str| [(path.to_owned(), code.to_owned())];
    let since = "2026-01-01T00:00:00Z";
    assert_eq!(issues(json!({})), issue("[]", "required"));
    assert_eq!(issues(json!({ "deliveryId": unknown_id(), "since": since })), issue("[]", "invalid_value"));
    // It is there, so that nothing is missing.
    assert_eq!(issues(json!({ "deliveryId": "x" })), issue(r#"["deliveryId"]"#, "invalid_format"));
    assert_eq!(issues(json!({ "since": "x" })), issue(r#"["since"]"#, "invalid_format"));
}

#[test]
fn another_tenants_webhook_is_as_if_it_did_not_exist() {
    let service = TestService::start();
    let partner = service.partner();
    let webhook = create(&partner, &["album.idle"])["id"].clone();
    let delivery = partner.call("/webhooks/test", &json!({ "webhookId": webhook })).ok()["id"].clone();
    for stranger in [
        service.partner_with("River Timing", KeyMode::Live, &Scope::ALL),
        service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL),
    ] {
        for (path, body) in operations(&webhook, &delivery) {
            let refused = stranger.call(path, &body).defined_error(404, "NOT_FOUND");
            let mut of_unknown = body.clone();
            of_unknown["webhookId"] = unknown_id();
            assert_eq!(refused, stranger.call(path, &of_unknown).json(), "{path}");
        }
    }
    let unchanged = partner.call("/webhooks/get", &json!({ "webhookId": webhook })).ok();
    assert_eq!(unchanged["label"], json!("gate"));
    for (path, body) in operations(&webhook, &delivery) {
        partner.call(path, &body).ok();
    }
}
