//! The whole way of photos with the fake networks: in by upload, out by search, and gone when deleted.

use std::io::{BufRead, BufReader};

use image::GenericImageView;
use photofinish_tests::harness::pictures::{Exif, Picture};
use photofinish_tests::harness::{Group, Options, Partner, Service, Shared, text};
use serde_json::{Value, json};

static GROUP: Group = Group::new();

fn service() -> Shared {
    GROUP.service(Options::fakes)
}

/// Two runners with their bibs.
fn finish() -> Picture {
    Picture::new(1200, 800)
        .face(1, 200, 150, 120)
        .bib("1204", 200, 450)
        .face(2, 800, 150, 120)
        .bib("377", 800, 450)
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
        &Picture::new(1200, 800)
            .face(3, 500, 200, 120)
            .bib("99", 500, 500)
            .jpeg(),
    );
    let progress = partner.wait_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["total"]),
        (&json!(2), &json!(2)),
        "{progress}"
    );

    for (person, bib, expected) in [(1, "1204", &photo), (2, "377", &photo), (3, "99", &other)] {
        let by_face = partner.find_face(&album, &Picture::selfie(person).jpeg());
        assert_eq!(by_face.len(), 1, "person {person}: {by_face:?}");
        check_face_hit(&partner, &by_face[0], expected);
        let by_text = partner.find_text(&album, bib);
        assert_eq!(by_text.len(), 1, "{bib}: {by_text:?}");
        assert_eq!(
            (&by_text[0]["id"], &by_text[0]["matchedText"]),
            (&json!(expected), &json!(bib))
        );
        assert_eq!(partner.get(&text(&by_text[0]["url"])).status, 200);
        check_box(&by_text[0]["boundingBox"]);
    }
    assert_eq!(
        partner.find_face(&album, &Picture::selfie(9).jpeg()),
        Vec::<Value>::new()
    );
    assert_eq!(partner.find_text(&album, "5566"), Vec::<Value>::new());
    let hit = &partner.find_text(&album, "1204")[0];
    assert!(
        text(&hit["takenAt"]).starts_with("2026-05-10T07:31:27"),
        "the EXIF time with its offset: {hit}"
    );
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
    let side = |name: &str| {
        found[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name}: {found}"))
    };
    assert!(
        side("left") >= 0.0 && side("top") >= 0.0 && side("width") > 0.0 && side("height") > 0.0,
        "{found}"
    );
    assert!(
        side("left") + side("width") <= 1.0 && side("top") + side("height") <= 1.0,
        "{found}"
    );
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
        assert_eq!(
            (&face["indexed"], &face["reason"]),
            (&json!(true), &Value::Null),
            "{face}"
        );
        assert!(
            face["confidence"]
                .as_f64()
                .is_some_and(|c| (0.0..=100.0).contains(&c)),
            "{face}"
        );
    }
    let mut texts: Vec<&str> = photo["texts"]
        .as_array()
        .expect("texts")
        .iter()
        .filter_map(|text| text["text"].as_str())
        .collect();
    texts.sort_unstable();
    assert_eq!(texts, ["1204", "377"]);
    assert_eq!(
        (&photo["state"], &photo["failure"]),
        (&json!("ready"), &Value::Null)
    );
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
        &Picture::new(1200, 800)
            .bib("FINISH", 100, 100)
            .bib("808", 600, 400)
            .jpeg(),
    );
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    let banner = photo["texts"]
        .as_array()
        .expect("texts")
        .iter()
        .find(|text| text["text"] == "FINISH");
    let banner = banner.unwrap_or_else(|| panic!("not shown: {photo}"));
    assert_eq!(
        (&banner["indexed"], &banner["reason"]),
        (&json!(false), &json!("NOT_A_BIB"))
    );
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
        &Picture::new(1200, 800)
            .bib("ABC", 100, 100)
            .bib("808", 600, 400)
            .jpeg(),
    );
    partner.wait_idle(&album);
    assert_eq!(partner.find_text(&album, "ABC").len(), 1);
    assert_eq!(partner.find_text(&album, "808"), Vec::<Value>::new());
}

