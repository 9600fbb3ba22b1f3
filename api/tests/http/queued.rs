//! A pipeline in the same process is told of photos that were queued, so that none waits for its next look.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::support::{Partner, TestService, unknown_id};

/// A photo whose bytes are there, not yet confirmed.
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
    let (album, typed) = partner.create_album();
    let rings = || service.wakeups.swap(0, Ordering::SeqCst);
    let on_photo = |photo: &Value| json!({ "albumId": album, "photoId": photo });

    let mut told = Vec::new();
    let photo = upload_photo(&partner, &album);
    told.push(("an upload", rings()));
    for what in ["a confirmation", "the same again"] {
        partner.call("/photos/photo/success", &on_photo(&photo)).ok();
        told.push((what, rings()));
    }

    let (first, second) = (upload_photo(&partner, &album), upload_photo(&partner, &album));
    let confirm = |photos: Value| {
        partner.call("/photos/photo/success/batch", &json!({ "albumId": album, "photoIds": photos })).ok();
        rings()
    };
    told.push(("a batch", confirm(json!([first, second, unknown_id()]))));
    told.push(("nothing new in a batch", confirm(json!([first, unknown_id()]))));

    let failed = json!(service.failed_photo(&partner, typed));
    for what in ["a retry", "a retry of what waits"] {
        partner.call("/photos/photo/retry", &on_photo(&failed));
        told.push((what, rings()));
    }

    service.ready_photo((&partner, typed), vec![], vec![]);
    partner.call("/albums/reprocess", &json!({ "albumId": album })).ok();
    told.push(("an album read anew", rings()));
    let expected = [
        ("an upload", 0),
        ("a confirmation", 1),
        ("the same again", 0),
        ("a batch", 1),
        ("nothing new in a batch", 0),
        ("a retry", 1),
        ("a retry of what waits", 0),
        ("an album read anew", 1),
    ];
    assert_eq!(told, expected);
}
