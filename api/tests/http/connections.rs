//! Connections: seats, and time limits for clients that wait or do not read.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use photofinish_api::context::SeatLimits;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

use crate::storage::request_upload_url;
use crate::support::raw::RawConnection;
use crate::support::{DEADLINE, Partner, TestService};

/// Shorter than any other limit of the test.
const SHORT: Duration = Duration::from_millis(300);

fn start_with_seats(total: usize, per_address: usize) -> TestService {
    TestService::start_as(|setup| {
        setup.seats = SeatLimits { total, per_address, patience: Duration::ZERO };
    })
}

/// Returns requests that keep the service at work until the embedder gets a permit for each: searches with selfies of
/// their own. No seat is taken when this returns.
fn prepare_work(service: &TestService, count: usize) -> Vec<String> {
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let key = partner.key.clone().unwrap();
    let search = || {
        let image = partner.upload_selfie(&album, b"slow");
        let body = json!({ "albumId": album, "imageId": image }).to_string();
        let length = body.len();
        format!(
            "POST /openapi/photos/search/face/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let requests = (0..count).map(|_| search()).collect();
    drop(partner);
    wait_until("the seats are free", || service.context.seats.taken() == 0);
    requests
}

/// A connection whose request is being answered: the service waits for nothing that the client owes.
fn connect_busy(service: &TestService, work: &str) -> RawConnection {
    let examined = || service.embedder.calls.load(Ordering::SeqCst);
    let before = examined();
    let mut raw = RawConnection::connect(service);
    raw.write(work);
    wait_until("the service is at work", || examined() > before);
    raw
}

/// Lets the service answer the requests of busy connections.
fn finish_work(service: &TestService, busy: &mut [RawConnection]) {
    service.embedder.permits.add_permits(busy.len());
    for raw in busy {
        raw.read_response().ok();
    }
}

/// Sends the head of a request with a key, and waits until the service reads the body.
fn begin_request(raw: &mut RawConnection, partner: &Partner) {
    let key = partner.key.as_ref().unwrap();
    raw.write(&format!(
        "POST /openapi/albums/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\nexpect: 100-continue\r\n\
         content-length: 2\r\n\r\n"
    ));
    // The 100 shows that the request is being handled.
    assert!(raw.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"));
}

/// A connection that owes a body for which it has shown no key.
fn connect_owing(service: &TestService, line: &str) -> RawConnection {
    let mut raw = RawConnection::connect(service);
    raw.write(&format!(
        "{line} HTTP/1.1\r\nhost: x\r\nsec-fetch-site: same-origin\r\ncontent-type: application/json\r\n\
         content-length: 5\r\n\r\n{{"
    ));
    raw
}

/// A new connection, which has got a seat and an answer.
fn connect_served(service: &TestService) -> RawConnection {
    let mut newcomer = RawConnection::connect(service);
    get(&mut newcomer, "/healthz");
    newcomer.read_response().ok();
    newcomer
}

/// Asserts that a new connection gets no seat, from an address that has none: at the limit of one address the seats are
/// not all taken.
fn assert_refused(service: &TestService) {
    let mut refused = connect_from(service, [127, 0, 0, 2]);
    refused.read_response().defined_error(503, "SERVICE_UNAVAILABLE");
}

/// Serves health on a port of its own, until the sender is dropped. Returns the line of a request for readiness, too.
fn serve_admin(service: &TestService) -> (String, oneshot::Sender<()>) {
    let listener = service.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let readiness = format!("GET http://{}/readyz", listener.local_addr().unwrap());
    let context = service.context.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    service.runtime.spawn(async move {
        photofinish_api::serve_admin(listener, context, async { drop(stopped.await) }).await;
    });
    (readiness, stop)
}

/// Connects from an address of the loopback network.
fn connect_from(service: &TestService, address: [u8; 4]) -> RawConnection {
    let connected = service.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(address)), 0)).unwrap();
        socket.connect(service.address).await.unwrap()
    });
    let socket = connected.into_std().unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    RawConnection(socket)
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

fn get(raw: &mut RawConnection, path: &str) {
    raw.write(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
}

/// Requests more responses than the operating system buffers, and reads none.
fn stall(raw: &mut RawConnection) {
    raw.0.set_write_timeout(Some(SHORT)).unwrap();
    let requests = "GET /openapi/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    match raw.0.write_all(requests.as_bytes()) {
        Ok(()) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
    }
}

