//! Face and bib searches.

use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{BoundingBox, DetectedFace, DetectedText, TextIndexState};
use serde_json::{Value, json};

use crate::support::{CALIBRATION, Partner, TestService, bib, face, text, unknown_id};

pub(crate) fn search_face(partner: &Partner, album: &Value, image: &Value) -> crate::support::ApiResponse {
    partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image }))
}

fn search_text(partner: &Partner, album: &Value, mut more: Value) -> Value {
    more["albumId"] = album.clone();
    partner.call("/photos/search/text/list", &more).ok()
}

pub(crate) fn hit_ids(hits: &Value) -> Vec<PhotoId> {
    hits["photos"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_str().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn faces_are_found_best_first_down_to_the_threshold() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = |faces| service.ready_photo(&partner, album_id, faces, vec![]);
    let sure = photo(vec![face(0.2), face(0.95)]);
    photo(vec![face(0.3)]);
    let likely = photo(vec![face(0.7)]);
    photo(vec![]);
    let image = partner.upload_selfie(&album, b"face");
    let hits = search_face(&partner, &album, &image).ok();
    assert_eq!(hit_ids(&hits), [sure, likely]);
    assert_eq!((&hits["total"], &hits["nextCursor"]), (&json!(2), &json!(null)));
    let best = &hits["photos"][0];
    // The sure photos become a part of the query: they are a little more similar to it than to the selfie.
    let confidence = best["confidence"].as_f64().unwrap();
    assert!((CALIBRATION.confidence(0.95)..CALIBRATION.confidence(0.98)).contains(&confidence), "{best}");
    assert_eq!(best["boundingBox"], json!({ "top": 0.25, "left": 0.5, "width": 0.125, "height": 0.0625 }));
    assert_eq!(best["why"], json!("face match"));
    assert_eq!(best["takenAt"], json!("2026-10-04T09:41:07Z"));
    for name in ["url", "thumbnailUrl"] {
        let picture = partner.send(&format!("GET {}", best[name].as_str().unwrap()), &[], "");
        assert_eq!((picture.status, picture.header("content-type")), (200, "image/jpeg"));
    }
}

#[test]
fn the_threshold_excludes_faces_that_min_confidence_includes() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    for cosine in [0.4, 0.55, 0.7, 0.9] {
        service.ready_photo(&partner, album_id, vec![face(cosine)], vec![]);
    }
    let image = partner.upload_selfie(&album, b"face");
    let total = |more: Value| {
        let mut body = json!({ "albumId": album, "imageId": image });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        partner.call("/photos/search/face/list", &body).ok()["total"].clone()
    };
    assert_eq!(total(json!({})), json!(3));
    assert_eq!(total(json!({ "minConfidence": 80 })), json!(2));
    // In place of the album's threshold, which is higher.
    assert_eq!(total(json!({ "minConfidence": 10 })), json!(4));
    assert_eq!(total(json!({ "minConfidence": 0 })), json!(4));
    let threshold = |value: u32| {
        let config = json!({ "face": { "confidenceThreshold": value } });
        partner.call("/albums/update", &json!({ "albumId": album, "config": config })).ok();
    };
    threshold(97);
    assert_eq!(total(json!({})), json!(1));
    assert_eq!(total(json!({ "minConfidence": 80 })), json!(2));
    threshold(0);
    assert_eq!(total(json!({})), json!(4));
    threshold(100);
    assert_eq!(total(json!({})), json!(0));
}

/// A face with this cosine to the selfie, and the bib on the chest below it.
fn runner(cosine: f32, number: &str) -> (Vec<DetectedFace>, Vec<DetectedText>) {
    let at = |top| BoundingBox { top, left: 0.4, width: 0.1, height: 0.1 };
    let face = DetectedFace { bounding_box: at(0.1), ..face(cosine) };
    (vec![face], vec![DetectedText { bounding_box: at(0.3), ..bib(number) }])
}

