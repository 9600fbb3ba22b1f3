//! Heads of requests that no operation sees: too long, malformed, or with a target that is no path.

use crate::support::TestService;
use crate::support::raw::RawConnection;

#[test]
fn a_head_over_32_kilobytes_is_431_however_it_is_sent() {
    let service = TestService::start();
    let long_value = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(33_000));
    let long_target = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(33_000));
    let many_fields = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    let unfinished = format!("GET /healthz HTTP/1.1\r\nx-long: {}", "x".repeat(200_000));
    for head in [long_value, long_target, many_fields, unfinished] {
        let mut raw = RawConnection::connect(&service);
        raw.write(&head);
        raw.read_response().undefined_error(431, "REQUEST_HEADER_FIELDS_TOO_LARGE");
        assert!(raw.is_closed(), "{}", &head[..40]);
    }
    let fits = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(32_000));
    let mut raw = RawConnection::connect(&service);
    raw.write(&fits);
    raw.read_response().ok();
}

#[test]
fn a_malformed_head_is_400_in_the_envelope() {
    let service = TestService::start();
    for head in [
        "this is not http\r\n\r\n",
        "GET / HTTP/3.0\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
    ] {
        let mut raw = RawConnection::connect(&service);
        raw.write(head);
        raw.read_response().undefined_error(400, "BAD_REQUEST");
        assert!(raw.is_closed(), "{head:?}");
    }
    // After a request that was answered, and in one packet with it.
    for second in ["this is not http\r\n\r\n", "G\0T / HTTP/1.1\r\n\r\n"] {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n{second}"));
        raw.read_response().ok();
        raw.read_response().undefined_error(400, "BAD_REQUEST");
        assert!(raw.is_closed());
    }
}

#[test]
fn a_target_that_is_no_path_is_400_and_reaches_no_route() {
    let service = TestService::start();
    for line in ["CONNECT x:80", "GET a:80", "POST a:80", "OPTIONS *", "GET *"] {
        let mut raw = RawConnection::connect(&service);
        raw.write(&format!("{line} HTTP/1.1\r\nhost: x\r\nx-request-id: mine\r\n\r\n"));
        let response = raw.read_response();
        assert_eq!(response.header("x-request-id"), "mine");
        response.undefined_error(400, "BAD_REQUEST");
        assert!(raw.is_closed(), "{line}");
    }
    let mut raw = RawConnection::connect(&service);
    raw.write("GET http://x/healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    raw.read_response().ok();
}
