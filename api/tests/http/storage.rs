//! Presigned uploads and downloads on the local disk.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::raw::RawConnection;
use crate::support::{DEADLINE, MAX_PHOTO_BYTES, MAX_PROBE_BYTES, Partner, TestService};

pub(crate) fn request_upload_url(partner: &Partner, album: &Value) -> (String, Value) {
    let body = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let ticket = partner.call("/photos/photo/signed", &body).ok();
    (ticket["uploadUrl"].as_str().unwrap().to_owned(), ticket["photoId"].clone())
}

pub(crate) fn assert_refused(response: crate::support::ApiResponse, code: &str) {
    assert_eq!(response.defined_error(403, "FORBIDDEN")["data"], json!({ "code": code }));
}

#[test]
fn an_upload_url_takes_what_it_was_made_for_and_nothing_else() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let (other, _) = request_upload_url(&partner, &album);
    assert_refused(partner.put(&url, "image/png", b"x"), "CONTENT_TYPE_MISMATCH");
    assert_refused(partner.send(&format!("PUT {url}"), &[], b"x"), "CONTENT_TYPE_MISMATCH");
    assert_refused(
        partner.put(&url.replace("signature=", "signature=00"), "image/jpeg", b"x"),
        "SIGNATURE_MISMATCH",
    );
    assert_refused(
        partner.put(&url.replace("max=5000", "max=9000"), "image/jpeg", b"x"),
        "SIGNATURE_MISMATCH",
    );
    let query = url.split_once('?').unwrap().1;
    let elsewhere = format!("{}?{query}", other.split_once('?').unwrap().0);
    assert_refused(partner.put(&elsewhere, "image/jpeg", b"x"), "SIGNATURE_MISMATCH");
    assert_refused(partner.put(url.split_once('?').unwrap().0, "image/jpeg", b"x"), "SIGNATURE_MISMATCH");
    assert_refused(partner.send(&format!("GET {url}"), &[], ""), "SIGNATURE_MISMATCH");
    let escape = format!("{}/storage/../rows.sqlite?{query}", partner.origin);
    assert!(partner.put(&escape, "image/jpeg", b"x").status >= 400);
    let response = partner.send(&format!("DELETE {url}"), &[], "");
    assert_eq!(response.header("allow"), "GET, HEAD, PUT, OPTIONS");
    response.defined_error(405, "METHOD_NOT_SUPPORTED");
    assert_eq!(partner.put(&url, "image/jpeg", b"x").status, 200);
}

#[test]
fn an_upload_larger_than_its_url_permits_is_413_and_leaves_nothing() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, photo) = request_upload_url(&partner, &album);
    let max_bytes = usize::try_from(MAX_PHOTO_BYTES).unwrap();
    partner.put(&url, "image/jpeg", &vec![0; max_bytes + 1]).defined_error(413, "PAYLOAD_TOO_LARGE");
    partner.put(&url, "image/jpeg", &vec![0; 3_000_000]).defined_error(413, "PAYLOAD_TOO_LARGE");

    let mut raw = RawConnection::connect(&service);
    let path = url.strip_prefix(&partner.origin).unwrap();
    raw.write(&format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    for _ in 0..3 {
        raw.write(&format!("{:x}\r\n{}\r\n", 2_000, "x".repeat(2_000)));
    }
    raw.write("0\r\n\r\n");
    raw.read_response().defined_error(413, "PAYLOAD_TOO_LARGE");

    let confirm = json!({ "albumId": album, "photoId": photo });
    partner.call("/photos/photo/success", &confirm).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(partner.put(&url, "image/jpeg", &vec![0; max_bytes]).status, 200);
    partner.call("/photos/photo/success", &confirm).ok();
}

#[test]
fn an_interrupted_upload_leaves_nothing() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, photo) = request_upload_url(&partner, &album);
    let path = url.strip_prefix(&partner.origin).unwrap();
    let partial_files = service.folder.path().join("objects/scratch");
    let wait_for_partial_files = |count: usize| {
        let started = Instant::now();
        while partial_files.read_dir().unwrap().count() != count {
            assert!(started.elapsed() < DEADLINE, "there are never {count} partial files");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let mut raw = RawConnection::connect(&service);
    raw.write(&format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\ncontent-length: 50\r\n\r\nhalf"
    ));
    wait_for_partial_files(1);
    raw.0.shutdown(std::net::Shutdown::Both).unwrap();
    wait_for_partial_files(0);
    let confirm = json!({ "albumId": album, "photoId": photo });
    partner.call("/photos/photo/success", &confirm).defined_error(412, "PRECONDITION_FAILED");
}

#[test]
fn an_expired_url_is_refused() {
    let service = TestService::start_with(|settings| settings.upload_ttl = Duration::ZERO);
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let started = Instant::now();
    // A URL is valid to the end of its last second.
    let response = loop {
        let response = partner.put(&url, "image/jpeg", b"x");
        if response.status != 200 {
            break response;
        }
        assert!(started.elapsed() < DEADLINE, "the url never expired");
        std::thread::yield_now();
    };
    assert_refused(response, "URL_EXPIRED");
}

