//! Photos from upload to search, through the whole service with fake models.

use std::time::{Duration, Instant};

use photofinish_tests::harness::test_photo::{Exif, TestPhoto};
use photofinish_tests::harness::{Partner, ServiceOptions, SharedService, SharedServiceRef, expect_string};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

/// A photo of two runners with their bibs.
pub(crate) fn finish_photo() -> TestPhoto {
    TestPhoto::new(1200, 800)
        .with_face(1, [200, 150, 120])
        .with_bib("1204", [200, 450])
        .with_face(2, [800, 150, 120])
        .with_bib("377", [800, 450])
}

#[test]
fn a_photo_is_found_by_every_face_and_bib_in_it() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Finish");
    let photo = partner.upload_photo(
        &album,
        "finish.jpg",
        &finish_photo().to_jpeg_with_exif(Exif::with_orientation(1)),
    );
    let other = partner.upload_photo(
        &album,
        "other.jpg",
        &TestPhoto::new(1200, 800).with_face(3, [500, 200, 120]).with_bib("99", [500, 500]).to_jpeg(),
    );
    let progress = partner.wait_until_idle(&album);
    assert_eq!((&progress["ready"], &progress["total"]), (&json!(2), &json!(2)), "{progress}");

    for (person, bib, expected) in [(1, "1204", &photo), (2, "377", &photo), (3, "99", &other)] {
        let by_face = partner.search_by_selfie(&album, &TestPhoto::selfie(person).to_jpeg());
        assert_eq!(by_face.len(), 1, "person {person}: {by_face:?}");
        check_face_hit(&partner, &by_face[0], expected);
        let by_text = partner.search_by_bib(&album, bib);
        assert_eq!(by_text.len(), 1, "{bib}: {by_text:?}");
        assert_eq!((&by_text[0]["id"], &by_text[0]["matchedText"]), (&json!(expected), &json!(bib)));
        assert_eq!(partner.get(&expect_string(&by_text[0]["url"])).status, 200);
        check_box(&by_text[0]["boundingBox"]);
    }
    assert_eq!(partner.search_by_selfie(&album, &TestPhoto::selfie(9).to_jpeg()), Vec::<Value>::new());
    assert_eq!(partner.search_by_bib(&album, "5566"), Vec::<Value>::new());
    let hit = &partner.search_by_bib(&album, "1204")[0];
    assert!(
        expect_string(&hit["takenAt"]).starts_with("2026-05-10T07:31:27"),
        "the EXIF time with its offset: {hit}"
    );
    assert!(!hit["why"].is_null(), "{hit}");
}

#[track_caller]
fn check_face_hit(partner: &Partner, hit: &Value, photo: &str) {
    assert_eq!(hit["id"], photo);
    let confidence = hit["confidence"].as_f64().expect("a confidence");
    assert!((50.0..=100.0).contains(&confidence), "{hit}");
    check_box(&hit["boundingBox"]);
    for field in ["url", "thumbnailUrl"] {
        assert_eq!(partner.get(&expect_string(&hit[field])).status, 200, "{field}");
    }
}

#[track_caller]
fn check_box(found: &Value) {
    let side = |name: &str| found[name].as_f64().unwrap_or_else(|| panic!("no {name}: {found}"));
    assert!(
        side("left") >= 0.0 && side("top") >= 0.0 && side("width") > 0.0 && side("height") > 0.0,
        "{found}"
    );
    assert!(side("left") + side("width") <= 1.0 && side("top") + side("height") <= 1.0, "{found}");
}

