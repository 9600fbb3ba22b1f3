//! Downloads: which photos, and a client of a ZIP file that goes away before the end.

use bytes::Bytes;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use serde_json::json;

use crate::connections::wait_until;
use crate::support::TestService;
use crate::support::guest::PUBLIC_URL;
use crate::support::raw::RawConnection;

/// More than connections buffer.
const LARGE: usize = 16 << 20;

#[test]
fn exactly_one_selection_is_required() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    for (body, expected) in [
        (json!({ "albumId": album }), ("[]", "required")),
        (json!({ "albumId": album, "bib": "1207", "imageId": "x" }), ("[]", "invalid_value")),
        (json!({ "albumId": album, "bib": 1207 }), (r#"["bib"]"#, "invalid_type")),
    ] {
        let issues = partner.call("/photos/download/create", &body).issues();
        let issues: Vec<_> = issues.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
        assert_eq!(issues, [expected], "{body}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_gives_its_place_back() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photos: Vec<PhotoId> =
        (0..3).map(|_| service.ready_photo(&partner, album_id, Vec::new(), Vec::new())).collect();
    service.block_on(async {
        let organization = partner.organization_id(&service).await;
        let large = Bytes::from(vec![0; LARGE]);
        for photo in &photos {
            let key = ObjectKey::photo(organization, album_id, *photo, ObjectRole::Original);
            service.store.blobs.write(&key, "image/jpeg", large.clone()).await.unwrap();
        }
    });
    let asked = json!({ "albumId": album, "photoIds": photos, "size": "original" });
    let ticket = partner.call("/photos/download/create", &asked).ok();
    let path = ticket["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap();
    let begin = || {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        let head = raw.read_until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        raw
    };
    // As many as one network may have.
    let clients = [begin(), begin()];
    let status = || partner.send(&format!("HEAD {path}"), &[], "").status;
    assert_eq!(status(), 503);
    drop(clients);
    wait_until("a place is free", || status() == 200);
    let _another = begin();
    wait_until("the other place is free", || status() == 200);
}
