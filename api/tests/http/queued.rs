//! A pipeline in the same process is woken when photos are queued, so that they do not wait for its next poll.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{Partner, TestService, unknown_id};

/// Uploads a photo without confirming it; returns its id.
fn upload_photo(partner: &Partner, album: &Value) -> Value {
    let body = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    let ticket = partner.call("/photos/photo/signed", &body).ok();
    assert_eq!(partner.put(ticket["uploadUrl"].as_str().unwrap(), "image/jpeg", b"pixels").status, 200);
    ticket["photoId"].clone()
}

#[test]
fn the_pipeline_is_woken_exactly_when_photos_are_queued() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let wakeups = || service.wakeups.swap(0, Ordering::SeqCst);
    let on_photo = |photo: &Value| json!({ "albumId": album, "photoId": photo });

    let mut observed = Vec::new();
    let photo = upload_photo(&partner, &album);
    observed.push(("an upload", wakeups()));
    for action in ["a confirmation", "a repeated confirmation"] {
        partner.call("/photos/photo/success", &on_photo(&photo)).ok();
        observed.push((action, wakeups()));
    }

    let (first, second) = (upload_photo(&partner, &album), upload_photo(&partner, &album));
    let confirm = |photos: Value| {
        partner.call("/photos/photo/success/batch", &json!({ "albumId": album, "photoIds": photos })).ok();
        wakeups()
    };
    observed.push(("a batch", confirm(json!([first, second, unknown_id()]))));
    observed.push(("a batch without new photos", confirm(json!([first, unknown_id()]))));

    let failed = json!(service.failed_photo(&partner, album_id));
    for action in ["a retry", "a retry of a queued photo"] {
        partner.call("/photos/photo/retry", &on_photo(&failed));
        observed.push((action, wakeups()));
    }

    let failed = json!(service.failed_photo(&partner, album_id));
    for action in ["a confirmation of a failed photo", "its repetition"] {
        partner.call("/photos/photo/success", &on_photo(&failed)).ok();
        observed.push((action, wakeups()));
    }

    service.ready_photo(&partner, album_id, vec![], vec![]);
    partner.call("/albums/reprocess", &json!({ "albumId": album })).ok();
    observed.push(("a reprocessed album", wakeups()));
    let expected = [
        ("an upload", 0),
        ("a confirmation", 1),
        ("a repeated confirmation", 0),
        ("a batch", 1),
        ("a batch without new photos", 0),
        ("a retry", 1),
        ("a retry of a queued photo", 0),
        ("a confirmation of a failed photo", 1),
        ("its repetition", 0),
        ("a reprocessed album", 1),
    ];
    assert_eq!(observed, expected);
}
