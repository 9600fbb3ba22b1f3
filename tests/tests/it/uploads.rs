//! Uploads and selfies: what they leave in the storage folder, and for how long.

use std::fs::{Metadata, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, wait_until};
use serde_json::json;

/// How many uploads are being received.
pub(crate) fn count_partial_files(service: &Service) -> usize {
    let scratch = service.data_dir().join("objects/scratch").read_dir().expect("the folder of partial files");
    let names = scratch.map(|entry| entry.expect("an entry of the folder").path());
    names.filter(|path| path.extension().is_some_and(|kind| kind == "part")).count()
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    // A service of its own: uploads of other tests have partial files too.
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Broken off");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let path = ticket.upload_url.strip_prefix(&service.origin()).expect("the service's own URL").to_owned();
    let mut connection = TcpStream::connect(("127.0.0.1", service.port())).expect("the service listens");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: image/jpeg\r\ncontent-length: 100000\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).expect("the service reads");
    connection.write_all(&[0xff; 5000]).expect("the service reads");
    wait_until("the upload has begun", || count_partial_files(&service) == 1);
    drop(connection);
    wait_until("the service has noticed the end", || count_partial_files(&service) == 0);
    assert_eq!(partner.confirm_photo(&album, &ticket.photo_id).status, 412);
    partner.put(&ticket.upload_url, "image/jpeg", &TestPhoto::new(64, 64).to_jpeg());
    partner.confirm_photo(&album, &ticket.photo_id).expect_ok();
}

#[test]
fn a_selfie_is_deleted_as_soon_as_its_embedding_is_computed() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Private");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    assert_eq!(service.list_objects().len(), 1, "the selfie is kept until its search");
    partner.search_by_image(&album, &image).expect_ok();
    assert_eq!(service.list_objects(), Vec::<std::path::PathBuf>::new());
    partner.search_by_image(&album, &image).expect_ok();
}

#[test]
fn a_declined_selfie_is_gone_and_is_declined_again_until_it_expires() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_PROBE_SECONDS", "20"));
    let partner = service.partner();
    let album = partner.create_album("Declined");
    let faceless = partner.upload_selfie(&album, &TestPhoto::new(320, 240).to_jpeg());
    let unreadable = partner.upload_selfie(&album, b"not a picture");
    for _ in 0..2 {
        assert_eq!(
            partner.search_by_image(&album, &faceless).expect_defined_error(422)["declineCode"],
            "NO_FACE"
        );
        assert_eq!(
            partner.search_by_image(&album, &unreadable).expect_defined_error(422)["declineCode"],
            "UNREADABLE_IMAGE"
        );
    }
    assert_eq!(service.list_objects(), Vec::<std::path::PathBuf>::new());
    wait_until("the selfie expires", || partner.search_by_image(&album, &faceless).status != 422);
    partner.search_by_image(&album, &faceless).expect_defined_error(404);
}

#[test]
fn a_selfie_expires_as_configured_and_is_then_unknown() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_PROBE_SECONDS", "20"));
    let partner = service.partner();
    let album = partner.create_album("Short-lived");
    // In this order: once the used one has expired, the other has too.
    let unused = partner.upload_selfie(&album, &TestPhoto::selfie(4).to_jpeg());
    let used = partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    partner.search_by_image(&album, &used).expect_ok();
    wait_until("the selfie expires", || partner.search_by_image(&album, &used).status != 200);
    partner.search_by_image(&album, &used).expect_defined_error(404);
    partner.search_by_image(&album, &unused).expect_defined_error(404);
    wait_until("the selfie that was never used is removed", || service.list_objects().is_empty());
}

/// Every file and folder below a folder, and the folder itself.
fn walk(folder: &Path) -> Vec<(PathBuf, Metadata)> {
    let mut found = vec![(folder.to_owned(), folder.metadata().expect("a folder"))];
    for entry in folder.read_dir().expect("a folder") {
        let path = entry.expect("an entry of the folder").path();
        let metadata = path.metadata().expect("an entry");
        if metadata.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push((path, metadata));
        }
    }
    found
}

#[test]
fn the_data_folder_is_for_the_services_user_alone_also_if_an_earlier_version_made_it() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Private");
    partner.upload_photo(&album, "a.jpg", &TestPhoto::new(640, 480).to_jpeg());
    partner.wait_until_idle(&album);
    let stored = walk(&service.data_dir());
    for name in ["photofinish.sqlite", "photofinish.sqlite-wal", "original", "preview.jpg", "url-signing.key"]
    {
        assert!(stored.iter().any(|(path, _)| path.ends_with(name)), "no {name} in {stored:?}");
    }
    for (path, metadata) in &stored {
        let mode = metadata.permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    service.terminate(Duration::from_secs(60));
    for (path, metadata) in walk(&service.data_dir()) {
        let mode = if metadata.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
    }
    service.restart();
    for name in ["", "objects", "secrets", "secrets/url-signing.key", "photofinish.sqlite"] {
        let path = service.data_dir().join(name);
        let mode = path.metadata().expect("it is still there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    assert!(service.log().contains("restricted permissions to the service's user"), "{}", service.log());
    partner.upload_photo(&album, "b.jpg", &TestPhoto::new(640, 480).to_jpeg());
}

#[test]
fn no_log_line_contains_a_signature_or_a_key() {
    let options = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_LOG", "trace");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Logged");
    let jpeg = TestPhoto::new(640, 480).to_jpeg();
    let photo = partner.upload_photo(&album, "a.jpg", &jpeg);
    partner.wait_until_idle(&album);
    partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    let ticket = partner.sign_photo(&album, "b.jpg", "image/jpeg");
    let picture = partner.get_photo(&album, &photo)["url"].as_str().expect("a URL").to_owned();
    assert_eq!(partner.get(&picture).status, 200);
    let mut signatures = Vec::new();
    for url in [&ticket.upload_url, &picture] {
        signatures.push(url.split_once("signature=").expect("a signature").1.to_owned());
        let changed = format!("{url}&x=1");
        assert_eq!(partner.put(&changed, "image/jpeg", &jpeg).status, 403);
        assert_eq!(partner.get(&changed).status, 403);
    }
    assert_eq!(partner.put(&ticket.upload_url, "image/png", &jpeg).status, 403);
    assert_eq!(partner.put(&ticket.upload_url, "image/jpeg", &jpeg).status, 200);
    partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": ticket.photo_id }));
    assert_eq!(partner.put(&ticket.upload_url, "image/jpeg", &jpeg).status, 404);
    // Storage that fails: the errors that say why contain the names of objects.
    let objects = service.data_dir().join("objects");
    std::fs::rename(&objects, service.data_dir().join("moved")).expect("a folder is moved");
    assert_eq!(partner.get(&picture).status, 503);
    service.terminate(Duration::from_secs(60));
    let log = service.log();
    assert!(log.contains("request handled") && log.contains("operation=\"storage\""), "{log:.2000}");
    for secret in signatures.iter().map(String::as_str).chain(["signature=", "expires=", partner.key()]) {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} is in the log: {line:?}");
    }
}
