//! Which leases this process holds and which it must give back, and the keeper: the thread that renews the first and
//! gives back the second. Tickets write here without waiting for the database; the keeper is the one who waits.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use photofinish_store::ids::LeaseId;
use photofinish_store::traits::Queue;

use crate::fault::Part;
use crate::metric_names as names;
use crate::store_call::StoreCalls;
use crate::sync::lock;

/// The leases of this process. One for the life of the pipeline.
pub(crate) struct Book {
    queue: Arc<dyn Queue>,
    entries: Mutex<Entries>,
    changed: Condvar,
    /// Counts the steps that photos make and their ends: as long as it moves nothing hangs for all.
    steps: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    /// Leases with a ticket.
    held: HashMap<LeaseId, Standing>,
    /// Leases whose ticket was dropped unsettled and that the queue has not yet back.
    returned: Vec<LeaseId>,
    given_back: u64,
    closed: bool,
}

/// What is done about a lease with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is renewed.
    Renewed,
    /// The queue keeps it no longer: the photo is somebody else's, or over.
    Lost,
    /// Its thread hangs: it is left to lapse.
    Abandoned,
}

impl Entries {
    fn in_flight(&self) -> usize {
        self.held.values().filter(|standing| **standing != Standing::Abandoned).count()
    }
}

impl Book {
    pub(crate) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, entries: Mutex::default(), changed: Condvar::new(), steps: AtomicU64::new(0) }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.queue.as_ref()
    }

    pub(crate) fn opened(&self, lease: LeaseId) {
        self.change(|entries| {
            entries.held.insert(lease, Standing::Renewed);
        });
    }

    /// A stage is done with a photo.
    pub(crate) fn goes_on(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// How many steps photos have made, and ends they have come to.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn settled(&self, lease: LeaseId) {
        self.goes_on();
        self.change(|entries| {
            entries.held.remove(&lease);
        });
    }

    pub(crate) fn returned(&self, lease: LeaseId) {
        self.change(|entries| {
            entries.held.remove(&lease);
            entries.returned.push(lease);
        });
    }

    /// Leaves every lease that still has a ticket to lapse. For the end of a generation: who has a ticket then is a
    /// thread that hangs in native code, which nothing can end, and what is queued around it. Renewed for ever their
    /// photos would never end; lapsed they are leased again, and the attempt is counted, for one of them may be the
    /// cause.
    ///
    /// They are in flight no longer: what will not end is not waited for, also not by a suspect. The thread may still
    /// end this process, which then counts against a photo that is not to blame, but only once a process.
    pub(crate) fn abandon(&self) {
        self.change(|entries| {
            for standing in entries.held.values_mut() {
                *standing = Standing::Abandoned;
            }
        });
    }

    /// Photos with a ticket that are expected to end.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.entries).in_flight()
    }

    /// Photos with a ticket, abandoned ones too.
    pub(crate) fn ticket_count(&self) -> usize {
        lock(&self.entries).held.len()
    }

    /// Photos given back since the pipeline started.
    pub(crate) fn given_back_count(&self) -> u64 {
        lock(&self.entries).given_back
    }

    /// Waits until no photo is in flight and nothing is left to give back, `at_most` so long; whether that is so.
    pub(crate) fn wait_until_empty(&self, at_most: Duration) -> bool {
        let entries = lock(&self.entries);
        let is_busy = |entries: &mut Entries| entries.in_flight() > 0 || !entries.returned.is_empty();
        let (mut entries, _timeout) = self
            .changed
            .wait_timeout_while(entries, at_most, is_busy)
            .unwrap_or_else(PoisonError::into_inner);
        !is_busy(&mut entries)
    }

    /// The leases to keep alive.
    fn to_renew(&self) -> Vec<LeaseId> {
        let entries = lock(&self.entries);
        let renewed =
            |(lease, standing): (&LeaseId, &Standing)| (*standing == Standing::Renewed).then_some(*lease);
        entries.held.iter().filter_map(renewed).collect()
    }

    /// Notes which of the leases asked about the queue keeps. Answers how many were lost: those of photos that ended
    /// while it was asked are over, not lost, and none is lost twice.
    fn renewed(&self, asked: &[LeaseId], kept: &[LeaseId]) -> usize {
        let kept: HashSet<&LeaseId> = kept.iter().collect();
        let mut lost = 0;
        self.change(|entries| {
            for lease in asked.iter().filter(|lease| !kept.contains(lease)) {
                if let Some(standing) = entries.held.get_mut(lease)
                    && *standing == Standing::Renewed
                {
                    *standing = Standing::Lost;
                    lost += 1;
                }
            }
        });
        lost
    }

    fn change(&self, change: impl FnOnce(&mut Entries)) {
        let mut entries = lock(&self.entries);
        change(&mut entries);
        metrics::gauge!(names::PHOTOS_IN_FLIGHT).set(entries.in_flight() as f64);
        drop(entries);
        self.changed.notify_all();
    }
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("entries", &self.entries).finish_non_exhaustive()
    }
}

