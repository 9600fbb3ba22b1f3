//! Albums: their shape, their list, their progress.

use std::io::{BufRead, BufReader};

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, SharedService, SharedServiceRef, expect_string};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn an_album_is_answered_as_documented() {
    let service = service();
    let partner = service.partner();
    let made = partner.call_ok(
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
        let id = uuid::Uuid::parse_str(&expect_string(&made[id])).expect("a UUID");
        assert_eq!(id.get_version_num(), 7);
    }
    assert_eq!(made["tags"], json!(["10k", "harbour"]));
    let face = &made["config"]["face"];
    assert_eq!((&face["confidenceThreshold"], &face["enabled"]), (&json!(80.0), &json!(true)));
    assert_eq!((&face["mode"], &face["grid"]), (&json!("photo"), &Value::Null));
    assert_eq!(made["config"]["preview"], json!({ "maxDimension": 2048 }));
    assert_eq!(made["config"]["thumbnail"], json!({ "maxDimension": 256 }));
    assert_eq!(partner.call_ok("/albums/get", &json!({ "albumId": made["id"] })), made);
    let bare = partner.call_ok("/albums/create", &json!({ "title": "Bare" }));
    assert_eq!((&bare["coverUrl"], &bare["tags"]), (&Value::Null, &json!([])));
    let cleared = json!({ "albumId": made["id"], "coverUrl": null, "tags": [] });
    let cleared = partner.call_ok("/albums/update", &cleared);
    assert_eq!(
        (&cleared["coverUrl"], &cleared["tags"], &cleared["title"]),
        (&Value::Null, &json!([]), &json!("Documented"))
    );
}

#[test]
fn albums_are_listed_newest_first_page_by_page() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let titles: Vec<String> =
        (0..7).map(|n| format!("{} {n}", if n % 2 == 0 { "Night Run" } else { "Hill climb" })).collect();
    for title in &titles {
        partner.create_album(title);
    }
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let input =
            cursor.map_or(json!({ "limit": 3 }), |cursor: String| json!({ "limit": 3, "cursor": cursor }));
        let page = partner.call_ok("/albums/list", &input);
        assert_eq!(page["total"], 7);
        let albums = page["albums"].as_array().expect("albums");
        assert!(albums.len() <= 3);
        listed.extend(albums.iter().map(|album| expect_string(&album["title"])));
        if page["nextCursor"].is_null() {
            break;
        }
        cursor = Some(expect_string(&page["nextCursor"]));
    }
    assert_eq!(listed, titles.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(partner.call_ok("/albums/list", &json!({ "title": "night" }))["total"], 4);
    for limit in [json!(0), json!(201), json!(1.5), json!("9")] {
        assert_eq!(partner.call("/albums/list", &json!({ "limit": limit })).expect_issues(), ["limit"]);
    }
    assert_eq!(partner.call("/albums/list", &json!({ "cursor": "nowhere" })).expect_issues(), ["cursor"]);
}

#[test]
fn progress_streams_until_the_album_is_idle() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Stream");
    let photo = TestPhoto::new(2400, 1600).with_bib("1204", [300, 300]).to_jpeg();
    for number in 0..12 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    let body = json!({ "albumId": album }).to_string();
    let answer = partner.post(
        "/albums/progress",
        &[("content-type", "application/json"), ("accept", "text/event-stream")],
        body.as_bytes(),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")));
    let events = events(&answer.body);
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("done"), "{events:?}");
    let messages: Vec<&Value> =
        events.iter().filter(|(name, _)| name == "message").map(|(_, data)| data).collect();
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
        &[("content-type", "application/json"), ("accept", "text/event-stream")],
        missing.as_bytes(),
    );
    missing.expect_defined_error(404);
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
