//! Progress as one response and as an event stream.

use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};

use crate::support::raw::RawConnection;
use crate::support::{Partner, TestService, unknown_id};

fn open_stream(service: &TestService, key: &str, album: &Value) -> RawConnection {
    let mut raw = RawConnection::connect(service);
    let body = json!({ "albumId": album }).to_string();
    raw.write(&format!(
        "POST /openapi/albums/progress HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\naccept: text/event-stream\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    raw
}

/// Reads the next event; returns its name and data.
fn next_event(raw: &mut RawConnection) -> (String, Value) {
    let text = raw.read_until("\n\n");
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    (line("event:"), serde_json::from_str(&line("data:")).unwrap())
}

#[test]
fn progress_counts_photos_by_state() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    let on_album = json!({ "albumId": album });
    let idle = partner.call("/albums/progress", &on_album).ok();
    let expected = json!({
        "albumId": album, "total": 0, "awaitingUpload": 0, "queued": 0, "processing": 0, "ready": 0, "failed": 0,
        "photosPerSecond": null, "secondsLeft": null, "bottleneck": null,
    });
    assert_eq!(idle, expected);

    service.ready_photo(&partner, album_id, vec![], vec![]);
    service.failed_photo(&partner, album_id);
    service.queued_photo(&partner, album_id);
    let body = json!({ "albumId": album, "filename": "a", "contentType": "image/png" });
    partner.call("/photos/photo/signed", &body).ok();
    let mut busy = partner.call("/albums/progress", &on_album).ok();
    // The rate is measured over ten seconds; on a slow machine one or both photos may have finished before.
    let (rate, left) = (busy["photosPerSecond"].take(), busy["secondsLeft"].take());
    let expected = json!({
        "albumId": album, "total": 4, "awaitingUpload": 1, "queued": 1, "processing": 0, "ready": 1, "failed": 1,
        "photosPerSecond": null, "secondsLeft": null, "bottleneck": "read",
    });
    assert_eq!(busy, expected);
    let measured = (rate.as_f64(), left.as_f64());
    let possible = [(Some(0.2), Some(5.0)), (Some(0.1), Some(10.0)), (Some(0.0), None)];
    assert!(possible.contains(&measured), "{measured:?}");
}

#[test]
fn a_stream_sends_progress_until_the_album_is_idle() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.queued_photo(&partner, album_id);
    let mut stream = open_stream(&service, partner.key.as_ref().unwrap(), &album);
    let head = stream.read_until("\r\n\r\n");
    assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("x-request-id: "), "{head}");
    let (name, first) = next_event(&mut stream);
    assert_eq!((name.as_str(), &first["queued"]), ("message", &json!(1)));

    // Fail the photo, as the pipeline would.
    service.block_on(async {
        let request = photofinish_store::traits::LeaseRequest {
            limit: 1,
            ttl: crate::support::DEADLINE,
            kind: photofinish_store::traits::LeaseKind::Fresh,
        };
        let lease = service.store.queue.lease(request).await.unwrap().pop().unwrap();
        let reason = photofinish_store::model::photo::FailureReason::TooLarge;
        service.store.queue.fail(&lease, reason, "").await.unwrap();
    });
    let last = loop {
        let (name, data) = next_event(&mut stream);
        if name == "done" {
            break data;
        }
        assert_eq!(name, "message");
    };
    assert_eq!((&last["queued"], &last["failed"]), (&json!(0), &json!(1)));
}

#[test]
fn a_stream_of_an_idle_album_sends_progress_and_done() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let headers = [("accept", "text/event-stream")];
    let response =
        partner.send("POST /openapi/albums/progress", &headers, json!({ "albumId": album }).to_string());
    let text = String::from_utf8(response.bytes).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["message", "done"]);
}

#[test]
fn an_error_before_a_stream_starts_is_an_ordinary_response() {
    let service = TestService::start();
    let partner = service.partner();
    let send = |body: Value| {
        partner.send("POST /openapi/albums/progress", &[("accept", "text/event-stream")], body.to_string())
    };
    send(json!({ "albumId": unknown_id() })).defined_error(404, "NOT_FOUND");
    assert_eq!(send(json!({})).issues().len(), 1);
}

#[test]
fn a_stream_of_a_deleted_album_ends_with_an_error_event() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.queued_photo(&partner, album_id);
    let mut stream = open_stream(&service, partner.key.as_ref().unwrap(), &album);
    stream.read_until("\r\n\r\n");
    assert_eq!(next_event(&mut stream).0, "message");
    partner.call("/albums/delete", &json!({ "albumId": album })).ok();
    let error = loop {
        let (name, data) = next_event(&mut stream);
        if name == "error" {
            break data;
        }
    };
    let expected = json!({ "defined": true, "code": "NOT_FOUND", "status": 404, "message": "Not Found" });
    assert_eq!(error, expected);
}

#[test]
fn a_stream_ends_with_an_error_event_when_its_key_is_revoked() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.queued_photo(&partner, album_id);
    let key = partner.key.as_ref().unwrap();
    let mut stream = open_stream(&service, key, &album);
    stream.read_until("\r\n\r\n");
    assert_eq!(next_event(&mut stream).0, "message");
    service.revoke_elsewhere(key);
    let error = loop {
        let (name, data) = next_event(&mut stream);
        if name == "error" {
            break data;
        }
        assert_eq!((name.as_str(), &data["queued"]), ("message", &json!(1)));
    };
    let expected = json!({
        "defined": true, "code": "UNAUTHORIZED", "status": 401, "message": "Unauthorized",
        "data": { "code": "KEY_REVOKED" },
    });
    assert_eq!(error, expected);
}

/// However many keys it has.
#[test]
fn an_organization_has_a_quarter_of_all_streams() {
    let service = TestService::start();
    let partners = [(); 3].map(|()| service.partner());
    let open = |partner: &Partner| {
        let (album, album_id) = partner.create_album();
        service.queued_photo(partner, album_id);
        let mut stream = open_stream(&service, partner.key.as_ref().unwrap(), &album);
        let head = stream.read_until("\r\n\r\n");
        (stream, head)
    };
    let streams: Vec<(RawConnection, String)> =
        (0..250).map(|number| open(&partners[number % partners.len()])).collect();
    assert!(streams.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    let (mut refused, head) = open(&partners[0]);
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    refused.read_until("TOO_MANY_STREAMS");
    let other = service.partner_with("River Timing", KeyMode::Live, &Scope::ALL);
    let (_stream, head) = open(&other);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

#[test]
fn a_draining_service_ends_its_streams_with_a_503() {
    let mut service = TestService::start();
    let partner = service.partner();
    let (album, album_id) = partner.create_album();
    service.queued_photo(&partner, album_id);
    let mut stream = open_stream(&service, partner.key.as_ref().unwrap(), &album);
    stream.read_until("\r\n\r\n");
    assert_eq!(next_event(&mut stream).0, "message");
    service.stop();
    let error = loop {
        let (name, data) = next_event(&mut stream);
        if name == "error" {
            break data;
        }
    };
    assert_eq!(error["code"], json!("SERVICE_UNAVAILABLE"));
    service.wait_until_stopped();
}
