//! The whole way of photos with the fake networks: in by upload, seen, and out by search.

use photofinish_tests::harness::pictures::{Exif, Picture};
use photofinish_tests::harness::{Group, Options, Partner, Shared, text};
use serde_json::{Value, json};

static GROUP: Group = Group::new();

fn service() -> Shared {
    GROUP.service(Options::fakes)
}

/// Two runners with their bibs.
pub(crate) fn finish() -> Picture {
    Picture::new(1200, 800)
        .face(1, [200, 150, 120])
        .bib("1204", [200, 450])
        .face(2, [800, 150, 120])
        .bib("377", [800, 450])
}

#[test]
fn a_photo_is_found_by_every_face_and_bib_in_it() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Finish");
    let photo = partner.upload(&album, "finish.jpg", &finish().jpeg_with(Exif::turned(1)));
    let other = partner.upload(
        &album,
        "other.jpg",
        &Picture::new(1200, 800).face(3, [500, 200, 120]).bib("99", [500, 500]).jpeg(),
    );
    let progress = partner.wait_idle(&album);
    assert_eq!((&progress["ready"], &progress["total"]), (&json!(2), &json!(2)), "{progress}");

    for (person, bib, expected) in [(1, "1204", &photo), (2, "377", &photo), (3, "99", &other)] {
        let by_face = partner.find_face(&album, &Picture::selfie(person).jpeg());
        assert_eq!(by_face.len(), 1, "person {person}: {by_face:?}");
        check_face_hit(&partner, &by_face[0], expected);
        let by_text = partner.find_text(&album, bib);
        assert_eq!(by_text.len(), 1, "{bib}: {by_text:?}");
        assert_eq!((&by_text[0]["id"], &by_text[0]["matchedText"]), (&json!(expected), &json!(bib)));
        assert_eq!(partner.get(&text(&by_text[0]["url"])).status, 200);
        check_box(&by_text[0]["boundingBox"]);
    }
    assert_eq!(partner.find_face(&album, &Picture::selfie(9).jpeg()), Vec::<Value>::new());
    assert_eq!(partner.find_text(&album, "5566"), Vec::<Value>::new());
    let hit = &partner.find_text(&album, "1204")[0];
    assert!(text(&hit["takenAt"]).starts_with("2026-05-10T07:31:27"), "the EXIF time with its offset: {hit}");
    assert!(!hit["why"].is_null(), "{hit}");
}

