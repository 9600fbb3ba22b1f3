//! Face and bib searches.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::TextIndexState;
use serde_json::{Value, json};

use crate::support::raw::RawConnection;
use crate::support::{
    CALIBRATION, DEADLINE, MAX_PROBE_BYTES, Partner, TestService, bib, face, text, unknown_id,
};

fn search_face(partner: &Partner, album: &Value, image: &Value) -> crate::support::ApiResponse {
    partner.call("/photos/search/face/list", &json!({ "albumId": album, "imageId": image }))
}

/// Returns the size of a selfie in the storage.
async fn selfie_bytes(
    service: &TestService,
    partner: &Partner,
    album: AlbumId,
    image: &Value,
) -> Option<u64> {
    let organization = partner.organization_id(service).await;
    let key = ObjectKey::probe(organization, album, image.as_str().unwrap().parse().unwrap());
    service.store.blobs.head(&key).await.unwrap()
}

fn search_text(partner: &Partner, album: &Value, mut more: Value) -> Value {
    more["albumId"] = album.clone();
    partner.call("/photos/search/text/list", &more).ok()
}

fn hit_ids(hits: &Value) -> Vec<PhotoId> {
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
    let expected = (CALIBRATION.confidence(0.95) * 100.0).round() / 100.0;
    assert!((best["confidence"].as_f64().unwrap() - expected).abs() < 0.02, "{best}");
    assert_eq!(best["boundingBox"], json!({ "top": 0.25, "left": 0.5, "width": 0.125, "height": 0.0625 }));
    assert_eq!(best["why"], json!("face match"));
    assert_eq!(best["takenAt"], json!("2026-10-04T09:41:07Z"));
    for name in ["url", "thumbnailUrl"] {
        let picture = partner.send(&format!("GET {}", best[name].as_str().unwrap()), &[], "");
        assert_eq!((picture.status, picture.header("content-type")), (200, "image/jpeg"));
    }
}

#[test]
fn a_selfies_bytes_go_as_soon_as_its_vector_is_made() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![face(0.9)], vec![]);
    let image = partner.upload_selfie(&album, b"face");
    let bytes = || service.block_on(selfie_bytes(&service, &partner, album_id, &image));
    assert_eq!(bytes(), Some(4));
    for _ in 0..3 {
        assert_eq!(hit_ids(&search_face(&partner, &album, &image).ok()), [photo]);
        assert_eq!(bytes(), None);
    }
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn a_selfie_that_cannot_be_searched_says_why_and_is_examined_once() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let missing = search_face(&partner, &album, &ticket["imageId"]).defined_error(412, "PRECONDITION_FAILED");
    assert_eq!(missing["data"], json!({ "code": "UPLOAD_MISSING" }));
    for unknown in [unknown_id(), json!("no id"), json!("")] {
        search_face(&partner, &album, &unknown).defined_error(404, "NOT_FOUND");
    }
    for (selfie, code) in [(b"landscape".as_slice(), "NO_FACE"), (b"noise", "UNREADABLE_IMAGE")] {
        let image = partner.upload_selfie(&album, selfie);
        let before = service.embedder.calls.load(Ordering::SeqCst);
        for _ in 0..3 {
            let declined = search_face(&partner, &album, &image).defined_error(422, "UNPROCESSABLE_CONTENT");
            assert_eq!(declined["data"], json!({ "declineCode": code }));
        }
        assert_eq!(service.embedder.calls.load(Ordering::SeqCst), before + 1, "{code} is not remembered");
        assert_eq!(service.block_on(selfie_bytes(&service, &partner, album_id, &image)), None, "kept");
    }
    let body = search_face(&partner, &album, &partner.upload_selfie(&album, b"other model"));
    body.undefined_error(500, "INTERNAL_SERVER_ERROR");
}

#[test]
fn a_selfie_larger_than_the_limit_is_refused_even_if_storage_took_it() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let image = partner.upload_selfie(&album, b"face");
    let organization = service.block_on(partner.organization_id(&service));
    let key = ObjectKey::probe(organization, album_id, image.as_str().unwrap().parse().unwrap());
    let giant = vec![0; usize::try_from(MAX_PROBE_BYTES).unwrap() + 1];
    service.block_on(service.store.blobs.write(&key, "image/png", giant.into())).unwrap();
    for _ in 0..2 {
        let body = search_face(&partner, &album, &image).defined_error(413, "PAYLOAD_TOO_LARGE");
        assert_eq!(body["data"], json!({ "code": "SELFIE_TOO_LARGE" }));
        assert_eq!(service.block_on(selfie_bytes(&service, &partner, album_id, &image)), None);
    }
}

