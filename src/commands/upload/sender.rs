//! Uploads files into one album: signs, uploads and confirms them in batches, each request retried while that can help.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use photofinish_client::{
    Client, ClientError, ClientOptions, ErrorBody, PhotoFile, PhotoState, RetriedUploadStatuses, RetryPolicy,
    UploadTicket,
};
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use super::folder::LocalPhoto;

/// The waits between the attempts are 45.75 s together, longer than a restart of the service: it drains for 20 s at most
/// and then loads its models.
const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 9,
    give_up_after: Duration::MAX,
    first_delay: Duration::from_millis(250),
    max_delay: Duration::from_secs(15),
    upload_statuses: RetriedUploadStatuses::Transient,
};
/// For so long an upload waits for a service that does not answer, or answers that it cannot now.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Answers to a whole call after which all others get them too: no key, no right, no album.
const FINAL_STATUSES: [u16; 3] = [401, 403, 404];
/// The longest time of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Uploads into one album with one key. It is shared by the upload threads.
pub struct Sender {
    client: Client,
    album: String,
    patience: Duration,
    /// Why nothing can be sent any more.
    end: OnceLock<String>,
}

/// The photos of the album that have one file name.
#[derive(Debug, Default)]
pub struct KnownName {
    /// Whether one of them is confirmed, in whichever state it is by now.
    pub is_confirmed: bool,
    /// Those that were signed and not confirmed: another uploader may be at work on them, or their upload was interrupted.
    pub unconfirmed: Vec<Unconfirmed>,
}

/// A photo that was signed and not confirmed.
#[derive(Debug)]
pub struct Unconfirmed {
    /// Its id.
    pub photo: String,
    /// Time since it was signed, by the service's clock.
    pub age: time::Duration,
}

/// What became of the files of one or more batches. Every file is counted exactly once.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that were uploaded and confirmed.
    pub sent: usize,
    /// Their size in bytes.
    pub sent_bytes: u64,
    /// Files that were not confirmed.
    pub refused: Vec<Refusal>,
}

/// A file that was not confirmed.
#[derive(Debug)]
pub struct Refusal {
    /// Its name in the album.
    pub name: String,
    /// Why, for people.
    pub reason: String,
}

/// A file whose bytes are in the storage.
struct UploadedFile<'a> {
    file: &'a LocalPhoto,
    photo: String,
    size_bytes: u64,
}

impl Outcome {
    /// Adds the outcome of another batch.
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.refused.extend(other.refused);
    }

    fn refuse(&mut self, file: &LocalPhoto, reason: String) {
        self.refused.push(Refusal { name: file.name.clone(), reason });
    }
}

impl Sender {
    /// A sender to the service at `url`, with or without the path `/openapi`.
    ///
    /// # Errors
    /// When the URL cannot carry a path.
    pub fn new(url: &Url, key: &str, album: Uuid) -> anyhow::Result<Self> {
        if url.cannot_be_a_base() {
            bail!("{url} is not the address of a service");
        }
        let options = ClientOptions { timeout: CALL_TIMEOUT, retry: RETRY, ..ClientOptions::default() };
        let client = Client::new(url.as_str(), key, options);
        Ok(Self { client, album: album.to_string(), patience: PATIENCE, end: OnceLock::new() })
    }

