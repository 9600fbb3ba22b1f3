//! The partner API as `upload` uses it: sign, send, confirm, each tried again while that can help.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

use super::Outcome;
use super::folder::PhotoFile;
use super::wire::{Answer, Page, Results, Standing, Ticket, clock_of};

/// Tries of one call. The waits between them are 45.75 s together: a restart of the service is ridden out, which drains
/// for 20 s at most and then loads its networks.
const TRIES: usize = 9;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How long a call may take.
const CALL_LIMIT: Duration = Duration::from_secs(300);
/// How long the transfer of no bytes may take; those of a file add to it.
const PUT_LIMIT: Duration = Duration::from_secs(60);
/// Bytes a second of a line that is waited for, of each file on its way.
const SLOWEST_LINE: u64 = 32_000;
/// Photos a page of `photos/photo/list`.
const PAGE: u32 = 200;
/// The state of a photo that was signed, but not confirmed.
const AWAITING: &str = "awaiting_upload";

/// Speaks to one album with one key.
pub struct Client {
    agent: ureq::Agent,
    base: String,
    key: String,
    album: Uuid,
}

/// The photos of one file name that the album has.
#[derive(Debug, Default)]
pub struct KnownName {
    /// Whether one of them is confirmed, whatever became of it.
    pub is_confirmed: bool,
    /// Those that were signed, but not confirmed: on their way, or left behind by a break that swallowed an answer.
    pub unfinished: Vec<Unfinished>,
}

/// A photo that was signed, but not confirmed.
#[derive(Debug)]
pub struct Unfinished {
    /// Its `photoId`.
    pub photo: String,
    /// For how long it has been signed, by the service's clock.
    pub age: time::Duration,
}

