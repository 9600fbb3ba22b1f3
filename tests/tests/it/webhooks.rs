//! Webhooks of a whole service: real deliveries over HTTP to a receiver of this test.

use std::time::{Duration, Instant};

use photofinish_servers::{Answer, ReceivedRequest, Receiver};
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    NpmProgram, Partner, Service, ServiceOptions, isolated_command, run_command,
};
use serde_json::{Value, json};

/// How long a test waits for a delivery.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// A partner's program that receives webhooks. It answers with the statuses of its script, then with 204.
struct Hook(Receiver);

impl Hook {
    fn start(script: &'static [u16]) -> Self {
        let status = move |place: usize| script.get(place).copied().unwrap_or(204);
        Self(Receiver::start(move |place| Answer::of(status(place))))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn received(&self) -> Vec<ReceivedRequest> {
        let received = self.0.received();
        assert!(received.iter().all(|request| request.line == "POST /hook HTTP/1.1"), "{received:?}");
        received
    }

    /// Waits until a request satisfies the condition; returns it.
    fn wait_for(&self, what: &str, condition: impl Fn(&ReceivedRequest) -> bool) -> ReceivedRequest {
        let begin = Instant::now();
        loop {
            let received = self.received();
            if let Some(found) = received.iter().find(|received| condition(received)) {
                return found.clone();
            }
            assert!(begin.elapsed() < WAIT_LIMIT, "no {what} in {received:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn of_type(&self, event_type: &str) -> ReceivedRequest {
        self.wait_for(event_type, |received| body_of(received)["type"] == event_type)
    }
}

fn body_of(received: &ReceivedRequest) -> Value {
    serde_json::from_str(&received.body).expect("a JSON body")
}

/// A service that may send to this receiver.
fn start_service(receiver: &Hook) -> Service {
    let allowed = format!("127.0.0.1:{}", receiver.0.port());
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_WEBHOOK_HTTP", "on")
        .with_setting("PHOTOFINISH_WEBHOOK_ALLOW", allowed);
    Service::start(options)
}

fn create_webhook(partner: &Partner, url: &str, types: &[&str]) -> Value {
    let input = json!({ "url": url, "types": types });
    partner.client().call("webhooks/create", &input).expect("a webhook")
}

/// Waits until the newest delivery of a webhook satisfies the condition.
fn wait_for_delivery(partner: &Partner, webhook: &Value, condition: impl Fn(&Value) -> bool) {
    let input = json!({ "webhookId": webhook["id"] });
    let begin = Instant::now();
    loop {
        let page: Value = partner.client().call("webhooks/deliveries/list", &input).expect("deliveries");
        if condition(&page["deliveries"][0]) {
            return;
        }
        assert!(begin.elapsed() < WAIT_LIMIT, "{page}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Verifies a delivery with the crate that receivers use.
fn verify(secret: &str, received: &ReceivedRequest) -> bool {
    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, received.headers[name].parse().expect("a header"));
    }
    let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
    webhook.verify(received.body.as_bytes(), &headers).is_ok()
}

#[test]
fn each_settled_photo_is_in_a_body_that_the_packages_of_receivers_verify() {
    const TEST: &str = "each_settled_photo_is_in_a_body_that_the_packages_of_receivers_verify";
    let receiver = Hook::start(&[]);
    let service = start_service(&receiver);
    let partner = service.partner();
    let webhook = create_webhook(&partner, &receiver.url(), &["photo.ready", "photo.failed", "album.idle"]);
    let secret = webhook["secret"].as_str().expect("a secret");
    let album = partner.create_album("Told");
    let photo = TestPhoto::new(600, 400).to_jpeg();
    let mut photos: Vec<String> =
        (0..6).map(|number| partner.upload_photo(&album, &format!("{number}.jpg"), &photo)).collect();
    photos.push(partner.upload_photo(&album, "damaged.jpg", &photo[..photo.len() / 2]));
    let idle = receiver.of_type("album.idle");
    let mut told: Vec<String> = Vec::new();
    for received in &receiver.received() {
        assert!(verify(secret, received), "{received:?}");
        assert!(received.body.len() < 20_000, "{} bytes", received.body.len());
        let body = body_of(received);
        let photos = body["data"]["photos"].as_array().cloned().unwrap_or_default();
        told.extend(photos.iter().map(|photo| photo["photoId"].as_str().expect("an id").to_owned()));
    }
    told.sort();
    photos.sort();
    assert_eq!(told, photos);
    let other = create_webhook(&partner, &receiver.url(), &["album.idle"]);
    assert!(!verify(other["secret"].as_str().expect("a secret"), &idle));
    let Some(program) = NpmProgram::prepare(TEST, "standardwebhooks", &["verify.mjs"]) else { return };
    let output = run_command(
        program
            .command()
            .env("SECRET", secret)
            .env("HEADERS", json!(idle.headers).to_string())
            .env("BODY", &idle.body),
    );
    assert!(output.expect_success().contains("verified album.idle"));
}

#[test]
fn a_delivery_that_was_not_accepted_is_sent_again_also_by_the_next_process() {
    let receiver = Hook::start(&[500, 503]);
    let service = start_service(&receiver);
    let partner = service.partner();
    let webhook = create_webhook(&partner, &receiver.url(), &["album.deleted"]);
    let album = partner.create_album("Soon gone");
    let _: Value = partner.client().call("albums/delete", &json!({ "albumId": album })).expect("deleted");
    let first = receiver.of_type("album.deleted");
    // Once its outcome is stored: an attempt whose outcome nobody knows is made again when its lease of a minute has expired.
    wait_for_delivery(&partner, &webhook, |delivery| delivery["lastStatus"].is_number());
    service.kill();
    service.restart();
    let is_third = |_: &ReceivedRequest| receiver.received().len() >= 3;
    let _third = receiver.wait_for("third attempt", is_third);
    let received = receiver.received();
    assert!(
        received
            .iter()
            .all(|again| again.headers["webhook-id"] == first.headers["webhook-id"]
                && again.body == first.body)
    );
    wait_for_delivery(&partner, &webhook, |delivery| delivery["state"] == "delivered");
}

#[test]
fn a_test_is_answered_at_once_and_a_url_that_is_not_public_is_refused() {
    let receiver = Hook::start(&[204, 302]);
    let service = start_service(&receiver);
    let partner = service.partner();
    let webhook = create_webhook(&partner, &receiver.url(), &["album.idle"]);
    let input = json!({ "webhookId": webhook["id"] });
    let tested: Value = partner.client().call("webhooks/test", &input).expect("a delivery");
    assert_eq!((&tested["state"], &tested["lastStatus"]), (&json!("delivered"), &json!(204)));
    // A redirect is not followed, and accepts nothing.
    let tested: Value = partner.client().call("webhooks/test", &input).expect("a delivery");
    assert_eq!((&tested["state"], &tested["lastStatus"]), (&json!("failed"), &json!(302)));
    assert_eq!(receiver.received().len(), 2);
    for url in
        ["https://127.0.0.1/", "https://[::ffff:127.0.0.1]/", "https://localhost/", "http://127.0.0.1:1/"]
    {
        let refused = partner.client().call::<Value>("webhooks/create", &json!({ "url": url }));
        assert_eq!(refused.err().and_then(|error| error.status()), Some(400), "{url}");
    }
}

#[test]
fn secrets_are_sealed_again_with_another_key_and_not_readable_without() {
    let receiver = Hook::start(&[]);
    let service = start_service(&receiver);
    let partner = service.partner();
    let webhook = create_webhook(&partner, &receiver.url(), &["album.idle"]);
    let old = format!("file:{}", service.data_dir().join("secrets/master.key").display());
    let new = ("PHOTOFINISH_SECRET_KEY", "bWFzdGVyIHNlY3JldCBvZiB0aGlydHktdHdvIGJ5dGU=");
    service.kill();
    let reseal = |settings: &[(&str, &str)]| {
        let mut command = isolated_command(&service.data_dir(), &["secret", "reseal"]);
        run_command(command.envs(settings.iter().copied()))
    };
    let refused = reseal(&[new]);
    assert!(refused.code != Some(0) && refused.stderr.contains("PHOTOFINISH_SECRET_KEY_OLD"), "{refused:?}");
    let both = [new, ("PHOTOFINISH_SECRET_KEY_OLD", old.as_str())];
    let resealed = reseal(&both);
    assert!(resealed.expect_success().contains("1 secrets sealed again"));
    assert!(reseal(&both).expect_success().contains("0 secrets"));
    let allowed = format!("127.0.0.1:{}", receiver.0.port());
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_WEBHOOK_HTTP", "on")
        .with_setting("PHOTOFINISH_WEBHOOK_ALLOW", allowed)
        .with_setting(new.0, new.1);
    let service = service.restart_with(options);
    let input = json!({ "webhookId": webhook["id"] });
    let tested: Value = service.partner().client().call("webhooks/test", &input).expect("a delivery");
    assert_eq!(tested["state"], json!("delivered"));
    let received = receiver.of_type("webhook.test");
    assert!(verify(webhook["secret"].as_str().expect("a secret"), &received), "the same secret signs");
}
