//! JSON bodies of every operation with changed values, members and bytes.

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::case::{Case, Expectation, Valid};
use crate::classes::operations::{Ids, OPERATIONS};
use crate::wire;

/// What the contract permits for input of any kind on an album without photos. Ids are unknown in most, so deletions
/// change nothing that other cases need.
const PERMITTED: &[u16] = &[200, 400, 404, 409, 412, 413, 415, 422];

pub(super) fn make_case(valid: &Valid, rng: &mut StdRng) -> Case {
    let operation = &OPERATIONS[rng.random_range(0..OPERATIONS.len())];
    // The one album must live as long as the other cases.
    let album = if operation.is_destructive { "01890000-0000-7000-8000-000000000001" } else { &valid.album };
    let ids = Ids { album: json!(album), ..Ids::of_all("01890000-0000-7000-8000-0000000000ff") };
    let mut input = (operation.input)(&ids);
    let (kind, body) = match rng.random_range(0..3) {
        0 => {
            change_member(&mut input, rng);
            ("a member", input.to_string().into_bytes())
        }
        1 => {
            add_members(&mut input, rng);
            ("members added", input.to_string().into_bytes())
        }
        _ => ("bytes", change_bytes(input.to_string().into_bytes(), rng)),
    };
    let text = String::from_utf8_lossy(&body);
    let name: String = format!("body of {}: {kind}: {text}", operation.path).chars().take(240).collect();
    Case::new(name, wire::call(operation.path, &valid.key, &body), Expectation::Answer(PERMITTED))
}

/// Any value, mostly of a type or size that no member has.
fn odd_value(rng: &mut StdRng) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!(" "),
        json!("\0"),
        json!("\u{202e}\u{feff}\u{10ffff}"),
        json!("x".repeat(rng.random_range(1..20_000))),
        json!("../../etc/passwd"),
        json!("'; drop table albums; --"),
        json!("javascript:alert(1)"),
        json!("data:text/html,x"),
        json!("(a+)+$"),
        json!("00000000-0000-0000-0000-000000000000"),
        json!("{01890000-0000-7000-8000-000000000001}"),
        json!("urn:uuid:01890000-0000-7000-8000-000000000001"),
        json!([]),
        json!([[[[]]]]),
        json!({}),
        json!({ "a": { "b": [null] } }),
        json!(vec![0; rng.random_range(1..2_000)]),
    ];
    values[rng.random_range(0..values.len())].clone()
}

/// Members that some operation has, and one that none has.
const MEMBERS: [&str; 24] = [
    "title",
    "coverUrl",
    "tags",
    "config",
    "limit",
    "cursor",
    "state",
    "exact",
    "minConfidence",
    "text",
    "filename",
    "contentType",
    "entries",
    "photoIds",
    "photoId",
    "imageId",
    "albumId",
    "face",
    "grid",
    "url",
    "types",
    "webhookId",
    "deliveryId",
    "__proto__",
];

fn change_member(input: &mut Value, rng: &mut StdRng) {
    let Some(object) = input.as_object_mut() else { return };
    let names: Vec<String> = object.keys().cloned().collect();
    // An input whose members are all optional.
    if names.is_empty() {
        return;
    }
    let name = &names[rng.random_range(0..names.len())];
    if rng.random_range(0..4) == 0 {
        object.remove(name);
    } else {
        object[name] = odd_value(rng);
    }
}

fn add_members(input: &mut Value, rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..5) {
        let value = match rng.random_range(0..3) {
            0 => json!({ MEMBERS[rng.random_range(0..MEMBERS.len())]: odd_value(rng) }),
            1 => {
                let recognition =
                    json!({ "mode": "grid", "grid": odd_value(rng), "confidenceThreshold": 50 });
                json!({ "face": recognition, "preview": { "maxDimension": odd_value(rng) } })
            }
            _ => odd_value(rng),
        };
        input[MEMBERS[rng.random_range(0..MEMBERS.len())]] = value;
    }
}

/// Inserts what JSON must not have there, doubles or removes a part, or changes a byte.
fn change_bytes(mut body: Vec<u8>, rng: &mut StdRng) -> Vec<u8> {
    const INSERTED: [&[u8]; 16] = [
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\"\\ud800\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"\"",
        b"\\",
        b"NaN",
        b"1e999",
        b"// x\n",
        b"\xef\xbb\xbf",
        b"\"albumId\":1,",
    ];
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=body.len());
        let end = (at + rng.random_range(0..20)).min(body.len());
        match rng.random_range(0..4) {
            0 => {
                let inserted = INSERTED[rng.random_range(0..INSERTED.len())];
                body.splice(at..at, inserted.iter().copied());
            }
            1 => {
                body.drain(at..end);
            }
            2 => {
                let part = body[at..end].to_vec();
                body.splice(at..at, part);
            }
            _ => {
                if let Some(byte) = body.get_mut(at) {
                    *byte = rng.random_range(0..=255);
                }
            }
        }
    }
    body
}