/// Why a file was not taken.
#[derive(Debug)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Client {
    /// A client of the service at `url`, with or without the path `/openapi`.
    ///
    /// # Errors
    /// When the URL cannot carry a path.
    pub fn new(url: &Url, key: &str, album: Uuid) -> anyhow::Result<Self> {
        let trimmed = url.as_str().trim_end_matches('/').trim_end_matches("/openapi");
        if url.cannot_be_a_base() {
            bail!("{url} is not the address of a service");
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(CALL_LIMIT))
            .build()
            .into();
        Ok(Self { agent, base: format!("{trimmed}/openapi"), key: key.to_owned(), album })
    }

    /// The photos of the album, by file name.
    ///
    /// # Errors
    /// When the service refuses or cannot be reached.
    pub fn known_photos(&self) -> anyhow::Result<HashMap<String, KnownName>> {
        let mut known: HashMap<String, KnownName> = HashMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut body = json!({ "albumId": self.album, "limit": PAGE });
            if let Some(cursor) = &cursor {
                body["cursor"] = json!(cursor);
            }
            let answer = self.ask("photos/photo/list", &body)?;
            let now = clock_of(&answer);
            let page: Page = read("photos/photo/list", answer)?;
            for photo in page.photos {
                let name = known.entry(photo.filename).or_default();
                if photo.state == AWAITING {
                    name.unfinished.push(Unfinished { photo: photo.id, age: now - photo.created_at });
                } else {
                    name.is_confirmed = true;
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(known);
            }
        }
    }

    /// Removes a photo unless it is confirmed by now, as its uploader may have finished since the album was listed.
    /// Answers whether it is, and so stays.
    ///
    /// # Errors
    /// When the service refuses or cannot be reached.
    pub fn remove_unless_confirmed(&self, photo: &str) -> anyhow::Result<bool> {
        let found: Option<Standing> = self.of_photo("photos/photo/get", photo)?;
        match found {
            Some(found) if found.state != AWAITING => Ok(true),
            Some(_) => self.remove(photo).map(|()| false),
            None => Ok(false),
        }
    }

    /// Signs, sends and confirms a batch; every file is counted exactly once in the answer.
    pub fn send(&self, files: &[PhotoFile], bar: &ProgressBar) -> Outcome {
        let mut outcome = Outcome::default();
        let tickets = match self.sign(files) {
            Ok(tickets) => tickets,
            Err(error) => return refuse_all(files, &error),
        };
        let mut uploaded = Vec::new();
        for (file, ticket) in files.iter().zip(tickets) {
            match self.send_one(file, ticket) {
                Ok(sent) => uploaded.push((file, sent)),
                Err(error) => outcome.refused.push((file.name.clone(), Refusal(format!("{error:#}")))),
            }
            bar.inc(1);
        }
        self.confirm(&uploaded, &mut outcome);
        outcome
    }

    /// A ticket a file, or why there is none.
    fn sign(&self, files: &[PhotoFile]) -> anyhow::Result<Vec<anyhow::Result<Ticket>>> {
        let entries: Vec<Value> = files
            .iter()
            .map(|file| json!({ "filename": file.name, "contentType": file.content_type }))
            .collect();
        let body = json!({ "albumId": self.album, "entries": entries });
        let answer = self.ask("photos/photo/signed/batch", &body)?;
        let now = clock_of(&answer);
        let Results { results } = read("photos/photo/signed/batch", answer)?;
        if results.len() != files.len() {
            bail!("the service answered {} of {} entries", results.len(), files.len());
        }
        Ok(results.into_iter().map(|entry| Ticket::of(entry, now)).collect())
    }

    /// Sends a file's bytes; answers its photo id and size. Files of a batch are signed together and sent one after the
    /// other: on a slow line the URL of a late one has ended when its turn comes, and it is signed anew, once.
    fn send_one(&self, file: &PhotoFile, ticket: anyhow::Result<Ticket>) -> anyhow::Result<(String, u64)> {
        let mut ticket = ticket?;
        let bytes = std::fs::read(&file.path)?;
        // Not even tried: some storage refuses in the middle of the body, which looks like a broken line.
        let is_over = ticket.is_over();
        if is_over {
            ticket = self.signed_anew(file, &ticket)?;
        }
        let mut answer = self.put(file, &ticket.url, &bytes)?;
        if !is_over && may_have_ended(answer.status().as_u16()) {
            ticket = self.signed_anew(file, &ticket)?;
            answer = self.put(file, &ticket.url, &bytes)?;
        }
        if answer.status() != 200 {
            bail!("storage answered {}", described(answer));
        }
        Ok((ticket.photo, bytes.len() as u64))
    }

    /// Another ticket in place of one that nobody but this run has, and that was never confirmed.
    fn signed_anew(&self, file: &PhotoFile, old: &Ticket) -> anyhow::Result<Ticket> {
        self.remove(&old.photo).context("removing a ticket whose URL has ended")?;
        self.sign(std::slice::from_ref(file))?.pop().context("the service answered no entry")?
    }

    fn put(&self, file: &PhotoFile, url: &str, bytes: &[u8]) -> anyhow::Result<Answer> {
        self.retried(|| {
            let request = self.agent.put(url).header("content-type", file.content_type);
            request.config().timeout_global(Some(put_limit(bytes.len() as u64))).build().send(bytes)
        })
    }

    /// Removes a photo; one that is not there is as good as removed.
    fn remove(&self, photo: &str) -> anyhow::Result<()> {
        self.of_photo::<Value>("photos/photo/delete", photo).map(drop)
    }

    fn confirm(&self, uploaded: &[(&PhotoFile, (String, u64))], outcome: &mut Outcome) {
        if uploaded.is_empty() {
            return;
        }
        let ids: Vec<&str> = uploaded.iter().map(|(_, (photo, _))| photo.as_str()).collect();
        let body = json!({ "albumId": self.album, "photoIds": ids });
        let results = match self.call::<Results>("photos/photo/success/batch", &body) {
            Ok(answer) if answer.results.len() == ids.len() => answer.results,
            Ok(answer) => {
                let words = format!("the service confirmed {} of {}", answer.results.len(), ids.len());
                outcome
                    .refused
                    .extend(uploaded.iter().map(|(f, _)| (f.name.clone(), Refusal(words.clone()))));
                return;
            }
            Err(error) => {
                let words = format!("not confirmed: {error:#}");
                outcome
                    .refused
                    .extend(uploaded.iter().map(|(f, _)| (f.name.clone(), Refusal(words.clone()))));
                return;
            }
        };
        for ((file, (_, bytes)), result) in uploaded.iter().zip(results) {
            if result.success {
                outcome.sent += 1;
                outcome.sent_bytes += bytes;
            } else {
                let words = format!("not confirmed: {}", result.error.unwrap_or_default());
                outcome.refused.push((file.name.clone(), Refusal(words)));
            }
        }
    }

    fn call<T: DeserializeOwned>(&self, path: &str, body: &Value) -> anyhow::Result<T> {
        read(path, self.ask(path, body)?)
    }

    /// A call about one photo; `None` when there is no such photo.
    fn of_photo<T: DeserializeOwned>(&self, path: &str, photo: &str) -> anyhow::Result<Option<T>> {
        let answer = self.ask(path, &json!({ "albumId": self.album, "photoId": photo }))?;
        if answer.status() == 404 { Ok(None) } else { read(path, answer).map(Some) }
    }

    fn ask(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let url = format!("{}/{path}", self.base);
        self.retried(|| self.agent.post(&url).header("x-api-key", &self.key).send_json(body))
    }

    /// Tries again while the network or the service has trouble of its own, waiting as long as it asks.
    fn retried(&self, send: impl Fn() -> Result<Answer, ureq::Error>) -> anyhow::Result<Answer> {
        for wait in waits() {
            let asked = match send() {
                Ok(answer) if !is_passing(answer.status().as_u16()) => return Ok(answer),
                Ok(answer) => retry_after(&answer),
                Err(_) => None,
            };
            std::thread::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT));
        }
        Ok(send()?)
    }
}

