//! Uploads and selfies: what they leave in the storage folder, and for how long.

use std::io::Write;
use std::net::TcpStream;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, wait_until};

/// How many uploads are being received.
fn count_partial_files(service: &Service) -> usize {
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
fn a_declined_selfie_is_declined_again_and_gone_when_it_expires() {
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
    wait_until("declined selfies are removed", || service.list_objects().is_empty());
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
