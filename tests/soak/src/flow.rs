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
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Photos that a fault gets at once when it asks for more: enough that each worker gets several.
const BURST: usize = 12;
/// Of so many photos one is sent after the fault, whatever it asks for.
const KEPT_OF: usize = 12;

/// An event on its way into one album.
pub struct Flow<'a> {
    event: &'a Event,
    client: Client,
    /// One a process: when one does not answer, the other may.
    watchers: Vec<Client>,
    album: String,
    begun: Instant,
    /// Between two photos that are sent.
    pace: Duration,
    next: AtomicUsize,
    /// How many photos may be sent before the fault is over.
    early: AtomicUsize,
    /// Whether the fault is over and the rest may be sent.
    is_open: AtomicBool,
    is_over: AtomicBool,
    settled: AtomicU64,
    /// When the photos that count as settled were first seen to be so many.
    seen: Mutex<Vec<(Instant, u64)>>,
    /// Names by id.
    promised: Mutex<HashMap<String, String>>,
}

impl<'a> Flow<'a> {
    /// A flow of `event` into a new album of this title.
    ///
    /// # Errors
    /// When the cluster makes no album.
    pub fn new(cluster: &Cluster, event: &'a Event, title: &str, pace: Duration) -> anyhow::Result<Self> {
        let watchers = cluster.apis().iter().map(|api| cluster.client_of(api).impatient()).collect();
        Ok(Self {
            event,
            client: cluster.client(),
            watchers,
            album: cluster.album(title)?,
            begun: Instant::now(),
            pace,
            next: AtomicUsize::new(0),
            early: AtomicUsize::new(paced(event)),
            is_open: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            seen: Mutex::default(),
            promised: Mutex::default(),
        })
    }

    /// The same, by partners' programs that wait for answers long.
    #[must_use]
    pub fn patient(mut self) -> Self {
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
            let over = SetWhenDropped(&self.is_over);
            scope.spawn(|| self.watch());
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send())).collect();
            let open = SetWhenDropped(&self.is_open);
            self.wait_for("the first photos", || self.settled() > 2)?;
            let disturbed = disturb();
            let ended = Instant::now();
            drop(open);
            senders.into_iter().try_for_each(what_came_of)?;
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
        self.is_open.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(|| self.send())).collect();
            senders.into_iter().try_for_each(what_came_of)
        })
    }

    /// Does something, and watches until all photos are settled; see [`Self::course`].
    ///
    /// # Errors
    /// When they are not within `limit`.
    pub fn watch_while(&self, limit: Duration, act: impl FnOnce()) -> anyhow::Result<Vec<(Instant, u64)>> {
        std::thread::scope(|scope| {
            let _over = SetWhenDropped(&self.is_over);
            scope.spawn(|| self.watch());
            act();
            self.wait_until_idle(limit)
        })?;
        Ok(self.course())
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
        self.settled() >= self.early.load(Ordering::SeqCst) as u64
    }

    /// Sends some photos at once that would be sent after the fault; answers whether there were any. A few are kept.
    pub fn send_more(&self) -> bool {
        let before = self.early.load(Ordering::SeqCst);
        let photos = self.event.photos.len();
        let after = (before + BURST).min(photos - photos / KEPT_OF);
        self.early.fetch_max(after, Ordering::SeqCst);
        after > before
    }

    /// The names of the promised photos, by id.
    pub fn promised(&self) -> HashMap<String, String> {
        self.names().clone()
    }

    /// How often a partner's program had to try again.
    pub fn tried_again(&self) -> usize {
        self.client.tried_again()
    }

    /// How often of these it was refused, and not only unanswered.
    pub fn refused(&self) -> usize {
        self.client.refused()
    }

    /// From `moment` until more photos were settled than then; `None` when none came.
    pub fn next_after(&self, moment: Instant) -> Option<Duration> {
        let seen = self.seen();
        let later = seen.iter().find(|(at, _)| *at > moment)?;
        Some(later.0 - moment)
    }

    /// From `moment` until all were settled.
    pub fn all_after(&self, moment: Instant) -> Duration {
        self.seen().last().map_or(Duration::ZERO, |(at, _)| at.saturating_duration_since(moment))
    }

    /// When the photos that were seen settled were so many, in order of time.
    pub fn course(&self) -> Vec<(Instant, u64)> {
        self.seen().clone()
    }

    /// Waits for what happens in the flow.
    ///
    /// # Errors
    /// When it does not happen within two minutes.
    pub fn wait_for(&self, what: &str, happened: impl FnMut() -> bool) -> anyhow::Result<()> {
        wait(what, Duration::from_secs(120), happened)
    }

    fn send(&self) -> anyhow::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(photo) = self.event.photos.get(number) else { return Ok(()) };
            self.wait_for_turn(number);
            let id = self.client.upload(&self.album, &photo.name, &photo.bytes)?;
            self.names().insert(id, photo.name.clone());
        }
    }

    /// The last third goes when the fault asks for it or is over, and then as fast as it can.
    fn wait_for_turn(&self, number: usize) {
        let is_paced = number < paced(self.event);
        let due = self.begun + self.pace * u32::try_from(number).unwrap_or(u32::MAX);
        let may_go =
            || if is_paced { Instant::now() >= due } else { number < self.early.load(Ordering::SeqCst) };
        while !self.is_open.load(Ordering::SeqCst) && !may_go() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn watch(&self) {
        let mut turn = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            turn += 1;
            let watcher = &self.watchers[turn % self.watchers.len()];
            let input = json!({ "albumId": self.album });
            if let Some(progress) = watcher.try_call("/albums/progress", &input) {
                let count = |state: &str| progress[state].as_u64().unwrap_or_default();
                let settled = count("ready") + count("failed");
                if settled > self.settled.fetch_max(settled, Ordering::SeqCst) {
                    self.seen().push((Instant::now(), settled));
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn wait_until_idle(&self, limit: Duration) -> anyhow::Result<()> {
        let all = self.event.photos.len() as u64;
        let waited = wait("all photos ready or failed", limit, || self.settled() >= all);
        waited.map_err(|error| error.context(format!("{} of {all} are", self.settled())))
    }

    fn seen(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first two thirds of the photos.
fn paced(event: &Event) -> usize {
    event.photos.len() * 2 / 3
}

/// Threads that look at the flag end, however the scope that they are in is left.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn what_came_of(sender: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    sender.join().unwrap_or_else(|_| bail!("a sender panicked"))
}

/// Waits for what happens on its own.
///
/// # Errors
/// When it does not happen within `limit`.
pub fn wait(what: &str, limit: Duration, mut happened: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !happened() {
        if begun.elapsed() > limit {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
