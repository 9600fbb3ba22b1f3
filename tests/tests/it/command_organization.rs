//! `photofinish organization erase`: nothing but receipts and numbers is left.

use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions};
use serde_json::json;

/// The longest stop.
const STOP: Duration = Duration::from_secs(60);

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
    let receipts = erased.expect_success().lines().count();
    assert_eq!(receipts, 1, "a receipt for the album: {erased:?}");
    assert!(service.list_objects().is_empty());
    let again = service.run_with_input(&erase, &organization);
    assert!(again.stderr.contains("there is no organization"), "{again:?}");
    service.restart();
    partner.call("/albums/list", &json!({})).expect_defined_error(401);
    other.call_ok("/albums/get", &json!({ "albumId": kept }));
}
