//! Slow, silent and greedy clients, all at once: heads, bodies and uploads that come byte by byte, heads without an end,
//! clients that never read, idle connections, large bodies of small nodes, and many searches with one key.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use photofinish_tests::harness::Partner;
use serde_json::json;

use super::class::{Class, Setting};
use crate::findings::Findings;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire::{self, Connection, Endpoint, Reaction, Received};

pub(super) const CLIENTS: Class = Class {
    name: "clients",
    description: "at once: 400 heads, 100 bodies and 60 uploads to one URL that come byte by byte, 50 heads without an end, \
                  100 clients that never read, 4,500 idle connections, 64 bodies of 1.9 million nodes, 32 searches at once \
                  with one key",
    settings,
    stops_service: false,
    run,
};

/// Between two bytes of a slow client.
const DRIP_PAUSE: Duration = Duration::from_millis(500);
/// From the first byte to the end of a head that never ends: 10 s, and what a busy machine adds.
const HEAD_LIMIT: Duration = Duration::from_secs(25);
/// As long for a body, whose limit is set to 10 s at most.
const BODY_LIMIT: Duration = Duration::from_secs(25);
/// How long a client may leave its responses unread.
const UNREAD_LIMIT: Duration = Duration::from_secs(45);
/// Large responses that fit into no socket's buffers.
const UNREAD_REQUESTS: usize = 600;
/// The first of the addresses of each kind of client: a limit per address concerns each kind alone.
const SLOW_HEADS: u8 = 20;
const ENDLESS_HEADS: u8 = 30;
const SLOW_BODIES: u8 = 40;
const NEVER_READING: u8 = 50;
const IDLE: u8 = 60;
const LARGE_BODIES: u8 = 70;
const SEARCHES: u8 = 80;
const UPLOADS: u8 = 90;
/// Uploads to one URL that may go on at once, at most.
const MAX_UPLOADS_AT_ONCE: usize = 4;
/// Addresses of a kind.
const ADDRESSES: usize = 8;
/// Between two calls of another tenant.
const OTHERS_PAUSE: Duration = Duration::from_millis(200);

fn settings(extent: Extent) -> Vec<Setting> {
    // As short as it may be for the large bodies on a busy machine.
    vec![Setting { name: "PHOTOFINISH_BODY_SECONDS", value: extent.pick("3", "10") }]
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner = site.tenant("Greedy Timing");
    let album = partner.create_album("Greedy");
    partner.upload_photo(&album, "1.jpg", site.material.photo(0));
    partner.wait_until_idle(&album);
    let (partner, album) = (&partner, album.as_str());
    let other = site.tenant("Served Timing");
    let others_album = other.create_album("Served");
    std::thread::scope(|scope| {
        let attackers = [
            scope.spawn(|| drip_heads(site, findings)),
            scope.spawn(|| send_endless_heads(site, findings)),
            scope.spawn(|| drip_bodies(site, findings, partner.key())),
            scope.spawn(|| drip_uploads(site, findings, partner, album)),
            scope.spawn(|| never_read(site, findings)),
            scope.spawn(|| stay_idle(site, findings)),
            scope.spawn(|| send_large_bodies(site, findings, partner.key())),
            scope.spawn(|| search_greedily(site, findings, partner, album)),
        ];
        let is_over = || attackers.iter().all(|attacker| attacker.is_finished());
        call_beside(site, findings, other.key(), &others_album, is_over);
    });
    let reaction = site.call("/albums/get", partner.key(), &json!({ "albumId": album }));
    findings.expect("a call after all of them", reaction, &[200]);
    Ok(())
}

/// Calls as another tenant, from another network, until the attack is over. Each call is served.
fn call_beside(site: &Site, findings: &Findings, key: &str, album: &str, is_over: impl Fn() -> bool) {
    let endpoint = Endpoint { source: Ipv4Addr::LOCALHOST, ..site.endpoint(1) };
    let call = wire::call("/albums/get", key, json!({ "albumId": album }).to_string().as_bytes());
    loop {
        let reaction = endpoint.send(&call, PATIENCE);
        findings.expect("another tenant's call beside the attack", reaction, &[200]);
        if is_over() {
            return;
        }
        std::thread::sleep(OTHERS_PAUSE);
    }
}