/// Between the tries of one call.
fn waits() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_WAIT), |wait| Some((*wait * 2).min(LONGEST_WAIT))).take(TRIES - 1)
}

fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// Whether storage may have refused because the URL has ended: 403, and 400 from Google's.
fn may_have_ended(status: u16) -> bool {
    matches!(status, 400 | 403)
}

/// How long the transfer of a file may take.
fn put_limit(bytes: u64) -> Duration {
    PUT_LIMIT + Duration::from_secs(bytes / SLOWEST_LINE)
}

fn read<T: DeserializeOwned>(path: &str, mut answer: Answer) -> anyhow::Result<T> {
    if answer.status() != 200 {
        bail!("{path} answered {}", described(answer));
    }
    Ok(answer.body_mut().with_config().limit(64 << 20).read_json()?)
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    answer.headers().get("retry-after")?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// The status with the envelope's message, for people.
fn described(mut answer: Answer) -> String {
    let status = answer.status();
    let body: Value = answer.body_mut().read_json().unwrap_or_default();
    match body.get("message").and_then(Value::as_str) {
        Some(message) => format!("{}: {message}", status.as_u16()),
        None => status.to_string(),
    }
}

fn refuse_all(files: &[PhotoFile], error: &anyhow::Error) -> Outcome {
    let refused = files.iter().map(|file| (file.name.clone(), Refusal(format!("{error:#}")))).collect();
    Outcome { refused, ..Outcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_of_a_call_outlast_a_restart() {
        assert_eq!(waits().count(), TRIES - 1);
        assert_eq!(waits().sum::<Duration>(), Duration::from_millis(45_750));
    }

    #[test]
    fn a_transfer_has_time_by_its_size() {
        assert_eq!(put_limit(0), Duration::from_secs(60));
        assert_eq!(put_limit(64_000_000), Duration::from_secs(2060));
    }
}