#[test]
fn detections_are_where_they_were_drawn() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Places");
    let photo = partner.upload_photo(&album, "finish.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    let faces = photo["faces"].as_array().expect("faces");
    assert_eq!(faces.len(), 2, "{photo}");
    for (left, top) in [(200.0, 150.0), (800.0, 150.0)] {
        let found = faces.iter().any(|face| {
            let near = |name: &str, pixels: f64, side: f64| {
                (face["boundingBox"][name].as_f64().unwrap_or(-1.0) - pixels / side).abs() < 0.02
            };
            near("left", left, 1200.0) && near("top", top, 800.0) && near("width", 120.0, 1200.0)
        });
        assert!(found, "no face at {left}, {top}: {photo}");
    }
    for face in faces {
        assert_eq!((&face["indexed"], &face["reason"]), (&json!(true), &Value::Null), "{face}");
        assert!(face["confidence"].as_f64().is_some_and(|c| (0.0..=100.0).contains(&c)), "{face}");
    }
    let mut texts: Vec<&str> =
        photo["texts"].as_array().expect("texts").iter().filter_map(|text| text["text"].as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["1204", "377"]);
    assert_eq!((&photo["state"], &photo["failure"]), (&json!("ready"), &Value::Null));
    assert_eq!((&photo["width"], &photo["height"]), (&json!(1200), &json!(800)));
    assert_eq!(photo["albumId"], album);
}

