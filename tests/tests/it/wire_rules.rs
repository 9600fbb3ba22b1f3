//! The wire rules: what every answer has, whatever was asked.

use std::time::Duration;

use photofinish_tests::harness::raw_http::RawConnection;
use photofinish_tests::harness::{Service, ServiceOptions, SharedService, SharedServiceRef};
use serde_json::{Value, json};

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_request_id_is_echoed_and_made_when_there_is_none() {
    let service = service();
    let partner = service.partner();
    let echoed = partner.post("/albums/list", &[JSON, ("x-request-id", "run-7.of-9")], b"{}");
    assert_eq!(echoed.header("x-request-id"), Some("run-7.of-9"));
    let failed = service.partner_with("").post("/albums/list", &[JSON, ("x-request-id", "run-8")], b"{}");
    assert_eq!(failed.header("x-request-id"), Some("run-8"));
    let (one, two) = (partner.call("/albums/list", &json!({})), partner.call("/albums/list", &json!({})));
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
}

#[test]
fn a_trailing_slash_is_served_and_not_redirected() {
    let service = service();
    let album = service.partner().call("/albums/create/", &json!({ "title": "Slash" })).expect_ok();
    assert_eq!(album["title"], "Slash");
}

#[test]
fn a_list_call_may_have_no_body_and_no_content_type() {
    let service = service();
    let mut connection = RawConnection::connect(service.port());
    let key = service.partner().key().to_owned();
    connection.send_head("POST", "/openapi/albums/list", &[("x-api-key", &key), ("content-length", "0")]);
    let page = connection.read_response().expect_ok();
    assert!(page["albums"].is_array() && page["total"].is_number(), "{page}");
    assert!(page.as_object().is_some_and(|page| page.contains_key("nextCursor")), "{page}");
}

#[test]
fn a_body_without_a_content_type_is_read_as_json() {
    let service = service();
    let body = br#"{"title":"Untyped"}"#;
    let mut connection = RawConnection::connect(service.port());
    let key = service.partner().key().to_owned();
    let length = body.len().to_string();
    connection.send_head(
        "POST",
        "/openapi/albums/create",
        &[("x-api-key", &key), ("content-length", &length)],
    );
    connection.send_body(body);
    assert_eq!(connection.read_response().expect_ok()["title"], "Untyped");
}

#[test]
fn a_json_content_type_may_have_parameters_and_any_case() {
    let service = service();
    let partner = service.partner();
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        partner
            .post("/albums/create", &[("content-type", content_type)], br#"{"title":"Typed"}"#)
            .expect_ok();
    }
}

#[test]
fn another_content_type_is_415() {
    let service = service();
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense"]
    {
        let answer = service.partner().post("/albums/create", &[("content-type", content_type)], b"{}");
        answer.expect_defined_error(415);
    }
}

#[test]
fn another_method_is_405_with_allow_and_an_unknown_path_404() {
    let service = service();
    let partner = service.partner();
    let key = partner.key().to_owned();
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let mut connection = RawConnection::connect(service.port());
        connection.send_head(method, "/openapi/albums/list", &[("x-api-key", &key)]);
        let answer = connection.read_response();
        answer.expect_defined_error(405);
        let allowed: Vec<&str> = answer.header("allow").unwrap_or_default().split(", ").collect();
        assert!(allowed.contains(&"POST") && !allowed.contains(&method), "{method}: {allowed:?}");
    }
    partner.call("/albums/nothing", &json!({})).expect_defined_error(404);
    partner.call("/", &json!({})).expect_defined_error(404);
    partner.get(&format!("{}/elsewhere", service.origin())).expect_defined_error(404);
}

