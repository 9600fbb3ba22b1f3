//! A normal client of another tenant: the everyday mix of an event, again and again, while somebody else attacks. Its
//! latencies beside an attack, against those in a quiet service, are what isolation means.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_bench::report::statistics::{percentile, to_milliseconds};
use photofinish_client::{Client, ClientError, ClientOptions, PhotoFile, PhotoState};
use serde_json::{Value, json};

use crate::classes::grid_config;
use crate::site::{Material, Site};

/// The longest request of a client that is no robot.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two rounds of calls.
const PAUSE: Duration = Duration::from_millis(50);
/// Every so many rounds one search is by a selfie.
const ROUNDS_PER_SELFIE: usize = 4;
/// Between two looks at a photo that is not ready yet.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Between two photos.
const PHOTO_PAUSE: Duration = Duration::from_millis(500);
/// The photos of the album must be ready within this time before an attack.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// After an attack one of the photos that are left must become ready within this time: others' may come first.
const END_TIMEOUT: Duration = Duration::from_secs(300);

/// The client, with an album of two photos.
pub struct NormalClient {
    client: Client,
    album: String,
    material: std::sync::Arc<Material>,
    photo_number: AtomicUsize,
    /// Photos whose confirmation was answered.
    confirmed: AtomicUsize,
    /// What the bib search found before any attack. The album only grows, so later ones find no less.
    bib_hits: usize,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct TimedCall {
    /// What it was.
    pub operation: &'static str,
    /// From the request to the whole response.
    pub took: Duration,
}

/// How the client was served over some time.
#[derive(Clone, Debug, Default)]
pub struct ServiceLevel {
    /// Its calls.
    pub calls: Vec<TimedCall>,
    /// From the confirmation of a photo until it was ready; of the last one until the end of the time.
    pub photo_waits: Vec<Duration>,
    /// Calls that failed, searches that did not find what is there, and photos that failed: each is the service's fault.
    pub failures: Vec<String>,
}

impl ServiceLevel {
    /// The 99th percentile of all calls, milliseconds; of one operation when it is named.
    pub fn p99_ms(&self, operation: Option<&str>) -> f64 {
        self.percentile_ms(operation, 0.99)
    }

    /// The median, as [`Self::p99_ms`].
    pub fn p50_ms(&self, operation: Option<&str>) -> f64 {
        self.percentile_ms(operation, 0.5)
    }

    /// A percentile of the times of all calls, or of those of one operation, milliseconds; not a number without one.
    pub fn percentile_ms(&self, operation: Option<&str>, fraction: f64) -> f64 {
        let calls = self.calls.iter().filter(|call| operation.is_none_or(|name| name == call.operation));
        let times: Vec<Duration> = calls.map(|call| call.took).collect();
        if times.is_empty() { f64::NAN } else { to_milliseconds(percentile(&times, fraction)) }
    }

    /// How many calls of one operation there were.
    pub fn count(&self, operation: &str) -> usize {
        self.calls.iter().filter(|call| call.operation == operation).count()
    }

    /// The median of the waits for photos, seconds; not a number without one.
    pub fn median_photo_wait(&self) -> f64 {
        if self.photo_waits.is_empty() { f64::NAN } else { percentile(&self.photo_waits, 0.5).as_secs_f64() }
    }

    /// The longest wait for a photo, seconds; not a number without one.
    pub fn longest_photo_wait(&self) -> f64 {
        self.photo_waits.iter().max().map_or(f64::NAN, Duration::as_secs_f64)
    }

    /// The operations, in the order in which they first occurred.
    pub fn operations(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for call in &self.calls {
            if !names.contains(&call.operation) {
                names.push(call.operation);
            }
        }
        names
    }
}

/// Ends the client's threads when the work beside them ends, also by a panic.
struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What the client's threads share.
struct Shared<'a> {
    is_over: &'a AtomicBool,
    level: &'a Mutex<ServiceLevel>,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Makes a call, and records its time or its failure.
    fn time<T>(&self, operation: &'static str, call: impl FnOnce() -> Result<T, ClientError>) -> Option<T> {
        let begun = Instant::now();
        let result = call();
        let took = begun.elapsed();
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        // Failed ones too: a timeout is the longest latency of all.
        level.calls.push(TimedCall { operation, took });
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                level.failures.push(format!("the normal client's {error}"));
                None
            }
        }
    }

    /// Makes a search, as [`Self::time`], which must find so many photos.
    fn search(
        &self,
        operation: &'static str,
        least: usize,
        search: impl FnOnce() -> Result<usize, ClientError>,
    ) {
        if let Some(hits) = self.time(operation, search)
            && hits < least
        {
            self.fail(format!("the normal client's {operation} has {hits} hits in place of {least} or more"));
        }
    }

    fn fail(&self, failure: String) {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).failures.push(failure);
    }
}

