//! Keys, environments and scopes.

use std::time::Instant;

use photofinish_api::context::Environment;
use photofinish_api::key::KeyText;
use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::support::client::document;
use crate::support::{DEADLINE, Partner, TestService};

fn assert_refused(partner: &Partner, code: &str) {
    let body = partner.call("/albums/list", &json!({})).defined_error(401, "UNAUTHORIZED");
    assert_eq!(body["data"], json!({ "code": code }));
    assert_eq!(body["message"], json!("Unauthorized"));
}

fn partner_with_key(service: &TestService, key: &str) -> Partner {
    Partner::new(service, Some(key.to_owned()))
}

#[test]
fn missing_malformed_and_unknown_keys_are_refused() {
    let service = TestService::start();
    assert_refused(&Partner::new(&service, None), "KEY_MISSING");
    let mistyped = service.partner().key.unwrap().replace("svc_live_", "svc_test_");
    let key = service.partner().key.unwrap();
    let shortened = &key[..key.len() - 1];
    for malformed in ["", "x", "svc_live_", "Bearer svc_live_abc", &mistyped, shortened] {
        assert_refused(&partner_with_key(&service, malformed), "KEY_MALFORMED");
    }
    let unknown = partner_with_key(&service, KeyText::generate(KeyMode::Live).reveal());
    assert_refused(&unknown, "KEY_UNKNOWN");
    for (path, _) in SCOPES {
        unknown.call(path, &json!({})).defined_error(401, "UNAUTHORIZED");
    }
}

#[test]
fn expired_and_revoked_keys_are_refused() {
    let service = TestService::start();
    let expired = KeyText::generate(KeyMode::Live);
    let yesterday = OffsetDateTime::now_utc() - Duration::DAY;
    service.create_key("Lake Timing", &expired, |key| key.expires_at = Some(yesterday));
    assert_refused(&partner_with_key(&service, expired.reveal()), "KEY_EXPIRED");

    let later = KeyText::generate(KeyMode::Live);
    let tomorrow = OffsetDateTime::now_utc() + Duration::DAY;
    let id = service.create_key("Lake Timing", &later, |key| key.expires_at = Some(tomorrow));
    let partner = partner_with_key(&service, later.reveal());
    partner.call("/albums/list", &json!({})).ok();
    service.block_on(service.store.keys.revoke(id)).unwrap();
    assert_refused(&partner, "KEY_REVOKED");
}

#[test]
fn a_key_that_another_process_revokes_is_refused_soon() {
    let service = TestService::start();
    let partner = service.partner();
    partner.call("/albums/list", &json!({})).ok();
    service.revoke_elsewhere(partner.key.as_ref().unwrap());
    let revoked = Instant::now();
    while partner.call("/albums/list", &json!({})).status == 200 {
        assert!(revoked.elapsed() < DEADLINE, "the key is still accepted");
        std::thread::yield_now();
    }
    assert_refused(&partner, "KEY_REVOKED");
}

#[test]
fn each_environment_accepts_only_its_keys() {
    let is_accepted = |environment, mode| {
        let service = TestService::start_with(|settings| settings.environment = environment);
        let partner = service.partner_with("Lake Timing", mode, &Scope::ALL);
        let response = partner.call("/albums/list", &json!({}));
        if response.status != 200 {
            assert_refused(&partner, "KEY_OF_ANOTHER_ENVIRONMENT");
        }
        response.status == 200
    };
    assert!(is_accepted(Environment::Production, KeyMode::Live));
    assert!(!is_accepted(Environment::Production, KeyMode::Test));
    assert!(is_accepted(Environment::Sandbox, KeyMode::Test));
    assert!(!is_accepted(Environment::Sandbox, KeyMode::Live));
    assert!(is_accepted(Environment::Local, KeyMode::Live));
    assert!(is_accepted(Environment::Local, KeyMode::Test));
}

