//! From an upload ticket to a confirmed photo.

use std::time::Duration;

use bytes::Bytes;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use url::Url;

use crate::support::{MAX_PHOTO_BYTES, Partner, TestService};

fn request_ticket(partner: &Partner, album: &Value) -> (String, Value) {
    let body = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let ticket = partner.call("/photos/photo/signed", &body).ok();
    (ticket["uploadUrl"].as_str().unwrap().to_owned(), ticket["photoId"].clone())
}

fn photo_state(partner: &Partner, album: &Value, photo: &Value) -> Value {
    partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok()["state"].clone()
}

#[test]
fn a_photo_goes_from_ticket_to_queue() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, photo) = request_ticket(&partner, &album);
    let confirm = || partner.call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo }));
    assert_eq!(photo_state(&partner, &album, &photo), json!("awaiting_upload"));
    let missing = confirm().defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(missing["data"], json!({ "code": "UPLOAD_MISSING" }));

    let put = partner.put(&url, "image/jpeg", b"pixels");
    assert_eq!((put.status, put.bytes.len()), (200, 0));
    for _ in 0..3 {
        let confirmed = confirm().ok();
        assert_eq!(confirmed["success"], json!(true));
        assert!(confirmed["message"].is_string());
    }
    assert_eq!(photo_state(&partner, &album, &photo), json!("queued"));
}

/// Until when a presigned URL is valid.
fn url_expiry(url: &Value) -> OffsetDateTime {
    let url = Url::parse(url.as_str().unwrap()).unwrap();
    let (_, seconds) = url.query_pairs().find(|(name, _)| name == "expires").unwrap();
    OffsetDateTime::from_unix_timestamp(seconds.parse().unwrap()).unwrap()
}

/// The lifetimes differ from each other and from the defaults, so that none can stand for another.
#[test]
fn urls_and_selfies_live_as_long_as_the_settings_say() {
    const UPLOAD: Duration = Duration::from_secs(700);
    const DOWNLOAD: Duration = Duration::from_secs(1300);
    const SELFIE: Duration = Duration::from_secs(2500);
    // Ends are whole seconds.
    const TOLERANCE: Duration = Duration::from_secs(5);
    let service = TestService::start_with(|settings| {
        (settings.upload_ttl, settings.download_ttl, settings.probe_ttl) = (UPLOAD, DOWNLOAD, SELFIE);
    });
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    let asked_at = OffsetDateTime::now_utc();
    let body = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let ticket = partner.call("/photos/photo/signed", &body).ok();
    let selfie = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    let answered_at = OffsetDateTime::now_utc();
    let time = |value: &Value| OffsetDateTime::parse(value.as_str().unwrap(), &Rfc3339).unwrap();
    for (what, end, lifetime) in [
        ("a ticket", time(&ticket["expiresAt"]), UPLOAD),
        ("its URL", url_expiry(&ticket["uploadUrl"]), UPLOAD),
        ("a ticket of a selfie", time(&selfie["expiresAt"]), UPLOAD),
        ("its URL", url_expiry(&selfie["uploadUrl"]), UPLOAD),
        ("a selfie", time(&selfie["imageExpiresAt"]), SELFIE),
        ("a preview", url_expiry(&shown["url"]), DOWNLOAD),
        ("a thumbnail", url_expiry(&shown["thumbnailUrl"]), DOWNLOAD),
    ] {
        let expected = asked_at + lifetime - TOLERANCE..=answered_at + lifetime + TOLERANCE;
        assert!(expected.contains(&end), "{what} ends at {end}, not in {lifetime:?}");
    }
}

