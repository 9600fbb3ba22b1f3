//! Keys, scopes, environments and tenants: who may do what, and who sees what.

use photofinish_tests::harness::{
    Service, ServiceOptions, SharedService, SharedServiceRef, isolated_command, run_command,
};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

const NOWHERE: &str = "01890000-0000-7000-8000-000000000000";
const ALL: [&str; 3] = ["search:read", "photo:upload", "album:manage"];

/// Every call of the API with an input that is well formed, and the scope it needs (`any`: any of them).
fn calls(album: &str) -> Vec<(&'static str, Value, &'static str)> {
    let photo = json!({ "albumId": album, "photoId": NOWHERE });
    let album = json!({ "albumId": album });
    let with = |extra: Value| {
        let mut input = album.clone();
        input.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        input
    };
    vec![
        ("/albums/create", json!({ "title": "Scoped" }), "album:manage"),
        ("/albums/update", with(json!({ "tags": [] })), "album:manage"),
        ("/albums/list", json!({}), "any"),
        ("/albums/get", album.clone(), "any"),
        (
            "/photos/photo/signed",
            with(json!({ "filename": "a.jpg", "contentType": "image/jpeg" })),
            "photo:upload",
        ),
        ("/photos/photo/success", photo.clone(), "photo:upload"),
        (
            "/photos/photo/signed/batch",
            with(json!({ "entries": [{ "filename": "a.jpg", "contentType": "image/jpeg" }] })),
            "photo:upload",
        ),
        ("/photos/photo/success/batch", with(json!({ "photoIds": [NOWHERE] })), "photo:upload"),
        ("/photos/photo/retry", photo.clone(), "photo:upload"),
        ("/photos/photo/delete", photo, "photo:upload"),
        ("/photos/search/face/signed", album.clone(), "search:read"),
        ("/photos/search/face/list", with(json!({ "imageId": NOWHERE })), "search:read"),
        ("/photos/search/text/list", with(json!({ "text": "1234" })), "search:read"),
        ("/albums/delete", with(json!({ "albumId": NOWHERE })), "album:manage"),
    ]
}

#[test]
fn a_missing_malformed_or_unknown_key_is_401_on_every_call() {
    let service = service();
    let real = service.create_key(&ALL, "test");
    let unknown = key_of_another_service();
    let shortened = real[..real.len() - 1].to_owned();
    let mistyped = format!("{shortened}{}", if real.ends_with('x') { 'y' } else { 'x' });
    let other_prefix = real.replace("svc_test_", "svc_live_");
    for key in ["", "svc_test_", "nonsense", &mistyped, &shortened, &other_prefix, &unknown] {
        for (path, input, _) in calls(NOWHERE) {
            let answer = service.partner_with(key).call(path, &input);
            assert_eq!(answer.status, 401, "{path} with the key '{key}': {}", answer.text());
            answer.expect_defined_error(401);
        }
    }
}

#[test]
fn a_revoked_key_is_refused_from_then_on() {
    let service = service();
    let key = service.create_key_for("Revoked Runners", &ALL, "test");
    let partner = service.partner_with(&key);
    partner.call_ok("/albums/list", &json!({}));
    let listed = list_line(&service, &key);
    service.run(&["key", "revoke", listed["id"].as_str().expect("an id")]).expect_success();
    partner.call("/albums/list", &json!({})).expect_defined_error(401);
    assert_eq!(list_line(&service, &key)["state"], "revoked");
}

#[test]
fn an_expired_key_is_refused() {
    let service = service();
    let arguments = ["--mode", "test", "--scope", "search:read", "--expires-in-days", "0"];
    let output = service.run(&[&["key", "create", "--organization", "Harbour Run"][..], &arguments].concat());
    service.partner_with(output.expect_success()).call("/albums/list", &json!({})).expect_defined_error(401);
}

