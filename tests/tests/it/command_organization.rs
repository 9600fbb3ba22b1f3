//! `photofinish organization erase`: nothing but receipts and numbers is left.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions};
use serde_json::{Value, json};

/// The longest stop.
const STOP: Duration = Duration::from_secs(60);

/// Returns what a receipt says.
fn read_receipt(jws: &str) -> Value {
    let payload = jws.split('.').nth(1).unwrap_or_else(|| panic!("a receipt: {jws}"));
    let json = BASE64_URL_SAFE_NO_PAD.decode(payload).expect("is base64url");
    serde_json::from_slice(&json).expect("is JSON")
}

#[test]
fn an_organization_is_erased_after_its_name_was_repeated() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Theirs");
    let photo = TestPhoto::new(1200, 800).with_bib("1204", [750, 450]).to_jpeg();
    partner.upload_photo(&album, "1.jpg", &photo);
    partner.wait_until_idle(&album);
    let other = service.partner_with(&service.create_key_for("Others", &["album:manage"], "test"));
    let kept = other.call_ok("/albums/create", &json!({ "title": "Ours" }))["id"].clone();
    let organization = {
        let listed = service.run(&["key", "list"]);
        let listed = listed.expect_success().to_owned();
        let line = listed.lines().find(|line| !line.contains("Others")).expect("a key").to_owned();
        line.split("  ").nth(1).expect("an organization").to_owned()
    };
    let erase = ["organization", "erase", &organization];
    let running = service.run_with_input(&erase, &organization);
    assert_ne!(running.code, Some(0), "the service works on the data folder: {running:?}");
    service.terminate(STOP);
    let mistyped = service.run_with_input(&erase, "another name\n");
    assert!(mistyped.code != Some(0) && mistyped.stderr.contains("nothing was erased"), "{mistyped:?}");
    assert_eq!(service.list_objects().len(), 3, "the photo, its preview and its thumbnail");
    let erased = service.run_with_input(&erase, &format!("{organization}\n"));
    let receipts: Vec<Value> = erased.expect_success().lines().map(read_receipt).collect();
    let kinds: Vec<&Value> = receipts.iter().map(|receipt| &receipt["subject"]["kind"]).collect();
    assert_eq!(kinds, ["album", "organization"], "{erased:?}");
    assert!(receipts.iter().all(|receipt| receipt["scan"]["left"] == 0), "{receipts:?}");
    assert_eq!(receipts[1]["removed"]["api_key"], 1, "{receipts:?}");
    assert!(service.list_objects().is_empty());
    let again = service.run_with_input(&erase, &organization);
    assert!(again.stderr.contains("there is no organization"), "{again:?}");
    service.restart();
    partner.call("/albums/list", &json!({})).expect_defined_error(401);
    other.call_ok("/albums/get", &json!({ "albumId": kept }));
}
