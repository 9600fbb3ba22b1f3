//! Uploads files into one album: signs, uploads and confirms them in batches, each request retried while that can help.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
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
/// For so long an upload waits for a service or a storage that does not answer, or answers that it cannot now.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// The wait after the retries of a call: it makes none after some answers that pass too.
const PAUSE: Duration = Duration::from_secs(1);
/// A storage that took a file within this time is not away. Shorter than the retries of a call take: what was uploaded before an
/// outage says nothing any more when they have failed.
const RECENT: Duration = Duration::from_secs(10);
/// Answers to a whole call after which all others get them too: no key, no right, no album.
const FINAL_STATUSES: [u16; 3] = [401, 403, 404];
/// The longest time of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Uploads into one album with one key. It is shared by the upload threads.
pub struct Sender {
    client: Client,
    album: String,
    patience: Duration,
    pause: Duration,
    /// When a file was uploaded last, by any thread.
    last_upload: Mutex<Option<Instant>>,
    /// Whether a file was refused after the patience, and none was uploaded since.
    is_storage_away: AtomicBool,
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
        Ok(Self {
            client,
            album: album.to_string(),
            patience: PATIENCE,
            pause: PAUSE,
            last_upload: Mutex::default(),
            is_storage_away: AtomicBool::new(false),
            end: OnceLock::new(),
        })
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

