//! Event streams of `albums/progress`: of other tenants, with a key that is revoked while it streams, watched by many,
//! and by clients that do not read. Beside them those of `events/list`, by clients that are silent.

use std::time::{Duration, Instant};

use photofinish_tests::harness::{ALL_SCOPES, Partner};
use serde_json::json;

use super::class::{Class, Setting};
use super::event_streams::{ends_with, open, read_until};
use super::silent_streams::try_silent_clients;
use crate::findings::Findings;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire::{Connection, Received};

pub(super) const STREAMS: Class = Class {
    name: "streams",
    description: "event streams of foreign and unknown albums, with a key that is revoked while it streams, with 200 \
                  watchers of one album, and 200 that do not read those of another organization's; all streams that a key may \
                  have and 5 more by clients that are silent for 20 s, and then leave or lose their key",
    settings,
    stops_service: false,
    run,
};

const PATH: &str = "/albums/progress";
/// A revoked key may be known for some seconds, and a stream looks once a second.
const REVOCATION_LIMIT: Duration = Duration::from_secs(30);
/// Photos of an album whose stream is watched, of one try after the other.
const BUSY_PHOTOS: [usize; 3] = [8, 40, 160];
/// Between two photos that keep an album busy.
const UPLOAD_PAUSE: Duration = Duration::from_millis(250);
/// The streams of progress that a key may have.
const STREAMS_OF_KEY: usize = 100;
/// The organizations whose albums are watched, by clients that read and by others.
const WATCHED: &str = "Stream Timing";
const UNREAD: &str = "Stream Silence";
/// How long the photos of the watched albums may take.
const WATCH_LIMIT: Duration = Duration::from_secs(150);