impl NormalClient {
    /// Creates its album, sends two photos, waits until they are ready, and makes each call once: the first search loads
    /// what later ones use.
    ///
    /// # Errors
    /// When a call fails, or the photos are not ready in time.
    pub fn new(site: &Site) -> anyhow::Result<Self> {
        let options = ClientOptions { timeout: TIMEOUT, upload_timeout: TIMEOUT, ..ClientOptions::default() };
        let client = site.tenant("Normal Timing").client().with_options(options);
        let album = client.create_album("A normal event", None)?.id;
        let material = std::sync::Arc::clone(&site.material);
        let (photo_number, confirmed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut normal = Self { client, album, material, photo_number, confirmed, bib_hits: 0 };
        normal.upload_photo()?;
        normal.upload_photo()?;
        normal.use_every_network_once()?;
        let idle = normal.client.wait_until_idle(&normal.album, POLL_INTERVAL, START_TIMEOUT, |_| ());
        let progress = idle.context("the normal client's first photos")?;
        anyhow::ensure!(progress.ready == 2, "the normal client's first photos: {progress}");
        normal.bib_hits = normal.search_bib()?;
        anyhow::ensure!(normal.bib_hits > 0, "the normal client's bib is not found");
        let hits = normal.search_selfie()?;
        anyhow::ensure!(hits > 0, "the normal client's selfie is not found");
        Ok(normal)
    }

    /// Sends a photo to an album that reads in cells: what networks take at their first use of a size stays, and would look as
    /// if an attack had left it.
    fn use_every_network_once(&self) -> anyhow::Result<()> {
        let album = self.client.create_album("A normal group", Some(&grid_config()))?.id;
        let file = PhotoFile { filename: "1.jpg".to_owned(), content_type: "image/jpeg".to_owned() };
        self.client.upload_photo(&album, &file, self.material.largest_photo())?;
        self.client.wait_until_idle(&album, POLL_INTERVAL, START_TIMEOUT, |_| ())?;
        Ok(())
    }

    /// Does `work` while the client works too; returns what the work returned, and how the client was served.
    pub fn beside<T>(&self, work: impl FnOnce() -> T) -> (T, ServiceLevel) {
        let (is_over, level) = (AtomicBool::new(false), Mutex::new(ServiceLevel::default()));
        let shared = Shared { is_over: &is_over, level: &level };
        let output = std::thread::scope(|scope| {
            let _end = EndOfWork(&is_over);
            scope.spawn(|| self.make_calls(&shared));
            scope.spawn(|| self.watch_photos(&shared));
            work()
        });
        (output, level.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn make_calls(&self, shared: &Shared<'_>) {
        let mut round = 0;
        while !shared.is_over() {
            let input = json!({ "albumId": self.album });
            shared.time("albums/get", || self.client.call::<Value>("albums/get", &input));
            shared.search("bib search", self.bib_hits, || self.search_bib());
            if round % ROUNDS_PER_SELFIE == 0 {
                // Not as many as at first: how a face scores depends on the other faces of the album, which grows.
                shared.search("selfie search", 1, || self.search_selfie());
            }
            round += 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn watch_photos(&self, shared: &Shared<'_>) {
        while !shared.is_over() {
            let Some(photo) = shared.time("upload", || self.upload_photo()) else {
                std::thread::sleep(PHOTO_PAUSE);
                continue;
            };
            let begun = Instant::now();
            self.wait_for_photo(shared, &photo);
            let mut level = shared.level.lock().unwrap_or_else(PoisonError::into_inner);
            level.photo_waits.push(begun.elapsed());
            drop(level);
            if !shared.is_over() {
                std::thread::sleep(PHOTO_PAUSE);
            }
        }
    }

    /// Waits until a photo is ready, or until there is nothing to wait for.
    fn wait_for_photo(&self, shared: &Shared<'_>, photo: &str) {
        while !shared.is_over() {
            match self.client.photo_state(&self.album, photo) {
                Ok(Some(PhotoState::Ready)) => return,
                Ok(Some(PhotoState::Failed)) => {
                    return shared.fail(format!("the normal client's photo {photo} failed"));
                }
                Ok(None) => return shared.fail(format!("the normal client's photo {photo} is gone")),
                // Calls that fail are counted among those that are timed.
                Ok(Some(_)) | Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// What is wrong with the client's photos once the attack is over: all of them must become ready, if only now.
    pub fn find_lost_photos(&self) -> Option<String> {
        let confirmed = self.confirmed.load(Ordering::SeqCst);
        match self.client.wait_until_idle(&self.album, POLL_INTERVAL, END_TIMEOUT, |_| ()) {
            Ok(progress) if progress.failed == 0 && progress.ready >= confirmed as u64 => None,
            Ok(progress) => Some(format!("{confirmed} photos of the normal client: {progress}")),
            Err(error) => Some(format!("the normal client's photos after the attack: {error}")),
        }
    }

    fn upload_photo(&self) -> Result<String, ClientError> {
        let number = self.photo_number.fetch_add(1, Ordering::SeqCst);
        let file = PhotoFile { filename: format!("{number}.jpg"), content_type: "image/jpeg".to_owned() };
        // Always the same photo: the time until it is ready is compared.
        let photo = self.client.upload_photo(&self.album, &file, self.material.photo(0))?;
        self.confirmed.fetch_add(1, Ordering::SeqCst);
        Ok(photo)
    }

    /// Searches by the bib of the photos; returns the number of hits.
    fn search_bib(&self) -> Result<usize, ClientError> {
        self.client.search_text(&self.album, &self.material.bib, false).map(|hits| hits.len())
    }

    /// Searches by a new selfie; returns the number of hits.
    fn search_selfie(&self) -> Result<usize, ClientError> {
        let image = self.client.upload_selfie(&self.album, "image/jpeg", &self.material.selfie)?;
        self.client.search_face(&self.album, &image).map(|hits| hits.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_by_operation_and_over_all() {
        let call = |operation, ms| TimedCall { operation, took: Duration::from_millis(ms) };
        let calls = vec![call("a", 10), call("b", 200), call("a", 30)];
        let level = ServiceLevel { calls, ..ServiceLevel::default() };
        assert_eq!((level.p99_ms(None), level.p99_ms(Some("a"))), (200.0, 30.0));
        assert_eq!((level.p50_ms(None), level.p50_ms(Some("a"))), (30.0, 10.0));
        assert_eq!(level.operations(), ["a", "b"]);
        assert!(level.p99_ms(Some("c")).is_nan() && level.longest_photo_wait().is_nan());
    }
}
