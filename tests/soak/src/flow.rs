//! Photos on their way through a cluster: sent at a pace, the last third only after the fault unless it asks for more, so
//! that there are photos before, during and after it; and what is seen of them while they are on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::json;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::event::Event;

/// Partners' programs that send at once.
const SENDERS: usize = 4;
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Photos that a fault gets at once when it asks for more: enough that each worker gets several.
const BURST_PHOTOS: usize = 12;
/// Of so many photos one is sent after the fault, whatever it asks for.
const RESERVED_FRACTION: usize = 12;

/// An event on its way into one album.
pub struct Flow<'a> {
    event: &'a Event,
    client: Client,
    /// One a process: when one does not answer, the other may.
    watchers: Vec<Client>,
    album: String,
    begun: Instant,
    /// Between two photos that are sent.
    send_interval: Duration,
    next: AtomicUsize,
    /// How many photos may be sent before the fault is over.
    early_limit: AtomicUsize,
    /// Whether the fault is over and the rest may be sent.
    is_fault_over: AtomicBool,
    is_finished: AtomicBool,
    settled: AtomicU64,
    /// When the photos that count as settled were first seen to be so many.
    settled_over_time: Mutex<Vec<(Instant, u64)>>,
    /// Names by id.
    confirmed: Mutex<HashMap<String, String>>,
}

impl<'a> Flow<'a> {
    /// A flow of `event` into a new album of this title.
    ///
    /// # Errors
    /// When the cluster makes no album.
    pub fn new(cluster: &Cluster, event: &'a Event, title: &str, pace: Duration) -> anyhow::Result<Self> {
        let watchers = cluster.apis().iter().map(|api| cluster.client_for(api).impatient()).collect();
        Ok(Self {
            event,
            client: cluster.client(),
            watchers,
            album: cluster.create_album(title)?,
            begun: Instant::now(),
            send_interval: pace,
            next: AtomicUsize::new(0),
            early_limit: AtomicUsize::new(paced_count(event)),
            is_fault_over: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            settled_over_time: Mutex::default(),
            confirmed: Mutex::default(),
        })
    }

    /// The same, by partners' programs that wait for answers long.
    #[must_use]
    pub fn with_long_timeouts(mut self) -> Self {
        self.client = self.client.patient();
        self
    }

    /// Sends everything, and runs `disturb` while it flows. Answers when the fault was over, and what it answered.
    ///
    /// # Errors
    /// When a photo is refused for good or for too long, when photos stay unread, or the disturbance fails.
    pub fn run<T>(
        &self,
        disturb: impl FnOnce() -> anyhow::Result<T>,
        limit: Duration,
    ) -> anyhow::Result<(Instant, T)> {
        std::thread::scope(|scope| {
            let over = SetOnDrop(&self.is_finished);
            scope.spawn(|| self.poll_progress());
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send_photos())).collect();
            let open = SetOnDrop(&self.is_fault_over);
            self.wait_for("the first photos", || self.settled() > 2)?;
            let disturbed = disturb();
            let ended = Instant::now();
            drop(open);
            senders.into_iter().try_for_each(join_sender)?;
            let answer = disturbed?;
            self.wait_until_idle(limit)?;
            drop(over);
            Ok((ended, answer))
        })
    }

    /// Sends everything at once.
    ///
    /// # Errors
    /// When a photo is refused for good or for too long.
    pub fn send_all(&self) -> anyhow::Result<()> {
        self.is_fault_over.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send_photos())).collect();
            senders.into_iter().try_for_each(join_sender)
        })
    }

    /// Does something, and watches until all photos are settled; see [`Self::course`].
    ///
    /// # Errors
    /// When they are not within `limit`.
    pub fn poll_progress_while(
        &self,
        limit: Duration,
        act: impl FnOnce(),
    ) -> anyhow::Result<Vec<(Instant, u64)>> {
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&self.is_finished);
            scope.spawn(|| self.poll_progress());
            act();
            self.wait_until_idle(limit)
        })?;
        Ok(self.settled_over_time())
    }

    /// The album.
    pub fn album(&self) -> &str {
        &self.album
    }

    /// How many photos are ready or failed, when it was last seen.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Whether all photos are ready or failed that may be sent before the fault is over.
    pub fn is_drained(&self) -> bool {
        self.settled() >= self.early_limit.load(Ordering::SeqCst) as u64
    }

    /// Sends some photos at once that would be sent after the fault; answers whether there were any. A few are kept.
    pub fn release_more(&self) -> bool {
        let before = self.early_limit.load(Ordering::SeqCst);
        let photos = self.event.photos.len();
        let after = (before + BURST_PHOTOS).min(photos - photos / RESERVED_FRACTION);
        self.early_limit.fetch_max(after, Ordering::SeqCst);
        after > before
    }

    /// The names of the promised photos, by id.
    pub fn confirmed(&self) -> HashMap<String, String> {
        self.lock_confirmed().clone()
    }

    /// How often a partner's program had to try again.
    pub fn retries(&self) -> usize {
        self.client.tried_again()
    }

    /// How often of these it was refused, and not only unanswered.
    pub fn refusals(&self) -> usize {
        self.client.refused()
    }

    /// From `moment` until more photos were settled than then; `None` when none came.
    pub fn time_to_next_settled(&self, moment: Instant) -> Option<Duration> {
        let seen = self.lock_settled_over_time();
        let later = seen.iter().find(|(at, _)| *at > moment)?;
        Some(later.0 - moment)
    }

    /// From `moment` until all were settled.
    pub fn time_to_all_settled(&self, moment: Instant) -> Duration {
        self.lock_settled_over_time()
            .last()
            .map_or(Duration::ZERO, |(at, _)| at.saturating_duration_since(moment))
    }

    /// When the photos that were seen settled were so many, in order of time.
    pub fn settled_over_time(&self) -> Vec<(Instant, u64)> {
        self.lock_settled_over_time().clone()
    }

    /// Waits for what happens in the flow.
    ///
    /// # Errors
    /// When it does not happen within two minutes.
    pub fn wait_for(&self, what: &str, happened: impl FnMut() -> bool) -> anyhow::Result<()> {
        wait_until(what, Duration::from_secs(120), happened)
    }

    fn send_photos(&self) -> anyhow::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(photo) = self.event.photos.get(number) else { return Ok(()) };
            self.wait_until_due(number);
            let id = self.client.upload(&self.album, &photo.name, &photo.bytes)?;
            self.lock_confirmed().insert(id, photo.name.clone());
        }
    }

    /// The last third goes when the fault asks for it or is over, and then as fast as it can.
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
        let mut turn = 0;
        while !self.is_finished.load(Ordering::SeqCst) {
            turn += 1;
            let watcher = &self.watchers[turn % self.watchers.len()];
            let input = json!({ "albumId": self.album });
            if let Some(progress) = watcher.try_call("/albums/progress", &input) {
                let count = |state: &str| progress[state].as_u64().unwrap_or_default();
                let settled = count("ready") + count("failed");
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

/// Threads that look at the flag end, however the scope that they are in is left.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn join_sender(sender: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    sender.join().unwrap_or_else(|_| bail!("a sender panicked"))
}

/// Waits for what happens on its own.
///
/// # Errors
/// When it does not happen within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut happened: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !happened() {
        if begun.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