#[test]
fn previews_have_the_albums_sizes_and_no_exif() {
    let service = service();
    let partner = service.partner();
    let album = partner.album_of(&json!({
        "title": "Sizes", "config": { "preview": { "maxDimension": 640 }, "thumbnail": { "maxDimension": 100 } },
    }));
    let turned = Picture::new(1200, 800)
        .bib("1204", 100, 100)
        .jpeg_with(Exif::turned(6));
    let photo = partner.upload(&album, "turned.jpg", &turned);
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!(
        (&photo["width"], &photo["height"]),
        (&json!(1200), &json!(800)),
        "upright"
    );
    for (field, size) in [("url", (640, 427)), ("thumbnailUrl", (100, 67))] {
        let answer = partner.get(&text(&photo[field]));
        assert_eq!(answer.header("content-type"), Some("image/jpeg"));
        let picture = image::load_from_memory(&answer.bytes).expect("a JPEG");
        assert_eq!(picture.dimensions(), size, "{field}");
        assert!(
            !answer.bytes.windows(4).any(|four| four == b"Exif"),
            "{field} carries EXIF"
        );
    }
}

#[test]
fn a_small_photo_is_never_enlarged() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Small");
    let photo = partner.upload(&album, "small.jpg", &Picture::new(300, 200).jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    for field in ["url", "thumbnailUrl"] {
        let picture = image::load_from_memory(&partner.get(&text(&photo[field])).bytes).expect("a JPEG");
        assert_eq!(picture.dimensions(), (300, 200), "{field}");
    }
}

#[test]
fn a_large_photo_has_a_preview_of_2048_and_a_thumbnail_of_512() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Large");
    let photo = partner.upload(
        &album,
        "large.jpg",
        &Picture::new(2400, 3600).bib("1204", 600, 1800).jpeg(),
    );
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!(
        (&photo["width"], &photo["height"]),
        (&json!(2400), &json!(3600)),
        "the photo's own size"
    );
    for (field, size) in [("url", (1365, 2048)), ("thumbnailUrl", (341, 512))] {
        let picture = image::load_from_memory(&partner.get(&text(&photo[field])).bytes).expect("a JPEG");
        assert_eq!(picture.dimensions(), size, "{field}");
    }
    assert_eq!(partner.find_text(&album, "1204").len(), 1);
}

#[test]
fn a_deleted_photo_leaves_search_list_and_storage() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Delete one");
    let kept = partner.upload(&album, "kept.jpg", &finish().jpeg());
    let gone = partner.upload(&album, "gone.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    assert_eq!(partner.find_face(&album, &Picture::selfie(1).jpeg()).len(), 2);
    let preview = text(&partner.photo(&album, &gone)["url"]);
    assert_eq!(
        service.objects().len(),
        6,
        "original, preview and thumbnail of each"
    );

    partner.ok(
        "/photos/photo/delete",
        &json!({ "albumId": album, "photoId": gone }),
    );

    assert_eq!(
        ids(&partner.find_face(&album, &Picture::selfie(1).jpeg())),
        [&*kept]
    );
    assert_eq!(ids(&partner.find_text(&album, "1204")), [&*kept]);
    assert_eq!(ids(&partner.photos(&album)), [&*kept]);
    partner
        .call("/photos/photo/get", &json!({ "albumId": album, "photoId": gone }))
        .defined(404);
    partner.confirm(&album, &gone).defined(404);
    assert_eq!(partner.get(&preview).status, 404);
    assert_eq!(service.objects().len(), 3, "{:?}", service.objects());
    assert_eq!(partner.progress(&album)["total"], 1);
}

