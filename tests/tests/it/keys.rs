//! Keys that are created and revoked by the command line while the service runs. What a key may do is tested in
//! `api/tests/http`.

use photofinish_tests::harness::{
    ALL_SCOPES, Service, ServiceOptions, SharedService, SharedServiceRef, wait_until,
};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn a_key_that_a_command_revokes_is_refused_within_seconds() {
    let service = service();
    let key = service.create_key_for("Revoked Runners", &ALL_SCOPES, "test");
    let partner = service.partner_with(&key);
    partner.call_ok("/albums/list", &json!({}));
    let listed = find_listed_key(&service, &key);
    service.run(&["key", "revoke", listed["id"].as_str().expect("an id")]).expect_success();
    wait_until("the key is refused", || partner.call("/albums/list", &json!({})).status != 200);
    partner.call("/albums/list", &json!({})).expect_defined_error(401);
    assert_eq!(find_listed_key(&service, &key)["state"], "revoked");
}

#[test]
fn production_takes_live_keys_and_sandbox_test_keys() {
    for (environment, accepted, refused) in [("production", "live", "test"), ("sandbox", "test", "live")] {
        let service = Service::start(
            ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ENVIRONMENT", environment),
        );
        let (accepted, refused) =
            (service.create_key(&ALL_SCOPES, accepted), service.create_key(&ALL_SCOPES, refused));
        service.partner_with(&accepted).call_ok("/albums/list", &json!({}));
        service.partner_with(&refused).call("/albums/list", &json!({})).expect_defined_error(401);
    }
}

#[test]
fn a_key_is_never_in_the_log_or_the_data_folder() {
    let service = service();
    let partner = service.partner();
    partner.call_ok("/albums/list", &json!({}));
    let body = &partner.key()["svc_test_".len() + 4..];
    assert!(!service.log().contains(body), "the log contains the key");
    let files = service.list_files();
    assert!(files.iter().any(|file| file.ends_with("photofinish.sqlite")), "{files:?}");
    for file in files {
        // The write-ahead log may be gone, once all of it was moved into the database.
        let bytes = std::fs::read(&file).unwrap_or_default();
        let found = bytes.windows(body.len()).any(|window| window == body.as_bytes());
        assert!(!found, "{} contains the key", file.display());
    }
}

/// The id and state of a key, from its line of `key list`.
fn find_listed_key(service: &Service, key: &str) -> Value {
    let listing = service.run(&["key", "list"]);
    let line = listing
        .expect_success()
        .lines()
        .find(|line| {
            line.split('…')
                .next()
                .and_then(|head| head.split_whitespace().last())
                .is_some_and(|hint| key.starts_with(hint))
        })
        .unwrap_or_else(|| panic!("the key is not listed:\n{}", listing.stdout));
    assert!(!line.contains(key), "the listing shows the whole key");
    let state = if line.contains("revoked") { "revoked" } else { "active" };
    json!({ "id": line.split_whitespace().next(), "state": state })
}