#[track_caller]
fn check_face_hit(partner: &Partner<'_>, hit: &Value, photo: &str) {
    assert_eq!(hit["id"], photo);
    let confidence = hit["confidence"].as_f64().expect("a confidence");
    assert!((50.0..=100.0).contains(&confidence), "{hit}");
    check_box(&hit["boundingBox"]);
    for field in ["url", "thumbnailUrl"] {
        assert_eq!(partner.get(&text(&hit[field])).status, 200, "{field}");
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
fn what_was_seen_lies_where_it_was_drawn() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Places");
    let photo = partner.upload(&album, "finish.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
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
    let album = partner.album("Banner");
    let photo = partner.upload(
        &album,
        "a.jpg",
        &Picture::new(1200, 800).bib("FINISH", [100, 100]).bib("808", [600, 400]).jpeg(),
    );
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    let banner = photo["texts"].as_array().expect("texts").iter().find(|text| text["text"] == "FINISH");
    let banner = banner.unwrap_or_else(|| panic!("not shown: {photo}"));
    assert_eq!((&banner["indexed"], &banner["reason"]), (&json!(false), &json!("NOT_A_BIB")));
    assert_eq!(partner.find_text(&album, "FINISH"), Vec::<Value>::new());
    assert_eq!(partner.find_text(&album, "808").len(), 1);
}

#[test]
fn an_albums_own_bib_pattern_decides() {
    let service = service();
    let partner = service.partner();
    let album = partner.album_of(&json!({ "title": "Letters", "config": { "bibPattern": "^[A-Z]{3}$" } }));
    partner.upload(
        &album,
        "a.jpg",
        &Picture::new(1200, 800).bib("ABC", [100, 100]).bib("808", [600, 400]).jpeg(),
    );
    partner.wait_idle(&album);
    assert_eq!(partner.find_text(&album, "ABC").len(), 1);
    assert_eq!(partner.find_text(&album, "808"), Vec::<Value>::new());
}

#[test]
fn what_is_switched_off_is_neither_read_nor_searched() {
    let service = service();
    let partner = service.partner();
    for (off, declined) in [("face", "FACE_SEARCH_DISABLED"), ("text", "TEXT_SEARCH_DISABLED")] {
        let album = partner.album_of(&json!({ "title": off, "config": { off: { "enabled": false } } }));
        let photo = partner.upload(&album, "a.jpg", &finish().jpeg());
        partner.wait_idle(&album);
        let photo = partner.photo(&album, &photo);
        let counts = (photo["faces"].as_array().map(Vec::len), photo["texts"].as_array().map(Vec::len));
        let answer = if off == "face" {
            assert_eq!(counts, (Some(0), Some(2)), "{photo}");
            partner.face_search(&album, &partner.selfie(&album, &Picture::selfie(1).jpeg()))
        } else {
            assert_eq!(counts, (Some(2), Some(0)), "{photo}");
            partner.call("/photos/search/text/list", &json!({ "albumId": album, "text": "1204" }))
        };
        assert_eq!(answer.defined(422)["declineCode"], declined);
    }
}

#[test]
fn grid_mode_reads_the_cells_and_doubles_nothing() {
    let service = service();
    let partner = service.partner();
    let grid =
        json!({ "mode": "grid", "grid": { "rows": 2, "columns": 3, "cellWidth": 800, "cellHeight": 800 } });
    let album = partner.album_of(&json!({ "title": "Grid", "config": { "face": grid, "text": grid } }));
    let mut picture = Picture::new(1800, 1200);
    // Marks in the middles of cells and across their borders.
    let places = [(1, "101", 100), (2, "102", 520), (3, "103", 860), (4, "104", 1150), (5, "105", 1500)];
    for (person, bib, x) in places {
        picture = picture.face(person, [x, 540, 110]).bib(bib, [x, 900]);
    }
    let photo = partner.upload(&album, "group.jpg", &picture.jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!(photo["faces"].as_array().map(Vec::len), Some(5), "{photo}");
    assert_eq!(photo["texts"].as_array().map(Vec::len), Some(5), "{photo}");
    for (person, bib, _) in places {
        assert_eq!(partner.find_text_exactly(&album, bib).len(), 1, "{bib}");
        assert_eq!(partner.find_face(&album, &Picture::selfie(person).jpeg()).len(), 1, "person {person}");
    }
}

#[test]
fn a_failed_photo_can_be_retried() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Retry");
    let ticket = partner.signed(&album, "a.jpg", "image/jpeg");
    partner.put(&ticket.url, "image/jpeg", b"not a picture");
    partner.confirm(&album, &ticket.id).ok();
    assert_eq!(partner.wait_idle(&album)["failed"], 1);
    let input = json!({ "albumId": album, "photoId": ticket.id });
    partner.ok("/photos/photo/retry", &input);
    assert_eq!(partner.wait_idle(&album)["failed"], 1, "it fails again");
    partner.ok("/photos/photo/retry", &input);
    partner.wait_idle(&album);
    let failed = partner.ok("/photos/photo/list", &json!({ "albumId": album, "state": "failed" }));
    assert_eq!((&failed["total"], &failed["photos"][0]["id"]), (&json!(1), &json!(ticket.id)));
    let ready = partner.ok("/photos/photo/list", &json!({ "albumId": album, "state": "ready" }));
    assert_eq!(ready["total"], 0);
}

#[test]
fn a_changed_config_takes_effect_after_reprocessing() {
    let service = service();
    let partner = service.partner();
    let album =
        partner.album_of(&json!({ "title": "Reprocess", "config": { "text": { "enabled": false } } }));
    let photo = partner.upload(&album, "a.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    assert_eq!(partner.photo(&album, &photo)["texts"], json!([]));
    let changed =
        partner.ok("/albums/update", &json!({ "albumId": album, "config": { "text": { "enabled": true } } }));
    assert_eq!(changed["config"]["text"]["enabled"], true);
    assert_eq!(changed["config"]["face"]["enabled"], true, "the rest stays");
    assert_eq!(changed["reprocessingNeeded"], true, "{changed}");
    assert_eq!(partner.find_text(&album, "1204"), Vec::<Value>::new());
    partner.ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_idle(&album);
    assert_eq!(partner.find_text(&album, "1204").len(), 1);
    assert_eq!(partner.find_face(&album, &Picture::selfie(1).jpeg()).len(), 1, "no face is doubled");
    assert_eq!(partner.photo(&album, &photo)["faces"].as_array().map(Vec::len), Some(2));
    let renamed = partner.ok("/albums/update", &json!({ "albumId": album, "title": "Renamed" }));
    assert_eq!((&renamed["title"], &renamed["reprocessingNeeded"]), (&json!("Renamed"), &json!(false)));
}
