//! Events as a list and as a stream.

use std::collections::BTreeSet;
use std::time::Duration;

use photofinish_store::model::account::Role;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::key::{KeyMode, Scope};
use photofinish_store::model::process::{Task, TaskLease};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::console::signed_in;
use crate::support::client::document;
use crate::support::raw::RawConnection;
use crate::support::{Partner, TestService, schema};

/// Takes the task of publishing, which the tests of this crate do themselves.
fn take_task(service: &TestService) -> TaskLease {
    let hour = Duration::from_secs(3600);
    let taken = service.store.tasks.take(Task::EventPublisher, ProcessId::generate(), hour);
    service.block_on(taken).unwrap().unwrap()
}

/// Creates and deletes an album, and publishes the event of that; returns the album.
fn publish_event(service: &TestService, partner: &Partner, lease: TaskLease) -> Value {
    let (album, _) = partner.create_album();
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    let published = service.block_on(service.store.event_publisher.publish(lease)).unwrap();
    assert_eq!((published.events, published.has_more), (1, false));
    album
}

/// Opens a stream, with these headers; returns it after the head of its response.
fn open_stream(
    service: &TestService,
    partner: &Partner,
    headers: &str,
    body: &Value,
) -> (RawConnection, String) {
    let key = partner.key.as_ref().unwrap();
    open_stream_at("/openapi/events/list", service, &format!("x-api-key: {key}\r\n{headers}"), body)
}

/// The same at another path, with headers that say who asks.
fn open_stream_at(path: &str, service: &TestService, headers: &str, body: &Value) -> (RawConnection, String) {
    let mut raw = RawConnection::connect(service);
    let body = body.to_string();
    raw.write(&format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let head = raw.read_until("\r\n\r\n");
    (raw, head)
}

/// An event of a stream.
struct Received {
    cursor: String,
    name: String,
    data: Value,
}

/// Reads the next event, without comments and the time after which a client connects again.
fn next_event(raw: &mut RawConnection) -> Received {
    loop {
        let text = raw.read_until("\n\n");
        let line = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
        };
        let Some(name) = line("event:") else { continue };
        let data: Value = serde_json::from_str(&line("data:").unwrap()).unwrap();
        if name == "message" {
            schema::check(document(), &json!({ "$ref": "#/components/schemas/Event" }), &data).unwrap();
        }
        return Received { cursor: line("id:").unwrap_or_default(), name, data };
    }
}

#[test]
fn events_are_listed_in_pages_that_begin_where_the_last_ended() {
    let service = TestService::start();
    let partner = service.partner();
    let lease = take_task(&service);
    let empty = partner.call("/events/list", &json!({})).ok();
    assert_eq!(empty["events"], json!([]));
    let albums: Vec<Value> = (0..3).map(|_| publish_event(&service, &partner, lease)).collect();
    let mut cursor = empty["nextCursor"].clone();
    let mut sequences = Vec::new();
    for album in &albums {
        let page = partner.call("/events/list", &json!({ "cursor": cursor, "limit": 1 })).ok();
        let event = &page["events"][0];
        let mut data = event["data"].clone();
        sequences.push(data["sequence"].take().as_i64().unwrap());
        let expected = json!({ "sequence": null, "albumId": album, "photos": 0, "cause": "request" });
        assert_eq!((&event["type"], data), (&json!("album.deleted"), expected));
        assert!(event["id"].as_str().unwrap().starts_with("evt_"), "{event}");
        cursor = page["nextCursor"].clone();
    }
    assert!(sequences.is_sorted_by(|one, next| one < next), "{sequences:?}");
    // The cursor of the end is the place of what happens next.
    assert_eq!(partner.call("/events/list", &json!({ "cursor": cursor })).ok()["events"], json!([]));
    let next = publish_event(&service, &partner, lease);
    let page = partner.call("/events/list", &json!({ "cursor": cursor })).ok();
    assert_eq!(page["events"][0]["data"]["albumId"], next);
    let of_album = partner.call("/events/list", &json!({ "albumId": albums[1] })).ok();
    assert_eq!(of_album["events"].as_array().unwrap().len(), 1);
    let of_type = partner.call("/events/list", &json!({ "types": ["photo.ready", "photo.failed"] })).ok();
    assert_eq!((&of_type["events"], &of_type["nextCursor"]), (&json!([]), &page["nextCursor"]));
    for stranger in [
        service.partner_with("River Timing", KeyMode::Live, &Scope::ALL),
        service.partner_with("Lake Timing", KeyMode::Test, &Scope::ALL),
    ] {
        let asked = [json!({}), json!({ "albumId": albums[0] })];
        assert!(asked.iter().all(|body| stranger.call("/events/list", body).ok()["events"] == json!([])));
    }
}

