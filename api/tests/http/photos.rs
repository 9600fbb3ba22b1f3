//! Listing, showing, deleting and retrying photos.

use std::time::Duration;

use photofinish_store::model::photo::{DetectedFace, FailureReason, TextIndexState, UnindexedReason};
use photofinish_store::traits::{LeaseKind, LeaseRequest};
use serde_json::{Value, json};

use crate::support::client::document;
use crate::support::{TEST_BOX, TestService, bib, face, text};

#[test]
fn a_ready_photo_lists_its_detections_and_which_can_be_searched() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let extreme_pose = DetectedFace {
        bounding_box: TEST_BOX,
        confidence: 0.5,
        unindexed: Some(UnindexedReason::ExtremePose),
        embedding: None,
    };
    let texts = vec![
        bib("1207"),
        text("99", 0.71, TextIndexState::Candidate),
        text("FINISH", 0.99, TextIndexState::Unindexed(UnindexedReason::NotABib)),
    ];
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9), extreme_pose], texts);
    let shown = partner.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo })).ok();
    assert_eq!(shown["id"], json!(photo));
    assert_eq!(shown["albumId"], album);
    assert_eq!(shown["filename"], json!("a.jpg"));
    assert_eq!(shown["state"], json!("ready"));
    assert_eq!(shown["failure"], json!(null));
    assert_eq!(shown["takenAt"], json!("2026-10-04T09:41:07Z"));
    assert_eq!((&shown["width"], &shown["height"]), (&json!(6000), &json!(4000)));
    let place = json!({ "top": 0.25, "left": 0.5, "width": 0.125, "height": 0.0625 });
    let seen_face = |confidence: f64, reason: Value| json!({ "boundingBox": place, "confidence": confidence, "indexed": reason.is_null(), "reason": reason });
    assert_eq!(shown["faces"], json!([seen_face(98.0, json!(null)), seen_face(50.0, json!("EXTREME_POSE"))]));
    let seen_text = |text: &str, confidence: f64, reason: Value| {
        let mut seen = seen_face(confidence, reason);
        seen["text"] = json!(text);
        (seen["readAs"], seen["onStartList"], seen["alternatives"]) = (json!(null), json!(null), json!([]));
        seen["wave"] = json!(null);
        seen
    };
    let texts = [
        seen_text("1207", 96.0, json!(null)),
        seen_text("99", 71.0, json!("LOW_CONFIDENCE")),
        seen_text("FINISH", 99.0, json!("NOT_A_BIB")),
    ];
    assert_eq!(shown["texts"], json!(texts));
}

#[test]
fn photos_are_listed_by_state_page_by_page() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let ready = service.ready_photo(&partner, album_id, vec![], vec![]);
    let failed = service.failed_photo(&partner, album_id);
    let queued = service.queued_photo(&partner, album_id);
    let ids = |page: &Value| {
        let photos = page["photos"].as_array().unwrap();
        photos.iter().map(|photo| photo["id"].clone()).collect::<Vec<_>>()
    };
    let list = |mut body: Value| {
        body["albumId"] = album.clone();
        partner.call("/photos/photo/list", &body).ok()
    };
    let all = list(json!({}));
    assert_eq!(ids(&all), [json!(ready), json!(failed), json!(queued)]);
    assert!(all["photos"][0]["url"].is_string() && all["photos"][1]["url"].is_null());

    let failures = list(json!({ "state": "failed" }));
    assert_eq!((ids(&failures), &failures["total"]), (vec![json!(failed)], &json!(1)));
    assert_eq!(failures["photos"][0]["failure"], json!("CORRUPT_IMAGE"));

    let first = list(json!({ "limit": 2 }));
    assert_eq!((ids(&first).len(), &first["total"]), (2, &json!(3)));
    let second = list(json!({ "limit": 2, "cursor": first["nextCursor"] }));
    assert_eq!((ids(&second), &second["nextCursor"]), (vec![json!(queued)], &json!(null)));

    let body = json!({ "albumId": album, "state": "lost" });
    assert_eq!(partner.call("/photos/photo/list", &body).issues().len(), 1);
    // PostgreSQL has no such text.
    let body = json!({ "albumId": album, "camera": "NIKON\0Z 9" });
    let issue = (r#"["camera"]"#.to_owned(), "invalid_format".to_owned());
    assert_eq!(partner.call("/photos/photo/list", &body).issues(), [issue]);
}

