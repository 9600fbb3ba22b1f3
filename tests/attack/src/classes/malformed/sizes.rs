//! Media types, and lengths and chunks that are too large, contradict themselves or lie.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::case::{Case, Expectation, Valid};
use crate::wire;

const TYPES: [&str; 18] = [
    "",
    "application/json",
    "application/JSON; charset=UTF-8",
    "application/json; charset=utf-16",
    "application/json;;;",
    "application/json, text/plain",
    "application/jsonp",
    "application/problem+json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/json",
    "text/html",
    "image/jpeg",
    "*/*",
    "/",
    "application/",
    "application/json; charset=\"utf-8\"",
];

pub(super) fn make_type_case(valid: &Valid, rng: &mut StdRng) -> Case {
    let mut content_type = TYPES[rng.random_range(0..TYPES.len())].to_owned();
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..=content_type.len());
        content_type.insert(at, char::from(rng.random_range(b' '..=b'~')));
    }
    let body = format!("{{\"albumId\":\"{}\"}}", valid.album);
    let headers = [("content-type", content_type.as_str()), ("x-api-key", &valid.key)];
    let bytes = wire::request("POST", "/openapi/albums/get", &headers, body.as_bytes());
    Case::new(format!("type: {content_type:?}"), bytes, Expectation::Answer(&[200, 400, 415]))
}

pub(super) fn make_case(valid: &Valid, rng: &mut StdRng) -> Case {
    match rng.random_range(0..6) {
        0 => too_large(valid, rng),
        1 => nodes(valid, rng),
        2 => wrong_length(valid, rng),
        3 => chunks(valid, rng),
        4 => large_chunks(valid, rng),
        _ => deep(valid, rng),
    }
}

fn too_large(valid: &Valid, rng: &mut StdRng) -> Case {
    let length = rng.random_range(5_000_000..8_000_000);
    let body = format!("{{\"title\":\"T\",\"more\":\"{}\"}}", "x".repeat(length));
    let bytes = wire::call("/albums/create", &valid.key, body.as_bytes());
    Case::new(format!("size: a body of {length} bytes"), bytes, Expectation::Answer(&[413]))
}

/// A body above the limit of all operations but the batches, of many small values.
fn nodes(valid: &Valid, rng: &mut StdRng) -> Case {
    let count = rng.random_range(100_000..1_000_000);
    let body = format!("{{\"title\":\"T\",\"more\":[{}0]}}", "0,".repeat(count));
    let bytes = wire::call("/albums/create", &valid.key, body.as_bytes());
    Case::new(format!("size: {count} nodes"), bytes, Expectation::Answer(&[413]))
}

fn wrong_length(valid: &Valid, rng: &mut StdRng) -> Case {
    let lengths = ["0", "1", "1000", "+5", "0x10", "5 5", "18446744073709551616", "-0", ""];
    let length = lengths[rng.random_range(0..lengths.len())];
    let bytes = format!(
        "POST /openapi/albums/get HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{{\"albumId\":\"{}\"}}",
        valid.key, valid.album
    );
    Case::new(format!("size: content-length {length:?}"), bytes.into_bytes(), Expectation::NoHarm)
}

fn chunked_head(valid: &Valid) -> String {
    format!(
        "POST /openapi/albums/get HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n",
        valid.key
    )
}

fn chunks(valid: &Valid, rng: &mut StdRng) -> Case {
    let bodies = [
        "zz\r\n{}\r\n0\r\n\r\n".to_owned(),
        "-1\r\n{}\r\n0\r\n\r\n".to_owned(),
        "ffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned(),
        "fffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned(),
        "2\r\n{}0\r\n\r\n".to_owned(),
        "2\n{}\n0\n\n".to_owned(),
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(50_000)),
        format!("2\r\n{{}}\r\n0\r\n{}\r\n", "trailer: x\r\n".repeat(2_000)),
        "1;x\r\n{\r\n".repeat(3_000) + "0\r\n\r\n",
        "2\r\n{}\r\n".to_owned(),
    ];
    let body = &bodies[rng.random_range(0..bodies.len())];
    let name: String = format!("size: chunks {body:?}").chars().take(80).collect();
    Case::new(name, (chunked_head(valid) + body).into_bytes(), Expectation::NoHarm)
}

/// More than the limit without saying so.
fn large_chunks(valid: &Valid, rng: &mut StdRng) -> Case {
    let count = rng.random_range(90..140);
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, " ".repeat(60_000));
    let bytes = chunked_head(valid) + &chunk.repeat(count) + "0\r\n\r\n";
    Case::new(format!("size: {count} chunks of 60 kB"), bytes.into_bytes(), Expectation::Answer(&[413]))
}

fn deep(valid: &Valid, rng: &mut StdRng) -> Case {
    let depth = rng.random_range(100..30_000);
    let (open, close) = if rng.random_range(0..2) == 0 { ("[", "]") } else { ("{\"a\":", "}") };
    let repeated = depth.min(60_000 / (open.len() + close.len()));
    let body = format!("{{\"title\":\"T\",\"more\":{}0{}}}", open.repeat(repeated), close.repeat(repeated));
    let bytes = wire::call("/albums/create", &valid.key, body.as_bytes());
    // An unknown member is skipped, however deep, or refused as too deep.
    Case::new(format!("size: {repeated} levels"), bytes, Expectation::Answer(&[200, 400]))
}