#[test]
fn text_that_cannot_be_a_bib_is_shown_and_not_found() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Banner");
    let photo = partner.upload_photo(
        &album,
        "a.jpg",
        &TestPhoto::new(1200, 800).with_bib("FINISH", [100, 100]).with_bib("808", [600, 400]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    let banner = photo["texts"].as_array().expect("texts").iter().find(|text| text["text"] == "FINISH");
    let banner = banner.unwrap_or_else(|| panic!("not shown: {photo}"));
    assert_eq!((&banner["indexed"], &banner["reason"]), (&json!(false), &json!("NOT_A_BIB")));
    assert_eq!(partner.search_by_bib(&album, "FINISH"), Vec::<Value>::new());
    assert_eq!(partner.search_by_bib(&album, "808").len(), 1);
}

#[test]
fn the_bib_pattern_of_the_album_decides() {
    let service = service();
    let partner = service.partner();
    let album =
        partner.create_album_with(&json!({ "title": "Letters", "config": { "bibPattern": "^[A-Z]{3}$" } }));
    partner.upload_photo(
        &album,
        "a.jpg",
        &TestPhoto::new(1200, 800).with_bib("ABC", [100, 100]).with_bib("808", [600, 400]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_bib(&album, "ABC").len(), 1);
    assert_eq!(partner.search_by_bib(&album, "808"), Vec::<Value>::new());
}

#[test]
fn disabled_recognition_is_neither_read_nor_searched() {
    let service = service();
    let partner = service.partner();
    for (disabled, decline_code) in [("face", "FACE_SEARCH_DISABLED"), ("text", "TEXT_SEARCH_DISABLED")] {
        let album = partner
            .create_album_with(&json!({ "title": disabled, "config": { disabled: { "enabled": false } } }));
        let photo = partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
        partner.wait_until_idle(&album);
        let photo = partner.get_photo(&album, &photo);
        let counts = (photo["faces"].as_array().map(Vec::len), photo["texts"].as_array().map(Vec::len));
        let response = if disabled == "face" {
            assert_eq!(counts, (Some(0), Some(2)), "{photo}");
            // Not even a selfie is taken.
            partner.call("/photos/search/face/signed", &json!({ "albumId": album }))
        } else {
            assert_eq!(counts, (Some(2), Some(0)), "{photo}");
            partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1204" }))
        };
        assert_eq!(response.expect_defined_error(422)["declineCode"], decline_code);
    }
}

#[test]
fn grid_mode_reads_the_cells_and_duplicates_nothing() {
    let service = service();
    let partner = service.partner();
    let grid =
        json!({ "mode": "grid", "grid": { "rows": 2, "columns": 3, "cellWidth": 800, "cellHeight": 800 } });
    let album =
        partner.create_album_with(&json!({ "title": "Grid", "config": { "face": grid, "text": grid } }));
    let mut picture = TestPhoto::new(1800, 1200);
    // Marks in the middle of cells and across their borders.
    let runners = [(1, "101", 100), (2, "102", 520), (3, "103", 860), (4, "104", 1150), (5, "105", 1500)];
    for (person, bib, x) in runners {
        picture = picture.with_face(person, [x, 540, 110]).with_bib(bib, [x, 900]);
    }
    let photo = partner.upload_photo(&album, "group.jpg", &picture.to_jpeg());
    partner.wait_until_idle(&album);
    let photo = partner.get_photo(&album, &photo);
    assert_eq!(photo["faces"].as_array().map(Vec::len), Some(5), "{photo}");
    assert_eq!(photo["texts"].as_array().map(Vec::len), Some(5), "{photo}");
    for (person, bib, _) in runners {
        assert_eq!(partner.search_by_bib_exact(&album, bib).len(), 1, "{bib}");
        assert_eq!(
            partner.search_by_selfie(&album, &TestPhoto::selfie(person).to_jpeg()).len(),
            1,
            "person {person}"
        );
    }
}

#[test]
fn a_failed_photo_can_be_retried() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Retry");
    let ticket = partner.sign_photo(&album, "a.jpg", "image/jpeg");
    partner.put(&ticket.upload_url, "image/jpeg", b"not a picture");
    partner.confirm_photo(&album, &ticket.photo_id).expect_ok();
    assert_eq!(partner.wait_until_idle(&album)["failed"], 1);
    let input = json!({ "albumId": album, "photoId": ticket.photo_id });
    partner.call_ok("/photos/photo/retry", &input);
    assert_eq!(partner.wait_until_idle(&album)["failed"], 1, "it fails again");
    partner.call_ok("/photos/photo/retry", &input);
    partner.wait_until_idle(&album);
    let failed = partner.call_ok("/photos/photo/list", &json!({ "albumId": album, "state": "failed" }));
    assert_eq!((&failed["total"], &failed["photos"][0]["id"]), (&json!(1), &json!(ticket.photo_id)));
    let ready = partner.call_ok("/photos/photo/list", &json!({ "albumId": album, "state": "ready" }));
    assert_eq!(ready["total"], 0);
}

#[test]
fn a_changed_config_takes_effect_after_reprocessing() {
    let service = service();
    let partner = service.partner();
    let album = partner
        .create_album_with(&json!({ "title": "Reprocess", "config": { "text": { "enabled": false } } }));
    let photo = partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.get_photo(&album, &photo)["texts"], json!([]));
    let changed = partner
        .call_ok("/albums/update", &json!({ "albumId": album, "config": { "text": { "enabled": true } } }));
    assert_eq!(changed["config"]["text"]["enabled"], true);
    assert_eq!(changed["config"]["face"]["enabled"], true, "the rest stays");
    assert_eq!(changed["reprocessingNeeded"], true, "{changed}");
    assert_eq!(partner.search_by_bib(&album, "1204"), Vec::<Value>::new());
    partner.call_ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_until_idle(&album);
    assert_eq!(partner.search_by_bib(&album, "1204").len(), 1);
    assert_eq!(
        partner.search_by_selfie(&album, &TestPhoto::selfie(1).to_jpeg()).len(),
        1,
        "no face is doubled"
    );
    assert_eq!(partner.get_photo(&album, &photo)["faces"].as_array().map(Vec::len), Some(2));
    let renamed = partner.call_ok("/albums/update", &json!({ "albumId": album, "title": "Renamed" }));
    assert_eq!((&renamed["title"], &renamed["reprocessingNeeded"]), (&json!("Renamed"), &json!(false)));
}

#[test]
fn errors_are_quick_while_photos_are_processed() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Busy");
    let photo = TestPhoto::new(2400, 1600).to_jpeg();
    for number in 0..12 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    let missing = json!({ "albumId": "01890000-0000-7000-8000-000000000000" });
    let quickest = (0..5).map(|_| {
        let begun = Instant::now();
        partner.call("/albums/get", &missing).expect_defined_error(404);
        begun.elapsed()
    });
    let quickest = quickest.min();
    assert!(quickest < Some(Duration::from_secs(2)), "the API waits for the pipeline: {quickest:?}");
    partner.wait_until_idle(&album);
}
