//! Connections: reuse, time limits and graceful shutdown.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::TestService;
use crate::support::raw::RawConnection;

#[test]
fn a_stopping_service_finishes_requests_in_flight_and_accepts_no_others() {
    let mut service = TestService::start();
    let key = service.partner().key.unwrap();
    let mut slow = RawConnection::connect(&service);
    let body = json!({ "title": "In flight" }).to_string();
    slow.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    ));
    // The 100 shows that the request is being handled.
    assert!(slow.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"));
    service.stop();
    service.block_on(service.draining.wait_until_begun());
    slow.write(&body);
    let response = slow.read_response();
    assert_eq!(response.header("connection"), "close");
    assert_eq!(response.ok()["title"], json!("In flight"));
    service.wait_until_stopped();
    assert!(TcpStream::connect(service.address).is_err());
}

#[test]
fn idle_connections_do_not_delay_a_stop() {
    let mut service = TestService::start();
    let mut idle = RawConnection::connect(&service);
    idle.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(idle.read_response().status, 200);
    service.stop();
    service.wait_until_stopped();
    assert!(idle.is_closed());
}

#[test]
fn a_connection_that_sends_no_request_head_in_time_is_closed() {
    let service = TestService::start_with(|settings| settings.head_timeout = Duration::from_millis(100));
    // Nothing, one letter, an incomplete head, and the preface of HTTP/2, which is not supported.
    for sent in ["", "P", "POST /openapi/albums/list HTTP/1.1\r\nhost:", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut silent = RawConnection::connect(&service);
        silent.write(sent);
        assert!(silent.closes_after_reading(), "{sent:?}");
    }
}

#[test]
fn a_connection_serves_many_requests() {
    let service = TestService::start();
    let key = service.partner().key.unwrap();
    let mut raw = RawConnection::connect(&service);
    for _ in 0..3 {
        raw.write(&format!("POST /openapi/albums/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n"));
        raw.read_response().ok();
        raw.write("POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}");
        raw.read_response().defined_error(401, "UNAUTHORIZED");
    }
}

#[test]
fn a_malformed_request_does_not_affect_other_connections() {
    let service = TestService::start();
    let mut raw = RawConnection::connect(&service);
    raw.write("this is not http\r\n\r\n");
    assert!(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(service.partner().send("GET /healthz", &[], "").status, 200);
}
