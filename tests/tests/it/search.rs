//! Search as a runner meets it: what is found, in which order, how sure.

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Partner, ServiceOptions, SharedService, SharedServiceRef};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

/// An album with one photo per bib, named after it.
fn album_of_bibs(partner: &Partner<'_>, bibs: &[&str]) -> String {
    let album = partner.create_album("Bibs");
    for bib in bibs {
        partner.upload_photo(&album, bib, &TestPhoto::new(600, 400).with_bib(bib, [150, 150]).to_jpeg());
    }
    assert_eq!(partner.wait_until_idle(&album)["ready"], bibs.len());
    album
}

fn matched(hits: &[Value]) -> Vec<&str> {
    hits.iter().filter_map(|hit| hit["matchedText"].as_str()).collect()
}

#[track_caller]
fn check_order(hits: &[Value]) {
    let confidences: Vec<f64> = hits.iter().filter_map(|hit| hit["confidence"].as_f64()).collect();
    assert_eq!(confidences.len(), hits.len());
    assert!(confidences.iter().all(|confidence| (0.0..=100.0).contains(confidence)), "{confidences:?}");
    assert!(confidences.is_sorted_by(|a, b| a >= b), "best first: {confidences:?}");
}

#[test]
fn exact_hits_come_first_and_fuzzy_ones_with_less_confidence() {
    let service = service();
    let partner = service.partner();
    let album = album_of_bibs(&partner, &["1580", "I580", "1500", "158", "580", "15801", "9999"]);
    let hits = partner.search_by_bib(&album, "1580");
    check_order(&hits);
    assert_eq!(matched(&hits)[0], "1580");
    let fuzzy = &matched(&hits)[1..];
    for bib in ["I580", "158", "580"] {
        assert!(fuzzy.contains(&bib), "{bib} is not among {fuzzy:?}");
    }
    assert!(!fuzzy.contains(&"9999"), "{fuzzy:?}");
    let confidence = |bib: &str| {
        let hit = hits.iter().find(|hit| hit["matchedText"] == bib);
        hit.and_then(|hit| hit["confidence"].as_f64())
            .unwrap_or_else(|| panic!("{bib} is not among the hits"))
    };
    for bib in fuzzy {
        assert!(confidence(bib) < confidence("1580"), "{bib}");
    }
    assert_eq!(matched(&partner.search_by_bib_exact(&album, "1580")), ["1580"]);
}

#[test]
fn a_number_never_matches_a_longer_one_exactly() {
    let service = service();
    let partner = service.partner();
    let album = album_of_bibs(&partner, &["777", "7770", "17777"]);
    assert_eq!(matched(&partner.search_by_bib_exact(&album, "777")), ["777"]);
    assert_eq!(matched(&partner.search_by_bib_exact(&album, "77")), Vec::<&str>::new());
}

#[test]
fn a_searched_bib_is_trimmed_and_stripped_of_spaces_and_punctuation() {
    let service = service();
    let partner = service.partner();
    let album = album_of_bibs(&partner, &["AB123"]);
    for typed in ["AB123", "ab123", "  ab 123 ", "AB-123", "a.b./123#"] {
        assert_eq!(matched(&partner.search_by_bib_exact(&album, typed)), ["AB123"], "{typed}");
    }
    for nothing in ["   ", "--", "🏃"] {
        assert_eq!(partner.search_by_bib(&album, nothing), Vec::<Value>::new(), "{nothing}");
    }
    let empty = partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "" }));
    assert_eq!(empty.expect_issues(), ["text"]);
}

#[test]
fn a_photo_is_one_hit_however_often_the_bib_is_in_it() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Twins");
    let twins = TestPhoto::new(1200, 800)
        .with_bib("314", [100, 100])
        .with_bib("314", [700, 500])
        .with_face(4, [100, 300, 110])
        .with_face(4, [700, 150, 110]);
    let photo = partner.upload_photo(&album, "twins.jpg", &twins.to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.get_photo(&album, &photo)["texts"].as_array().map(Vec::len), Some(2));
    assert_eq!(partner.search_by_bib(&album, "314").len(), 1);
    assert_eq!(partner.search_by_selfie(&album, &TestPhoto::selfie(4).to_jpeg()).len(), 1);
}

