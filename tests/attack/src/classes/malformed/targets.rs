//! Request targets in every form of RFC 9112 and in none.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::case::{Case, Expectation, Valid};

/// What a target that no route has, or that is none, may be answered with; 403 is the storage's for what is not signed.
const NO_ROUTE: &[u16] = &[400, 401, 403, 404, 405, 414, 421, 431, 501];

/// Targets without a path, paths that mean others, and paths that are none.
const TARGETS: [&str; 40] = [
    "a:80",
    "x:80",
    "127.0.0.1:22",
    "[::1]:80",
    "user:password@host:80",
    "*",
    "/assets/../secrets/master.key",
    "//",
    "///openapi/albums/get",
    "//openapi/albums/get",
    "/openapi//albums/get",
    "/openapi/albums/get//",
    "/openapi/./albums/get",
    "/openapi/../openapi/albums/get",
    "/openapi/albums%2fget",
    "/%6fpenapi/albums/get",
    "/OPENAPI/albums/get",
    "/openapi/albums/get%00",
    "/openapi/albums/get%",
    "/openapi/albums/get%zz",
    "/openapi/albums/get;x=1",
    "/openapi/albums/get.json",
    "/openapi/%2e%2e/healthz",
    "/storage",
    "/storage/",
    "/storage/../../etc/passwd",
    "/storage/%2e%2e/%2e%2e/etc/passwd",
    "/storage/o/../../photofinish.sqlite?expires=9999999999&signature=00",
    "/storage/o/1/a/2/p/3/original",
    "/storage/scratch/x?expires=9999999999&signature=00",
    "http://photofinish/nothing",
    "http://another:99999/nothing",
    "https://photofinish/nothing",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "?",
    "?only=query",
    "relative/path",
    "/metrics/../nothing",
    "/healthz/nothing",
];

/// Every target with methods that take a form of their own: each exactly once, whatever the seed.
pub(super) fn fixed_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for target in TARGETS {
        for method in ["GET", "POST", "CONNECT", "OPTIONS", "PUT"] {
            let bytes = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            let name = format!("target: {method} {target}");
            // OPTIONS is answered by paths that exist, also by prefixes of storage.
            let expectation =
                if method == "OPTIONS" { Expectation::NoHarm } else { Expectation::Answer(NO_ROUTE) };
            cases.push(Case::new(name, bytes.into_bytes(), expectation));
        }
    }
    cases
}

pub(super) fn make_case(valid: &Valid, rng: &mut StdRng) -> Case {
    let mut target = "/openapi/albums/get".to_owned();
    let name = match rng.random_range(0..4) {
        0 => {
            let length = rng.random_range(9_000..100_000);
            target = format!("/{}", "a/".repeat(length / 2));
            return Case::new(
                format!("target: a path of {length} bytes"),
                get(&target).into_bytes(),
                Expectation::Answer(NO_ROUTE),
            );
        }
        1 => {
            let length = rng.random_range(1..60_000);
            target += &format!("?{}", "q=1&".repeat(length / 4));
            format!("target: a query of {length} bytes")
        }
        2 => {
            let bytes: Vec<u8> = (0..rng.random_range(1..40)).map(|_| rng.random_range(0..=255)).collect();
            let head = [b"GET /", &bytes[..], b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"].concat();
            return Case::new(format!("target: random bytes {bytes:?}"), head, Expectation::NoHarm);
        }
        _ => {
            let at = rng.random_range(1..target.len());
            let letter = char::from(rng.random_range(b'!'..=b'~'));
            target.replace_range(at..=at, &letter.to_string());
            format!("target: {target}")
        }
    };
    let body = format!("{{\"albumId\":\"{}\"}}", valid.album);
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        valid.key,
        body.len()
    );
    Case::new(name, head.into_bytes(), Expectation::NoHarm)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}
