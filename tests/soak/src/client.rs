//! A careful partner's program: it tries again what was not answered, until it is, and takes nothing for done that was
//! not answered as done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use ureq::Agent;

/// One request; a cluster that is cut off answers late or never.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// One request to a cluster that nothing is wrong with, however busy the machine is.
const PATIENT_LIMIT: Duration = Duration::from_secs(60);
/// One look.
const SHORT_LIMIT: Duration = Duration::from_secs(2);
/// One thing to do, however often it is tried: longer than any fault, and than a cluster takes to come back.
const PATIENCE: Duration = Duration::from_secs(240);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(150);
/// The most that a page or a search holds.
const PAGE: usize = 200;
const MOST_HITS: usize = 1000;

/// The program. Clones count their tries together.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    origin: String,
    key: String,
    tried_again: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

/// Why a request was not answered with success.
enum Refusal {
    /// It may be tried again.
    Later(String),
    /// No answer came for as long as this program waits for one. It may be tried again.
    Unanswered(String),
    /// It never will be.
    Never(String),
}

impl Refusal {
    /// What an exchange that did not come to its end is taken for.
    fn of(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::Unanswered(error.to_string()),
            _ => Self::Later(error.to_string()),
        }
    }
}

impl Client {
    /// `origin` is the service's, without a path.
    pub fn new(origin: String, key: &str) -> Self {
        let (tried_again, refused) = (Arc::default(), Arc::default());
        Self { agent: agent(ANSWER_LIMIT), origin, key: key.to_owned(), tried_again, refused }
    }