#[test]
fn a_refused_request_does_not_cost_the_client_its_connection() {
    let service = service();
    let key = service.partner().key().to_owned();
    for (line, status) in
        [("POST /openapi/no/such/path", 404), ("POST /elsewhere", 404), ("PUT /openapi/albums/list", 405)]
    {
        let mut connection = RawConnection::connect(service.port());
        connection.send_body(format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n").as_bytes());
        // Many clients send the body by a second write, which may be late.
        std::thread::sleep(Duration::from_millis(50));
        connection.send_body(b"{}");
        connection.send_head("POST", "/openapi/albums/list", &[("x-api-key", &key), ("content-length", "0")]);
        assert_eq!(connection.read_statuses(), [status, 200], "{line}");
    }
}

#[test]
fn malformed_json_is_said_to_be_so() {
    let service = service();
    for body in [&b"{"[..], b"{\"title\": }", b"\xff\xfe", b"{} {}"] {
        let (message, data) =
            service.partner().post("/albums/create", &[JSON], body).expect_undefined_error(400);
        assert_eq!(data, Value::Null);
        assert_ne!(message, "Input validation failed");
        assert!(message.to_lowercase().contains("json"), "{message}");
    }
}

#[test]
fn every_input_issue_is_listed_at_once() {
    let service = service();
    let partner = service.partner();
    assert_eq!(partner.call("/albums/create", &json!({})).expect_issues(), ["title"]);
    assert_eq!(
        partner.call("/albums/create", &json!({ "title": "", "coverUrl": 7 })).expect_issues(),
        ["coverUrl", "title"]
    );
    assert_eq!(
        partner.call("/photos/photo/signed", &json!({ "albumId": "seven" })).expect_issues(),
        ["albumId", "contentType", "filename"]
    );
    let config = json!({ "title": "x", "tags": "y", "config": {
        "face": { "confidenceThreshold": 101, "grid": { "rows": 0, "columns": 17, "cellWidth": 63, "cellHeight": 64 } },
        "text": { "mode": "cells", "enabled": "yes" },
        "preview": { "maxDimension": 63 }, "thumbnail": { "maxDimension": 8193 },
    }});
    assert_eq!(
        partner.call("/albums/create", &config).expect_issues(),
        [
            "config.face.confidenceThreshold",
            "config.face.grid.cellWidth",
            "config.face.grid.columns",
            "config.face.grid.rows",
            "config.preview.maxDimension",
            "config.text.enabled",
            "config.text.mode",
            "config.thumbnail.maxDimension",
            "tags",
        ]
    );
}

#[test]
fn a_body_that_is_no_object_is_an_input_issue() {
    let service = service();
    for body in [json!([]), json!("title"), json!(7), Value::Null] {
        service.partner().call("/albums/create", &body).expect_issues();
    }
}

#[test]
fn unknown_input_fields_are_ignored() {
    let service = service();
    let album = service.partner().call_ok("/albums/create", &json!({ "title": "Known", "weather": "rain" }));
    assert!(album.get("weather").is_none());
}

#[test]
fn authentication_is_judged_before_the_body() {
    let service = service();
    let nobody = service.partner_with("");
    nobody.post("/albums/create", &[JSON], b"{ not json").expect_defined_error(401);
    nobody.post("/albums/create", &[("content-type", "text/plain")], b"x").expect_defined_error(401);
    let reader = service.create_key(&["search:read"], "test");
    service.partner_with(&reader).post("/albums/create", &[JSON], b"{ not json").expect_defined_error(403);
}

#[test]
fn a_body_over_the_limit_is_413_with_and_without_a_length() {
    let service = service();
    let partner = service.partner();
    let large = vec![b' '; (4 << 20) + 1];
    partner.post("/albums/create", &[JSON], &large).expect_defined_error(413);

    let key = partner.key().to_owned();
    let mut declared = RawConnection::connect(service.port());
    declared.send_head(
        "POST",
        "/openapi/albums/create",
        &[("x-api-key", &key), JSON, ("content-length", "99999999")],
    );
    declared.read_response().expect_defined_error(413);

    let mut chunked = RawConnection::connect(service.port());
    chunked.send_head(
        "POST",
        "/openapi/albums/create",
        &[("x-api-key", &key), JSON, ("transfer-encoding", "chunked")],
    );
    for _ in 0..160 {
        if !chunked.send_chunk(&[b' '; 1 << 15]) {
            break;
        }
    }
    chunked.read_response().expect_defined_error(413);
}

#[test]
fn a_chunked_body_within_the_limit_is_read() {
    let service = service();
    let key = service.partner().key().to_owned();
    let mut connection = RawConnection::connect(service.port());
    connection.send_head(
        "POST",
        "/openapi/albums/create",
        &[("x-api-key", &key), JSON, ("transfer-encoding", "chunked")],
    );
    connection.send_chunk(br#"{"title":"#);
    connection.send_chunk(br#""In pieces"}"#);
    connection.send_body(b"0\r\n\r\n");
    assert_eq!(connection.read_response().expect_ok()["title"], "In pieces");
}

#[test]
fn a_slow_body_is_408() {
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_BODY_SECONDS", "1"));
    let key = service.partner().key().to_owned();
    let mut connection = RawConnection::connect(service.port());
    connection.send_head(
        "POST",
        "/openapi/albums/create",
        &[("x-api-key", &key), JSON, ("content-length", "100")],
    );
    connection.send_body(b"{");
    let begun = std::time::Instant::now();
    connection.read_response().expect_defined_error(408);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn no_answer_carries_a_null_data_or_a_foreign_content_type() {
    let service = service();
    let partner = service.partner();
    let nobody = service.partner_with("");
    let missing = "01890000-0000-7000-8000-000000000000";
    let answers = [
        nobody.call("/albums/list", &json!({})),
        partner.call("/albums/get", &json!({ "albumId": missing })),
        partner.call("/photos/search/face/list", &json!({ "albumId": missing, "imageId": missing })),
        partner.call("/albums/create", &json!({ "title": 1 })),
    ];
    for answer in answers {
        let status = answer.status;
        let body = answer.json();
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(
            body.as_object().is_some_and(|body| !body.contains_key("data") || !body["data"].is_null()),
            "{body}"
        );
        assert_eq!(body["status"], status);
    }
}
