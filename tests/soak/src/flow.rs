//! The photos of an event on their way through a cluster: uploaded at a fixed rate, the last third only after the fault
//! unless the fault releases more, so that there are photos before, during and after it; and their progress over time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use photofinish_client::{Client, ClientOptions, PhotoFile, RetryPolicy};

use crate::cluster::{Cluster, client_options};
use crate::event::Event;

/// Partners' programs that upload at once.
const SENDERS: usize = 4;
/// Between two polls of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest request to a cluster without a fault, on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest poll of the progress; the next one goes to another API.
const POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// Photos that a fault releases at once: enough that each worker gets several.
const BURST_PHOTOS: usize = 12;
/// One photo in so many is uploaded after the fault, however many the fault releases.
const RESERVED_FRACTION: usize = 12;

/// An event on its way into one album.
pub struct Flow<'a> {
    event: &'a Event,
    client: Client,
    /// One for each API: when one does not respond, the other may.
    watchers: Vec<Client>,
    album: String,
    begun: Instant,
    /// Between two uploads.
    send_interval: Duration,
    next: AtomicUsize,
    /// How many photos may be uploaded before the fault is over.
    early_limit: AtomicUsize,
    /// Whether the fault is over and the rest may be uploaded.
    is_fault_over: AtomicBool,
    is_finished: AtomicBool,
    settled: AtomicU64,
    /// When each number of settled photos (ready or failed) was first seen.
    settled_over_time: Mutex<Vec<(Instant, u64)>>,
    /// Names of the confirmed photos by id.
    confirmed: Mutex<HashMap<String, String>>,
}

impl<'a> Flow<'a> {
    /// A flow of `event` into a new album of this title.
    ///
    /// # Errors
    /// When the album cannot be created.
    pub fn new(
        cluster: &Cluster,
        event: &'a Event,
        title: &str,
        send_interval: Duration,
    ) -> anyhow::Result<Self> {
        let poll = ClientOptions { retry: RetryPolicy::NEVER, ..client_options(POLL_TIMEOUT) };
        let watchers = cluster.apis().iter().map(|api| cluster.client_for(api).with_options(poll)).collect();
        Ok(Self {
            event,
            client: cluster.client(),
            watchers,
            album: cluster.create_album(title)?,
            begun: Instant::now(),
            send_interval,
            next: AtomicUsize::new(0),
            early_limit: AtomicUsize::new(paced_count(event)),
            is_fault_over: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            settled_over_time: Mutex::default(),
            confirmed: Mutex::default(),
        })
    }

    /// The same, with clients that wait longer for each response.
    #[must_use]
    pub fn with_long_timeouts(mut self) -> Self {
        self.client = self.client.with_options(client_options(LONG_TIMEOUT));
        self
    }