/// The scope that each operation requires.
const SCOPES: [(&str, Option<Scope>); 53] = [
    ("/albums/watermark/get", Some(Scope::AlbumManage)),
    ("/albums/watermark/signed", Some(Scope::AlbumManage)),
    ("/albums/watermark/set", Some(Scope::AlbumManage)),
    ("/albums/cameras/list", Some(Scope::PhotoUpload)),
    ("/photos/download/create", Some(Scope::SearchRead)),
    ("/albums/gallery/reports", Some(Scope::AlbumManage)),
    ("/albums/gallery/reports/erase", Some(Scope::AlbumManage)),
    ("/albums/gallery/reports/dismiss", Some(Scope::AlbumManage)),
    ("/albums/gallery/get", Some(Scope::AlbumManage)),
    ("/albums/gallery/update", Some(Scope::AlbumManage)),
    ("/albums/create", Some(Scope::AlbumManage)),
    ("/albums/list", None),
    ("/albums/get", None),
    ("/albums/update", Some(Scope::AlbumManage)),
    ("/albums/delete", Some(Scope::AlbumManage)),
    ("/albums/reprocess", Some(Scope::AlbumManage)),
    ("/albums/progress", Some(Scope::PhotoUpload)),
    ("/albums/startlist/import", Some(Scope::AlbumManage)),
    ("/albums/startlist/check", Some(Scope::AlbumManage)),
    ("/albums/startlist/get", Some(Scope::AlbumManage)),
    ("/albums/startlist/entries", Some(Scope::AlbumManage)),
    ("/albums/startlist/delete", Some(Scope::AlbumManage)),
    ("/photos/photo/signed", Some(Scope::PhotoUpload)),
    ("/photos/photo/signed/batch", Some(Scope::PhotoUpload)),
    ("/photos/photo/success", Some(Scope::PhotoUpload)),
    ("/photos/photo/success/batch", Some(Scope::PhotoUpload)),
    ("/photos/photo/list", Some(Scope::PhotoUpload)),
    ("/photos/photo/get", Some(Scope::PhotoUpload)),
    ("/photos/photo/delete", Some(Scope::PhotoUpload)),
    ("/photos/photo/retry", Some(Scope::PhotoUpload)),
    ("/photos/search/face/signed", Some(Scope::SearchRead)),
    ("/photos/search/face/list", Some(Scope::SearchRead)),
    ("/photos/search/text/list", Some(Scope::SearchRead)),
    ("/faces/erase", Some(Scope::AlbumManage)),
    ("/people/erase", Some(Scope::AlbumManage)),
    ("/erasures/list", Some(Scope::AlbumManage)),
    ("/erasures/get", Some(Scope::AlbumManage)),
    ("/erasures/verify", Some(Scope::AlbumManage)),
    ("/events/list", None),
    ("/webhooks/create", Some(Scope::AlbumManage)),
    ("/webhooks/list", Some(Scope::AlbumManage)),
    ("/webhooks/get", Some(Scope::AlbumManage)),
    ("/webhooks/update", Some(Scope::AlbumManage)),
    ("/webhooks/delete", Some(Scope::AlbumManage)),
    ("/webhooks/rotate", Some(Scope::AlbumManage)),
    ("/webhooks/test", Some(Scope::AlbumManage)),
    ("/webhooks/deliveries/list", Some(Scope::AlbumManage)),
    ("/webhooks/deliveries/get", Some(Scope::AlbumManage)),
    ("/webhooks/redeliver", Some(Scope::AlbumManage)),
    ("/credits/get", None),
    ("/credits/mock/set", Some(Scope::AlbumManage)),
    ("/usage/get", Some(Scope::AlbumManage)),
    ("/usage/costs", Some(Scope::AlbumManage)),
];

#[test]
fn every_operation_accepts_its_scope_and_no_other() {
    let service = TestService::start();
    let paths: Vec<&str> = document()["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut known = SCOPES.map(|(path, _)| path);
    known.sort_unstable();
    assert_eq!(paths, known, "the document and SCOPES have different operations");
    for scope in Scope::ALL {
        let partner = service.partner_with("Lake Timing", KeyMode::Live, &[scope]);
        for (path, required) in SCOPES {
            // The body is invalid, so that an accepted key gets a 400.
            let response = partner.call(path, &json!([]));
            if required.is_none_or(|required| required == scope) {
                response.issues();
            } else {
                let body = response.defined_error(403, "FORBIDDEN");
                assert_eq!(body["data"], json!({ "code": "INSUFFICIENT_SCOPE" }), "{path}");
            }
        }
    }
}

#[test]
fn the_document_names_the_scopes() {
    for (path, scope) in SCOPES {
        let about = document()["paths"][path]["post"]["description"].as_str().unwrap();
        let line = scope.map_or("Any scope.".to_owned(), |scope| format!("Scope: `{}`.", scope.as_str()));
        assert!(about.ends_with(&line), "{path}: {about}");
    }
}

#[test]
fn the_last_use_of_a_key_is_recorded() {
    let service = TestService::start();
    let partner = service.partner();
    partner.call("/albums/list", &json!({})).ok();
    let started = Instant::now();
    loop {
        let keys = service.block_on(service.store.keys.list()).unwrap();
        if keys[0].last_used_at.is_some() {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "the last use was not recorded");
        std::thread::yield_now();
    }
}

#[test]
fn the_key_that_makes_an_album_is_its_creator() {
    let service = TestService::start();
    let text = KeyText::generate(KeyMode::Live);
    let id = service.create_key("Lake Timing", &text, |_| {});
    let partner = partner_with_key(&service, text.reveal());
    let album: Value = partner.call("/albums/create", &json!({ "title": "T" })).ok();
    assert_eq!(album["createdBy"], json!(id));
    assert_eq!(album["organizationId"], json!(service.block_on(partner.organization_id(&service))));
}
