//! What an operator sees of one photo and of one request: traces in a collector, and log lines with their ids.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, free_port, wait_until};
use serde_json::{Value, json};

use crate::end_to_end::finish_photo;
use crate::trace_collector::{Collector, ReceivedSpan};

/// The stages of a photo, in order.
const STAGES: [&str; 7] = ["fetch", "decode", "resize", "detect", "embed", "read", "index"];
/// The trace and the span of a partner that calls.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

const STOP_TIMEOUT: Duration = Duration::from_secs(20);

fn options_with_traces(port: u16) -> ServiceOptions {
    ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_LOG", "info")
        .with_setting("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn names(spans: &[ReceivedSpan]) -> Vec<&str> {
    spans.iter().map(|sent| sent.span.name.as_str()).collect()
}

fn has_failed(sent: &ReceivedSpan) -> bool {
    sent.span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

#[test]
fn a_photo_is_a_trace_with_every_stage() {
    let port = free_port();
    let collector = Collector::listen(port);
    let options = options_with_traces(port)
        .with_setting("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collector");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Traced");
    let whole = finish_photo().to_jpeg();
    let photo = partner.upload_photo(&album, "whole.jpg", &whole);
    let torn = partner.upload_photo(&album, "torn.jpg", &whole[..whole.len() / 2]);
    partner.wait_until_idle(&album);
    // A stop sends the remaining spans.
    assert_eq!(service.terminate(STOP_TIMEOUT).code, Some(0));

    let traces = collector.find("photo", "photo.id", &photo);
    let [trace] = &traces[..] else { panic!("not one trace of the photo: {traces:?}") };
    assert_eq!((trace.field("album.id"), trace.field("outcome")), (album.as_str(), "ready"));
    assert!(trace.span.parent_span_id.is_empty() && !has_failed(trace), "{trace:?}");
    let stages = collector.children(trace);
    assert_eq!(names(&stages), STAGES);
    for stage in &stages {
        assert!(!stage.field("batch_size").is_empty() && !stage.field("wait_ms").is_empty(), "{stage:?}");
        // It may end later: the thread of the database leaves the span of the stage a moment after it has returned.
        let begin = stage.span.start_time_unix_nano;
        let (first, last) = (trace.span.start_time_unix_nano, trace.span.end_time_unix_nano);
        assert!(first <= begin && begin <= last, "{trace:?} {stage:?}");
    }
    let resource = |name: &str| trace.resource.get(name).map(String::as_str);
    assert_eq!((resource("service.name"), resource("role")), (Some("photofinish"), Some("all")));
    assert_eq!(resource("service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(trace.headers["authorization"], "Bearer collector");

    let traces = collector.find("photo", "photo.id", &torn);
    assert!(
        traces.len() == 1 && traces[0].field("outcome") == "failed" && has_failed(&traces[0]),
        "{traces:?}"
    );
    assert_eq!(names(&collector.children(&traces[0])), STAGES[..2]);
}

#[test]
fn a_request_continues_the_trace_of_its_caller() {
    let port = free_port();
    let collector = Collector::listen(port);
    let service = Service::start(options_with_traces(port));
    let partner = service.partner();
    let album = partner.create_album("Searched");
    let image = partner.upload_selfie(&album, &TestPhoto::selfie(3).to_jpeg());
    let search = json!({ "albumId": album, "imageId": image }).to_string();
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", traceparent.as_str()),
        ("x-request-id", "finish line 7"),
    ];
    partner.post("/photos/search/face/list", &headers, search.as_bytes()).expect_ok();
    assert_eq!(service.terminate(STOP_TIMEOUT).code, Some(0));

    let requests = collector.find("photos.search.face.list", "request.id", "finish line 7");
    let [request] = &requests[..] else { panic!("one span of the request: {requests:?}") };
    assert_eq!(
        (hex(&request.span.trace_id), hex(&request.span.parent_span_id)),
        (TRACE.into(), CALLER.into())
    );
    assert_eq!((request.span.kind(), request.field("status")), (SpanKind::Server, "200"));
    assert_eq!(names(&collector.children(request)), ["probe"]);
    assert!(!names(&collector.spans()).contains(&"admin"), "health checks make no traces");
    let made = collector.find("albums.create", "method", "POST");
    assert!(made.len() == 1 && made[0].span.parent_span_id.is_empty(), "{made:?}");
}

#[test]
fn unsampled_traces_are_not_sent() {
    let port = free_port();
    let collector = Collector::listen(port);
    let service = Service::start(options_with_traces(port).with_setting("OTEL_TRACES_SAMPLER", "always_off"));
    let partner = service.partner();
    let album = partner.create_album("Left out");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(service.terminate(STOP_TIMEOUT).code, Some(0));
    assert_eq!(names(&collector.spans()), [""; 0]);
}

#[test]
fn an_unavailable_collector_blocks_nothing_and_is_used_once_it_is_available() {
    let port = free_port();
    let service = Service::start(options_with_traces(port).with_setting("OTEL_BSP_SCHEDULE_DELAY", "50"));
    let partner = service.partner();
    let album = partner.create_album("Nobody listens");
    let count_lines = |text: &str| service.log().matches(text).count();
    partner.upload_photo(&album, "early.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    wait_until("a line about it", || count_lines("failed to export traces") == 1);
    let collector = Collector::listen(port);
    let late = partner.upload_photo(&album, "late.jpg", &finish_photo().to_jpeg());
    assert_eq!(partner.wait_until_idle(&album)["ready"], 2);
    wait_until("the late photo's trace", || !collector.find("photo", "photo.id", &late).is_empty());
    wait_until("a line about the recovery", || count_lines("exporting traces again") == 1);
    assert_eq!(count_lines("failed to export traces"), 1, "one line for all that was lost");
    assert_eq!(service.terminate(STOP_TIMEOUT).code, Some(0));
}

#[test]
fn a_log_line_about_a_photo_or_a_request_carries_its_ids() {
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_LOG", "info")
        .with_setting("PHOTOFINISH_LOG_FORMAT", "json");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Logged");
    let photo = partner.upload_photo(&album, "torn.jpg", &finish_photo().to_jpeg()[..5000]);
    partner.wait_until_idle(&album);
    let delete = json!({ "albumId": album }).to_string();
    let headers = [("content-type", "application/json"), ("x-request-id", "tidy up")];
    partner.post("/albums/delete", &headers, delete.as_bytes()).expect_ok();

    // Logged a moment after the photo is listed as failed.
    wait_until("a line about the photo", || service.log().contains("photo failed"));
    let log = service.log();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let span_of = |message: &str| {
        let line = lines.iter().find(|line| line["fields"]["message"] == message);
        line.unwrap_or_else(|| panic!("no line `{message}` in {log}"))["span"].clone()
    };
    let span = span_of("photo failed");
    assert_eq!((&span["photo.id"], &span["album.id"]), (&json!(photo), &json!(album)), "{span}");
    assert_eq!((&span["name"], &span["attempt"]), (&json!("photo"), &json!(1)), "{span}");
    assert_eq!(span_of("album deleted")["request.id"], "tidy up");
}