#[test]
fn a_stream_that_is_cut_fifty_times_sends_each_event_once() {
    let service = TestService::start();
    let partner = service.partner();
    let lease = take_task(&service);
    let mut expected = Vec::new();
    let (mut last_event_id, mut received) = (String::new(), Vec::new());
    for cut in 0..50 {
        let header = match last_event_id.as_str() {
            "" => String::new(),
            id => format!("last-event-id: {id}\r\n"),
        };
        // What happened while there was no stream, and what happens while there is one.
        let resumes = !header.is_empty();
        if resumes {
            expected.extend((0..cut % 3).map(|_| publish_event(&service, &partner, lease)));
        }
        let (mut stream, head) = open_stream(&service, &partner, &header, &json!({}));
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        expected.push(publish_event(&service, &partner, lease));
        // The first stream begins now, which is before or after the event of now.
        while received.len() < expected.len() {
            let event = next_event(&mut stream);
            assert_eq!(event.name, "message");
            received.push(event.data["data"]["albumId"].clone());
            last_event_id = event.cursor;
        }
    }
    assert_eq!(received, expected);
}

#[test]
fn a_stream_sends_what_was_asked_for_and_nothing_of_others() {
    let service = TestService::start();
    let (partner, other) =
        (service.partner(), service.partner_with("River Timing", KeyMode::Live, &Scope::ALL));
    let lease = take_task(&service);
    publish_event(&service, &partner, lease);
    let begin = partner.call("/events/list", &json!({})).ok()["nextCursor"].clone();
    let (mut all, _) = open_stream(&service, &partner, "", &json!({ "cursor": begin }));
    let body = json!({ "cursor": begin, "types": ["photo.ready"] });
    let (mut of_type, _) = open_stream(&service, &partner, "", &body);
    publish_event(&service, &other, lease);
    let mine = publish_event(&service, &partner, lease);
    let event = next_event(&mut all);
    assert_eq!(event.data["data"]["albumId"], mine);
    let page = partner.call("/events/list", &json!({ "cursor": begin })).ok();
    assert_eq!((&page["events"][0], &page["nextCursor"]), (&event.data, &json!(event.cursor)));
    let (album, album_id) = partner.create_album();
    let photo = service.ready_photo(&partner, album_id, vec![], vec![]);
    // Photos are gathered for two seconds.
    while service.block_on(service.store.event_publisher.publish(lease)).unwrap().events == 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let event = next_event(&mut of_type);
    let mut data = event.data["data"].clone();
    data["sequence"].take();
    let expected = json!({ "sequence": null, "albumId": album, "photos": [{ "photoId": photo, "again": false }], "count": 1 });
    assert_eq!((&event.data["type"], data), (&json!("photo.ready"), expected));
}

#[test]
fn a_stream_says_when_events_are_no_longer_kept() {
    let service = TestService::start();
    let partner = service.partner();
    let lease = take_task(&service);
    let (kept, begin) = {
        publish_event(&service, &partner, lease);
        let begin = partner.call("/events/list", &json!({})).ok()["nextCursor"].clone();
        publish_event(&service, &partner, lease);
        publish_event(&service, &partner, lease);
        let page = partner.call("/events/list", &json!({ "cursor": begin })).ok();
        (page["events"][1].clone(), begin)
    };
    let timestamp = kept["timestamp"].as_str().unwrap();
    let oldest = OffsetDateTime::parse(timestamp, &time::format_description::well_known::Rfc3339).unwrap();
    let removed = service.block_on(service.store.event_publisher.remove_expired(lease, oldest)).unwrap();
    assert_eq!(removed, 2);
    let header = format!("last-event-id: {}\r\n", begin.as_str().unwrap());
    let (mut stream, _) = open_stream(&service, &partner, &header, &json!({}));
    let lost = next_event(&mut stream);
    assert_eq!(
        (&lost.data["type"], &lost.data["data"]),
        (&json!("events.lost"), &json!({ "oldest": timestamp }))
    );
    let next = next_event(&mut stream);
    assert_eq!(next.data, kept);
    // Whoever resumes after the loss is not told of it again.
    let header = format!("last-event-id: {}\r\n", lost.cursor);
    let (mut stream, _) = open_stream(&service, &partner, &header, &json!({}));
    assert_eq!(next_event(&mut stream).data, kept);
}

