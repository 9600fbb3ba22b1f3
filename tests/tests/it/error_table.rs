//! The rows of the contract's error table that a partner can provoke, in the envelope; the rest of the rows (a fault,
//! a gateway) cannot be provoked from outside and are checked where they are written, in the crate `api`.

use std::time::Duration;

use photofinish_tests::harness::raw_http::RawConnection;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, SharedService, SharedServiceRef, wait_until};
use serde_json::json;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

const NOWHERE: &str = "01890000-0000-7000-8000-000000000000";

#[test]
fn row_400_has_issues() {
    let service = service();
    assert_eq!(service.partner().call("/albums/create", &json!({ "title": "" })).expect_issues(), ["title"]);
}

#[test]
fn row_401_is_for_requests_without_a_good_key() {
    service().partner_with("").call("/albums/list", &json!({})).expect_defined_error(401);
}

#[test]
fn row_403_names_the_missing_scope() {
    let service = service();
    let reader = service.create_key(&["search:read"], "test");
    let data = service
        .partner_with(&reader)
        .call("/albums/create", &json!({ "title": "x" }))
        .expect_defined_error(403);
    assert_eq!(data["code"], "INSUFFICIENT_SCOPE");
}

#[test]
fn row_404_is_for_what_does_not_exist() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Real");
    for path in ["/albums/get", "/albums/update", "/albums/delete", "/albums/progress", "/albums/reprocess"] {
        partner.call(path, &json!({ "albumId": NOWHERE })).expect_defined_error(404);
    }
    for path in ["get", "success", "delete", "retry"] {
        let path = format!("/photos/photo/{path}");
        partner.call(&path, &json!({ "albumId": album, "photoId": NOWHERE })).expect_defined_error(404);
        // `photoId` is a string in the contract, so one that is no UUID names a photo that does not exist.
        partner.call(&path, &json!({ "albumId": album, "photoId": "IMG_0001" })).expect_defined_error(404);
    }
    partner.search_by_image(&album, NOWHERE).expect_defined_error(404);
    partner.search_by_image(&album, "selfie").expect_defined_error(404);
    partner.call("/photos/search/face/signed", &json!({ "albumId": NOWHERE })).expect_defined_error(404);
    partner
        .call("/photos/search/text/list", &json!({ "albumId": NOWHERE, "text": "1" }))
        .expect_defined_error(404);
}

#[test]
fn row_404_is_for_a_photo_of_another_album() {
    let service = service();
    let partner = service.partner();
    let (here, there) = (partner.create_album("Here"), partner.create_album("There"));
    let photo = partner.upload_photo(&here, "a.jpg", &TestPhoto::new(320, 240).to_jpeg());
    partner.confirm_photo(&there, &photo).expect_defined_error(404);
    partner
        .call("/photos/photo/get", &json!({ "albumId": there, "photoId": photo }))
        .expect_defined_error(404);
    let image = partner.upload_selfie(&here, &TestPhoto::selfie(1).to_jpeg());
    partner.search_by_image(&there, &image).expect_defined_error(404);
}

#[test]
fn row_405_is_for_another_method() {
    let service = service();
    let mut connection = RawConnection::connect(service.port());
    connection.send_head("GET", "/openapi/albums/create", &[("x-api-key", service.partner().key())]);
    connection.read_response().expect_defined_error(405);
}

#[test]
fn row_408_is_for_slow_bodies() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_BODY_SECONDS", "1"));
    let mut connection = RawConnection::connect(service.port());
    let key = service.partner().key().to_owned();
    let headers =
        [("x-api-key", key.as_str()), ("content-type", "application/json"), ("content-length", "9")];
    connection.send_head("POST", "/openapi/albums/create", &headers);
    connection.read_response().expect_defined_error(408);
}

#[test]
fn row_409_is_for_a_retry_of_what_has_not_failed() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Conflict");
    let photo = partner.upload_photo(&album, "a.jpg", &TestPhoto::new(320, 240).to_jpeg());
    partner.wait_until_idle(&album);
    partner
        .call("/photos/photo/retry", &json!({ "albumId": album, "photoId": photo }))
        .expect_defined_error(409);
}

#[test]
fn row_412_is_for_bytes_that_are_not_there() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Early");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    assert_eq!(partner.confirm_photo(&album, &ticket.id).expect_defined_error(412)["code"], "UPLOAD_MISSING");
    let selfie = partner.sign_selfie(&album);
    assert_eq!(
        partner.search_by_image(&album, &selfie.id).expect_defined_error(412)["code"],
        "UPLOAD_MISSING"
    );
}

#[test]
fn row_413_is_for_large_bodies() {
    let service = service();
    let large = vec![b' '; 5 << 20];
    service
        .partner()
        .post("/albums/create", &[("content-type", "application/json")], &large)
        .expect_defined_error(413);
}

#[test]
fn row_415_is_for_other_media_types() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Media");
    for content_type in ["image/gif", "image/tiff", "text/plain", "application/octet-stream", "video/mp4"] {
        let input = json!({ "albumId": album, "filename": "a", "contentType": content_type });
        partner.call("/photos/photo/signed", &input).expect_defined_error(415);
    }
    partner.post("/albums/list", &[("content-type", "text/xml")], b"<x/>").expect_defined_error(415);
}

#[test]
fn row_422_says_why_it_declines() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album_with(&json!({
        "title": "Off", "config": { "face": { "enabled": false }, "text": { "enabled": false } },
    }));
    let declined = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "123" }));
    assert_eq!(declined.expect_defined_error(422)["declineCode"], "TEXT_SEARCH_DISABLED");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(1).to_jpeg());
    assert_eq!(
        partner.search_by_image(&album, &image).expect_defined_error(422)["declineCode"],
        "FACE_SEARCH_DISABLED"
    );
}

#[test]
fn row_503_is_for_a_service_that_cannot_work_for_a_while() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Unmounted");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    let readiness = || partner.get(&format!("{}/readyz", service.origin()));
    let (objects, away) = (service.data_dir().join("objects"), service.data_dir().join("away"));
    std::fs::rename(&objects, &away).expect("the storage goes");
    partner.confirm_photo(&album, &ticket.id).expect_defined_error(503);
    partner.put(&ticket.url, "image/jpeg", &TestPhoto::new(320, 240).to_jpeg()).expect_defined_error(503);
    let ready = readiness();
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("storage"), "{}", ready.text());
    let alive = partner.get(&format!("{}/healthz", service.origin()));
    assert_eq!(alive.status, 200, "{}", alive.text());

    std::fs::rename(&away, &objects).expect("the storage comes back");
    wait_until("the service is ready again", || readiness().status == 200);
    assert_eq!(partner.confirm_photo(&album, &ticket.id).expect_defined_error(412)["code"], "UPLOAD_MISSING");
    partner.upload_photo(&album, "b.jpg", &TestPhoto::new(320, 240).to_jpeg());
}

#[test]
fn errors_come_quickly_while_photos_are_read() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Busy");
    let photo = TestPhoto::new(2400, 1600).to_jpeg();
    for number in 0..12 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    let quickest = (0..5).map(|_| {
        let begun = std::time::Instant::now();
        partner.call("/albums/get", &json!({ "albumId": NOWHERE })).expect_defined_error(404);
        begun.elapsed()
    });
    let quickest = quickest.min();
    assert!(quickest < Some(Duration::from_secs(2)), "the API waits for the pipeline: {quickest:?}");
    partner.wait_until_idle(&album);
}