/// With fake models photos would be ready before anybody watches.
fn settings(extent: Extent) -> Vec<Setting> {
    match extent {
        Extent::Quick => vec![Setting { name: "PHOTOFINISH_FAKE_DELAY_MS", value: "400" }],
        Extent::Long => Vec::new(),
    }
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let silent = scope.spawn(|| try_silent_clients(site, findings));
        let partner = site.tenant(WATCHED);
        try_foreign(site, findings, &partner)?;
        try_revoked_key(site, findings, &partner)?;
        try_watchers(site, findings, &partner)?;
        silent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens a stream of the progress of an album.
fn open_progress(site: &Site, key: &str, album: &str, attacker: u8) -> anyhow::Result<Connection> {
    open(site, PATH, key, &json!({ "albumId": album }), attacker)
}

fn try_foreign(site: &Site, findings: &Findings, partner: &Partner) -> anyhow::Result<()> {
    let album = partner.create_album("Streams");
    let stranger = site.tenant("Stream Stranger");
    let searcher = site.create_key(WATCHED, &["search:read"], "test");
    let cases = [
        ("a stream of another tenant's album", stranger.key(), album.as_str(), 404),
        ("a stream of an unknown album", partner.key(), "01890000-0000-7000-8000-0000000000ff", 404),
        ("a stream without the scope", &searcher, &album, 403),
        ("a stream of no album", partner.key(), "no-uuid", 400),
        ("a stream without a key", "", &album, 401),
    ];
    for (case, key, album, status) in cases {
        let mut connection = open_progress(site, key, album, 1)?;
        let reaction = connection.read_answer(false, Instant::now() + PATIENCE);
        findings.expect(case, reaction, &[status]);
    }
    Ok(())
}

/// A stream also ends when its album is idle, so the album must be busy for longer than a revocation takes. How many photos
/// that needs depends on the machine.
fn try_revoked_key(site: &Site, findings: &Findings, partner: &Partner) -> anyhow::Result<()> {
    for photos in BUSY_PHOTOS {
        if let StreamEnd::Error(last) = revoke_during_stream(site, findings, partner, photos)? {
            findings.tried(1);
            let is_refused = last.contains("\"status\":401");
            findings.check(is_refused, || format!("the stream of a revoked key ends otherwise: {last}"));
            return Ok(());
        }
    }
    findings.check(false, || "the stream of a revoked key goes on until its album is idle".to_owned());
    Ok(())
}

/// How the stream of a revoked key ended.
enum StreamEnd {
    /// With this error event.
    Error(String),
    /// As for a key that is not revoked, or not at all.
    AsUsual,
}

/// Opens a stream of an album with so many photos, and revokes its key. More photos follow until the stream ends.
fn revoke_during_stream(
    site: &Site,
    findings: &Findings,
    partner: &Partner,
    photos: usize,
) -> anyhow::Result<StreamEnd> {
    let label = format!("stream-revoked-{photos}");
    let key = site.create_labelled_key(WATCHED, &label, &[]);
    let album = partner.create_album("Streams of a revoked key");
    let upload = |number| partner.upload_photo(&album, &format!("{number}.jpg"), site.material.photo(0));
    for number in 0..photos {
        upload(number);
    }
    let mut stream = open_progress(site, &key, &album, 2)?;
    let is_open = read_until(&mut stream, "event: message", Instant::now() + REVOCATION_LIMIT);
    findings.check(is_open, || format!("no event before the revocation: {}", stream.received()));
    site.revoke_key(&label);
    let (deadline, mut number) = (Instant::now() + REVOCATION_LIMIT, photos);
    while Instant::now() < deadline && !stream.received().contains("event: error") {
        upload(number);
        number += 1;
        if stream.receive(Instant::now() + UPLOAD_PAUSE) == Received::End {
            break;
        }
    }
    let received = stream.received();
    let last = received.rsplit("event: ").next().unwrap_or_default();
    Ok(if last.starts_with("error") { StreamEnd::Error(last.to_owned()) } else { StreamEnd::AsUsual })
}

/// Opens streams of a busy album of each of two organizations: those of one are read, those of the other are not.
fn try_watchers(site: &Site, findings: &Findings, partner: &Partner) -> anyhow::Result<()> {
    let count = site.extent.pick(20, 200);
    let (album, keys) = prepare_watched(site, partner, WATCHED, count);
    let (unread_album, unread_keys) = prepare_watched(site, &site.tenant(UNREAD), UNREAD, count);
    let mut watchers = Vec::new();
    let mut silent = Vec::new();
    for number in 0..count {
        let attacker = (number % 8) as u8;
        let [key, unread_key] = [&keys, &unread_keys].map(|keys| &keys[number / STREAMS_OF_KEY]);
        watchers.push(open_progress(site, key, &album, 3 + attacker)?);
        silent.push(open_progress(site, unread_key, &unread_album, 11 + attacker)?);
    }
    findings.tried(2 * count);
    let deadline = Instant::now() + WATCH_LIMIT;
    for (number, watcher) in watchers.iter_mut().enumerate() {
        let is_done = read_until(watcher, "event: done", deadline);
        findings.check(is_done, || {
            let received = watcher.received();
            let end: String =
                received.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
            format!("watcher {number} is not told of the end: ..{end}")
        });
    }
    check_unread(findings, &mut silent, deadline + PATIENCE);
    Ok(())
}

/// What nobody has read until now came every second, and then the end: whoever does not read keeps no place for longer.
fn check_unread(findings: &Findings, silent: &mut [Connection], deadline: Instant) {
    for (number, stream) in silent.iter_mut().enumerate() {
        let has_ended = ends_with(stream, "done", deadline);
        let received = stream.received();
        findings.check(has_ended, || {
            format!("silent watcher {number} is not told of the end: {} bytes received", received.len())
        });
        let messages = received.matches("event: message").count();
        findings.check(messages > 0, || format!("silent watcher {number} got nothing before the end"));
    }
}

/// Creates an album with photos that are processed, and keys for so many streams of it.
fn prepare_watched(
    site: &Site,
    partner: &Partner,
    organization: &str,
    streams: usize,
) -> (String, Vec<String>) {
    let album = partner.create_album("Watched");
    for number in 0..site.extent.pick(6, 24) {
        partner.upload_photo(&album, &format!("{number}.jpg"), site.material.photo(number));
    }
    let keys = streams.div_ceil(STREAMS_OF_KEY);
    (album, (0..keys).map(|_| site.create_key(organization, &ALL_SCOPES, "test")).collect())
}

#[cfg(test)]
mod tests {
    use photofinish_api::fuzzing::{Surface, served_operations};

    #[test]
    fn the_streams_of_every_operation_are_tried() {
        let served = served_operations().into_iter().filter(|operation| operation.has_events);
        let of_keys = served.filter(|operation| operation.surface != Surface::Console);
        let mut paths: Vec<String> = of_keys.map(|operation| operation.path).collect();
        paths.sort();
        // Those of the console have the places of progress, and end with their session as others with their key.
        assert_eq!(paths, [super::PATH, crate::classes::silent_streams::PATH]);
    }
}
