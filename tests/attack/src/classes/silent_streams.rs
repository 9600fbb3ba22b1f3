//! Clients that open streams of events and then neither read nor write. They keep no more places than a key has, get what shows
//! that the service is there, give their places back when they leave, and end with their key.

use std::time::{Duration, Instant};

use serde_json::json;

use super::event_streams::{ends_with, is_admitted, open, read_until};
use crate::findings::Findings;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire::Connection;

const ORGANIZATION: &str = "Stream Patience";
/// The operation whose streams they are.
pub(super) const PATH: &str = "/events/list";
/// The streams of events that a key may have, and how many more are tried.
const STREAMS_OF_KEY: usize = 20;
const TOO_MANY: usize = 5;
/// Without an event a comment comes after 15 s; on a busy machine some seconds later.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a place may take to be free, and a stream to end with its key, which may be known for some seconds.
const END_LIMIT: Duration = Duration::from_secs(30);
/// How much later a comment may be read.
const COMMENT_LIMIT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The address of these clients.
const ATTACKER: u8 = 30;
/// What comes without an event, between the length and the end of its chunk.
const COMMENT: &str = "\r\n: \n\n\r\n";

/// Tries them.
pub(super) fn try_silent_clients(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let label = "stream-silent";
    let key = site.create_labelled_key(ORGANIZATION, label, &[]);
    let mut silent = fill_places(site, findings, &key)?;
    if site.extent == Extent::Long {
        std::thread::sleep(SILENCE);
    }
    let reaction = site.call("/albums/list", &key, &json!({}));
    findings.expect("a call beside silent streams of its key", reaction, &[200]);
    let mut another = open(site, PATH, &key, &json!({}), ATTACKER)?;
    let reaction = another.read_answer(false, Instant::now() + PATIENCE);
    findings.expect("one more stream beside silent ones", reaction, &[429]);
    if site.extent == Extent::Long {
        for stream in &mut silent {
            let has_comment = read_until(stream, COMMENT, Instant::now() + COMMENT_LIMIT);
            findings.check(has_comment, || format!("no comment in {SILENCE:?}: {}", stream.received()));
        }
    }
    silent.truncate(STREAMS_OF_KEY / 2);
    try_place_of_those_who_left(site, findings, &key)?;
    site.revoke_key(label);
    let deadline = Instant::now() + END_LIMIT;
    for (number, stream) in silent.iter_mut().enumerate() {
        // The error, and with the last chunk the end of the response.
        let has_ended = ends_with(stream, "error", deadline);
        let received = stream.received();
        findings.check(has_ended, || format!("silent stream {number} goes on: {received}"));
        let is_refused = received.contains("\"status\":401");
        findings.check(is_refused, || format!("silent stream {number} ends otherwise: {received}"));
    }
    Ok(())
}

/// Opens as many streams as a key may have, and some more, which are refused. Of each only the head is read.
fn fill_places(site: &Site, findings: &Findings, key: &str) -> anyhow::Result<Vec<Connection>> {
    let mut silent = Vec::new();
    for number in 0..STREAMS_OF_KEY + TOO_MANY {
        let mut stream = open(site, PATH, key, &json!({}), ATTACKER)?;
        let deadline = Instant::now() + PATIENCE;
        if number >= STREAMS_OF_KEY {
            let reaction = stream.read_answer(false, deadline);
            findings.expect("a stream beyond those of its key", reaction, &[429]);
        } else {
            findings.tried(1);
            let is_open = is_admitted(&mut stream, deadline);
            findings.check(is_open, || format!("stream {number} of a key: {}", stream.received()));
            silent.push(stream);
        }
    }
    Ok(silent)
}

/// Some clients have left: their places are free soon.
fn try_place_of_those_who_left(site: &Site, findings: &Findings, key: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + END_LIMIT;
    let mut is_free = false;
    while !is_free && Instant::now() < deadline {
        let mut stream = open(site, PATH, key, &json!({}), ATTACKER)?;
        is_free = is_admitted(&mut stream, deadline);
        if !is_free {
            std::thread::sleep(RETRY_PAUSE);
        }
    }
    findings.check(is_free, || "the places of streams whose clients have left are not free".to_owned());
    Ok(())
}