#[test]
fn clients_that_never_read_lose_their_seats() {
    let service = TestService::start_as(|setup| {
        setup.settings.stall_timeout = SHORT;
        setup.seats = SeatLimits { total: 8, per_address: 8, patience: Duration::ZERO };
    });
    let mut silent: Vec<_> = (0..8).map(|_| RawConnection::connect(&service)).collect();
    for raw in &mut silent {
        stall(raw);
        // The service is answering.
        raw.0.read_exact(&mut [0]).unwrap();
    }
    wait_until("all seats are free", || service.context.seats.taken() == 0);
    service.partner().call("/albums/list", &json!({})).ok();
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_its_response() {
    let service = TestService::start();
    let mut raw = RawConnection::connect(&service);
    stall(&mut raw);
    let response = raw.read_response();
    assert_eq!((response.status, response.bytes[0]), (200, b'{'));
}

#[test]
fn a_head_that_does_not_end_in_time_is_408() {
    let service = TestService::start_with(|settings| settings.head_timeout = SHORT);
    let mut raw = RawConnection::connect(&service);
    raw.write("POST /openapi/albums/list HTTP/1.1\r\nhost:");
    raw.read_response().defined_error(408, "TIMEOUT");
    assert!(raw.is_closed());
    // The second head of a connection, too.
    let mut raw = RawConnection::connect(&service);
    get(&mut raw, "/healthz");
    raw.read_response().ok();
    raw.write("G");
    raw.read_response().defined_error(408, "TIMEOUT");
    wait_until("the seats are free", || service.context.seats.taken() == 0);
}

#[test]
fn an_idle_connection_is_closed_without_a_response() {
    let service = TestService::start_with(|settings| settings.idle_timeout = SHORT);
    let mut raw = RawConnection::connect(&service);
    get(&mut raw, "/healthz");
    raw.read_response().ok();
    assert_eq!(raw.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_idle_connection_gives_its_seat_to_a_new_one() {
    let service = start_with_seats(2, 2);
    let mut idle: Vec<_> = (0..2).map(|_| RawConnection::connect(&service)).collect();
    for raw in &mut idle {
        get(raw, "/healthz");
        raw.read_response().ok();
        // A client may have read a response a moment before its connection counts as idle, and the first is to be that first.
        std::thread::sleep(SHORT);
    }
    let mut newcomers = 0;
    wait_until("a new connection is served", || {
        newcomers += 1;
        let mut newcomer = RawConnection::connect(&service);
        get(&mut newcomer, "/healthz");
        newcomer.read_response().status == 200
    });
    assert!(idle[0].is_closed());
    // One that was refused may have had a seat emptied too, too late for itself.
    if newcomers == 1 {
        get(&mut idle[1], "/healthz");
        idle[1].read_response().ok();
    }
}

#[test]
fn a_connection_that_owes_a_body_gives_its_seat_to_a_new_one() {
    // Refused with 401, 405, 404 and 403, but the service reads the bodies; and a visitor's, who needs no key.
    let lines = [
        "POST /openapi/albums/get",
        "DELETE /openapi/albums/get",
        "OPTIONS /openapi/albums/get",
        "POST /nowhere",
        "PUT /storage/none",
        "POST /g/4fQ2aBc8/api/gallery/get",
    ];
    let service = start_with_seats(lines.len(), lines.len());
    let mut owing = lines.map(|line| connect_owing(&service, line));
    wait_until("the visitor's body is read", || service.context.body_budget.bytes_in_use() > 0);
    // Until the service has read the heads, the connections would give way for these.
    std::thread::sleep(SHORT);
    let _newcomers = lines.map(|_| connect_served(&service));
    for (line, raw) in lines.iter().zip(&mut owing) {
        assert!(raw.is_closed(), "{line}");
    }
}

#[test]
fn a_body_without_a_key_gives_way_before_one_with_a_key() {
    let service = start_with_seats(2, 2);
    let partner = service.partner();
    let mut known = RawConnection::connect(&service);
    begin_request(&mut known, &partner);
    let mut unknown = connect_owing(&service, "POST /openapi/albums/get");
    std::thread::sleep(SHORT);
    let _newcomer = connect_served(&service);
    assert!(unknown.is_closed());
    known.write("{}");
    known.read_response().ok();
}

#[test]
fn an_upload_in_progress_keeps_its_seat() {
    let service = start_with_seats(1, 1);
    let partner = service.partner();
    let (album, _) = partner.create_album();
    let (url, _) = request_upload_url(&partner, &album);
    let path = url.strip_prefix(&partner.origin).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\nexpect: 100-continue\r\n\
         content-length: 4\r\n\r\n"
    );
    drop(partner);
    wait_until("the seat is free", || service.context.seats.taken() == 0);
    let mut upload = RawConnection::connect(&service);
    upload.write(&head);
    assert!(upload.read_until("\r\n\r\n").starts_with("HTTP/1.1 100"));
    for byte in ["a", "b", "c"] {
        upload.write(byte);
        assert_refused(&service);
    }
    upload.write("d");
    assert_eq!(upload.read_response().status, 200);
}

#[test]
fn a_connection_without_a_seat_is_503_and_the_seats_return() {
    let service = start_with_seats(2, 2);
    let work = prepare_work(&service, 2);
    let mut busy: Vec<_> = work.iter().map(|work| connect_busy(&service, work)).collect();
    let mut refused = RawConnection::connect(&service);
    get(&mut refused, "/healthz");
    let response = refused.read_response();
    assert_eq!(response.header("retry-after"), "1");
    response.defined_error(503, "SERVICE_UNAVAILABLE");
    assert!(refused.is_closed());
    finish_work(&service, &mut busy);
    drop(busy);
    wait_until("the seats are free", || service.context.seats.taken() == 0);
    service.partner().call("/albums/list", &json!({})).ok();
}

#[test]
fn one_address_has_only_its_share_of_the_seats() {
    let service = start_with_seats(4, 2);
    let work = prepare_work(&service, 2);
    let _busy: Vec<_> = work.iter().map(|work| connect_busy(&service, work)).collect();
    let mut refused = RawConnection::connect(&service);
    refused.read_response().defined_error(503, "SERVICE_UNAVAILABLE");
    let mut other = connect_from(&service, [127, 0, 0, 2]);
    begin_request(&mut other, &service.partner());
    other.write("{}");
    other.read_response().ok();
}

#[test]
fn a_proxy_may_have_all_seats_and_readiness_says_when_none_is_left() {
    let service = TestService::start_as(|setup| {
        setup.seats = SeatLimits { total: 3, per_address: 1, patience: Duration::ZERO };
        setup.settings.console.proxies = 1;
    });
    let (readiness, _stop) = serve_admin(&service);
    let probe = Partner::new(&service, None);
    let work = prepare_work(&service, 3);
    let mut busy: Vec<_> = work.iter().map(|work| connect_busy(&service, work)).collect();
    assert_eq!(probe.send(&readiness, &[], "").status, 200);
    RawConnection::connect(&service).read_response().defined_error(503, "SERVICE_UNAVAILABLE");
    assert_eq!(probe.send(&readiness, &[], "").status, 503);
    finish_work(&service, &mut busy);
    wait_until("the service is ready", || probe.send(&readiness, &[], "").status == 200);
}

#[test]
fn readiness_says_when_no_seat_is_left_and_has_seats_of_its_own() {
    let service = start_with_seats(1, 1);
    let (readiness, _stop) = serve_admin(&service);
    let probe = Partner::new(&service, None);
    assert_eq!(probe.send(&readiness, &[], "").status, 200);
    let work = prepare_work(&service, 1);
    let mut busy = [connect_busy(&service, &work[0])];
    assert_refused(&service);
    let response = probe.send(&readiness, &[], "");
    let part = &response.json()["parts"][0];
    assert_eq!(
        (response.status, &part["name"], &part["state"]),
        (503, &json!("connections"), &json!("down"))
    );
    assert!(part["reason"].as_str().unwrap().contains("all 1 connections"), "{part}");
    finish_work(&service, &mut busy);
    drop(busy);
    wait_until("the service is ready", || probe.send(&readiness, &[], "").status == 200);
}