#[test]
fn a_deleted_photo_is_gone_from_database_searches_and_storage() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let on_photo = json!({ "albumId": album, "photoId": photo });
    let image = partner.upload_selfie(&album, b"face");
    let shown = partner.call("/photos/photo/get", &on_photo).ok();
    let by_face =
        || partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image })).ok();
    let by_bib =
        || partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1207" })).ok();
    assert_eq!((&by_face()["total"], &by_bib()["total"]), (&json!(1), &json!(1)));

    assert_eq!(partner.call("/photos/photo/delete", &on_photo).ok()["success"], json!(true));
    partner.call("/photos/photo/get", &on_photo).defined_error(404, "NOT_FOUND");
    partner.call("/photos/photo/delete", &on_photo).defined_error(404, "NOT_FOUND");
    assert_eq!((&by_face()["total"], &by_bib()["total"]), (&json!(0), &json!(0)));
    for name in ["url", "thumbnailUrl"] {
        assert_eq!(partner.send(&format!("GET {}", shown[name].as_str().unwrap()), &[], "").status, 404);
    }
}

#[test]
fn only_a_failed_photo_can_be_retried() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let failed = json!({ "albumId": album, "photoId": service.failed_photo(&partner, album_id) });
    assert_eq!(partner.call("/photos/photo/retry", &failed).ok()["success"], json!(true));
    assert_eq!(partner.call("/photos/photo/get", &failed).ok()["state"], json!("queued"));
    let body = partner.call("/photos/photo/retry", &failed).defined_error(409, "CONFLICT");
    assert_eq!(body["data"], json!({ "code": "PHOTO_HAS_NOT_FAILED" }));
}

#[test]
fn a_ready_photo_that_fails_when_it_is_processed_again_has_no_pictures_until_it_is_ready_again() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![bib("1207")]);
    let on_photo = json!({ "albumId": album, "photoId": photo });
    let shown = || partner.call("/photos/photo/get", &on_photo).ok();
    partner.call("/albums/reprocess", &json!({ "albumId": album })).ok();
    let request = LeaseRequest { limit: 1, ttl: Duration::from_secs(60), kind: LeaseKind::Fresh };
    let lease = service.block_on(service.store.queue.lease(request)).unwrap().remove(0);
    service.block_on(service.store.queue.fail(&lease, FailureReason::CorruptImage, "ends early")).unwrap();
    let failed = shown();
    assert_eq!((&failed["state"], &failed["url"]), (&json!("failed"), &json!(null)));
    assert_eq!((&failed["width"], &failed["height"]), (&json!(null), &json!(null)));
    assert_eq!((&failed["faces"], &failed["texts"]), (&json!([]), &json!([])));
    partner.call("/photos/photo/retry", &on_photo).ok();
    let queued = shown();
    assert_eq!((&queued["url"], &queued["thumbnailUrl"]), (&json!(null), &json!(null)), "they may be gone");
    let documented = &document()["components"]["schemas"]["Photo"]["properties"];
    for (name, words) in [
        ("url", "until the photo was ready once, and from a failure until it is ready again"),
        ("width", "until the photo was ready once, and from a failure until it is ready again"),
        ("height", "until the photo was ready once, and from a failure until it is ready again"),
    ] {
        let description = documented[name]["description"].as_str().unwrap();
        assert!(description.contains(words), "{name}: {description}");
    }
}