#[test]
fn faces_are_found_best_first_within_limit_and_cursor() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Pages");
    for number in 0..7 {
        let picture = TestPhoto::new(600, 400)
            .with_face(5, [100 + number * 20, 100, 110])
            .with_face(6, [400, 200, 100]);
        partner.upload_photo(&album, &format!("{number}.jpg"), &picture.to_jpeg());
    }
    partner.upload_photo(
        &album,
        "stranger.jpg",
        &TestPhoto::new(600, 400).with_face(7, [200, 100, 110]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(5).to_jpeg());
    let whole = partner.search_by_image(&album, &image).expect_ok();
    let hits = whole["photos"].as_array().expect("hits");
    assert_eq!((hits.len(), &whole["total"]), (7, &json!(7)), "{whole}");
    check_order(hits);

    let mut paged = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut input = json!({ "albumId": album, "imageId": image, "limit": 3 });
        if !cursor.is_null() {
            input["cursor"] = cursor;
        }
        let page = partner.call_ok("/photos/search/face/list", &input);
        assert_eq!(page["total"], 7);
        paged.extend(page["photos"].as_array().expect("hits").iter().map(|hit| hit["id"].clone()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(paged, hits.iter().map(|hit| hit["id"].clone()).collect::<Vec<_>>());
    for (field, value) in
        [("limit", json!(0)), ("limit", json!(1001)), ("minConfidence", json!(101)), ("cursor", json!("x"))]
    {
        let mut input = json!({ "albumId": album, "imageId": image });
        input[field] = value;
        assert_eq!(partner.call("/photos/search/face/list", &input).expect_issues(), [field]);
    }
}

#[test]
fn min_confidence_filters_hits() {
    let service = service();
    let partner = service.partner();
    // At threshold 0 every face is a hit.
    let face = json!({ "confidenceThreshold": 0 });
    let faces = partner.create_album_with(&json!({ "title": "Sure", "config": { "face": face } }));
    for (name, person) in [("mine.jpg", 14), ("theirs.jpg", 15)] {
        partner.upload_photo(
            &faces,
            name,
            &TestPhoto::new(600, 400).with_face(person, [200, 100, 110]).to_jpeg(),
        );
    }
    partner.wait_until_idle(&faces);
    let image = partner.upload_selfie(&faces, &TestPhoto::selfie(14).to_jpeg());
    let by_face = json!({ "albumId": faces, "imageId": image });
    let by_text = json!({ "albumId": album_of_bibs(&partner, &["2580", "258"]), "text": "2580" });
    for (path, mut input) in [("/photos/search/face/list", by_face), ("/photos/search/text/list", by_text)] {
        let confidences = |input: &Value| -> Vec<f64> {
            let answer = partner.call_ok(path, input);
            let hits = answer["photos"].as_array().expect("hits");
            assert_eq!(answer["total"], hits.len(), "{answer}");
            hits.iter().filter_map(|hit| hit["confidence"].as_f64()).collect()
        };
        let both = confidences(&input);
        assert!(both.len() == 2 && both[0] > both[1], "{path}: {both:?}");
        let between = f64::midpoint(both[0], both[1]);
        input["minConfidence"] = json!(between);
        assert_eq!(confidences(&input), both[..1], "{path}: of {both:?} at least {between}");
        input["minConfidence"] = json!(both[1] / 2.0);
        assert_eq!(confidences(&input), both, "{path}");
    }
}

#[test]
fn the_largest_face_of_a_selfie_is_searched() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Selfie");
    let mine = partner.upload_photo(
        &album,
        "mine.jpg",
        &TestPhoto::new(600, 400).with_face(8, [200, 100, 110]).to_jpeg(),
    );
    partner.upload_photo(
        &album,
        "theirs.jpg",
        &TestPhoto::new(600, 400).with_face(9, [200, 100, 110]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let selfie = TestPhoto::new(900, 900).with_face(9, [20, 20, 90]).with_face(8, [300, 200, 400]).to_jpeg();
    let hits = partner.search_by_selfie(&album, &selfie);
    assert_eq!(hits.len(), 1, "{hits:?}");
    assert_eq!(hits[0]["id"], mine);
}

#[test]
fn a_search_never_returns_photos_of_another_album() {
    let service = service();
    let partner = service.partner();
    let (one, two) = (partner.create_album("One"), partner.create_album("Two"));
    let picture =
        TestPhoto::new(600, 400).with_face(10, [200, 50, 110]).with_bib("2024", [200, 250]).to_jpeg();
    let in_one = partner.upload_photo(&one, "a.jpg", &picture);
    let in_two = partner.upload_photo(&two, "a.jpg", &picture);
    partner.wait_until_idle(&one);
    partner.wait_until_idle(&two);
    for (album, photo) in [(&one, &in_one), (&two, &in_two)] {
        let hits = [
            partner.search_by_bib(album, "2024"),
            partner.search_by_selfie(album, &TestPhoto::selfie(10).to_jpeg()),
        ]
        .concat();
        assert_eq!(hits.len(), 2);
        assert!(hits.iter().all(|hit| hit["id"] == **photo), "{hits:?}");
    }
}

#[test]
fn the_albums_threshold_decides_what_is_a_hit() {
    let service = service();
    let partner = service.partner();
    let strict = partner.create_album_with(
        &json!({ "title": "Strict", "config": { "face": { "confidenceThreshold": 100 } } }),
    );
    let loose = partner
        .create_album_with(&json!({ "title": "Loose", "config": { "face": { "confidenceThreshold": 0 } } }));
    let picture = TestPhoto::new(600, 400).with_face(11, [200, 100, 110]).to_jpeg();
    for album in [&strict, &loose] {
        partner.upload_photo(album, "a.jpg", &picture);
        partner.wait_until_idle(album);
    }
    let stranger = TestPhoto::selfie(12).to_jpeg();
    assert_eq!(partner.search_by_selfie(&loose, &stranger).len(), 1, "at threshold 0 every face is a hit");
    assert_eq!(partner.search_by_selfie(&strict, &stranger).len(), 0);
}

#[test]
fn a_photo_is_found_as_soon_as_it_is_ready_and_not_after_it_is_deleted() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Live");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(13).to_jpeg());
    assert_eq!(partner.search_by_image(&album, &image).expect_ok()["total"], 0);
    for count in 1..=3 {
        partner.upload_photo(
            &album,
            &format!("{count}.jpg"),
            &TestPhoto::new(600, 400).with_face(13, [200, 100, 110]).to_jpeg(),
        );
        partner.wait_until_idle(&album);
        assert_eq!(
            partner.search_by_image(&album, &image).expect_ok()["total"],
            count,
            "the index follows the rows"
        );
    }
    for photo in partner.list_photos(&album) {
        partner.call_ok("/photos/photo/delete", &json!({ "albumId": album, "photoId": photo["id"] }));
    }
    assert_eq!(partner.search_by_image(&album, &image).expect_ok()["total"], 0);
}