#[test]
fn an_organization_without_a_place_gets_429_and_others_do_not() {
    let service = TestService::start();
    let [greedy, modest] = ["Greedy Timing", "Lake Timing"]
        .map(|organization| service.partner_with(organization, KeyMode::Live, &Scope::ALL));
    let busy = service.block_on(greedy.organization_id(&service));
    service.embedder.busy.lock().unwrap().insert(busy);
    let (album, _) = greedy.create_album();
    let image = greedy.upload_selfie(&album, b"face");
    let refused = search_face(&greedy, &album, &image);
    assert_eq!(refused.header("retry-after"), "2");
    assert_eq!(refused.defined_error(429, "TOO_MANY_REQUESTS")["data"], json!({ "tryAgainIn": 1.5 }));
    let (others_album, _) = modest.create_album();
    let others_image = modest.upload_selfie(&others_album, b"face");
    search_face(&modest, &others_album, &others_image).ok();
    // A refusal for lack of a place is not remembered.
    service.embedder.busy.lock().unwrap().clear();
    search_face(&greedy, &album, &image).ok();
}

#[test]
fn an_unavailable_probe_service_returns_503() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let image = partner.upload_selfie(&album, b"down");
    for _ in 0..2 {
        let down = search_face(&partner, &album, &image);
        assert!(!down.header("retry-after").is_empty());
        down.defined_error(503, "SERVICE_UNAVAILABLE");
    }
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 2, "an outage is not remembered");
}

#[test]
fn a_selfie_is_examined_to_its_end_when_its_search_goes_away() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let image = partner.upload_selfie(&album, b"slow");
    let id = image.as_str().unwrap().parse().unwrap();
    let body = json!({ "albumId": album, "imageId": image }).to_string();
    let mut connection = RawConnection::connect(&service);
    connection.write(&format!(
        "POST /openapi/photos/search/face/list HTTP/1.1\r\nhost: test\r\nx-api-key: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        partner.key.as_ref().unwrap(),
        body.len()
    ));
    let started = Instant::now();
    while service.embedder.calls.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < DEADLINE, "the selfie is never examined");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(connection);
    // The service notices the end of the connection before it responds to later ones.
    for _ in 0..20 {
        partner.call("/albums/list", &json!({})).ok();
    }
    service.embedder.permits.add_permits(1);
    while service.block_on(service.store.probes.get(album_id, id)).unwrap().outcome.is_none() {
        assert!(started.elapsed() < DEADLINE, "what was found is not stored");
        std::thread::sleep(Duration::from_millis(1));
    }
    search_face(&partner, &album, &image).ok();
    assert_eq!(service.embedder.calls.load(Ordering::SeqCst), 1);
}

#[test]
fn an_expired_selfie_is_unknown() {
    let service = TestService::start_with(|settings| settings.probe_ttl = Duration::from_millis(1));
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let ticket = partner.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
    let started = Instant::now();
    while search_face(&partner, &album, &ticket["imageId"]).status != 404 {
        assert!(started.elapsed() < DEADLINE, "the selfie never expired");
    }
}

#[test]
fn thresholds_and_min_confidence_exclude_faces() {
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
    assert_eq!(total(json!({ "minConfidence": 10 })), json!(3));
    let threshold = |value: u32| {
        let config = json!({ "face": { "confidenceThreshold": value } });
        partner.call("/albums/update", &json!({ "albumId": album, "config": config })).ok();
    };
    threshold(95);
    assert_eq!(total(json!({})), json!(1));
    threshold(0);
    assert_eq!(total(json!({})), json!(4));
    threshold(100);
    assert_eq!(total(json!({})), json!(0));
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
        let least = hit["confidence"].as_f64().unwrap() - 0.006;
        let body = json!({ "albumId": album, "imageId": image, "minConfidence": least });
        let found = partner.call("/photos/search/face/list", &body).ok();
        assert!(found["total"].as_u64().unwrap() > place as u64, "{hit}");
    }
}

#[test]
fn searches_can_be_switched_off() {
    let service = TestService::start();
    let partner = service.partner();
    let off = json!({ "face": { "enabled": false }, "text": { "enabled": false } });
    let (album, _) = partner.create_album_with(json!({ "title": "T", "config": off }));
    let image = partner.upload_selfie(&album, b"face");
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
    for odd in ["---", " ", "äöü", "１２０７", "😀", "'; drop table photos", "%", "_207"] {
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