#[test]
fn a_deleted_album_leaves_nothing() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Delete all");
    partner.upload(&album, "a.jpg", &finish().jpeg());
    partner.selfie(&album, &Picture::selfie(1).jpeg());
    partner.wait_idle(&album);
    assert_eq!(service.objects().len(), 4);
    partner.ok("/albums/delete", &json!({ "albumId": album }));
    assert_eq!(service.objects(), Vec::<std::path::PathBuf>::new());
    for path in [
        "/albums/get",
        "/albums/progress",
        "/photos/photo/list",
        "/photos/search/face/signed",
        "/albums/delete",
    ] {
        partner.call(path, &json!({ "albumId": album })).defined(404);
    }
    assert_eq!(partner.ok("/albums/list", &json!({}))["total"], 0);
}

#[test]
fn a_deleted_photo_that_is_still_queued_never_comes_back() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Queued");
    let photo = Picture::new(2400, 1600).bib("1204", 300, 300).jpeg();
    let ids: Vec<String> = (0..10)
        .map(|n| partner.upload(&album, &format!("{n}.jpg"), &photo))
        .collect();
    for id in &ids {
        partner.ok(
            "/photos/photo/delete",
            &json!({ "albumId": album, "photoId": id }),
        );
    }
    let progress = partner.wait_idle(&album);
    assert_eq!(progress["total"], 0, "{progress}");
    assert_eq!(partner.find_text(&album, "1204"), Vec::<Value>::new());
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
    let failed = partner.ok(
        "/photos/photo/list",
        &json!({ "albumId": album, "state": "failed" }),
    );
    assert_eq!(
        (&failed["total"], &failed["photos"][0]["id"]),
        (&json!(1), &json!(ticket.id))
    );
    let ready = partner.ok(
        "/photos/photo/list",
        &json!({ "albumId": album, "state": "ready" }),
    );
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
    let changed = partner.ok(
        "/albums/update",
        &json!({ "albumId": album, "config": { "text": { "enabled": true } } }),
    );
    assert_eq!(changed["config"]["text"]["enabled"], true);
    assert_eq!(changed["config"]["face"]["enabled"], true, "the rest stays");
    assert_eq!(changed["reprocessingNeeded"], true, "{changed}");
    assert_eq!(partner.find_text(&album, "1204"), Vec::<Value>::new());
    partner.ok("/albums/reprocess", &json!({ "albumId": album }));
    partner.wait_idle(&album);
    assert_eq!(partner.find_text(&album, "1204").len(), 1);
    assert_eq!(
        partner.find_face(&album, &Picture::selfie(1).jpeg()).len(),
        1,
        "no face is doubled"
    );
    assert_eq!(
        partner.photo(&album, &photo)["faces"].as_array().map(Vec::len),
        Some(2)
    );
    let renamed = partner.ok("/albums/update", &json!({ "albumId": album, "title": "Renamed" }));
    assert_eq!(
        (&renamed["title"], &renamed["reprocessingNeeded"]),
        (&json!("Renamed"), &json!(false))
    );
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
        let counts = (
            photo["faces"].as_array().map(Vec::len),
            photo["texts"].as_array().map(Vec::len),
        );
        let answer = if off == "face" {
            assert_eq!(counts, (Some(0), Some(2)), "{photo}");
            partner.call("/photos/search/face/signed", &json!({ "albumId": album }))
        } else {
            assert_eq!(counts, (Some(2), Some(0)), "{photo}");
            partner.call(
                "/photos/search/text/list",
                &json!({ "albumId": album, "text": "1204" }),
            )
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
    let places = [
        (1, "101", 100),
        (2, "102", 520),
        (3, "103", 860),
        (4, "104", 1150),
        (5, "105", 1500),
    ];
    for (person, bib, x) in places {
        picture = picture.face(person, x, 540, 110).bib(bib, x, 900);
    }
    let photo = partner.upload(&album, "group.jpg", &picture.jpeg());
    partner.wait_idle(&album);
    let photo = partner.photo(&album, &photo);
    assert_eq!(photo["faces"].as_array().map(Vec::len), Some(5), "{photo}");
    assert_eq!(photo["texts"].as_array().map(Vec::len), Some(5), "{photo}");
    for (person, bib, _) in places {
        assert_eq!(partner.find_text_exactly(&album, bib).len(), 1, "{bib}");
        assert_eq!(
            partner.find_face(&album, &Picture::selfie(person).jpeg()).len(),
            1,
            "person {person}"
        );
    }
}