    /// Uploads everything, and runs `inject_fault` meanwhile. Returns when the fault was over, and its result.
    ///
    /// # Errors
    /// When a photo is refused, photos are not ready or failed within `limit` after the fault, or the fault fails.
    pub fn run<T>(
        &self,
        inject_fault: impl FnOnce() -> anyhow::Result<T>,
        limit: Duration,
    ) -> anyhow::Result<(Instant, T)> {
        std::thread::scope(|scope| {
            let finished = SetOnDrop(&self.is_finished);
            scope.spawn(|| self.poll_progress());
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send_photos())).collect();
            let fault_over = SetOnDrop(&self.is_fault_over);
            self.wait_for("the first photos", || self.settled() > 2)?;
            let result = inject_fault();
            let ended = Instant::now();
            drop(fault_over);
            senders.into_iter().try_for_each(join_sender)?;
            let result = result?;
            self.wait_until_idle(limit)?;
            drop(finished);
            Ok((ended, result))
        })
    }

    /// Uploads everything at once.
    ///
    /// # Errors
    /// When a photo is refused.
    pub fn send_all(&self) -> anyhow::Result<()> {
        self.is_fault_over.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send_photos())).collect();
            senders.into_iter().try_for_each(join_sender)
        })
    }

    /// Runs `act`, and polls the progress until all photos are settled; returns [`Self::settled_over_time`].
    ///
    /// # Errors
    /// When they are not within `limit`.
    pub fn poll_progress_while(
        &self,
        limit: Duration,
        act: impl FnOnce(),
    ) -> anyhow::Result<Vec<(Instant, u64)>> {
        std::thread::scope(|scope| {
            let _finished = SetOnDrop(&self.is_finished);
            scope.spawn(|| self.poll_progress());
            act();
            self.wait_until_idle(limit)
        })?;
        Ok(self.settled_over_time())
    }

    /// The album's id.
    pub fn album(&self) -> &str {
        &self.album
    }

    /// How many photos are ready or failed, as of the last poll.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Whether all photos that may be uploaded before the fault is over are ready or failed.
    pub fn is_drained(&self) -> bool {
        self.settled() >= self.early_limit.load(Ordering::SeqCst) as u64
    }

    /// Releases some photos that would be uploaded after the fault. Returns whether there were any; a few are reserved.
    pub fn release_more(&self) -> bool {
        let before = self.early_limit.load(Ordering::SeqCst);
        let photos = self.event.photos.len();
        let after = (before + BURST_PHOTOS).min(photos - photos / RESERVED_FRACTION);
        self.early_limit.fetch_max(after, Ordering::SeqCst);
        after > before
    }

    /// The names of the confirmed photos, by id.
    pub fn confirmed(&self) -> HashMap<String, String> {
        self.lock_confirmed().clone()
    }

    /// How often a request was sent again.
    pub fn retries(&self) -> usize {
        self.client.retries()
    }

    /// How many of the retries had a reason other than a timeout.
    pub fn refusals(&self) -> usize {
        self.client.refusals()
    }

    /// From `moment` until the next photo was settled; `None` when none was.
    pub fn time_to_next_settled(&self, moment: Instant) -> Option<Duration> {
        let seen = self.lock_settled_over_time();
        let later = seen.iter().find(|(at, _)| *at > moment)?;
        Some(later.0 - moment)
    }

    /// From `moment` until all photos were settled.
    pub fn time_to_all_settled(&self, moment: Instant) -> Duration {
        self.lock_settled_over_time()
            .last()
            .map_or(Duration::ZERO, |(at, _)| at.saturating_duration_since(moment))
    }

    /// When each number of settled photos was first seen, in order of time.
    pub fn settled_over_time(&self) -> Vec<(Instant, u64)> {
        self.lock_settled_over_time().clone()
    }

    /// Waits for a condition.
    ///
    /// # Errors
    /// When it does not hold within two minutes.
    pub fn wait_for(&self, condition: &str, holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        wait_until(condition, Duration::from_secs(120), holds)
    }

    fn send_photos(&self) -> anyhow::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(photo) = self.event.photos.get(number) else { return Ok(()) };
            self.wait_until_due(number);
            let file = PhotoFile { filename: photo.name.clone(), content_type: "image/jpeg".to_owned() };
            let id = self.client.upload_photo(&self.album, &file, &photo.bytes)?;
            self.lock_confirmed().insert(id, photo.name.clone());
        }
    }

    /// The last third is due when the fault releases it or is over, and then at once.
    fn wait_until_due(&self, number: usize) {
        let is_paced = number < paced_count(self.event);
        let due = self.begun + self.send_interval * u32::try_from(number).unwrap_or(u32::MAX);
        let may_go = || {
            if is_paced { Instant::now() >= due } else { number < self.early_limit.load(Ordering::SeqCst) }
        };
        while !self.is_fault_over.load(Ordering::SeqCst) && !may_go() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn poll_progress(&self) {
        for watcher in self.watchers.iter().cycle() {
            if self.is_finished.load(Ordering::SeqCst) {
                return;
            }
            if let Ok(progress) = watcher.album_progress(&self.album) {
                let settled = progress.settled();
                if settled > self.settled.fetch_max(settled, Ordering::SeqCst) {
                    self.lock_settled_over_time().push((Instant::now(), settled));
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn wait_until_idle(&self, limit: Duration) -> anyhow::Result<()> {
        let all = self.event.photos.len() as u64;
        let waited = wait_until("all photos ready or failed", limit, || self.settled() >= all);
        waited.map_err(|error| error.context(format!("{} of {all} are", self.settled())))
    }

    fn lock_settled_over_time(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        self.settled_over_time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_confirmed(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first two thirds of the photos.
fn paced_count(event: &Event) -> usize {
    event.photos.len() * 2 / 3
}

/// Sets a flag when it is dropped: the threads that watch it end, however their scope is left.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn join_sender(sender: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    sender.join().unwrap_or_else(|_| bail!("an upload thread panicked"))
}

/// Waits for a condition, which is checked every 10 ms.
///
/// # Errors
/// When it does not hold within `limit`.
pub fn wait_until(condition: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > limit {
            bail!("{condition}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