#[test]
fn a_key_does_only_what_its_scopes_permit() {
    let service = service();
    let album = service.partner().create_album("Scopes");
    for scope in ALL {
        let key = service.create_key(&[scope], "test");
        let partner = service.partner_with(&key);
        for (path, input, needed) in calls(&album) {
            let answer = partner.call(path, &input);
            if needed == scope || needed == "any" {
                assert_ne!(answer.status, 403, "{path} with {scope}: {}", answer.text());
            } else {
                assert_eq!(answer.status, 403, "{path} with {scope}: {}", answer.text());
                assert_eq!(answer.expect_defined_error(403)["code"], "INSUFFICIENT_SCOPE");
            }
        }
    }
}

#[test]
fn objects_made_with_a_test_key_are_seen_by_test_keys_alone() {
    let service = service();
    let (test, live) = (service.create_key(&ALL, "test"), service.create_key(&ALL, "live"));
    let (test, live) = (service.partner_with(&test), service.partner_with(&live));
    assert!(test.key().starts_with("svc_test_") && live.key().starts_with("svc_live_"));
    for (maker, stranger) in [(&test, &live), (&live, &test)] {
        let album = maker.create_album("Whose");
        maker.call_ok("/albums/get", &json!({ "albumId": album }));
        for (path, input, _) in calls(&album) {
            if path.contains("create")
                || path.contains("list") && path.starts_with("/albums")
                || path.contains("albums/delete")
            {
                continue;
            }
            stranger.call(path, &input).expect_defined_error(404);
        }
        stranger.call("/albums/delete", &json!({ "albumId": album })).expect_defined_error(404);
        let seen = stranger.call_ok("/albums/list", &json!({ "limit": 200 }));
        assert!(!seen.to_string().contains(&album), "{seen}");
        maker.call_ok("/albums/get", &json!({ "albumId": album }));
    }
}

#[test]
fn another_organizations_album_does_not_exist() {
    let service = service();
    let owner = service.partner();
    let album = owner.create_album("Ours");
    let stranger_key = service.create_key_for("Quay Runners", &ALL, "test");
    let stranger = service.partner_with(&stranger_key);
    let absent = stranger.call("/albums/get", &json!({ "albumId": NOWHERE }));
    let foreign = stranger.call("/albums/get", &json!({ "albumId": album }));
    assert_eq!(absent.expect_defined_error(404), foreign.expect_defined_error(404));
    assert_eq!(absent.json(), foreign.json());
    for path in
        ["/albums/update", "/albums/delete", "/albums/progress", "/albums/reprocess", "/photos/photo/list"]
    {
        stranger.call(path, &json!({ "albumId": album, "title": "Theirs" })).expect_defined_error(404);
    }
    assert_eq!(owner.call_ok("/albums/get", &json!({ "albumId": album }))["title"], "Ours");
}

#[test]
fn production_takes_live_keys_and_sandbox_test_keys() {
    for (environment, taken, refused) in [("production", "live", "test"), ("sandbox", "test", "live")] {
        let service = Service::start(
            ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ENVIRONMENT", environment),
        );
        let (taken, refused) = (service.create_key(&ALL, taken), service.create_key(&ALL, refused));
        service.partner_with(&taken).call_ok("/albums/list", &json!({}));
        service.partner_with(&refused).call("/albums/list", &json!({})).expect_defined_error(401);
    }
}

#[test]
fn a_key_is_never_in_the_log_or_the_data_folder() {
    let service = service();
    let partner = service.partner();
    partner.call_ok("/albums/list", &json!({}));
    let body = &partner.key()["svc_test_".len() + 4..];
    assert!(!service.log().contains(body), "the log holds the key");
    let database = service.data_dir().join("photofinish.sqlite");
    let main = std::fs::read(&database).expect("the database");
    // Not there once all of it was moved into the database.
    let log = std::fs::read(database.with_extension("sqlite-wal")).unwrap_or_default();
    for (name, bytes) in [("the database", main), ("its log", log)] {
        let found = bytes.windows(body.len()).any(|window| window == body.as_bytes());
        assert!(!found, "{name} holds the key");
    }
}

/// A key with a right checksum that this service has never seen.
fn key_of_another_service() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments =
        ["key", "create", "--organization", "Elsewhere", "--mode", "test", "--scope", "search:read"];
    run_command(isolated_command(folder.path()).args(arguments)).expect_success().to_owned()
}

/// The line of `key list` for a key: its id and state.
fn list_line(service: &Service, key: &str) -> Value {
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