    /// The same, which waits for an answer long.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { agent: agent(PATIENT_LIMIT), ..self }
    }

    /// The same, which waits for no answer long.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self { agent: agent(SHORT_LIMIT), ..self }
    }

    /// How often something had to be tried again.
    pub fn tried_again(&self) -> usize {
        self.tried_again.load(Ordering::SeqCst)
    }

    /// How often of these it was refused: all but the times when this program would not wait for an answer any longer.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Calls an operation until it is answered with success.
    ///
    /// # Errors
    /// When it is refused for good, or for longer than four minutes.
    pub fn call(&self, path: &str, input: &Value) -> anyhow::Result<Value> {
        self.patiently(path, || self.call_once(path, input))
    }

    /// Calls an operation once; `None` when it is not answered with success.
    pub fn try_call(&self, path: &str, input: &Value) -> Option<Value> {
        self.call_once(path, input).ok()
    }

    /// Makes an album.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn album(&self, title: &str) -> anyhow::Result<String> {
        text(&self.call("/albums/create", &json!({ "title": title }))?, "id")
    }

    /// Sends a photo and answers its id once it was promised.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn upload(&self, album: &str, filename: &str, bytes: &[u8]) -> anyhow::Result<String> {
        let sign = json!({ "albumId": album, "filename": filename, "contentType": "image/jpeg" });
        let ticket = self.call("/photos/photo/signed", &sign)?;
        self.put(&text(&ticket, "uploadUrl")?, bytes)?;
        let photo = text(&ticket, "photoId")?;
        let confirmed = self.call("/photos/photo/success", &json!({ "albumId": album, "photoId": photo }))?;
        if confirmed["success"] != true {
            bail!("{filename} was not confirmed: {confirmed}");
        }
        Ok(photo)
    }

    /// Every photo of an album, as listed.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn photos(&self, album: &str) -> anyhow::Result<Vec<Value>> {
        let mut photos = Vec::new();
        let mut input = json!({ "albumId": album, "limit": PAGE });
        loop {
            let mut page = self.call("/photos/photo/list", &input)?;
            let Value::Array(found) = page["photos"].take() else { bail!("a page without photos: {page}") };
            photos.extend(found);
            match page["nextCursor"].take() {
                Value::Null => return Ok(photos),
                cursor => input["cursor"] = cursor,
            }
        }
    }

    /// One photo with what was seen in it.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn photo(&self, album: &str, photo: &str) -> anyhow::Result<Value> {
        self.call("/photos/photo/get", &json!({ "albumId": album, "photoId": photo }))
    }

    /// The hits of a bib.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn by_bib(&self, album: &str, bib: &str) -> anyhow::Result<Vec<Value>> {
        let input = json!({ "albumId": album, "text": bib, "exact": true, "limit": MOST_HITS });
        hits(self.call("/photos/search/text/list", &input)?)
    }

    /// The hits of a selfie.
    ///
    /// # Errors
    /// See [`Self::call`].
    pub fn by_selfie(&self, album: &str, selfie: &[u8]) -> anyhow::Result<Vec<Value>> {
        let ticket = self.call("/photos/search/face/signed", &json!({ "albumId": album }))?;
        self.put(&text(&ticket, "uploadUrl")?, selfie)?;
        let image = text(&ticket, "imageId")?;
        let input = json!({ "albumId": album, "imageId": image, "limit": MOST_HITS });
        hits(self.call("/photos/search/face/list", &input)?)
    }

    /// A page of text, without the key, tried once.
    pub fn page(&self, path: &str) -> Option<String> {
        let mut answer = self.agent.get(format!("{}{path}", self.origin)).call().ok()?;
        if answer.status() == 200 { answer.body_mut().read_to_string().ok() } else { None }
    }

    fn put(&self, url: &str, bytes: &[u8]) -> anyhow::Result<()> {
        self.patiently("sending bytes", || {
            let sent = self.agent.put(url).header("content-type", "image/jpeg").send(bytes);
            match sent.map_err(Refusal::of)?.status().as_u16() {
                200 => Ok(()),
                // Also what the storage says of a body that was cut.
                status => Err(Refusal::Later(format!("answered {status}"))),
            }
        })
    }

    fn call_once(&self, path: &str, input: &Value) -> Result<Value, Refusal> {
        let request =
            self.agent.post(format!("{}/openapi{path}", self.origin)).header("x-api-key", &self.key);
        let mut answer = request.send_json(input).map_err(Refusal::of)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().read_to_string().map_err(Refusal::of)?;
        let say = || format!("{status}: {body}");
        match status {
            200 => serde_json::from_str(&body).map_err(|error| Refusal::Later(error.to_string())),
            408 | 429 | 500.. => Err(Refusal::Later(say())),
            _ => Err(Refusal::Never(say())),
        }
    }

    fn patiently<T>(&self, what: &str, mut once: impl FnMut() -> Result<T, Refusal>) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            match once() {
                Ok(done) => return Ok(done),
                Err(Refusal::Never(why)) => bail!("{what}: {why}"),
                Err(Refusal::Later(why) | Refusal::Unanswered(why)) if begun.elapsed() > PATIENCE => {
                    bail!("{what}: not within {PATIENCE:?}: {why}")
                }
                Err(refusal) => {
                    self.tried_again.fetch_add(1, Ordering::SeqCst);
                    if matches!(refusal, Refusal::Later(_)) {
                        self.refused.fetch_add(1, Ordering::SeqCst);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// A connection a request: what is taken off the front gets no request over a connection that it has open.
fn agent(limit: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(0)
        .timeout_global(Some(limit));
    config.build().into()
}

/// A field of an answer.
///
/// # Errors
/// When it is no text.
pub fn text(value: &Value, field: &str) -> anyhow::Result<String> {
    value[field].as_str().map(str::to_owned).with_context(|| format!("no `{field}` in {value}"))
}

fn hits(mut answer: Value) -> anyhow::Result<Vec<Value>> {
    let total = answer["total"].as_u64();
    match answer["photos"].take() {
        Value::Array(hits) if total == Some(hits.len() as u64) => Ok(hits),
        hits => bail!("a total of {total:?} of {hits}"),
    }
}