#[test]
fn a_failed_photo_that_is_uploaded_and_confirmed_again_is_queued_once() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let failed: Vec<Value> = (0..2).map(|_| json!(service.failed_photo(&partner, album_id))).collect();
    let confirm_one =
        || partner.call("/photos/photo/success", &json!({ "albumId": album, "photoId": failed[0] })).ok();
    let confirm_all =
        || partner.call("/photos/photo/success/batch", &json!({ "albumId": album, "photoIds": failed })).ok();
    assert_eq!(photo_state(&partner, &album, &failed[0]), json!("failed"));
    for _ in 0..2 {
        assert_eq!(confirm_one()["success"], json!(true));
        assert_eq!(photo_state(&partner, &album, &failed[0]), json!("queued"));
    }
    for _ in 0..2 {
        for result in confirm_all()["results"].as_array().unwrap() {
            assert_eq!(result["success"], json!(true));
        }
        assert_eq!(photo_state(&partner, &album, &failed[1]), json!("queued"));
    }
    assert_eq!(service.block_on(service.store.queue.depth()).unwrap(), 2);
}

#[test]
fn a_failed_photo_without_bytes_stays_failed_when_it_is_confirmed() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let failed = service.failed_photo(&partner, album_id);
    let organization = service.block_on(partner.organization_id(&service));
    let original = ObjectKey::photo(organization, album_id, failed, ObjectRole::Original);
    service.block_on(service.store.blobs.delete(&original)).unwrap();
    let on_photo = json!({ "albumId": album, "photoId": failed });
    let missing = partner.call("/photos/photo/success", &on_photo).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(missing["data"], json!({ "code": "UPLOAD_MISSING" }));
    assert_eq!(photo_state(&partner, &album, &json!(failed)), json!("failed"));
}

/// Presigned URLs of cloud storage cannot limit the size, so the bytes are written to the store directly.
#[test]
fn an_oversized_upload_is_refused_at_confirmation_and_removed() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let (url, photo) = request_ticket(&partner, &album);
    let original = ObjectKey::photo(
        service.block_on(partner.organization_id(&service)),
        album_id,
        photo.as_str().unwrap().parse().unwrap(),
        ObjectRole::Original,
    );
    let one = json!({ "albumId": album, "photoId": photo });
    let many = json!({ "albumId": album, "photoIds": [photo] });
    let upload = |size: u64| {
        let bytes = Bytes::from(vec![7; usize::try_from(size).unwrap()]);
        service.block_on(service.store.blobs.write(&original, "image/jpeg", bytes)).unwrap();
    };
    let is_there = || service.block_on(service.store.blobs.head(&original)).unwrap().is_some();

    upload(MAX_PHOTO_BYTES + 1);
    let refused = partner.call("/photos/photo/success", &one).defined_error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(refused["data"], json!({ "code": "PHOTO_TOO_LARGE" }));
    assert!(!is_there());
    upload(MAX_PHOTO_BYTES + 1);
    let result = partner.call("/photos/photo/success/batch", &many).ok()["results"][0].clone();
    assert_eq!((&result["success"], &result["error"]["status"]), (&json!(false), &json!(413)));
    assert!(!is_there());
    assert_eq!(photo_state(&partner, &album, &photo), json!("awaiting_upload"));
    partner.call("/photos/photo/success", &one).defined_error(412, "PRECONDITION_FAILED");

    let largest = vec![7; usize::try_from(MAX_PHOTO_BYTES).unwrap()];
    assert_eq!(partner.put(&url, "image/jpeg", &largest).status, 200);
    partner.call("/photos/photo/success", &one).ok();
    assert_eq!(photo_state(&partner, &album, &photo), json!("queued"));
    assert!(is_there());
}

#[test]
fn only_accepted_types_get_a_ticket() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let sign = |content_type: &str| {
        let body = json!({ "albumId": album, "filename": "a", "contentType": content_type });
        partner.call("/photos/photo/signed", &body)
    };
    for accepted in ["image/jpeg", "image/png", "image/webp", "IMAGE/JPEG"] {
        sign(accepted).ok();
    }
    let in_no_header = ["image/jpeg; a=\"é\"", "image/jpeg; ", " image/jpeg"];
    for refused in
        ["image/gif", "application/pdf", "text/html", "jpeg", "image/", ""].into_iter().chain(in_no_header)
    {
        let body = sign(refused).defined_error(415, "UNSUPPORTED_MEDIA_TYPE");
        assert_eq!(body["data"]["accepted"], json!(["image/jpeg", "image/png", "image/webp"]));
    }
    assert_eq!(partner.call("/photos/photo/list", &json!({ "albumId": album })).ok()["total"], json!(4));
}

