//! Starting, stopping, and what happens between.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::Service;
use crate::support::raw::Raw;

#[test]
fn a_request_in_flight_is_answered_and_no_other_is_taken() {
    let mut service = Service::start();
    let key = service.partner().key.unwrap();
    let mut slow = Raw::connect(&service);
    let body = json!({ "title": "In flight" }).to_string();
    slow.write(&format!(
        "POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    ));
    // Told to go on: the request is being handled.
    assert!(slow.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"));
    service.stop();
    service.block_on(service.draining.begun());
    slow.write(&body);
    let answer = slow.answer();
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(answer.ok()["title"], json!("In flight"));
    service.stopped();
    assert!(TcpStream::connect(service.address).is_err());
}

#[test]
fn idle_connections_do_not_hold_a_stop_up() {
    let mut service = Service::start();
    let mut idle = Raw::connect(&service);
    idle.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(idle.answer().status, 200);
    service.stop();
    service.stopped();
    assert!(idle.is_closed());
}

#[test]
fn a_connection_that_sends_no_head_in_time_is_closed() {
    let service = Service::with(|settings| settings.head_timeout = Duration::from_millis(100));
    // Nothing, a letter, and the preface of HTTP/2, which is not spoken here.
    for sent in ["", "P", "POST /openapi/albums/list HTTP/1.1\r\nhost:", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut silent = Raw::connect(&service);
        silent.write(sent);
        assert!(silent.ends(), "{sent:?}");
    }
}

#[test]
fn a_connection_serves_many_requests() {
    let service = Service::start();
    let key = service.partner().key.unwrap();
    let mut raw = Raw::connect(&service);
    for _ in 0..3 {
        raw.write(&format!("POST /openapi/albums/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n"));
        raw.answer().ok();
        raw.write("POST /openapi/albums/create HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}");
        raw.answer().defined(401, "UNAUTHORIZED");
    }
}

#[test]
fn nonsense_on_the_wire_harms_nobody() {
    let service = Service::start();
    let mut raw = Raw::connect(&service);
    raw.write("this is not http\r\n\r\n");
    assert!(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(service.partner().send("GET /healthz", &[], "").status, 200);
}