#[test]
fn an_album_is_answered_as_documented() {
    let service = service();
    let partner = service.partner();
    let made = partner.ok(
        "/albums/create",
        &json!({
            "title": "Documented", "coverUrl": "https://example.com/cover.jpg", "tags": ["10k", "harbour"],
            "config": { "face": { "confidenceThreshold": 80 }, "thumbnail": { "maxDimension": 256 } },
        }),
    );
    let fields = [
        "id",
        "organizationId",
        "createdBy",
        "title",
        "coverUrl",
        "tags",
        "config",
        "createdAt",
        "updatedAt",
    ];
    for field in fields {
        assert!(made.get(field).is_some(), "{field} is missing: {made}");
    }
    for id in ["id", "organizationId", "createdBy"] {
        let id = uuid::Uuid::parse_str(&text(&made[id])).expect("a UUID");
        assert_eq!(id.get_version_num(), 7);
    }
    assert_eq!(made["tags"], json!(["10k", "harbour"]));
    let face = &made["config"]["face"];
    assert_eq!(
        (&face["confidenceThreshold"], &face["enabled"]),
        (&json!(80.0), &json!(true))
    );
    assert_eq!((&face["mode"], &face["grid"]), (&json!("photo"), &Value::Null));
    assert_eq!(made["config"]["preview"], json!({ "maxDimension": 2048 }));
    assert_eq!(made["config"]["thumbnail"], json!({ "maxDimension": 256 }));
    assert_eq!(partner.ok("/albums/get", &json!({ "albumId": made["id"] })), made);
    let bare = partner.ok("/albums/create", &json!({ "title": "Bare" }));
    assert_eq!((&bare["coverUrl"], &bare["tags"]), (&Value::Null, &json!([])));
    let cleared = json!({ "albumId": made["id"], "coverUrl": null, "tags": [] });
    let cleared = partner.ok("/albums/update", &cleared);
    assert_eq!(
        (&cleared["coverUrl"], &cleared["tags"], &cleared["title"]),
        (&Value::Null, &json!([]), &json!("Documented"))
    );
}

#[test]
fn albums_are_listed_newest_first_page_by_page() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let titles: Vec<String> = (0..7)
        .map(|n| format!("{} {n}", if n % 2 == 0 { "Night Run" } else { "Hill climb" }))
        .collect();
    for title in &titles {
        partner.album(title);
    }
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let input = cursor.map_or(
            json!({ "limit": 3 }),
            |cursor: String| json!({ "limit": 3, "cursor": cursor }),
        );
        let page = partner.ok("/albums/list", &input);
        assert_eq!(page["total"], 7);
        let albums = page["albums"].as_array().expect("albums");
        assert!(albums.len() <= 3);
        listed.extend(albums.iter().map(|album| text(&album["title"])));
        if page["nextCursor"].is_null() {
            break;
        }
        cursor = Some(text(&page["nextCursor"]));
    }
    assert_eq!(listed, titles.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(
        partner.ok("/albums/list", &json!({ "title": "night" }))["total"],
        4
    );
    for limit in [json!(0), json!(201), json!(1.5), json!("9")] {
        assert_eq!(
            partner.call("/albums/list", &json!({ "limit": limit })).issues(),
            ["limit"]
        );
    }
    assert_eq!(
        partner
            .call("/albums/list", &json!({ "cursor": "nowhere" }))
            .issues(),
        ["cursor"]
    );
}

