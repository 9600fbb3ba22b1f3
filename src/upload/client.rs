//! The partner API as `upload` uses it: sign, send, confirm, each tried again while that can help.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use anyhow::bail;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

use super::Outcome;
use super::folder::PhotoFile;

/// Tries of one call. With the waits below a restart of the service is ridden out.
const TRIES: u32 = 7;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// The longest page that `photos/photo/list` gives.
const PAGE: u32 = 200;

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
    /// The `photoId`s that were signed, but never confirmed: an answer that a break swallowed leaves some behind.
    pub unfinished: Vec<String>,
}

/// Why a file was not taken.
#[derive(Debug)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One entry of a batch answer, by position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    success: bool,
    upload_url: Option<String>,
    photo_id: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    photos: Vec<Listed>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    filename: String,
    state: String,
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
            .timeout_global(Some(Duration::from_secs(300)))
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
            let page: Page = self.call("photos/photo/list", &body)?;
            for photo in page.photos {
                let name = known.entry(photo.filename).or_default();
                if photo.state == "awaiting_upload" {
                    name.unfinished.push(photo.id);
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

    /// Removes a photo whose upload was never confirmed.
    ///
    /// # Errors
    /// When the service refuses or cannot be reached.
    pub fn forget(&self, photo: &str) -> anyhow::Result<()> {
        let body = json!({ "albumId": self.album, "photoId": photo });
        self.call::<Value>("photos/photo/delete", &body).map(drop)
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

    fn sign(&self, files: &[PhotoFile]) -> anyhow::Result<Vec<Entry>> {
        let entries: Vec<Value> = files
            .iter()
            .map(|file| json!({ "filename": file.name, "contentType": file.content_type }))
            .collect();
        let body = json!({ "albumId": self.album, "entries": entries });
        let answer: Results = self.call("photos/photo/signed/batch", &body)?;
        if answer.results.len() != files.len() {
            bail!("the service answered {} of {} entries", answer.results.len(), files.len());
        }
        Ok(answer.results)
    }

    /// Sends a file's bytes; answers its photo id and size.
    fn send_one(&self, file: &PhotoFile, ticket: Entry) -> anyhow::Result<(String, u64)> {
        let (Some(url), Some(photo)) = (ticket.upload_url, ticket.photo_id) else {
            bail!("not signed: {}", ticket.error.unwrap_or_default());
        };
        let bytes = std::fs::read(&file.path)?;
        let answer =
            self.retried(|| self.agent.put(&url).header("content-type", file.content_type).send(&bytes[..]))?;
        if answer.status() != 200 {
            bail!("storage answered {}", described(answer));
        }
        Ok((photo, bytes.len() as u64))
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
        let url = format!("{}/{path}", self.base);
        let mut answer =
            self.retried(|| self.agent.post(&url).header("x-api-key", &self.key).send_json(body))?;
        if answer.status() != 200 {
            bail!("{path} answered {}", described(answer));
        }
        Ok(answer.body_mut().with_config().limit(64 << 20).read_json()?)
    }

    /// Tries again while the network or the service has trouble of its own, waiting as long as it asks.
    fn retried(&self, send: impl Fn() -> Result<Answer, ureq::Error>) -> anyhow::Result<Answer> {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            let asked = match send() {
                Ok(answer) if !is_passing(answer.status().as_u16()) => return Ok(answer),
                Ok(answer) => retry_after(&answer),
                Err(_) => None,
            };
            std::thread::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT));
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(send()?)
    }
}

type Answer = ureq::http::Response<ureq::Body>;

fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
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
