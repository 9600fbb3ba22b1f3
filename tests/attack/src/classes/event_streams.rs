//! Streams of events as a client opens and reads them.

use std::time::Instant;

use serde_json::Value;

use crate::site::Site;
use crate::wire::{Connection, Received};

/// The end of a response without a length.
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// Opens a stream of an operation; `attacker` is the number of the address.
pub(super) fn open(
    site: &Site,
    path: &str,
    key: &str,
    input: &Value,
    attacker: u8,
) -> anyhow::Result<Connection> {
    let mut connection = site.endpoint(attacker).connect()?;
    let body = input.to_string();
    let head = format!(
        "POST /openapi{path} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\naccept: text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write(head.as_bytes())?;
    Ok(connection)
}

/// Reads until `text` was received; false at the end of the connection or the deadline.
pub(super) fn read_until(connection: &mut Connection, text: &str, deadline: Instant) -> bool {
    while !connection.received().contains(text) {
        if connection.receive(deadline) != Received::More {
            return connection.received().contains(text);
        }
    }
    true
}

/// Reads until this event was received, and after it the end of the response; false at the deadline.
pub(super) fn ends_with(connection: &mut Connection, event: &str, deadline: Instant) -> bool {
    read_until(connection, &format!("event: {event}"), deadline)
        && read_until(connection, LAST_CHUNK, deadline)
}

/// Reads the head of the response; whether the stream is open.
pub(super) fn is_admitted(connection: &mut Connection, deadline: Instant) -> bool {
    read_until(connection, "\r\n\r\n", deadline) && connection.received().starts_with("HTTP/1.1 200")
}