#[test]
fn progress_streams_until_the_album_is_idle() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Stream");
    let photo = Picture::new(2400, 1600).bib("1204", 300, 300).jpeg();
    for number in 0..12 {
        partner.upload(&album, &format!("{number}.jpg"), &photo);
    }
    let body = json!({ "albumId": album }).to_string();
    let answer = partner.post(
        "/albums/progress",
        &[
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
        ],
        body.as_bytes(),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    );
    let events = events(&answer.bytes);
    assert_eq!(
        events.last().map(|(name, _)| name.as_str()),
        Some("done"),
        "{events:?}"
    );
    let messages: Vec<&Value> = events
        .iter()
        .filter(|(name, _)| name == "message")
        .map(|(_, data)| data)
        .collect();
    assert!(!messages.is_empty());
    for message in &messages {
        let sum: u64 = ["awaitingUpload", "queued", "processing", "ready", "failed"]
            .iter()
            .map(|state| message[state].as_u64().expect("a count"))
            .sum();
        assert_eq!(message["total"], sum, "{message}");
        assert_eq!(message["albumId"], album);
    }
    let last = messages.last().expect("a message");
    assert_eq!(last["ready"], 12, "{last}");
    for idle in ["photosPerSecond", "secondsLeft", "bottleneck"] {
        assert_eq!(last.get(idle), Some(&Value::Null), "null when idle: {last}");
    }
    let missing = json!({ "albumId": "01890000-0000-7000-8000-000000000000" }).to_string();
    let missing = partner.post(
        "/albums/progress",
        &[
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
        ],
        missing.as_bytes(),
    );
    missing.defined(404);
}

/// The events of a stream that has ended: names and data.
fn events(stream: &[u8]) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    let (mut name, mut data) = ("message".to_owned(), String::new());
    for line in BufReader::new(stream).lines() {
        let line = line.expect("text");
        if let Some(value) = line.strip_prefix("event:") {
            value.trim().clone_into(&mut name);
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push_str(value.trim());
        } else if line.is_empty() && (!data.is_empty() || name != "message") {
            events.push((
                std::mem::replace(&mut name, "message".into()),
                serde_json::from_str(&data).unwrap_or(Value::Null),
            ));
            data.clear();
        }
    }
    events
}

#[test]
fn health_and_metrics_are_served_beside_the_api() {
    let service = service();
    let partner = service.partner();
    let album = partner.album("Metrics");
    partner.upload(&album, "a.jpg", &finish().jpeg());
    partner.wait_idle(&album);
    assert_eq!(partner.get(&format!("{}/healthz", service.origin())).status, 200);
    assert_eq!(partner.get(&format!("{}/readyz", service.origin())).status, 200);
    let metrics = partner.get(&format!("{}/metrics", service.origin()));
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain")),
        "{:?}",
        metrics.headers
    );
    let lines = metrics.text();
    assert!(
        lines.lines().any(|line| line.starts_with("photofinish_")),
        "{lines}"
    );
    assert!(!lines.contains(&album), "labels never come from input");
}

#[test]
fn health_moves_to_its_own_address_when_there_is_one() {
    let admin = format!("127.0.0.1:{}", photofinish_tests::harness::free_port());
    let service = Service::start(Options::fakes().with("PHOTOFINISH_ADMIN_LISTEN", &admin));
    let partner = service.partner();
    assert_eq!(partner.get(&format!("http://{admin}/readyz")).status, 200);
    assert_eq!(partner.get(&format!("http://{admin}/metrics")).status, 200);
    partner.get(&format!("{}/metrics", service.origin())).defined(404);
    partner.ok("/albums/list", &json!({}));
}

fn ids(photos: &[Value]) -> Vec<&str> {
    photos.iter().filter_map(|photo| photo["id"].as_str()).collect()
}