#[test]
fn the_bib_of_sure_photos_finds_weak_ones_and_excludes_strangers() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = |(faces, texts)| service.ready_photo(&partner, album_id, faces, texts);
    let sure = photo(runner(0.9, "0120"));
    let weak = photo(runner(0.35, "120"));
    let stranger = photo(runner(0.55, "4077"));
    // Its bib is not read: nothing is known against it.
    let likely = photo((vec![face(0.56)], vec![]));
    let image = partner.upload_selfie(&album, b"face");
    let hits = search_face(&partner, &album, &image).ok();
    let found: Vec<(PhotoId, &str)> = std::iter::zip(hit_ids(&hits), hits["photos"].as_array().unwrap())
        .map(|(id, hit)| (id, hit["why"].as_str().unwrap()))
        .collect();
    let by_bib = "same bib as your sure photos";
    assert_eq!(found, [(sure, "face match"), (likely, "face match"), (weak, by_bib)]);
    let body = json!({ "albumId": album, "imageId": image, "minConfidence": 10 });
    let weaker = partner.call("/photos/search/face/list", &body).ok();
    assert_eq!(hit_ids(&weaker), [sure, likely, weak, stranger]);
}

#[test]
fn a_threshold_exactly_at_a_hit_keeps_it() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    for step in 0..20_u8 {
        service.ready_photo(&partner, album_id, vec![face(0.45 + f32::from(step) * 0.013)], vec![]);
    }
    let image = partner.upload_selfie(&album, b"face");
    let all = search_face(&partner, &album, &image).ok();
    for (place, hit) in all["photos"].as_array().unwrap().iter().enumerate() {
        // The response is rounded to two decimals, so the hit itself may be slightly below.
        let body = json!({ "albumId": album, "imageId": image, "minConfidence": hit["confidence"] });
        let found = partner.call("/photos/search/face/list", &body).ok();
        assert!(found["total"].as_u64().unwrap() > place as u64, "{hit}");
    }
    let read = text("1207", 0.876_58, TextIndexState::Indexed);
    service.ready_photo(&partner, album_id, vec![], vec![read]);
    let shown = search_text(&partner, &album, json!({ "text": "1207" }))["photos"][0]["confidence"].clone();
    assert_eq!(shown, json!(87.66), "more than it is");
    for (least, total) in [(shown, 1), (json!(87.67), 0)] {
        let found = search_text(&partner, &album, json!({ "text": "1207", "minConfidence": least }));
        assert_eq!(found["total"], json!(total), "{least}");
    }
}

#[test]
fn searches_can_be_switched_off() {
    let service = TestService::start();
    let partner = service.partner();
    let off = json!({ "face": { "enabled": false }, "text": { "enabled": false } });
    let (album, _) = partner.create_album();
    let image = partner.upload_selfie(&album, b"face");
    partner.call("/albums/update", &json!({ "albumId": album, "config": off })).ok();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album }));
    let body = ticket.defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(body["data"], json!({ "declineCode": "FACE_SEARCH_DISABLED" }));
    let body = search_face(&partner, &album, &image).defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(body["data"], json!({ "declineCode": "FACE_SEARCH_DISABLED" }));
    let body = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1" }));
    let body = body.defined_error(422, "UNPROCESSABLE_CONTENT");
    assert_eq!(body["data"], json!({ "declineCode": "TEXT_SEARCH_DISABLED" }));
}

#[test]
fn bibs_are_found_as_typed_and_then_as_misread() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = |seen| service.ready_photo(&partner, album_id, vec![], vec![seen]);
    let misread = photo(bib("12O7"));
    let exact = photo(bib("1207"));
    let unsure = photo(text("1207", 0.6, TextIndexState::Candidate));
    photo(bib("12075"));
    photo(bib("888"));
    let hits = search_text(&partner, &album, json!({ "text": " 12-07 " }));
    assert_eq!(hit_ids(&hits)[0], exact);
    assert!(hit_ids(&hits).contains(&misread) && hit_ids(&hits).contains(&unsure));
    let best = &hits["photos"][0];
    assert_eq!((&best["matchedText"], &best["why"]), (&json!("1207"), &json!("read here")));
    assert_eq!(best["boundingBox"], json!({ "top": 0.25, "left": 0.5, "width": 0.125, "height": 0.0625 }));
    assert!(best["url"].is_string() && best["thumbnailUrl"].is_string() && best["takenAt"].is_string());
    let confidences: Vec<f64> =
        hits["photos"].as_array().unwrap().iter().map(|hit| hit["confidence"].as_f64().unwrap()).collect();
    assert!(confidences.is_sorted_by(|a, b| a >= b), "{confidences:?}");

    let exactly = search_text(&partner, &album, json!({ "text": "1207", "exact": true }));
    assert_eq!(hit_ids(&exactly), [exact]);
    let sure = search_text(&partner, &album, json!({ "text": "1207", "minConfidence": 80 }));
    assert_eq!(hit_ids(&sure), [exact]);
    assert_eq!(search_text(&partner, &album, json!({ "text": "4444" }))["total"], json!(0));
}

