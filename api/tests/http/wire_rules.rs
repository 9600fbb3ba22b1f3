//! The rules that every request and response follows, whatever the operation.

use std::time::Duration;

use photofinish_store::model::key::{KeyMode, Scope};
use serde_json::{Value, json};

use crate::support::raw::RawConnection;
use crate::support::{Partner, TestService, unknown_id};

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn all_issues_of_an_input_are_returned_at_once() {
    let service = TestService::start();
    let body = json!({
        "title": "", "coverUrl": "no uri", "tags": ["ok", 5],
        "config": { "face": { "confidenceThreshold": 101, "mode": "blink" }, "preview": { "maxDimension": 64.5 } },
    });
    let issues = service.partner().call("/albums/create", &body).issues();
    let expected = [
        (r#"["title"]"#, "too_small"),
        (r#"["coverUrl"]"#, "invalid_format"),
        (r#"["tags",1]"#, "invalid_type"),
        (r#"["config","face","confidenceThreshold"]"#, "too_big"),
        (r#"["config","face","mode"]"#, "invalid_value"),
        (r#"["config","preview","maxDimension"]"#, "not_multiple_of"),
    ];
    assert_eq!(issues, expected.map(|(path, code)| (path.to_owned(), code.to_owned())));
}

#[test]
fn malformed_json_is_reported_without_data() {
    let service = TestService::start();
    for malformed in ["{", "{\"title\": }", "nonsense", "\u{feff}{}", "{} {}", "\"\\ud800\"", " "] {
        let response = service.partner().send("POST /openapi/albums/create", &[JSON], malformed);
        let body = response.undefined_error(400, "BAD_REQUEST");
        assert!(body["message"].as_str().unwrap().starts_with("Malformed JSON"), "{body}");
        assert!(body.get("data").is_none(), "{body}");
    }
    let not_utf8 = service.partner().send("POST /openapi/albums/create", &[JSON], b"\xff\xfe");
    not_utf8.undefined_error(400, "BAD_REQUEST");
    let deep = "[".repeat(60_000);
    service.partner().send("POST /openapi/albums/create", &[JSON], deep).undefined_error(400, "BAD_REQUEST");
}

#[test]
fn a_body_that_is_no_object_is_an_issue() {
    let service = TestService::start();
    for body in [json!([]), json!("title"), json!(null), json!(4)] {
        let issues = service.partner().call("/albums/create", &body).issues();
        assert_eq!(issues, [("[]".to_owned(), "invalid_type".to_owned())]);
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let service = TestService::start();
    let body = json!({ "title": "T", "surprise": { "deep": [1] }, "config": { "unknown": null } });
    service.partner().call("/albums/create", &body).ok();
}

#[test]
fn no_body_is_fine_where_no_field_is_required() {
    let service = TestService::start();
    let partner = service.partner();
    let response = partner.send("POST /openapi/albums/list", &[], "");
    assert_eq!(response.ok()["total"], json!(0));
    let response = partner.send("POST /openapi/albums/create", &[], "");
    assert_eq!(response.issues(), [("[]".to_owned(), "required".to_owned())]);
}

#[test]
fn a_missing_content_type_is_read_as_json_and_another_is_refused() {
    let service = TestService::start();
    let partner = service.partner();
    let create = |headers: &[(&str, &str)]| {
        partner.send("POST /openapi/albums/create", headers, json!({ "title": "T" }).to_string())
    };
    create(&[]).ok();
    create(&[("content-type", "application/json; charset=utf-8")]).ok();
    create(&[("content-type", "Application/JSON")]).ok();
    for refused in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "nonsense",
    ] {
        create(&[("content-type", refused)]).defined_error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    create(&[JSON, ("content-encoding", "gzip")]).defined_error(415, "UNSUPPORTED_MEDIA_TYPE");
}

#[test]
fn a_trailing_slash_is_served_and_nothing_is_redirected() {
    let service = TestService::start();
    let partner = service.partner();
    partner.send("POST /openapi/albums/list/", &[JSON], "{}").ok();
    partner.send("POST /openapi/albums/list//", &[JSON], "{}").defined_error(404, "NOT_FOUND");
    for path in ["/openapi", "/openapi/", "/openapi/albums", "/openapi/albums/lists", "/v1/albums/list"] {
        partner.send(&format!("POST {path}"), &[JSON], "{}").defined_error(404, "NOT_FOUND");
        partner.send(&format!("GET {path}"), &[], "").defined_error(404, "NOT_FOUND");
    }
}

#[test]
fn other_methods_get_a_405_with_the_allowed_ones() {
    let service = TestService::start();
    let partner = service.partner();
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let response = partner.send(&format!("{method} /openapi/albums/create"), &[], "");
        assert_eq!(response.header("allow"), "POST, OPTIONS");
        response.defined_error(405, "METHOD_NOT_SUPPORTED");
    }
    let response = partner.send("OPTIONS /openapi/albums/create", &[], "");
    assert_eq!((response.status, response.header("allow")), (204, "POST, OPTIONS"));
    let response = partner.send("HEAD /openapi/albums/create", &[], "");
    assert_eq!((response.status, response.bytes.len()), (405, 0));
    let response = partner.send("POST /openapi/openapi.json", &[], "");
    assert_eq!(response.header("allow"), "GET, HEAD, OPTIONS");
    response.defined_error(405, "METHOD_NOT_SUPPORTED");
}

#[test]
fn authentication_is_checked_before_the_rest_of_the_request() {
    let service = TestService::start();
    let anonymous = Partner::new(&service, None);
    let send =
        |headers: &[(&str, &str)], body: &str| anonymous.send("POST /openapi/albums/create", headers, body);
    send(&[JSON], "{}").defined_error(401, "UNAUTHORIZED");
    send(&[JSON], "{").defined_error(401, "UNAUTHORIZED");
    send(&[("content-type", "text/plain")], "{").defined_error(401, "UNAUTHORIZED");
    send(&[JSON, ("accept", "image/png")], "{").defined_error(401, "UNAUTHORIZED");
    send(&[JSON], &"x".repeat(1_000_000)).defined_error(401, "UNAUTHORIZED");
    let searcher = service.partner_with("Lake Timing", KeyMode::Live, &[Scope::SearchRead]);
    searcher.send("POST /openapi/albums/create", &[JSON], "{").defined_error(403, "FORBIDDEN");
}

#[test]
fn a_body_over_its_limit_is_413_whether_it_says_so_or_not() {
    let service = TestService::start();
    let partner = service.partner();
    let body = json!({ "title": "T", "more": "x".repeat(200_000) }).to_string();
    partner.send("POST /openapi/albums/create", &[JSON], &body).defined_error(413, "PAYLOAD_TOO_LARGE");
    // The body was read to its end, so the connection can be reused.
    partner.call("/albums/list", &json!({})).ok();

    let mut raw = RawConnection::connect(&service);
    let key = partner.key.as_ref().unwrap();
    raw.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    for _ in 0..3 {
        raw.write(&format!("{:x}\r\n{}\r\n", 50_000, "x".repeat(50_000)));
    }
    raw.write("0\r\n\r\n");
    raw.read_response().defined_error(413, "PAYLOAD_TOO_LARGE");
}

#[test]
fn a_refused_request_gets_no_100_continue() {
    let service = TestService::start();
    let mut raw = RawConnection::connect(&service);
    raw.write("POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
    raw.read_response().defined_error(401, "UNAUTHORIZED");
    assert!(raw.is_closed());
}

#[test]
fn a_chunked_body_within_its_limit_is_read() {
    let service = TestService::start();
    let key = service.partner().key.unwrap();
    let mut raw = RawConnection::connect(&service);
    raw.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ntransfer-encoding: chunked\r\n\r\n\
         9\r\n{{\"title\":\r\n4\r\n\"T\"}}\r\n0\r\n\r\n"
    ));
    assert_eq!(raw.read_response().ok()["title"], json!("T"));
}

#[test]
fn a_slow_body_is_408() {
    let service = TestService::start_with(|settings| settings.body_timeout = Duration::from_millis(50));
    let key = service.partner().key.unwrap();
    let mut raw = RawConnection::connect(&service);
    raw.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 50\r\n\r\n{{"
    ));
    raw.read_response().defined_error(408, "TIMEOUT");
    assert!(raw.is_closed());
}

#[test]
fn request_ids_are_echoed_or_made() {
    let service = TestService::start();
    let partner = service.partner();
    let send = |id: &str| partner.send("POST /openapi/albums/list", &[("x-request-id", id)], "");
    assert_eq!(send("partner 42/é".trim_end_matches("/é")).header("x-request-id"), "partner 42");
    let long = "x".repeat(200);
    assert_ne!(send(&long).header("x-request-id"), long);
    let (one, two) = (partner.call("/albums/list", &json!({})), partner.call("/albums/list", &json!({})));
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
    assert!(!partner.send("GET /nowhere", &[], "").header("x-request-id").is_empty());
}

#[test]
fn only_an_accept_that_excludes_json_is_406() {
    let service = TestService::start();
    let partner = service.partner();
    let send = |accept: &str| partner.send("POST /openapi/albums/list", &[("accept", accept)], "");
    let both = "application/json, text/event-stream";
    for accepted in ["*/*", "application/json", "application/*", "text/html, */*;q=0.1", both] {
        send(accepted).ok();
    }
    for excluded in ["image/png", "text/html", "text/event-stream"] {
        send(excluded).defined_error(406, "NOT_ACCEPTABLE");
    }
}

#[test]
fn a_handler_that_panics_returns_a_500_without_details() {
    let service = TestService::start();
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let image = partner.upload_selfie(&album, b"bug");
    let search = json!({ "albumId": album, "imageId": image });
    let body =
        partner.call("/photos/search/face/list", &search).undefined_error(500, "INTERNAL_SERVER_ERROR");
    let expected = json!({ "defined": false, "code": "INTERNAL_SERVER_ERROR", "status": 500,
        "message": "Internal server error" });
    assert_eq!(body, expected);
    partner.call("/albums/get", &json!({ "albumId": album })).ok();
}

#[test]
fn an_unavailable_store_is_a_503() {
    let service = TestService::start();
    let partner = service.partner();
    service.block_on(service.store.close());
    partner.call("/albums/list", &json!({})).defined_error(503, "SERVICE_UNAVAILABLE");
}

#[test]
fn uuids_are_checked_and_other_ids_are_simply_unknown() {
    let service = TestService::start();
    let partner = service.partner();
    let refused = ["x", "", "01932c0793a17c408b1f2d5e6f708192", "{01932c07-93a1-7c40-8b1f-2d5e6f708192}"];
    for album in refused {
        let issues = partner.call("/albums/get", &json!({ "albumId": album })).issues();
        assert_eq!(issues, [(r#"["albumId"]"#.to_owned(), "invalid_format".to_owned())]);
    }
    let (album, _) = partner.create_album();
    for photo in [json!("x"), json!(""), unknown_id()] {
        let body = json!({ "albumId": album, "photoId": photo });
        partner.call("/photos/photo/get", &body).defined_error(404, "NOT_FOUND");
    }
    let body = json!({ "albumId": album, "photoId": 5 });
    let issues = partner.call("/photos/photo/get", &body).issues();
    assert_eq!(issues, [(r#"["photoId"]"#.to_owned(), "invalid_type".to_owned())]);
}

#[test]
fn a_not_found_error_has_no_data() {
    let service = TestService::start();
    let body: Value = service.partner().call("/albums/get", &json!({ "albumId": unknown_id() })).json();
    let expected = json!({ "defined": true, "code": "NOT_FOUND", "status": 404, "message": "Not Found" });
    assert_eq!(body, expected);
}

#[test]
fn a_declared_length_over_the_limit_is_413_before_the_body_is_sent() {
    let service = TestService::start();
    let key = service.partner().key.unwrap();
    let mut raw = RawConnection::connect(&service);
    raw.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nexpect: 100-continue\r\n\
         content-length: 99999999\r\n\r\n"
    ));
    raw.read_response().defined_error(413, "PAYLOAD_TOO_LARGE");
}

#[test]
fn a_refused_request_keeps_its_connection() {
    let service = TestService::start();
    let key = service.partner().key.unwrap();
    for (line, status) in [
        ("POST /openapi/no/such/path", 404),
        ("POST /elsewhere", 404),
        ("PUT /openapi/albums/list", 405),
        ("POST /openapi/openapi.json", 405),
        ("POST /.well-known/photofinish-keys.json", 405),
        ("POST /console", 405),
        ("POST /healthz", 405),
        ("POST /downloads/none", 405),
        ("DELETE /storage/none", 405),
        ("OPTIONS /openapi/albums/list", 204),
        ("OPTIONS /console", 204),
        ("OPTIONS /storage/none", 204),
    ] {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"));
        // Many clients send the body in a second write, which may be late.
        std::thread::sleep(Duration::from_millis(50));
        raw.write("{}");
        assert_eq!(raw.read_response().status, status, "{line}");
        raw.write(&format!(
            "POST /openapi/albums/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 0\r\n\r\n"
        ));
        raw.read_response().ok();
    }
}
