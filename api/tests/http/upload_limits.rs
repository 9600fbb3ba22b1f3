//! Presigned uploads on the local disk that are changed, too many, too slow, too late or for nothing.

use std::time::Duration;

use photofinish_store::blobs::local::uploads::UploadPace;
use photofinish_store::conformance::other_spellings;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use serde_json::{Value, json};

use crate::storage::{assert_refused, request_upload_url};
use crate::support::raw::RawConnection;
use crate::support::{ApiResponse, Partner, TestService};

/// An upload whose body has been read as far as it was sent.
struct RunningUpload(RawConnection);

impl RunningUpload {
    /// Sends the head and the first byte of a body, and waits until the service reads the body.
    fn begin(service: &TestService, url: &str, length: usize) -> Self {
        let path = url.split_once("/storage/").unwrap().1;
        let mut raw = RawConnection::connect(service);
        raw.write(&format!(
            "PUT /storage/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\n\
             content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        ));
        assert!(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"), "the body is not read");
        raw.write("x");
        Self(raw)
    }

    fn finish(mut self, rest: &str) -> ApiResponse {
        self.0.write(rest);
        self.0.read_response()
    }
}

fn put_raw(service: &TestService, target: &str) -> ApiResponse {
    let mut raw = RawConnection::connect(service);
    raw.write(&format!(
        "PUT {target} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\ncontent-length: 1\r\n\r\nx"
    ));
    raw.read_response()
}

#[test]
fn a_signed_url_in_any_other_spelling_is_403() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let target = url.strip_prefix(&partner.origin).unwrap();
    let (path, query) = target.split_once('?').unwrap();
    let paths = [
        path.replacen("/o/", "/%6f/", 1),
        path.replacen("/o/", "/./o/", 1),
        path.replacen("/o/", "//o/", 1),
        path.replacen("/a/", "%2Fa%2F", 1),
        path.to_uppercase().replacen("/STORAGE/", "/storage/", 1),
        format!("{path}/"),
    ];
    for other in other_spellings(query).iter().map(|query| format!("{path}?{query}")) {
        assert_refused(put_raw(&service, &other), "SIGNATURE_MISMATCH");
    }
    for other in paths.iter().map(|path| format!("{path}?{query}")) {
        assert_refused(put_raw(&service, &other), "SIGNATURE_MISMATCH");
    }
    assert_eq!(put_raw(&service, target).status, 200);
}

#[test]
fn a_photo_has_two_uploads_at_once_and_no_more() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let (other, _) = request_upload_url(&partner, &album);
    let first = RunningUpload::begin(&service, &url, 2);
    let second = RunningUpload::begin(&service, &url, 2);
    let response = partner.put(&url, "image/jpeg", b"third");
    assert_eq!(response.header("retry-after"), "5");
    assert_eq!(response.header("access-control-allow-origin"), "*");
    let data = response.defined_error(429, "TOO_MANY_REQUESTS")["data"].clone();
    assert_eq!(data, json!({ "code": "UPLOAD_IN_PROGRESS", "tryAgainIn": 5 }));
    assert_eq!(partner.put(&other, "image/jpeg", b"another photo").status, 200);
    assert_eq!(first.finish("y").status, 200);
    assert_eq!(partner.put(&url, "image/jpeg", b"third").status, 200);
    assert_eq!(second.finish("y").status, 200);
}

#[test]
fn an_upload_that_is_slower_than_its_size_permits_is_408_and_leaves_nothing() {
    let pace = UploadPace { base_time: Duration::from_millis(200), ..UploadPace::SERVICE };
    let service = TestService::start_with(|settings| settings.upload_pace = pace);
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, photo) = request_upload_url(&partner, &album);
    let mut slow = RunningUpload::begin(&service, &url, 5_000);
    slow.0.read_response().defined_error(408, "TIMEOUT");
    assert!(slow.0.closes_after_reading());
    let confirm = json!({ "albumId": album, "photoId": photo });
    partner.call("/photos/photo/success", &confirm).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(partner.put(&url, "image/jpeg", b"quick").status, 200);
}

#[test]
fn an_upload_that_begins_before_the_expiry_of_its_url_and_ends_after_it_is_not_kept() {
    let service = TestService::start_with(|settings| {
        settings.upload_pace = UploadPace { grace: Duration::ZERO, ..UploadPace::SERVICE };
        settings.upload_ttl = Duration::from_secs(3);
    });
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, photo) = request_upload_url(&partner, &album);
    let mut late = RunningUpload::begin(&service, &url, 2);
    assert_refused(late.0.read_response(), "URL_EXPIRED");
    assert!(late.0.closes_after_reading());
    let confirm = json!({ "albumId": album, "photoId": photo });
    partner.call("/photos/photo/success", &confirm).defined_error(412, "PRECONDITION_FAILED");
}

#[test]
fn a_url_of_a_deleted_photo_or_album_stores_nothing() {
    let service = TestService::start();
    let partner = service.partner();
    let organization = service.block_on(partner.organization_id(&service));
    let deletions: [fn(&Partner, &Value, &Value); 2] = [
        |partner, album, photo| {
            partner.call("/photos/photo/delete", &json!({ "albumId": album, "photoId": photo })).ok();
        },
        |partner, album, _| {
            partner.call("/albums/delete", &json!({ "albumId": album })).ok();
        },
    ];
    for delete in deletions {
        let (album, album_id) = partner.create_album();
        let (url, photo) = request_upload_url(&partner, &album);
        let id = photo.as_str().unwrap().parse().unwrap();
        let key = ObjectKey::photo(organization, album_id, id, ObjectRole::Original);
        let is_stored = || service.block_on(service.store.blobs.head(&key)).unwrap().is_some();
        assert_eq!(partner.put(&url, "image/jpeg", b"first").status, 200);
        assert!(is_stored());
        let running = RunningUpload::begin(&service, &url, 2);
        delete(&partner, &album, &photo);
        running.finish("y").defined_error(404, "NOT_FOUND");
        assert!(!is_stored(), "an upload that ended after the deletion was stored");
        partner.put(&url, "image/jpeg", b"again").defined_error(404, "NOT_FOUND");
        assert!(!is_stored(), "an upload that began after the deletion was stored");
    }
}

#[test]
fn a_url_of_a_used_selfie_stores_nothing() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let url = ticket["uploadUrl"].as_str().unwrap();
    assert_eq!(partner.put(url, "image/jpeg", b"face").status, 200);
    let running = RunningUpload::begin(&service, url, 2);
    let search = json!({ "albumId": album, "imageId": ticket["imageId"] });
    partner.call("/photos/search/face/list", &search).ok();
    let used = json!({ "code": "SELFIE_USED" });
    assert_eq!(running.finish("y").defined_error(409, "CONFLICT")["data"], used);
    let again = partner.put(url, "image/jpeg", b"other face");
    assert_eq!(again.defined_error(409, "CONFLICT")["data"], used);
    let organization = service.block_on(partner.organization_id(&service));
    let probe = ticket["imageId"].as_str().unwrap().parse().unwrap();
    let key = ObjectKey::probe(organization, album_id, probe);
    assert_eq!(service.block_on(service.store.blobs.head(&key)).unwrap(), None);
}
