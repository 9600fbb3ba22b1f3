//! The partner's program that receives webhooks, and what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use photofinish_servers::{Answer, ReceivedRequest, Receiver};
use serde_json::Value;

/// One answer in so many is an error, so that deliveries are attempted again.
const REFUSED_EVERY: usize = 7;

/// The program.
pub struct Partner {
    receiver: Receiver,
    /// How long it takes to answer, milliseconds.
    delay: Arc<AtomicU64>,
}

/// What webhooks told of one album.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToldPhotos {
    /// By photo: the events that told it and were accepted, with their types.
    pub events: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Bodies of one event that differ, and bodies that are no event.
    pub invalid: Vec<String>,
    /// Accepted requests whose event had been accepted before.
    pub repeated: usize,
}

impl Partner {
    /// Starts it.
    pub fn start() -> Self {
        let delay = Arc::new(AtomicU64::new(0));
        let chosen = Arc::clone(&delay);
        let receiver = Receiver::start(move |place| Answer {
            delay: Duration::from_millis(chosen.load(Ordering::SeqCst)),
            ..Answer::of(if place % REFUSED_EVERY == REFUSED_EVERY - 1 { 500 } else { 204 })
        });
        Self { receiver, delay }
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.receiver.port())
    }

    /// The URL of its webhook.
    pub fn url(&self) -> String {
        self.receiver.url()
    }

    /// Makes it take so long for each answer, until this is dropped.
    pub fn slow_down(&self, delay: Duration) -> SlowPartner<'_> {
        self.delay.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        SlowPartner(&self.delay)
    }

    /// Whether a process waits for its answer.
    pub fn waits_for_answer(&self, process: u32) -> bool {
        let ports = self.receiver.waiting_ports();
        !ports.is_empty() && has_connection_from(process, &ports)
    }

    /// What it was told of an album.
    pub fn told_photos(&self, album: &str) -> ToldPhotos {
        ToldPhotos::count(&self.receiver.received(), album)
    }
}

impl ToldPhotos {
    fn count(received: &[ReceivedRequest], album: &str) -> Self {
        let mut told = Self::default();
        let mut bodies: BTreeMap<&str, &str> = BTreeMap::new();
        for request in received.iter().filter(|request| (200..300).contains(&request.status)) {
            let id = request.headers.get("webhook-id").map_or("", String::as_str);
            let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
            let (Some(event_type), Some(photos)) = (body["type"].as_str(), body["data"]["photos"].as_array())
            else {
                told.invalid.push(format!("the body of event {id} is {}", request.body));
                continue;
            };
            if body["data"]["albumId"] != album {
                continue;
            }
            if let Some(before) = bodies.insert(id, &request.body) {
                told.repeated += 1;
                if before != request.body {
                    told.invalid.push(format!("event {id} has two bodies: {before} and {}", request.body));
                }
            }
            for photo in photos.iter().filter_map(|photo| photo["photoId"].as_str()) {
                let events = told.events.entry(photo.to_owned()).or_default();
                events.insert((id.to_owned(), event_type.to_owned()));
            }
        }
        told
    }
}

/// Whether a process has a connection whose own end is one of these ports.
fn has_connection_from(process: u32, ports: &[u16]) -> bool {
    // Lines of the kernel's table: place, own address and port in hexadecimal, and as the tenth column the inode.
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let inode_of = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let port = u16::from_str_radix(columns.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        ports.contains(&port).then(|| format!("socket:[{}]", columns.get(9).copied().unwrap_or_default()))
    };
    let sockets: Vec<String> = table.lines().filter_map(inode_of).collect();
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link == Path::new(socket)))
}

/// A partner who is slow until this is dropped.
pub struct SlowPartner<'a>(&'a AtomicU64);

impl Drop for SlowPartner<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;

    fn request(id: &str, status: u16, album: &str, photos: &[&str]) -> ReceivedRequest {
        let photos: Vec<Value> = photos.iter().map(|photo| json!({ "photoId": photo })).collect();
        let body = json!({ "type": "photo.ready", "data": { "albumId": album, "photos": photos } });
        let headers = BTreeMap::from([("webhook-id".to_owned(), id.to_owned())]);
        ReceivedRequest {
            at: SystemTime::now(),
            line: String::new(),
            headers,
            body: body.to_string(),
            status,
        }
    }

    #[test]
    fn only_accepted_bodies_tell_and_an_event_tells_once() {
        let told = ToldPhotos::count(
            &[
                request("a", 500, "x", &["1", "2"]),
                request("a", 204, "x", &["1", "2"]),
                request("a", 204, "x", &["1", "2"]),
                request("b", 500, "x", &["3"]),
                request("c", 204, "y", &["4"]),
                request("d", 204, "x", &["2"]),
            ],
            "x",
        );
        let count = |photo: &str| told.events.get(photo).map_or(0, BTreeSet::len);
        assert_eq!((count("1"), count("2"), count("3"), count("4")), (1, 2, 0, 0));
        assert_eq!((told.repeated, told.invalid.len()), (1, 0));
    }

    #[test]
    fn an_event_with_two_bodies_is_reported() {
        let told = ToldPhotos::count(&[request("a", 204, "x", &["1"]), request("a", 204, "x", &["2"])], "x");
        assert_eq!(told.invalid.len(), 1);
    }
}
