//! Which leases this process holds and which it must give back, and the keeper: the thread that renews the first and
//! gives back the second. Tickets write here without waiting for the database; the keeper is the one who waits.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use photofinish_store::model::ids::LeaseId;
use photofinish_store::traits::Queue;

use crate::engine::fault::Component;
use crate::engine::metrics as names;
use crate::engine::store_client::StoreClient;
use crate::engine::sync::lock;

/// The leases of this process. One for the life of the pipeline.
pub(crate) struct LeaseTable {
    queue: Arc<dyn Queue>,
    states: Mutex<LeaseStates>,
    changed: Condvar,
    /// Counts the steps that photos make and their ends: as long as it moves nothing hangs for all.
    progress: AtomicU64,
}

#[derive(Debug, Default)]
struct LeaseStates {
    /// Leases with a ticket.
    by_lease: HashMap<LeaseId, LeaseState>,
    /// Leases whose ticket was dropped unsettled and that the queue has not yet back.
    to_give_back: Vec<LeaseId>,
    given_back_count: u64,
    is_stopping: bool,
}

/// What is done about a lease with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    /// It is renewed.
    Active,
    /// The queue keeps it no longer: the photo is somebody else's, or over.
    Lost,
    /// Its thread hangs: it is left to lapse.
    Abandoned,
}

impl LeaseStates {
    fn in_flight(&self) -> usize {
        self.by_lease.values().filter(|standing| **standing != LeaseState::Abandoned).count()
    }
}

impl LeaseTable {
    pub(crate) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, states: Mutex::default(), changed: Condvar::new(), progress: AtomicU64::new(0) }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.queue.as_ref()
    }

    pub(crate) fn insert(&self, lease: LeaseId) {
        self.update(|entries| {
            entries.by_lease.insert(lease, LeaseState::Active);
        });
    }

    /// A stage is done with a photo.
    pub(crate) fn record_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// How many steps photos have made, and ends they have come to.
    pub(crate) fn progress_count(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    pub(crate) fn remove(&self, lease: LeaseId) {
        self.record_progress();
        self.update(|entries| {
            entries.by_lease.remove(&lease);
        });
    }

    pub(crate) fn schedule_give_back(&self, lease: LeaseId) {
        self.update(|entries| {
            entries.by_lease.remove(&lease);
            entries.to_give_back.push(lease);
        });
    }

    /// Leaves every lease that still has a ticket to lapse. For the end of a generation: who has a ticket then is a
    /// thread that hangs in native code, which nothing can end, and what is queued around it. Renewed for ever their
    /// photos would never end; lapsed they are leased again, and the attempt is counted, for one of them may be the
    /// cause.
    ///
    /// They are in flight no longer: what will not end is not waited for, also not by a suspect. The thread may still
    /// end this process, which then counts against a photo that is not to blame, but only once a process.
    pub(crate) fn abandon_all(&self) {
        self.update(|entries| {
            for standing in entries.by_lease.values_mut() {
                *standing = LeaseState::Abandoned;
            }
        });
    }

    /// Photos with a ticket that are expected to end.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.states).in_flight()
    }

    /// Photos with a ticket, abandoned ones too.
    pub(crate) fn ticket_count(&self) -> usize {
        lock(&self.states).by_lease.len()
    }

    /// Photos given back since the pipeline started.
    pub(crate) fn given_back_count(&self) -> u64 {
        lock(&self.states).given_back_count
    }

    /// Waits until no photo is in flight and nothing is left to give back, `at_most` so long; whether that is so.
    pub(crate) fn wait_until_empty(&self, at_most: Duration) -> bool {
        let entries = lock(&self.states);
        let is_busy = |entries: &mut LeaseStates| entries.in_flight() > 0 || !entries.to_give_back.is_empty();
        let (mut entries, _timeout) = self
            .changed
            .wait_timeout_while(entries, at_most, is_busy)
            .unwrap_or_else(PoisonError::into_inner);
        !is_busy(&mut entries)
    }

    /// The leases to keep alive.
    fn active_leases(&self) -> Vec<LeaseId> {
        let entries = lock(&self.states);
        let renewed =
            |(lease, standing): (&LeaseId, &LeaseState)| (*standing == LeaseState::Active).then_some(*lease);
        entries.by_lease.iter().filter_map(renewed).collect()
    }

    /// Notes which of the leases asked about the queue keeps. Answers how many were lost: those of photos that ended
    /// while it was asked are over, not lost, and none is lost twice.
    fn mark_lost(&self, asked: &[LeaseId], kept: &[LeaseId]) -> usize {
        let kept: HashSet<&LeaseId> = kept.iter().collect();
        let mut lost = 0;
        self.update(|entries| {
            for lease in asked.iter().filter(|lease| !kept.contains(lease)) {
                if let Some(standing) = entries.by_lease.get_mut(lease)
                    && *standing == LeaseState::Active
                {
                    *standing = LeaseState::Lost;
                    lost += 1;
                }
            }
        });
        lost
    }

    fn update(&self, change: impl FnOnce(&mut LeaseStates)) {
        let mut entries = lock(&self.states);
        change(&mut entries);
        metrics::gauge!(names::PHOTOS_IN_FLIGHT).set(entries.in_flight() as f64);
        drop(entries);
        self.changed.notify_all();
    }
}

impl fmt::Debug for LeaseTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("entries", &self.states).finish_non_exhaustive()
    }
}

/// How long the keeper waits after the queue did not take what it gave back.
const GIVE_BACK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How often it tries when the house closes; after that the leases end by themselves.
const MAX_GIVE_BACK_ATTEMPTS_AT_STOP: u32 = 3;

/// The keeper's thread.
#[derive(Debug)]
pub(crate) struct LeaseRenewer {
    leases: Arc<LeaseTable>,
    thread: JoinHandle<()>,
}

