//! The rows of the contract's error table that a partner can provoke, in the envelope; the rest of the rows (a fault,
//! a gateway) cannot be provoked from outside and are checked where they are written, in the crate `api`.

use std::time::Duration;

use photofinish_tests::harness::pictures::Picture;
use photofinish_tests::harness::raw_http::Connection;
use photofinish_tests::harness::{Group, Options, Service, Shared, wait_until};
use serde_json::json;

static GROUP: Group = Group::new();

fn service() -> Shared {
    GROUP.service(Options::fakes)
}

const NOWHERE: &str = "01890000-0000-7000-8000-000000000000";

#[test]
fn row_400_has_issues() {
    let service = service();
    assert_eq!(service.partner().call("/albums/create", &json!({ "title": "" })).issues(), ["title"]);
}

#[test]
fn row_401_is_for_requests_without_a_good_key() {
    service().partner_with("").call("/albums/list", &json!({})).defined(401);
}

#[test]
fn row_403_names_the_missing_scope() {
    let service = service();
    let reader = service.key(&["search:read"], "test");
    let data = service.partner_with(&reader).call("/albums/create", &json!({ "title": "x" })).defined(403);
    assert_eq!(data["code"], "INSUFFICIENT_SCOPE");
}

#[test]
fn row_404_is_for_what_does_not_exist() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Real");
    for path in ["/albums/get", "/albums/update", "/albums/delete", "/albums/progress", "/albums/reprocess"] {
        partner.call(path, &json!({ "albumId": NOWHERE })).defined(404);
    }
    for path in ["get", "success", "delete", "retry"] {
        let path = format!("/photos/photo/{path}");
        partner.call(&path, &json!({ "albumId": album, "photoId": NOWHERE })).defined(404);
        // `photoId` is a string in the contract, so one that is no UUID names a photo that does not exist.
        partner.call(&path, &json!({ "albumId": album, "photoId": "IMG_0001" })).defined(404);
    }
    partner.face_search(&album, NOWHERE).defined(404);
    partner.face_search(&album, "selfie").defined(404);
    partner.call("/photos/search/face/signed", &json!({ "albumId": NOWHERE })).defined(404);
    partner.call("/photos/search/text/list", &json!({ "albumId": NOWHERE, "text": "1" })).defined(404);
}

#[test]
fn row_404_is_for_a_photo_of_another_album() {
    let service = service();
    let partner = service.partner();
    let (here, there) = (partner.album("Here"), partner.album("There"));
    let photo = partner.upload(&here, "a.jpg", &Picture::new(320, 240).jpeg());
    partner.confirm(&there, &photo).defined(404);
    partner.call("/photos/photo/get", &json!({ "albumId": there, "photoId": photo })).defined(404);
    let image = partner.selfie(&here, &Picture::selfie(1).jpeg());
    partner.face_search(&there, &image).defined(404);
}

#[test]
fn row_405_is_for_another_method() {
    let service = service();
    let mut connection = Connection::open(service.port());
    connection.head("GET", "/openapi/albums/create", &[("x-api-key", service.partner().key())]);
    connection.answer().defined(405);
}

#[test]
fn row_408_is_for_slow_bodies() {
    let service = Service::start(Options::fakes().with("PHOTOFINISH_BODY_SECONDS", "1"));
    let mut connection = Connection::open(service.port());
    let key = service.partner().key().to_owned();
    let headers =
        [("x-api-key", key.as_str()), ("content-type", "application/json"), ("content-length", "9")];
    connection.head("POST", "/openapi/albums/create", &headers);
    connection.answer().defined(408);
}

#[test]
fn row_409_is_for_a_retry_of_what_has_not_failed() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Conflict");
    let photo = partner.upload(&album, "a.jpg", &Picture::new(320, 240).jpeg());
    partner.wait_idle(&album);
    partner.call("/photos/photo/retry", &json!({ "albumId": album, "photoId": photo })).defined(409);
}

#[test]
fn row_412_is_for_bytes_that_are_not_there() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Early");
    let ticket = partner.signed(&album, "a.jpg", "image/jpeg");
    assert_eq!(partner.confirm(&album, &ticket.id).defined(412)["code"], "UPLOAD_MISSING");
    let selfie = partner.selfie_ticket(&album);
    assert_eq!(partner.face_search(&album, &selfie.id).defined(412)["code"], "UPLOAD_MISSING");
}

#[test]
fn row_413_is_for_large_bodies() {
    let service = service();
    let large = vec![b' '; 5 << 20];
    service.partner().post("/albums/create", &[("content-type", "application/json")], &large).defined(413);
}

#[test]
fn row_415_is_for_other_media_types() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Media");
    for content_type in ["image/gif", "image/tiff", "text/plain", "application/octet-stream", "video/mp4"] {
        let input = json!({ "albumId": album, "filename": "a", "contentType": content_type });
        partner.call("/photos/photo/signed", &input).defined(415);
    }
    partner.post("/albums/list", &[("content-type", "text/xml")], b"<x/>").defined(415);
}

#[test]
fn row_422_says_why_it_declines() {
    let service = service();
    let partner = service.partner();
    let album = partner.album_of(&json!({
        "title": "Off", "config": { "face": { "enabled": false }, "text": { "enabled": false } },
    }));
    let declined = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "123" }));
    assert_eq!(declined.defined(422)["declineCode"], "TEXT_SEARCH_DISABLED");
    let image = partner.selfie(&album, &Picture::selfie(1).jpeg());
    assert_eq!(partner.face_search(&album, &image).defined(422)["declineCode"], "FACE_SEARCH_DISABLED");
}

#[test]
fn row_503_is_for_a_service_that_cannot_work_for_a_while() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Unmounted");
    let ticket = partner.signed(&album, "a.jpg", "image/jpeg");
    let readiness = || partner.get(&format!("{}/readyz", service.origin()));
    let (objects, away) = (service.data_dir().join("objects"), service.data_dir().join("away"));
    std::fs::rename(&objects, &away).expect("the storage goes");
    partner.confirm(&album, &ticket.id).defined(503);
    partner.put(&ticket.url, "image/jpeg", &Picture::new(320, 240).jpeg()).defined(503);
    let ready = readiness();
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.text().contains("storage"), "{}", ready.text());
    let alive = partner.get(&format!("{}/healthz", service.origin()));
    assert_eq!(alive.status, 200, "{}", alive.text());

    std::fs::rename(&away, &objects).expect("the storage comes back");
    wait_until("the service is ready again", || readiness().status == 200);
    assert_eq!(partner.confirm(&album, &ticket.id).defined(412)["code"], "UPLOAD_MISSING");
    partner.upload(&album, "b.jpg", &Picture::new(320, 240).jpeg());
}

#[test]
fn errors_come_quickly_while_photos_are_read() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Busy");
    let photo = Picture::new(2400, 1600).jpeg();
    for number in 0..12 {
        partner.upload(&album, &format!("{number}.jpg"), &photo);
    }
    let quickest = (0..5).map(|_| {
        let begun = std::time::Instant::now();
        partner.call("/albums/get", &json!({ "albumId": NOWHERE })).defined(404);
        begun.elapsed()
    });
    let quickest = quickest.min();
    assert!(quickest < Some(Duration::from_secs(2)), "the API waits for the pipeline: {quickest:?}");
    partner.wait_idle(&album);
}