#[test]
fn unusual_search_texts_do_not_fail() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.ready_photo(&partner, album_id, vec![], vec![bib("1207")]);
    for odd in ["äöü", "１２０７", "'; drop table photos", "_207", "٣"] {
        let hits = search_text(&partner, &album, json!({ "text": odd }));
        assert!(hits["photos"].is_array(), "{odd}");
    }
    let long = json!({ "albumId": album, "text": "1".repeat(101) });
    assert_eq!(partner.call("/photos/search/text/list", &long).issues().len(), 1);
    let empty = json!({ "albumId": album, "text": "" });
    assert_eq!(partner.call("/photos/search/text/list", &empty).issues().len(), 1);
}

#[test]
fn concatenated_pages_of_hits_equal_all_hits() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    for step in 0..7_u8 {
        // Pairs have equal confidence; the order must be total nevertheless.
        let cosine = 0.6 + f32::from(step / 2) * 0.1;
        service.ready_photo(&partner, album_id, vec![face(cosine)], vec![bib("1207")]);
    }
    let image = partner.upload_selfie(&album, b"face");
    let pages = |path: &str, body: Value| {
        let whole = hit_ids(&partner.call(path, &body).ok());
        let mut concatenated = Vec::new();
        let mut body = body;
        body["limit"] = json!(3);
        loop {
            let page = partner.call(path, &body).ok();
            assert_eq!(page["total"], json!(7));
            concatenated.extend(hit_ids(&page));
            if page["nextCursor"].is_null() {
                break;
            }
            body["cursor"] = page["nextCursor"].clone();
        }
        assert_eq!((concatenated.len(), concatenated), (7, whole));
    };
    pages("/photos/search/face/list", json!({ "albumId": album, "imageId": image }));
    pages("/photos/search/text/list", json!({ "albumId": album, "text": "1207" }));
}

#[test]
fn a_number_never_matches_a_longer_one_exactly() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = |number| service.ready_photo(&partner, album_id, vec![], vec![bib(number)]);
    let exact = photo("777");
    photo("7770");
    photo("17777");
    let search = |text: &str| hit_ids(&search_text(&partner, &album, json!({ "text": text, "exact": true })));
    assert_eq!(search("777"), [exact]);
    assert!(search("77").is_empty());
}

#[test]
fn a_searched_bib_ignores_case_spaces_and_punctuation() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![bib("AB123")]);
    for typed in ["AB123", "ab123", "  ab 123 ", "AB-123", "a.b./123#"] {
        let hits = search_text(&partner, &album, json!({ "text": typed, "exact": true }));
        assert_eq!(hit_ids(&hits), [photo], "{typed}");
    }
}

#[test]
fn a_photo_is_one_hit_and_never_a_hit_of_another_album() {
    let service = TestService::start();
    let partner = service.partner();
    let (first, first_id) = partner.create_album();
    let (second, second_id) = partner.create_album();
    let twice = |album_id| {
        let (faces, texts) = (vec![face(0.9), face(0.8)], vec![bib("314"), bib("314")]);
        service.ready_photo(&partner, album_id, faces, texts)
    };
    let (in_first, in_second) = (twice(first_id), twice(second_id));
    for (album, photo) in [(&first, in_first), (&second, in_second)] {
        assert_eq!(hit_ids(&search_text(&partner, album, json!({ "text": "314" }))), [photo]);
        let image = partner.upload_selfie(album, b"face");
        assert_eq!(hit_ids(&search_face(&partner, album, &image).ok()), [photo]);
    }
}

#[test]
fn limits_and_cursors_of_searches_are_validated() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let searches = [
        ("/photos/search/face/list", json!({ "albumId": album, "imageId": unknown_id() })),
        ("/photos/search/text/list", json!({ "albumId": album, "text": "1207" })),
    ];
    for (path, body) in searches {
        for (field, value) in [
            ("limit", json!(0)),
            ("limit", json!(1001)),
            ("minConfidence", json!(101)),
            ("cursor", json!("x")),
        ] {
            let mut body = body.clone();
            body[field] = value;
            let issues = partner.call(path, &body).issues();
            assert_eq!(issues.len(), 1, "{issues:?}");
            assert_eq!(issues[0].0, json!([field]).to_string());
        }
    }
}