#[test]
fn a_stream_that_begins_now_has_lost_nothing_whoever_had_the_newest_event() {
    let service = TestService::start();
    let (partner, other) =
        (service.partner(), service.partner_with("River Timing", KeyMode::Live, &Scope::ALL));
    let lease = take_task(&service);
    publish_event(&service, &partner, lease);
    publish_event(&service, &other, lease);
    let (mut stream, _) = open_stream(&service, &partner, "", &json!({}));
    let album = publish_event(&service, &partner, lease);
    let event = next_event(&mut stream);
    assert_eq!((&event.data["type"], &event.data["data"]["albumId"]), (&json!("album.deleted"), &album));
}

#[test]
fn a_key_has_twenty_streams() {
    let service = TestService::start();
    let (partner, other) = (service.partner(), service.partner());
    let mut streams: Vec<RawConnection> =
        (0..20).map(|_| open_stream(&service, &partner, "", &json!({})).0).collect();
    let accept = [("accept", "text/event-stream"), ("content-type", "application/json")];
    let refused = partner.send("POST /openapi/events/list", &accept, "{}");
    assert_eq!(refused.header("retry-after"), "30");
    let refused = refused.defined_error(429, "TOO_MANY_REQUESTS");
    assert_eq!(refused["data"], json!({ "code": "TOO_MANY_STREAMS", "tryAgainIn": 30 }));
    let (_stream, head) = open_stream(&service, &other, "", &json!({}));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    streams.pop();
    // The service notices that the client has gone when it next writes or reads.
    let deadline = std::time::Instant::now() + crate::support::DEADLINE;
    loop {
        let (_stream, head) = open_stream(&service, &partner, "", &json!({}));
        if head.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{head}");
    }
}

#[test]
fn a_stream_ends_when_its_account_may_no_longer_get_what_it_sends() {
    let service = TestService::start();
    let [owner, organizer, viewer] =
        [("anna", Role::Owner), ("ben", Role::Organizer), ("cora", Role::Viewer)]
            .map(|(name, role)| signed_in(&service, &format!("{name}@race.example"), role));
    let [mut of_organizer, mut of_viewer] = [&organizer, &viewer].map(|browser| {
        let headers = browser.head_lines();
        let (stream, head) = open_stream_at("/console/api/events/list", &service, &headers, &json!({}));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    });
    let account = organizer.call("session/get", json!({})).ok()["account"]["id"].clone();
    owner.call("accounts/update", json!({ "accountId": account, "role": "viewer" })).ok();
    let error = next_event(&mut of_organizer);
    assert_eq!((error.name.as_str(), &error.data["status"]), ("error", &json!(403)));
    assert_eq!(error.data["data"]["code"], "INSUFFICIENT_ROLE");
    let lease = take_task(&service);
    let album = owner.call("albums/create", json!({ "title": "Lake Run" })).ok()["id"].clone();
    owner.call("albums/delete", json!({ "albumId": album })).ok();
    service.block_on(service.store.event_publisher.publish(lease)).unwrap();
    // What was never for managers alone goes on.
    assert_eq!(next_event(&mut of_viewer).data["data"]["albumId"], album);
}

#[test]
fn an_event_stream_ends_with_its_key_and_with_the_service() {
    let mut service = TestService::start();
    let (partner, revoked) = (service.partner(), service.partner());
    let (mut first, _) = open_stream(&service, &revoked, "", &json!({}));
    let (mut second, _) = open_stream(&service, &partner, "", &json!({}));
    service.revoke_elsewhere(revoked.key.as_ref().unwrap());
    let error = next_event(&mut first);
    assert_eq!((error.name.as_str(), &error.data["data"]["code"]), ("error", &json!("KEY_REVOKED")));
    service.stop();
    let error = next_event(&mut second);
    assert_eq!((error.name.as_str(), &error.data["status"]), ("error", &json!(503)));
    service.wait_until_stopped();
}

#[test]
fn a_last_event_id_that_no_stream_has_sent_is_400() {
    let service = TestService::start();
    let accept = [("accept", "text/event-stream"), ("content-type", "application/json")];
    for id in ["7", "x", "", "\u{e9}"] {
        let headers = [accept[0], accept[1], ("last-event-id", id)];
        let refused = service.partner().send("POST /openapi/events/list", &headers, "{}");
        refused.undefined_error(400, "BAD_REQUEST");
    }
    let kinds: BTreeSet<&str> = ["application/json", "text/event-stream"].into();
    let content = &document()["paths"]["/events/list"]["post"]["responses"]["200"]["content"];
    assert_eq!(content.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), kinds);
}