#[test]
fn a_selfie_may_be_of_any_image_type_but_not_of_any_size() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let url = ticket["uploadUrl"].as_str().unwrap();
    for kind in ["image/jpeg", "image/heic", "IMAGE/PNG"] {
        assert_eq!(partner.put(url, kind, b"selfie").status, 200);
    }
    for kind in ["text/html", "application/octet-stream"] {
        assert_refused(partner.put(url, kind, b"selfie"), "CONTENT_TYPE_MISMATCH");
    }
    let too_large = vec![0; usize::try_from(MAX_PROBE_BYTES).unwrap() + 1];
    partner.put(url, "image/jpeg", &too_large).defined_error(413, "PAYLOAD_TOO_LARGE");
}

#[test]
fn pictures_are_fetched_by_browsers_of_any_origin() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    for name in ["url", "thumbnailUrl"] {
        let url = shown[name].as_str().unwrap();
        let response = partner.send(&format!("GET {url}"), &[("origin", "https://gallery.example")], "");
        assert_eq!((response.status, response.bytes.as_slice()), (200, b"pixels".as_slice()));
        assert_eq!(response.header("content-type"), "image/jpeg");
        assert_eq!(response.header("content-length"), "6");
        assert_eq!(response.header("access-control-allow-origin"), "*");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        let head = partner.send(&format!("HEAD {url}"), &[], "");
        assert_eq!((head.status, head.header("content-length"), head.bytes.len()), (200, "6", 0));
        assert_refused(
            partner.send(&format!("GET {}", url.replace("expires=", "expires=9")), &[], ""),
            "SIGNATURE_MISMATCH",
        );
    }
    let preflight = partner.send(
        &format!("OPTIONS {}", shown["url"].as_str().unwrap()),
        &[("origin", "https://a.example")],
        "",
    );
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-methods"), "GET, HEAD, PUT");
    assert_eq!(preflight.header("access-control-allow-headers"), "content-type");
}

#[test]
fn an_upload_url_with_any_changed_character_in_its_query_is_403() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let start = url.find('?').unwrap() + 1;
    let positions = url.char_indices().skip(start).filter(|(_, letter)| letter.is_ascii_alphanumeric());
    for (position, letter) in positions {
        let mut changed = url.clone();
        changed.replace_range(position..=position, if letter == '1' { "2" } else { "1" });
        assert_eq!(partner.put(&changed, "image/jpeg", b"x").status, 403, "{changed}");
    }
    assert_eq!(partner.put(&url, "image/jpeg", b"x").status, 200);
}

#[test]
fn a_presigned_url_accepts_no_other_method() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let (url, photo) = request_upload_url(&partner, &album);
    partner.put(&url, "image/jpeg", b"x");
    for method in ["GET", "POST", "DELETE", "PATCH"] {
        let status = partner.send(&format!("{method} {url}"), &[("content-type", "image/jpeg")], "").status;
        assert!([403, 405].contains(&status), "{method}: {status}");
    }
    partner.call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo })).ok();

    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    let download = shown["url"].as_str().unwrap();
    assert_eq!(partner.put(download, "image/jpeg", b"replaced").status, 403);
    assert_eq!(partner.send(&format!("GET {download}"), &[], "").bytes, b"pixels");
}

#[test]
fn an_expired_download_url_is_refused() {
    let service = TestService::start_with(|settings| settings.download_ttl = Duration::ZERO);
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    let request = format!("GET {}", shown["url"].as_str().unwrap());
    let started = Instant::now();
    // A URL is valid to the end of its last second.
    let response = loop {
        let response = partner.send(&request, &[], "");
        if response.status != 200 {
            break response;
        }
        assert!(started.elapsed() < DEADLINE, "the url never expired");
        std::thread::yield_now();
    };
    assert_refused(response, "URL_EXPIRED");
}

#[test]
fn a_picture_that_the_browser_has_is_not_sent_again() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    let key = photofinish_store::model::object_key::ObjectKey::photo(
        service.block_on(partner.organization_id(&service)),
        album_id,
        photo,
        photofinish_store::model::object_key::ObjectRole::Preview,
    );
    service.block_on(service.store.blobs.write(&key, "image/jpeg", b"first".as_slice().into())).unwrap();
    let body = json!({ "albumId": album, "photoId": photo });
    let url = partner.call("/photos/photo/get", &body).ok()["url"].as_str().unwrap().to_owned();
    let line = format!("GET {url}");
    let first = partner.send(&line, &[], "");
    assert_eq!((first.status, first.bytes.as_slice()), (200, b"first".as_slice()));
    assert_eq!(first.header("cache-control"), "private, max-age=3600");
    let known = [("if-none-match", first.header("etag"))];
    let again = partner.send(&line, &known, "");
    assert_eq!((again.status, again.bytes.len(), again.header("etag")), (304, 0, first.header("etag")));
    service.block_on(service.store.blobs.write(&key, "image/jpeg", b"second".as_slice().into())).unwrap();
    assert_eq!(partner.send(&line, &known, "").bytes, b"second");
    // Without a signature nobody learns whether the browser has it.
    let unsigned = partner.send(&format!("GET {}", url.split_once('?').unwrap().0), &known, "");
    assert_eq!(unsigned.status, 403);
}