/// Opens connections of a kind, and counts them. The system may refuse some of thousands; without half of them there would
/// be no attack.
fn open_many(site: &Site, findings: &Findings, kind: u8, count: usize) -> Vec<Connection> {
    let open = |number: usize| site.endpoint(kind + (number % ADDRESSES) as u8).connect();
    findings.tried(count);
    let opened: Vec<Connection> = (0..count).map(open).filter_map(io::Result::ok).collect();
    findings.check(2 * opened.len() >= count, || {
        format!("{} of {count} connections of the kind {kind} were accepted", opened.len())
    });
    opened
}

/// Writes one byte to each connection again and again; ends with those that the service has not closed in time.
fn drip(mut connections: Vec<Connection>, bytes: &[u8], limit: Duration) -> Vec<Connection> {
    let begun = Instant::now();
    let mut at = 0;
    while begun.elapsed() < limit && !connections.is_empty() {
        let byte = &bytes[at % bytes.len()..=at % bytes.len()];
        connections.retain_mut(|connection| connection.write_now(byte).is_ok());
        at += 1;
        std::thread::sleep(DRIP_PAUSE);
    }
    connections
}

fn drip_heads(site: &Site, findings: &Findings) {
    let connections = open_many(site, findings, SLOW_HEADS, site.extent.pick(20, 400));
    let head = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let open = drip(connections, head, site.extent.pick(Duration::from_secs(1), HEAD_LIMIT));
    if site.extent == Extent::Long {
        findings.check(open.is_empty(), || {
            format!("{} unfinished heads are open after {HEAD_LIMIT:?}", open.len())
        });
    }
}

fn send_endless_heads(site: &Site, findings: &Findings) {
    let head = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{}", "x-endless: y\r\n".repeat(15_000));
    let headers = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-endless: {}", "y".repeat(300_000));
    for number in 0..site.extent.pick(4, 50) {
        let bytes = if number % 2 == 0 { &head } else { &headers };
        let reaction =
            site.endpoint(ENDLESS_HEADS + (number % ADDRESSES) as u8).send(bytes.as_bytes(), PATIENCE);
        findings.record("a head without an end", &reaction);
        let is_refused = match &reaction {
            Reaction::Answered(answer) => matches!(answer.status, 400 | 413 | 431),
            Reaction::Closed => true,
            Reaction::Silent => false,
        };
        findings.check(is_refused, || format!("a head without an end: {}", reaction.describe()));
    }
}

fn drip_bodies(site: &Site, findings: &Findings, key: &str) {
    let mut connections = open_many(site, findings, SLOW_BODIES, site.extent.pick(5, 100));
    let head = format!(
        "POST /openapi/albums/list HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 10000\r\n\r\n{{"
    );
    connections.retain_mut(|connection| connection.write(head.as_bytes()).is_ok());
    // Ends with the last of them.
    let open = drip(connections, b" ", BODY_LIMIT);
    findings
        .check(open.is_empty(), || format!("{} unfinished bodies are open after {BODY_LIMIT:?}", open.len()));
}

/// Uploads to one presigned URL. A client may have lost its connection and try again; dozens at once are an attack. Each
/// asks whether it may go on, so that a refusal need not wait for the body.
fn drip_uploads(site: &Site, findings: &Findings, partner: &Partner, album: &str) {
    let target = site.target_of(&partner.sign_photo(album, "slow.jpg", "image/jpeg").upload_url);
    let head = format!(
        "PUT {target} HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\nexpect: 100-continue\r\n\
         content-length: 90000\r\n\r\n"
    );
    let mut connections = open_many(site, findings, UPLOADS, site.extent.pick(20, 60));
    connections.retain_mut(|connection| connection.write(head.as_bytes()).is_ok());
    let mut going_on = 0;
    for connection in &mut connections {
        let deadline = Instant::now() + PATIENCE;
        while !connection.received().contains("\r\n\r\n") && connection.receive(deadline) == Received::More {}
        if connection.received().starts_with("HTTP/1.1 100") {
            going_on += 1;
        } else {
            findings.expect("one of many uploads", connection.read_answer(false, deadline), &[429]);
        }
    }
    // The first comes before there are too many.
    let is_permitted = (1..=MAX_UPLOADS_AT_ONCE).contains(&going_on);
    findings.check(is_permitted, || format!("{going_on} uploads to one URL at once"));
}