impl LeaseRenewer {
    /// Starts it.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn start(book: Arc<LeaseTable>, calls: StoreClient, ttl: Duration) -> std::io::Result<Self> {
        let keeping = RenewerThread { leases: Arc::clone(&book), store: calls, lease_ttl: ttl };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || keeping.run())?;
        Ok(Self { leases: book, thread })
    }

    /// Gives back what is left and ends.
    pub(crate) fn stop(self) {
        self.leases.update(|entries| entries.is_stopping = true);
        if self.thread.join().is_err() {
            tracing::error!("the keeper of leases panicked; leases in flight end by themselves");
        }
    }
}

struct RenewerThread {
    leases: Arc<LeaseTable>,
    store: StoreClient,
    lease_ttl: Duration,
}

impl RenewerThread {
    fn run(&self) {
        let mut renew_at = Instant::now() + self.lease_ttl / 3;
        let mut failures = 0;
        loop {
            let (returned, closed) = self.wait_for_work(renew_at);
            if !returned.is_empty() {
                failures = if self.give_back(returned, failures) { 0 } else { failures + 1 };
            } else if closed {
                return;
            }
            if closed && failures >= MAX_GIVE_BACK_ATTEMPTS_AT_STOP {
                tracing::warn!("leases could not be given back; they end by themselves");
                return;
            }
            if Instant::now() >= renew_at {
                let renewed = self.renew_leases();
                renew_at = Instant::now() + if renewed { self.lease_ttl / 3 } else { self.lease_ttl / 10 };
            }
            if failures > 0 {
                std::thread::sleep(GIVE_BACK_RETRY_DELAY);
            }
        }
    }

    /// What has to be given back, as soon as there is something, the house closes or it is time to renew.
    fn wait_for_work(&self, until: Instant) -> (Vec<LeaseId>, bool) {
        let at_most = until.saturating_duration_since(Instant::now());
        let is_quiet = |entries: &mut LeaseStates| entries.to_give_back.is_empty() && !entries.is_stopping;
        let (entries, _timeout) = self
            .leases
            .changed
            .wait_timeout_while(lock(&self.leases.states), at_most, is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        (entries.to_give_back.clone(), entries.is_stopping)
    }

    /// Gives the leases back; they stay in the book until the queue has taken them.
    fn give_back(&self, leases: Vec<LeaseId>, failures: u32) -> bool {
        match self.store.call(Component::Database, self.leases.queue.release(&leases)) {
            Ok(Ok(())) => {
                self.leases.update(|entries| {
                    entries.to_give_back.retain(|lease| !leases.contains(lease));
                    entries.given_back_count += leases.len() as u64;
                });
                metrics::counter!(names::PHOTOS_GIVEN_BACK).increment(leases.len() as u64);
                true
            }
            Ok(Err(error)) => {
                log_first_failure(failures, &error);
                false
            }
            Err(outage) => {
                log_first_failure(failures, &outage);
                false
            }
        }
    }

    fn renew_leases(&self) -> bool {
        let held = self.leases.active_leases();
        if held.is_empty() {
            return true;
        }
        match self.store.call(Component::Database, self.leases.queue.renew(&held, self.lease_ttl)) {
            Ok(Ok(kept)) => {
                let lost = self.leases.mark_lost(&held, &kept);
                if lost > 0 {
                    metrics::counter!(names::LEASES_LOST).increment(lost as u64);
                    tracing::debug!(lost, "leases are no longer held");
                }
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "leases could not be renewed");
                false
            }
            Err(outage) => {
                tracing::warn!(error = %outage, "leases could not be renewed");
                false
            }
        }
    }
}

/// The first failure of a row is worth a line, the rest is not.
fn log_first_failure(failures: u32, error: &dyn std::error::Error) {
    if failures == 0 {
        tracing::warn!(error = %error, "photos could not be given back yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory_queue::MemoryQueue;

    fn lease_table() -> LeaseTable {
        LeaseTable::new(Arc::new(MemoryQueue::default()))
    }

    fn insert_lease(book: &LeaseTable) -> LeaseId {
        let lease = LeaseId::generate();
        book.insert(lease);
        lease
    }

    #[test]
    fn only_a_lease_still_in_flight_is_lost_and_only_once() {
        let book = lease_table();
        let (kept, ended, lost) = (insert_lease(&book), insert_lease(&book), insert_lease(&book));
        let asked = book.active_leases();
        assert_eq!(asked.len(), 3);
        // Between the question and its answer.
        book.remove(ended);
        let late = insert_lease(&book);
        assert_eq!(book.mark_lost(&asked, &[kept]), 1);
        assert_eq!(book.mark_lost(&asked, &[kept]), 0);
        let again: HashSet<LeaseId> = book.active_leases().into_iter().collect();
        assert_eq!(again, HashSet::from([kept, late]));
        assert_eq!(book.in_flight(), 3, "what is lost is still worked on: {book:?}, {lost:?}");
    }

    #[test]
    fn an_abandoned_lease_is_neither_renewed_nor_waited_for() {
        let book = lease_table();
        let (hangs, ends_late) = (insert_lease(&book), insert_lease(&book));
        book.abandon_all();
        assert_eq!((book.active_leases(), book.in_flight(), book.ticket_count()), (Vec::new(), 0, 2));
        assert!(book.wait_until_empty(Duration::ZERO));
        let fresh = insert_lease(&book);
        assert_eq!((book.active_leases(), book.in_flight()), (vec![fresh], 1));
        // Its thread ended after all.
        book.schedule_give_back(ends_late);
        assert_eq!((book.in_flight(), book.ticket_count()), (1, 2), "{hangs:?}");
    }
}
