//! Changed heads of a valid request.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::case::{Case, Expectation, Valid};
use crate::wire;

/// What a head must not have, or seldom has.
const INSERTED: [&[u8]; 14] = [
    b"\0",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\t",
    b" ",
    b"\x7f",
    b"\x80\xff",
    b":",
    b"\r\n folded",
    b"\r\nno colon",
    b"\r\nspace : x",
    b"\r\n: no name",
];

/// Header lines that contradict others or ask for something unusual.
const LINES: [&str; 22] = [
    "content-length: 0",
    "content-length: 5",
    "content-length: -1",
    "content-length: 1, 2",
    "content-length: 99999999999999999999999",
    "transfer-encoding: chunked",
    "transfer-encoding: gzip, chunked",
    "transfer-encoding: chunked, identity",
    "transfer-encoding: xchunked",
    "host: another",
    "host: a b",
    "x-api-key: svc_test_other",
    "expect: 100-continue",
    "expect: 200-ok",
    "connection: upgrade\r\nupgrade: websocket",
    "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA",
    "content-type: text/plain",
    "content-encoding: gzip",
    "accept: text/event-stream",
    "accept: ;;;,",
    "x-request-id: \u{e9}",
    "range: bytes=0-0",
];

const METHODS: [&str; 12] =
    ["get", "POST\0", "GET", "HEAD", "TRACE", "OPTIONS", "PRI", "MKCOL", "P", "POST POST", "\u{e9}", ""];

const VERSIONS: [&str; 8] =
    ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.10", "http/1.1", "HTTP/", "", "HTTP/1.1 HTTP/1.1"];

pub(super) fn make_case(valid: &Valid, rng: &mut StdRng) -> Case {
    let body = format!("{{\"albumId\":\"{}\"}}", valid.album);
    let request = wire::call("/albums/get", &valid.key, body.as_bytes());
    let head_length = request.len() - body.len();
    match rng.random_range(0..9) {
        0 => change_byte(request, head_length, rng),
        1 => insert(request, head_length, rng),
        2 => remove(request, head_length, rng),
        3 | 4 => add_line(&request, rng),
        5 => replace_word(&request, "POST", METHODS[rng.random_range(0..METHODS.len())]),
        6 => replace_word(&request, "HTTP/1.1", VERSIONS[rng.random_range(0..VERSIONS.len())]),
        7 => enlarge(&request, rng),
        _ => cut(request, rng),
    }
}

fn change_byte(mut request: Vec<u8>, head_length: usize, rng: &mut StdRng) -> Case {
    let at = rng.random_range(0..head_length);
    let byte: u8 = rng.random_range(0..=255);
    let name = format!("head: byte {at} is {byte:#04x} in place of {:#04x}", request[at]);
    request[at] = byte;
    Case::new(name, request, Expectation::NoHarm)
}

fn insert(mut request: Vec<u8>, head_length: usize, rng: &mut StdRng) -> Case {
    let (at, inserted) = (rng.random_range(0..head_length), INSERTED[rng.random_range(0..INSERTED.len())]);
    request.splice(at..at, inserted.iter().copied());
    Case::new(format!("head: {inserted:?} inserted at {at}"), request, Expectation::NoHarm)
}

fn remove(mut request: Vec<u8>, head_length: usize, rng: &mut StdRng) -> Case {
    let at = rng.random_range(0..head_length);
    let end = (at + rng.random_range(1..12)).min(head_length);
    request.drain(at..end);
    Case::new(format!("head: {at}..{end} removed"), request, Expectation::NoHarm)
}

fn add_line(request: &[u8], rng: &mut StdRng) -> Case {
    let line = LINES[rng.random_range(0..LINES.len())];
    let text = String::from_utf8_lossy(request);
    // Before or after the lines that it contradicts.
    let marker = ["connection: close\r\n", "\r\n\r\n"][rng.random_range(0..2)];
    let added = match text.split_once(marker) {
        Some((before, after)) if marker.ends_with("\r\n\r\n") => format!("{before}\r\n{line}\r\n\r\n{after}"),
        Some((before, after)) => format!("{before}{marker}{line}\r\n{after}"),
        None => text.into_owned(),
    };
    Case::new(format!("head: with {line:?}"), added.into_bytes(), Expectation::NoHarm)
}

fn replace_word(request: &[u8], word: &str, other: &str) -> Case {
    let changed = String::from_utf8_lossy(request).replacen(word, other, 1);
    Case::new(format!("head: {other:?} in place of {word}"), changed.into_bytes(), Expectation::NoHarm)
}

/// A head above every limit of its size.
fn enlarge(request: &[u8], rng: &mut StdRng) -> Case {
    let text = String::from_utf8_lossy(request);
    let (kind, lines) = match rng.random_range(0..3) {
        0 => ("one header of 70 kB", format!("x-long: {}\r\n", "x".repeat(70_000))),
        1 => ("a name of 70 kB", format!("{}: x\r\n", "x".repeat(70_000))),
        _ => ("500 headers", (0..500).map(|number| format!("x-{number}: y\r\n")).collect()),
    };
    let large = text.replacen("connection: close\r\n", &format!("connection: close\r\n{lines}"), 1);
    Case::new(format!("head: {kind}"), large.into_bytes(), Expectation::Answer(&[400, 413, 431]))
}

fn cut(mut request: Vec<u8>, rng: &mut StdRng) -> Case {
    let end = rng.random_range(0..request.len());
    request.truncate(end);
    Case::new(format!("cut after {end} bytes"), request, Expectation::NoHarm)
}