/// Asks for a large page again and again, and reads nothing for long. What then comes is what the buffers had.
fn never_read(site: &Site, findings: &Findings) {
    let mut connections = open_many(site, findings, NEVER_READING, site.extent.pick(10, 100));
    let requests = "GET /openapi/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(UNREAD_REQUESTS);
    connections.retain_mut(|connection| connection.write_now(requests.as_bytes()).is_ok());
    std::thread::sleep(site.extent.pick(Duration::from_millis(500), UNREAD_LIMIT));
    if site.extent == Extent::Quick {
        return;
    }
    let still_served = connections.into_iter().filter_map(|mut connection| {
        let deadline = Instant::now() + Duration::from_secs(2);
        (!connection.ends_before(deadline)).then_some(())
    });
    // A few show it as well as all: each that is served takes two seconds.
    let still_served = still_served.take(3).count();
    findings.check(still_served == 0, || {
        format!("clients that read nothing for {UNREAD_LIMIT:?} are still served")
    });
}

fn stay_idle(site: &Site, findings: &Findings) {
    let connections = open_many(site, findings, IDLE, site.extent.pick(100, 4500));
    std::thread::sleep(site.extent.pick(Duration::from_secs(1), UNREAD_LIMIT));
    drop(connections);
}

fn send_large_bodies(site: &Site, findings: &Findings, key: &str) {
    let body = format!("{{\"title\":\"T\",\"more\":[{}0]}}", "0,".repeat(1_900_000));
    let operations = [
        ("/albums/create", &[413][..]),
        ("/photos/search/face/list", &[413]),
        // A batch may be as large; that this is none is an issue of its fields.
        ("/photos/photo/success/batch", &[400, 413, 429, 503]),
    ];
    std::thread::scope(|scope| {
        for number in 0..site.extent.pick(4, 64) {
            let (path, statuses) = operations[number % operations.len()];
            let body = body.as_bytes();
            scope.spawn(move || {
                let endpoint = site.endpoint(LARGE_BODIES + (number % ADDRESSES) as u8);
                let reaction = endpoint.send(&wire::call(path, key, body), PATIENCE);
                findings.expect(&format!("{path} with 1.9 million nodes"), reaction, statuses);
            });
        }
    });
}

fn search_greedily(site: &Site, findings: &Findings, partner: &Partner, album: &str) {
    let image = partner.upload_selfie(album, &site.material.selfie);
    let by_face = json!({ "albumId": album, "imageId": image }).to_string();
    let by_text = json!({ "albumId": album, "text": site.material.bib }).to_string();
    let limit = site.extent.pick(Duration::from_secs(1), Duration::from_secs(20));
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..site.extent.pick(4, 32) {
            let (by_face, by_text, served) = (&by_face, &by_text, &served);
            scope.spawn(move || {
                let (begun, endpoint) =
                    (Instant::now(), site.endpoint(SEARCHES + (number % ADDRESSES) as u8));
                while begun.elapsed() < limit {
                    for (path, body) in
                        [("/photos/search/face/list", by_face), ("/photos/search/text/list", by_text)]
                    {
                        let request = wire::call(path, partner.key(), body.as_bytes());
                        let reaction = endpoint.send(&request, PATIENCE);
                        let answer = findings.expect(&format!("{path} of many"), reaction, &[200, 429, 503]);
                        let is_served = answer.is_some_and(|answer| answer.status == 200);
                        served.fetch_add(usize::from(is_served), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    findings.check(served.into_inner() > 0, || "none of many searches with one key is served".to_owned());
}