    /// The photos of the album, by file name.
    ///
    /// # Errors
    /// When the service refuses or cannot be reached.
    pub fn load_known_names(&self) -> Result<HashMap<String, KnownName>, ClientError> {
        let mut known: HashMap<String, KnownName> = HashMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.client.list_photos_page(&self.album, cursor.as_deref())?;
            for photo in page.photos {
                let name = known.entry(photo.filename).or_default();
                if photo.state == PhotoState::AwaitingUpload {
                    let signed_at: OffsetDateTime = photo.created_at.unwrap_or(page.service_time);
                    let age = page.service_time - signed_at;
                    name.unconfirmed.push(Unconfirmed { photo: photo.id, age });
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

    /// Deletes a photo, unless its uploader has confirmed it since the album was listed. Returns whether it is confirmed.
    ///
    /// # Errors
    /// When the service refuses or cannot be reached.
    pub fn delete_unless_confirmed(&self, photo: &str) -> Result<bool, ClientError> {
        match self.client.photo_state(&self.album, photo)? {
            Some(PhotoState::AwaitingUpload) => {
                self.client.delete_photo(&self.album, photo)?;
                Ok(false)
            }
            state => Ok(state.is_some()),
        }
    }

    /// Why nothing can be sent any more; `None` while something can.
    pub fn why_ended(&self) -> Option<&str> {
        self.end.get().map(String::as_str)
    }

    /// Signs, uploads and confirms a batch. Where nothing can be sent any more it does nothing, and [`Self::why_ended`] says
    /// why.
    pub fn send_batch(&self, files: &[LocalPhoto], bar: &ProgressBar) -> Outcome {
        let mut outcome = Outcome::default();
        let tickets = match self.sign_patiently(files, bar) {
            Ok(tickets) => tickets,
            Err(error) if is_passing(&error) || is_final(&error) => {
                // Another thread may have said it first.
                self.end.get_or_init(|| error.to_string());
                return outcome;
            }
            Err(error) => {
                files.iter().for_each(|file| outcome.refuse(file, error.to_string()));
                bar.inc(files.len() as u64);
                return outcome;
            }
        };
        let mut uploaded = Vec::new();
        for (file, ticket) in files.iter().zip(tickets) {
            match self.upload_file(file, ticket) {
                Ok(done) => uploaded.push(done),
                Err(error) => outcome.refuse(file, format!("{error:#}")),
            }
            bar.inc(1);
        }
        self.confirm(&uploaded, &mut outcome);
        outcome
    }

    /// Signs, and waits for a service that is away for longer than the retries of a call do: what it refuses meanwhile would
    /// have to be found and sent again.
    fn sign_patiently(
        &self,
        files: &[LocalPhoto],
        bar: &ProgressBar,
    ) -> Result<Vec<Result<UploadTicket, ErrorBody>>, ClientError> {
        let begun = Instant::now();
        loop {
            match self.sign(files) {
                Err(error)
                    if is_passing(&error)
                        && begun.elapsed() < self.patience
                        && self.why_ended().is_none() =>
                {
                    bar.set_message("(the service does not answer, trying again)");
                }
                result => {
                    bar.set_message("");
                    return result;
                }
            }
        }
    }

    fn sign(&self, files: &[LocalPhoto]) -> Result<Vec<Result<UploadTicket, ErrorBody>>, ClientError> {
        let declare = |file: &LocalPhoto| PhotoFile {
            filename: file.name.clone(),
            content_type: file.content_type.to_owned(),
        };
        self.client.sign_photos(&self.album, &files.iter().map(declare).collect::<Vec<_>>())
    }

    /// Uploads the bytes of a file. The files of a batch are signed together and uploaded one after the other: on a slow
    /// line the URL of a late one has expired when its turn comes, and it is signed again, once.
    fn upload_file<'a>(
        &self,
        file: &'a LocalPhoto,
        ticket: Result<UploadTicket, ErrorBody>,
    ) -> anyhow::Result<UploadedFile<'a>> {
        let mut ticket = ticket.map_err(|error| anyhow::anyhow!("not signed: {error}"))?;
        // An expired URL is not even tried: some storages refuse in the middle of the body, which looks like a broken
        // connection.
        let has_expired = ticket.has_expired();
        if has_expired {
            ticket = self.sign_again(file, &ticket)?;
        }
        let upload = |url: &str| self.client.upload_file(url, file.content_type, &file.path);
        let mut result = upload(&ticket.upload_url);
        if !has_expired && result.as_ref().err().is_some_and(may_have_expired) {
            ticket = self.sign_again(file, &ticket)?;
            result = upload(&ticket.upload_url);
        }
        Ok(UploadedFile { file, photo: ticket.photo_id, size_bytes: result? })
    }

    /// Replaces a ticket of this run, which was never confirmed.
    fn sign_again(&self, file: &LocalPhoto, old: &UploadTicket) -> anyhow::Result<UploadTicket> {
        self.client
            .delete_photo(&self.album, &old.photo_id)
            .context("deleting a photo whose upload URL has expired")?;
        let ticket = self.sign(std::slice::from_ref(file))?.pop().context("no ticket in the response")?;
        ticket.map_err(|error| anyhow::anyhow!("not signed: {error}"))
    }

    fn confirm(&self, uploaded: &[UploadedFile<'_>], outcome: &mut Outcome) {
        if uploaded.is_empty() {
            return;
        }
        let ids: Vec<&str> = uploaded.iter().map(|file| file.photo.as_str()).collect();
        let results = match self.client.confirm_photos(&self.album, &ids) {
            Ok(results) => {
                results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()
            }
            Err(error) => vec![Err(error.to_string()); uploaded.len()],
        };
        for (UploadedFile { file, size_bytes, .. }, result) in uploaded.iter().zip(results) {
            match result {
                Ok(()) => {
                    outcome.sent += 1;
                    outcome.sent_bytes += size_bytes;
                }
                Err(reason) => outcome.refuse(file, format!("not confirmed: {reason}")),
            }
        }
    }
}

/// Whether the same call may succeed later.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Transport { .. } => true,
        error => error.status().is_some_and(|status| status == 408 || status == 429 || status >= 500),
    }
}