#[test]
fn a_declared_type_binds_the_upload_as_it_was_declared() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let body = json!({ "albumId": album, "filename": "a", "contentType": "Image/JPEG; q=1" });
    let ticket = partner.call("/photos/photo/signed", &body).ok();
    let url = ticket["uploadUrl"].as_str().unwrap();
    partner.put(url, "image/jpeg", b"pixels").defined_error(403, "FORBIDDEN");
    assert_eq!(partner.put(url, "Image/JPEG; q=1", b"pixels").status, 200);
}

#[test]
fn each_entry_of_a_batch_has_its_own_ticket_or_reason() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let entry = |name: &str, kind: &str| json!({ "filename": name, "contentType": kind });
    let entries = [
        entry("a.jpg", "image/jpeg"),
        entry("b.gif", "image/gif"),
        entry("c.png", "image/png"),
        // As browsers declare files that they do not know.
        entry("d.cr3", ""),
    ];
    let body = json!({ "albumId": album, "entries": entries });
    let results = partner.call("/photos/photo/signed/batch", &body).ok()["results"].clone();
    let kinds: Vec<_> =
        results.as_array().unwrap().iter().map(|r| (r["filename"].clone(), r["success"].clone())).collect();
    let expected = [("a.jpg", true), ("b.gif", false), ("c.png", true), ("d.cr3", false)];
    assert_eq!(kinds, expected.map(|(name, done)| (json!(name), json!(done))));
    assert_eq!([&results[1]["error"]["status"], &results[3]["error"]["status"]], [&json!(415), &json!(415)]);
    assert!(results[1].get("uploadUrl").is_none() && results[0].get("error").is_none());

    assert_eq!(partner.put(results[0]["uploadUrl"].as_str().unwrap(), "image/jpeg", b"pixels").status, 200);
    let ids = json!([results[0]["photoId"], "no id", results[2]["photoId"], results[0]["photoId"]]);
    let body = json!({ "albumId": album, "photoIds": ids });
    let confirmed = partner.call("/photos/photo/success/batch", &body).ok()["results"].clone();
    let outcome = |i: usize| (confirmed[i]["success"].clone(), confirmed[i]["error"]["status"].clone());
    assert_eq!(outcome(0), (json!(true), json!(null)));
    assert_eq!(outcome(1), (json!(false), json!(404)));
    assert_eq!(outcome(2), (json!(false), json!(412)));
    assert_eq!(confirmed[2]["error"]["data"], json!({ "code": "UPLOAD_MISSING" }));
    assert_eq!(outcome(3), (json!(true), json!(null)));
    let returned: Vec<_> = confirmed.as_array().unwrap().iter().map(|r| r["photoId"].clone()).collect();
    assert_eq!(json!(returned), ids);
    assert_eq!(partner.call("/photos/photo/success/batch", &body).ok()["results"], confirmed);
}

#[test]
fn a_batch_has_limits_and_every_issue_has_its_place() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let call = |entries: Value| {
        partner.call("/photos/photo/signed/batch", &json!({ "albumId": album, "entries": entries }))
    };
    let entry = json!({ "filename": "a.jpg", "contentType": "image/jpeg" });
    assert_eq!(call(json!([])).issues(), [(r#"["entries"]"#.to_owned(), "too_small".to_owned())]);
    let too_many = json!(vec![entry.clone(); 1001]);
    assert_eq!(call(too_many).issues(), [(r#"["entries"]"#.to_owned(), "too_big".to_owned())]);
    let issues = call(json!([entry, { "filename": "" }])).issues();
    assert_eq!(
        issues,
        [
            (r#"["entries",1,"filename"]"#.to_owned(), "too_small".to_owned()),
            (r#"["entries",1,"contentType"]"#.to_owned(), "required".to_owned()),
        ]
    );
    assert_eq!(call(json!(vec![entry; 1000])).ok()["results"].as_array().unwrap().len(), 1000);
}