/// How long the keeper waits after the queue did not take what it gave back.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often it tries when the house closes; after that the leases end by themselves.
const LAST_TRIES: u32 = 3;

/// The keeper's thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    book: Arc<Book>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn start(book: Arc<Book>, calls: StoreCalls, ttl: Duration) -> std::io::Result<Self> {
        let keeping = Keeping { book: Arc::clone(&book), calls, ttl };
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || keeping.keep())?;
        Ok(Self { book, thread })
    }

    /// Gives back what is left and ends.
    pub(crate) fn stop(self) {
        self.book.change(|entries| entries.closed = true);
        if self.thread.join().is_err() {
            tracing::error!("the keeper of leases panicked; leases in flight end by themselves");
        }
    }
}

struct Keeping {
    book: Arc<Book>,
    calls: StoreCalls,
    ttl: Duration,
}

impl Keeping {
    fn keep(&self) {
        let mut renew_at = Instant::now() + self.ttl / 3;
        let mut failures = 0;
        loop {
            let (returned, closed) = self.wait_for_work(renew_at);
            if !returned.is_empty() {
                failures = if self.give_back(returned, failures) { 0 } else { failures + 1 };
            } else if closed {
                return;
            }
            if closed && failures >= LAST_TRIES {
                tracing::warn!("leases could not be given back; they end by themselves");
                return;
            }
            if Instant::now() >= renew_at {
                let renewed = self.renew();
                renew_at = Instant::now() + if renewed { self.ttl / 3 } else { self.ttl / 10 };
            }
            if failures > 0 {
                std::thread::sleep(RETRY_AFTER);
            }
        }
    }

    /// What has to be given back, as soon as there is something, the house closes or it is time to renew.
    fn wait_for_work(&self, until: Instant) -> (Vec<LeaseId>, bool) {
        let at_most = until.saturating_duration_since(Instant::now());
        let is_quiet = |entries: &mut Entries| entries.returned.is_empty() && !entries.closed;
        let (entries, _timeout) = self
            .book
            .changed
            .wait_timeout_while(lock(&self.book.entries), at_most, is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        (entries.returned.clone(), entries.closed)
    }

    /// Gives the leases back; they stay in the book until the queue has taken them.
    fn give_back(&self, leases: Vec<LeaseId>, failures: u32) -> bool {
        match self.calls.ask(Part::Database, self.book.queue.give_back(&leases)) {
            Ok(Ok(())) => {
                self.book.change(|entries| {
                    entries.returned.retain(|lease| !leases.contains(lease));
                    entries.given_back += leases.len() as u64;
                });
                metrics::counter!(names::PHOTOS_GIVEN_BACK).increment(leases.len() as u64);
                true
            }
            Ok(Err(error)) => {
                log_once(failures, &error);
                false
            }
            Err(outage) => {
                log_once(failures, &outage);
                false
            }
        }
    }

    fn renew(&self) -> bool {
        let held = self.book.to_renew();
        if held.is_empty() {
            return true;
        }
        match self.calls.ask(Part::Database, self.book.queue.renew(&held, self.ttl)) {
            Ok(Ok(kept)) => {
                let lost = self.book.renewed(&held, &kept);
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
fn log_once(failures: u32, error: &dyn std::error::Error) {
    if failures == 0 {
        tracing::warn!(error = %error, "photos could not be given back yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory_queue::MemoryQueue;

    fn book() -> Book {
        Book::new(Arc::new(MemoryQueue::default()))
    }

    fn open(book: &Book) -> LeaseId {
        let lease = LeaseId::generate();
        book.opened(lease);
        lease
    }

    #[test]
    fn only_a_lease_that_is_still_worked_on_is_lost_and_only_once() {
        let book = book();
        let (kept, ended, lost) = (open(&book), open(&book), open(&book));
        let asked = book.to_renew();
        assert_eq!(asked.len(), 3);
        // Between the question and its answer.
        book.settled(ended);
        let late = open(&book);
        assert_eq!(book.renewed(&asked, &[kept]), 1);
        assert_eq!(book.renewed(&asked, &[kept]), 0);
        let again: HashSet<LeaseId> = book.to_renew().into_iter().collect();
        assert_eq!(again, HashSet::from([kept, late]));
        assert_eq!(book.in_flight(), 3, "what is lost is still worked on: {book:?}, {lost:?}");
    }

    #[test]
    fn an_abandoned_lease_is_neither_renewed_nor_waited_for() {
        let book = book();
        let (hangs, ends_late) = (open(&book), open(&book));
        book.abandon();
        assert_eq!((book.to_renew(), book.in_flight(), book.ticket_count()), (Vec::new(), 0, 2));
        assert!(book.wait_until_empty(Duration::ZERO));
        let fresh = open(&book);
        assert_eq!((book.to_renew(), book.in_flight()), (vec![fresh], 1));
        // Its thread ended after all.
        book.returned(ends_late);
        assert_eq!((book.in_flight(), book.ticket_count()), (1, 2), "{hangs:?}");
    }
}