fn is_final(error: &ClientError) -> bool {
    error.status().is_some_and(|status| FINAL_STATUSES.contains(&status))
}

/// Whether the storage may have refused because the URL has expired: with 403, or with 400 as Google's does.
fn may_have_expired(error: &ClientError) -> bool {
    matches!(error.status(), Some(400 | 403))
}

#[cfg(test)]
mod tests {
    use photofinish_servers::{Answer, Receiver};
    use serde_json::json;

    use super::*;

    /// A sender that asks again at once.
    fn sender_to(receiver: &Receiver) -> Sender {
        let url: Url = format!("http://127.0.0.1:{}", receiver.port()).parse().unwrap();
        let sender = Sender::new(&url, "any", Uuid::nil()).unwrap();
        let options = ClientOptions { retry: RetryPolicy::NEVER, ..sender.client.options() };
        Sender { client: sender.client.with_options(options), ..sender }
    }

    fn photo() -> LocalPhoto {
        LocalPhoto { name: "a.jpg".into(), path: "a.jpg".into(), content_type: "image/jpeg" }
    }

    #[test]
    fn a_service_that_is_away_is_waited_for() {
        let ticket = json!({ "success": true, "uploadUrl": "http://127.0.0.1/put", "photoId": "1" });
        let signed =
            Answer { body: json!({ "results": [ticket] }).to_string().into_bytes(), ..Answer::of(200) };
        let receiver = Receiver::start(move |place| if place < 3 { Answer::of(503) } else { signed.clone() });
        let sender = sender_to(&receiver);
        assert_eq!(sender.patience, Duration::from_mins(15));
        let tickets = sender.sign_patiently(&[photo()], &ProgressBar::hidden()).unwrap();
        assert_eq!(tickets[0].as_ref().unwrap().photo_id, "1");
        assert_eq!(receiver.count(), 4);
    }

    #[test]
    fn a_service_that_stays_away_ends_the_upload_and_refuses_no_file() {
        let receiver = Receiver::start(|_| Answer::of(503));
        let sender = Sender { patience: Duration::ZERO, ..sender_to(&receiver) };
        let outcome = sender.send_batch(&[photo()], &ProgressBar::hidden());
        assert_eq!((outcome.sent, outcome.refused.len()), (0, 0));
        assert!(sender.why_ended().is_some_and(|reason| reason.contains("503")), "{:?}", sender.why_ended());
        assert_eq!(receiver.count(), 1);
    }

    #[test]
    fn a_thread_waits_no_longer_where_another_has_given_up() {
        let receiver = Receiver::start(|_| Answer::of(503));
        let sender = Sender { patience: Duration::from_secs(1), ..sender_to(&receiver) };
        sender.end.set("the key was refused".to_owned()).unwrap();
        sender.send_batch(&[photo()], &ProgressBar::hidden());
        assert_eq!(sender.why_ended(), Some("the key was refused"));
        assert_eq!(receiver.count(), 1);
    }

    #[test]
    fn the_waits_of_a_call_outlast_a_restart() {
        assert_eq!(RETRY.delays().count(), 8);
        assert_eq!(RETRY.delays().sum::<Duration>(), Duration::from_millis(45_750));
    }
}