    /// Signs, uploads and confirms a batch. Where nothing can be sent any more it ends with what was uploaded, and
    /// [`Self::why_ended`] says why.
    pub fn send_batch(&self, files: &[LocalPhoto], bar: &ProgressBar) -> Outcome {
        let mut outcome = Outcome::default();
        let tickets = match self.ask_patiently(bar, || self.sign(files)) {
            Ok(tickets) => tickets,
            Err(error) if is_passing(&error) || is_final(&error) => {
                self.end(&error);
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
            match self.upload_file(file, ticket, bar) {
                Ok(done) => uploaded.push(done),
                // This one and those after it are not sent.
                Err(_) if self.why_ended().is_some() => break,
                Err(error) => outcome.refuse(file, format!("{error:#}")),
            }
            bar.inc(1);
        }
        self.confirm(&uploaded, &mut outcome, bar);
        outcome
    }

    /// Repeats a call of a service that is away for longer than the retries of the call do: what it refuses meanwhile would have
    /// to be found and sent again.
    fn ask_patiently<T>(
        &self,
        bar: &ProgressBar,
        mut call: impl FnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let begun = Instant::now();
        loop {
            match call() {
                Err(error) if is_passing(&error) && self.may_wait(begun) => self.pause(bar),
                result => {
                    bar.set_message("");
                    return result;
                }
            }
        }
    }

    /// Whether what failed since `begun` may be tried again.
    fn may_wait(&self, begun: Instant) -> bool {
        begun.elapsed() < self.patience && self.why_ended().is_none()
    }

    fn pause(&self, bar: &ProgressBar) {
        bar.set_message("(the service does not answer, trying again)");
        std::thread::sleep(self.pause);
    }

    /// Sends nothing more. Another thread may have said why first.
    fn end(&self, error: &ClientError) {
        self.end.get_or_init(|| error.to_string());
    }

    fn sign(&self, files: &[LocalPhoto]) -> Result<Vec<Result<UploadTicket, ErrorBody>>, ClientError> {
        let declare = |file: &LocalPhoto| PhotoFile {
            filename: file.name.clone(),
            content_type: file.content_type.to_owned(),
        };
        self.client.sign_photos(&self.album, &files.iter().map(declare).collect::<Vec<_>>())
    }

    /// Uploads the bytes of a file. The files of a batch are signed together and uploaded one after the other: on a slow
    /// line the URL of a late one has expired when its turn comes, as it has after an outage, and it is signed again; once where
    /// the storage refuses it.
    fn upload_file<'a>(
        &self,
        file: &'a LocalPhoto,
        ticket: Result<UploadTicket, ErrorBody>,
        bar: &ProgressBar,
    ) -> anyhow::Result<UploadedFile<'a>> {
        let mut ticket = ticket.map_err(|error| anyhow::anyhow!("not signed: {error}"))?;
        let (begun, mut was_signed_again) = (Instant::now(), false);
        loop {
            // An expired URL is not even tried: some storages refuse in the middle of the body, which looks like a broken
            // connection.
            if ticket.has_expired() {
                ticket = self.sign_again(file, &ticket, bar)?;
                was_signed_again = true;
            }
            match self.client.upload_file(&ticket.upload_url, file.content_type, &file.path) {
                Ok(size_bytes) => {
                    *self.last_upload.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                    self.is_storage_away.store(false, Ordering::SeqCst);
                    bar.set_message("");
                    return Ok(UploadedFile { file, photo: ticket.photo_id, size_bytes });
                }
                Err(error) if may_have_expired(&error) && !was_signed_again => {
                    ticket = self.sign_again(file, &ticket, bar)?;
                    was_signed_again = true;
                }
                Err(error) if is_passing(&error) && self.waits_for_storage(&error, begun) => {
                    self.pause(bar);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether an upload that failed is tried again. While other files are uploaded, the storage works and the fault is in this
    /// file: it is refused after the retries of its call. While none is uploaded, the storage may be unavailable: the first file is
    /// tried until the patience ends, and then refused; when the next one fails too, the whole upload ends.
    fn waits_for_storage(&self, error: &ClientError, begun: Instant) -> bool {
        let last_upload = *self.last_upload.lock().unwrap_or_else(PoisonError::into_inner);
        if last_upload.is_some_and(|at| at.elapsed() < RECENT) {
            return false;
        }
        if self.is_storage_away.load(Ordering::SeqCst) {
            self.end(error);
            return false;
        }
        let waits = self.may_wait(begun);
        if !waits {
            self.is_storage_away.store(true, Ordering::SeqCst);
        }
        waits
    }

    /// Replaces a ticket of this run, which was never confirmed.
    fn sign_again(
        &self,
        file: &LocalPhoto,
        old: &UploadTicket,
        bar: &ProgressBar,
    ) -> anyhow::Result<UploadTicket> {
        self.ask_patiently(bar, || self.client.delete_photo(&self.album, &old.photo_id))
            .context("deleting a photo whose upload URL has expired")?;
        let tickets = self.ask_patiently(bar, || self.sign(std::slice::from_ref(file)))?;
        let ticket = tickets.into_iter().next().context("no ticket in the response")?;
        ticket.map_err(|error| anyhow::anyhow!("not signed: {error}"))
    }

    fn confirm(&self, uploaded: &[UploadedFile<'_>], outcome: &mut Outcome, bar: &ProgressBar) {
        if uploaded.is_empty() {
            return;
        }
        let ids: Vec<&str> = uploaded.iter().map(|file| file.photo.as_str()).collect();
        let results = match self.ask_patiently(bar, || self.client.confirm_photos(&self.album, &ids)) {
            Ok(results) => {
                results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()
            }
            Err(error) => {
                if is_passing(&error) {
                    self.end(&error);
                }
                vec![Err(error.to_string()); uploaded.len()]
            }
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
    use std::sync::Arc;

    use photofinish_servers::{Answer, Receiver};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A sender that asks again at once.
    fn sender_to(receiver: &Receiver) -> Sender {
        let url: Url = format!("http://127.0.0.1:{}", receiver.port()).parse().unwrap();
        let sender = Sender::new(&url, "any", Uuid::nil()).unwrap();
        let options = ClientOptions { retry: RetryPolicy::NEVER, ..sender.client.options() };
        Sender { client: sender.client.with_options(options), pause: Duration::ZERO, ..sender }
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
        let tickets = sender.ask_patiently(&ProgressBar::hidden(), || sender.sign(&[photo()])).unwrap();
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

    /// Answers to what is sent of `files` photos: tickets first, whose uploads go to the same place, and then these.
    fn answer_with(files: usize, then: Vec<Answer>) -> (Receiver, Sender, TempDir, Vec<LocalPhoto>) {
        let own_port = Arc::new(OnceLock::new());
        let port_of_receiver = Arc::clone(&own_port);
        let receiver = Receiver::start(move |place| {
            let Some(place) = place.checked_sub(1) else {
                let url = format!("http://127.0.0.1:{}/put", port_of_receiver.wait());
                let ticket = |number: usize| json!({ "success": true, "uploadUrl": url, "photoId": number.to_string() });
                let tickets: Vec<_> = (0..files).map(ticket).collect();
                return answer(&json!({ "results": tickets }));
            };
            then.get(place).cloned().unwrap_or_else(|| Answer::of(503))
        });
        own_port.set(receiver.port()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, "bytes").unwrap();
        let photos = (0..files).map(|_| LocalPhoto { path: path.clone(), ..photo() }).collect();
        let sender = sender_to(&receiver);
        (receiver, sender, folder, photos)
    }

    fn answer(body: &serde_json::Value) -> Answer {
        Answer { body: body.to_string().into_bytes(), ..Answer::of(200) }
    }

    #[test]
    fn a_storage_and_a_service_that_are_away_are_waited_for_while_files_are_sent() {
        let away = Answer::of(503);
        let confirmed = answer(&json!({ "results": [{ "success": true }] }));
        let then = vec![away.clone(), away.clone(), Answer::of(200), away.clone(), away, confirmed];
        let (receiver, sender, _folder, photos) = answer_with(1, then);
        let outcome = sender.send_batch(&photos, &ProgressBar::hidden());
        assert_eq!((outcome.sent, outcome.sent_bytes, outcome.refused.len()), (1, 5, 0), "{outcome:?}");
        assert_eq!((receiver.count(), sender.why_ended()), (7, None));
    }

    #[test]
    fn a_storage_that_stays_away_refuses_one_file_and_ends_the_upload() {
        let (receiver, sender, _folder, photos) = answer_with(3, Vec::new());
        let sender = Sender { patience: Duration::ZERO, ..sender };
        let outcome = sender.send_batch(&photos, &ProgressBar::hidden());
        assert_eq!((outcome.sent, outcome.refused.len()), (0, 1), "{outcome:?}");
        assert!(sender.why_ended().is_some_and(|reason| reason.contains("503")), "{:?}", sender.why_ended());
        assert_eq!(receiver.count(), 3, "the third file is not tried");
    }

    #[test]
    fn a_file_that_fails_while_others_are_uploaded_is_not_waited_for() {
        let receiver = Receiver::start(|_| Answer::of(503));
        let sender = sender_to(&receiver);
        let error = sender.client.confirm_photos("any", &["1"]).unwrap_err();
        assert!(sender.waits_for_storage(&error, Instant::now()));
        *sender.last_upload.lock().unwrap() = Some(Instant::now());
        assert!(!sender.waits_for_storage(&error, Instant::now()));
        assert_eq!(sender.why_ended(), None);
        assert!(RETRY.delays().sum::<Duration>() > RECENT * 4);
    }

    #[test]
    fn the_waits_of_a_call_outlast_a_restart() {
        assert_eq!(RETRY.delays().count(), 8);
        assert_eq!(RETRY.delays().sum::<Duration>(), Duration::from_millis(45_750));
    }
}
