//! What fuzzing and attacks need of this crate: the operations that it serves, and the code that reads bodies and cursors of
//! strangers. Compiled only with the cargo feature `fuzzing`.

use std::sync::LazyLock;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::operation::console::console_operations;
use crate::operation::visitors::visitor_operations;
use crate::operation::{Operation, catalog};
use crate::validate::validators::Schemas;
use crate::wire::cursor::{AlbumPosition, HitCursor, decode_id, encode_id};

/// For whom an operation is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Surface {
    /// Keys below `/openapi`, and sessions below `/console/api`.
    Partners,
    /// Sessions alone, below `/console/api`.
    Console,
    /// Visitors of galleries, below `/g/{link}/api`.
    Visitors,
}

/// An operation that the service has a route to.
#[derive(Clone, Debug)]
pub struct ServedOperation {
    /// For whom.
    pub surface: Surface,
    /// Below the path of its surface, for example `/albums/create`.
    pub path: String,
    /// Whether its body has the member `cursor`.
    pub takes_cursor: bool,
    /// Whether it can respond with a stream of events.
    pub has_events: bool,
}

/// Returns all operations, from the lists that the routes are made of.
pub fn served_operations() -> Vec<ServedOperation> {
    let describe = |operation: Served| ServedOperation {
        surface: operation.surface,
        path: operation.operation.info.path(),
        takes_cursor: takes_cursor(&operation.operation),
        has_events: operation.operation.has_events,
    };
    all_served().into_iter().map(describe).collect()
}

struct Served {
    surface: Surface,
    operation: Operation,
}

fn all_served() -> Vec<Served> {
    let of_all = [
        (Surface::Partners, catalog::all_operations()),
        (Surface::Console, console_operations()),
        (Surface::Visitors, visitor_operations()),
    ];
    let served = of_all.into_iter().flat_map(|(surface, operations)| {
        operations.into_iter().map(move |operation| Served { surface, operation })
    });
    served.collect()
}

fn takes_cursor(operation: &Operation) -> bool {
    let mut schemas = Schemas::new();
    let (name, _) = (operation.schema_fns.input)(&mut schemas);
    match schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => object.properties.contains_key("cursor"),
        _ => false,
    }
}

/// Reads a body; returns whether it is an input of its operation.
type BodyReader = fn(&str) -> bool;

/// Those of all operations, in the order of [`served_operations`].
static READERS: LazyLock<Vec<BodyReader>> =
    LazyLock::new(|| all_served().iter().map(|served| served.operation.schema_fns.check_body).collect());

/// Returns a valid body of every operation, in the order of [`served_operations`], with the operation's number as a byte before it.
///
/// # Panics
/// When one is refused.
pub fn example_bodies() -> Vec<Vec<u8>> {
    let example = |(number, served): (usize, Served)| {
        let Operation { info, schema_fns, .. } = served.operation;
        let body = (schema_fns.input_example)().to_string();
        assert!((schema_fns.check_body)(&body), "{} refuses its own example", info.id);
        let number = u8::try_from(number).expect("at most 256 operations");
        [&[number][..], body.as_bytes()].concat()
    };
    all_served().into_iter().enumerate().map(example).collect()
}

/// Reads a body as the input of the operation whose number is before it. Returns whether it is one.
///
/// # Panics
/// When an input is refused without an issue that says why, when one costs nothing of a limit, or when skipping unknown
/// members changes what is accepted.
pub fn check_body(numbered: &[u8]) -> bool {
    let Some((number, body)) = numbered.split_first() else { return false };
    let Ok(text) = std::str::from_utf8(body) else { return false };
    let check_body = READERS[usize::from(*number) % READERS.len()];
    check_body(text)
}

/// Reads a text as each kind of cursor. Returns whether it is one of any.
///
/// # Panics
/// When a text is accepted that this service does not write.
pub fn check_cursor(text: &str) -> bool {
    let mut is_cursor = false;
    if let Some(HitCursor { position, proof }) = HitCursor::parse(text) {
        assert_eq!(position.to_cursor() + &proof.map(hex::encode).unwrap_or_default(), text);
        is_cursor = true;
    }
    if let Some(position) = AlbumPosition::from_cursor(text) {
        assert_eq!(position.to_cursor(), text);
        is_cursor = true;
    }
    if let Some(id) = decode_id(text) {
        assert_eq!(encode_id(id), text);
        is_cursor = true;
    }
    is_cursor
}
