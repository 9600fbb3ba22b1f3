//! The leases of one lane, and the thread that renews and releases them. Tickets only record changes in the table;
//! the thread is the one that waits for the database.

mod renewer;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use photofinish_store::model::ids::LeaseId;
use photofinish_store::traits::{Lease, Queue};

pub(crate) use self::renewer::LeaseRenewer;
use crate::engine::metrics as names;
use crate::engine::sync::lock;

/// The leases of one lane. There is one table for its lifetime.
pub(crate) struct LeaseTable {
    queue: Arc<dyn Queue>,
    states: Mutex<LeaseStates>,
    changed: Condvar,
    /// Counts the stages that photos have passed, and the photos that ended. While it grows the pipeline is not stalled.
    progress: AtomicU64,
}

#[derive(Debug, Default)]
struct LeaseStates {
    /// Leases with a ticket.
    by_lease: HashMap<LeaseId, TrackedLease>,
    /// Leases whose ticket was dropped and that the queue does not have back yet.
    to_release: Vec<Arc<Lease>>,
    /// The same of leases whose ticket a thread still has, at a stop. They are released after the others and apart from
    /// them, each with a call of its own: the thread may be writing results, in a transaction that has locked the rows of
    /// its photos, and whoever releases one of these waits for that.
    to_withdraw: Vec<Arc<Lease>>,
    /// Of the leases to release, those whose photos no stage has had.
    unused: HashSet<LeaseId>,
    released_count: u64,
    /// Set when the pipeline stops: until when leases can be released.
    stops_at: Option<Instant>,
    /// What the gauge of photos in flight has of this lane.
    published: usize,
}

/// A lease with a ticket.
#[derive(Debug)]
struct TrackedLease {
    lease: Arc<Lease>,
    state: LeaseState,
    /// When the queue last said that it is running, at the earliest.
    confirmed_at: Instant,
}

/// Whether something may be stored under a lease before the queue has its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is running.
    Held,
    /// It is over: the queue takes no results under it.
    Over,
    /// It was not renewed in time, and another worker may have the photo.
    Unsure,
}

/// The state of a lease with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    /// It is renewed.
    Active,
    /// The queue refused to renew it: another worker has the photo, or the photo ended.
    Lost,
    /// Its thread hangs, so it is left to expire.
    Abandoned,
}

impl LeaseStates {
    fn in_flight(&self) -> usize {
        self.by_lease.values().filter(|tracked| tracked.state != LeaseState::Abandoned).count()
    }

    fn is_empty(&self) -> bool {
        self.in_flight() == 0 && self.next_to_release().is_empty()
    }

    /// The leases to release with the next call.
    fn next_to_release(&self) -> &[Arc<Lease>] {
        if self.to_release.is_empty() {
            &self.to_withdraw[..self.to_withdraw.len().min(1)]
        } else {
            &self.to_release
        }
    }
}

impl LeaseTable {
    pub(crate) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue, states: Mutex::default(), changed: Condvar::new(), progress: AtomicU64::new(0) }
    }

    pub(crate) fn queue(&self) -> &dyn Queue {
        self.queue.as_ref()
    }

    /// Adds a lease, which is renewed from now on.
    pub(crate) fn insert(&self, lease: &Arc<Lease>) {
        self.update(|states| {
            let tracked = TrackedLease {
                lease: Arc::clone(lease),
                state: LeaseState::Active,
                confirmed_at: Instant::now(),
            };
            states.by_lease.insert(lease.id, tracked);
        });
    }

    /// Records that a photo has passed a stage.
    pub(crate) fn record_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of stages passed by photos, plus the number of photos that ended.
    pub(crate) fn progress_count(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Removes the lease of a photo that ended.
    pub(crate) fn remove(&self, lease: LeaseId) {
        self.record_progress();
        self.update(|states| {
            states.by_lease.remove(&lease);
        });
    }

    /// Has the renewer release a lease whose ticket was dropped, which gives the photo back to the queue.
    /// Does nothing for one that [`Self::release_all`] has released.
    pub(crate) fn schedule_release(&self, lease: LeaseId) {
        self.update(|states| {
            if let Some(tracked) = states.by_lease.remove(&lease) {
                states.to_release.push(tracked.lease);
            }
        });
    }

    /// Does the same with a lease whose photo no stage has had. It is not counted among those given back.
    pub(crate) fn schedule_release_unused(&self, lease: LeaseId) {
        self.update(|states| {
            if let Some(tracked) = states.by_lease.remove(&lease) {
                states.unused.insert(lease);
                states.to_release.push(tracked.lease);
            }
        });
    }

    /// Has the renewer release every lease that is renewed, although it still has a ticket. Called at a stop, when tickets
    /// are left only in threads that did not exit in time. Should such a thread write its results after all, the
    /// database refuses them, because the lease is over.
    pub(crate) fn release_all(&self) {
        self.update(|states| {
            let active = states.by_lease.extract_if(|_, tracked| tracked.state == LeaseState::Active);
            states.to_withdraw.extend(active.map(|(_, tracked)| tracked.lease));
        });
    }

    /// Leaves every lease that still has a ticket to expire. Called at the end of a generation in which a component failed,
    /// when tickets are left only in threads that hang in native code, which nothing can end.
    /// If their leases were renewed forever, the photos would never end. Expired leases are leased again, and the
    /// attempt counts, because one of the photos may have caused the hang.
    ///
    /// Abandoned photos no longer count as in flight: nothing waits for them, not even a crash suspect. A hanging thread
    /// may still crash this process, which then counts against a photo that is not the cause, but only once per process.
    pub(crate) fn abandon_all(&self) {
        self.update(|states| {
            for tracked in states.by_lease.values_mut() {
                tracked.state = LeaseState::Abandoned;
            }
        });
    }

    /// Whether something may be stored under a lease of this duration.
    pub(crate) fn hold_of(&self, lease: LeaseId, ttl: Duration) -> Hold {
        match lock(&self.states).by_lease.get(&lease) {
            // One without a ticket was released at a stop.
            None => Hold::Over,
            Some(tracked) if tracked.state == LeaseState::Lost => Hold::Over,
            Some(tracked) if tracked.confirmed_at.elapsed() < ttl => Hold::Held,
            Some(_) => Hold::Unsure,
        }
    }

    /// Returns the number of photos with a ticket that are not abandoned.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.states).in_flight()
    }

    /// Returns the number of photos with a ticket, including abandoned ones.
    #[cfg(test)]
    pub(crate) fn ticket_count(&self) -> usize {
        lock(&self.states).by_lease.len()
    }

    /// Returns the number of photos with a ticket, including abandoned ones, and of those that the queue does not have
    /// back yet.
    pub(crate) fn unreleased_count(&self) -> usize {
        let states = lock(&self.states);
        states.by_lease.len() + states.to_release.len() + states.to_withdraw.len()
    }

    /// Returns the number of photos given back to the queue since the pipeline started, without those that no stage had.
    pub(crate) fn released_count(&self) -> u64 {
        lock(&self.states).released_count
    }

    /// Waits until no photo is in flight and no lease is left to release, for at most `timeout`. Returns whether that
    /// was reached.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> bool {
        let is_busy = |states: &mut LeaseStates| !states.is_empty();
        let waited = self.changed.wait_timeout_while(lock(&self.states), timeout, is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// Whether no photo is in flight and no lease is left to release.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.states).is_empty()
    }

    /// Returns the leases to renew.
    fn active_leases(&self) -> Vec<LeaseId> {
        let states = lock(&self.states);
        let active = states.by_lease.iter().filter(|(_, tracked)| tracked.state == LeaseState::Active);
        active.map(|(lease, _)| *lease).collect()
    }

    /// Removes leases that the queue has back. Returns the number of those whose photos a stage has had.
    fn remove_released(&self, leases: &[Lease]) -> u64 {
        let released: HashSet<LeaseId> = leases.iter().map(|lease| lease.id).collect();
        let mut used = 0;
        self.update(|states| {
            states.to_release.retain(|lease| !released.contains(&lease.id));
            states.to_withdraw.retain(|lease| !released.contains(&lease.id));
            used = released.iter().filter(|lease| !states.unused.remove(*lease)).count() as u64;
            states.released_count += used;
        });
        used
    }

    /// Whether what is to be released next is a lease that a thread still has.
    fn has_only_withdrawals(&self) -> bool {
        lock(&self.states).to_release.is_empty()
    }

    /// Has the other leases that a thread still has released before one that could not be.
    fn postpone_withdrawal(&self) {
        self.update(|states| {
            if states.to_release.is_empty() && !states.to_withdraw.is_empty() {
                states.to_withdraw.rotate_left(1);
            }
        });
    }

    /// Marks as lost the leases of `requested`, at this time, that are not in `renewed`, and returns how many are newly lost.
    /// Photos that ended during the request are not counted.
    fn note_renewal(&self, requested: &[LeaseId], requested_at: Instant, renewed: &[LeaseId]) -> usize {
        let renewed: HashSet<&LeaseId> = renewed.iter().collect();
        let mut lost = 0;
        self.update(|states| {
            for lease in requested {
                match states.by_lease.get_mut(lease) {
                    Some(tracked) if renewed.contains(lease) => tracked.confirmed_at = requested_at,
                    Some(tracked) if tracked.state == LeaseState::Active => {
                        tracked.state = LeaseState::Lost;
                        lost += 1;
                    }
                    _ => {}
                }
            }
        });
        lost
    }

    fn update(&self, change: impl FnOnce(&mut LeaseStates)) {
        let mut states = lock(&self.states);
        change(&mut states);
        let in_flight = states.in_flight();
        let before = std::mem::replace(&mut states.published, in_flight);
        // The gauge is the sum of all lanes.
        metrics::gauge!(names::PHOTOS_IN_FLIGHT).increment(in_flight as f64 - before as f64);
        drop(states);
        self.changed.notify_all();
    }
}

impl fmt::Debug for LeaseTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseTable").field("states", &self.states).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::PhotoId;

    use super::*;
    use crate::testing::memory_queue::{MemoryQueue, new_lease};

    fn empty_table() -> LeaseTable {
        LeaseTable::new(Arc::new(MemoryQueue::default()))
    }

    fn insert_lease(leases: &LeaseTable) -> LeaseId {
        let lease = new_lease(PhotoId::generate());
        leases.insert(&Arc::new(lease.clone()));
        lease.id
    }

    fn next_to_release(leases: &LeaseTable) -> Vec<Lease> {
        lock(&leases.states).next_to_release().iter().map(|lease| Lease::clone(lease)).collect()
    }

    #[test]
    fn only_a_lease_still_in_flight_is_lost_and_only_once() {
        let leases = empty_table();
        let (renewed, ended, lost) = (insert_lease(&leases), insert_lease(&leases), insert_lease(&leases));
        let requested = leases.active_leases();
        assert_eq!(requested.len(), 3);
        // Between the request and its response.
        leases.remove(ended);
        let late = insert_lease(&leases);
        let requested_at = Instant::now();
        assert_eq!(leases.note_renewal(&requested, requested_at, &[renewed]), 1);
        assert_eq!(leases.note_renewal(&requested, requested_at, &[renewed]), 0);
        let active: HashSet<LeaseId> = leases.active_leases().into_iter().collect();
        assert_eq!(active, HashSet::from([renewed, late]));
        assert_eq!(leases.in_flight(), 3, "the lost lease {lost:?} is still in flight: {leases:?}");
        let hold = |lease| leases.hold_of(lease, Duration::from_secs(3600));
        assert_eq!([renewed, ended, lost].map(hold), [Hold::Held, Hold::Over, Hold::Over]);
        assert_eq!(leases.hold_of(renewed, Duration::ZERO), Hold::Unsure);
    }

    #[test]
    fn an_abandoned_lease_is_neither_renewed_nor_waited_for() {
        let leases = empty_table();
        let (hanging, late) = (insert_lease(&leases), insert_lease(&leases));
        leases.abandon_all();
        assert_eq!((leases.active_leases(), leases.in_flight(), leases.ticket_count()), (Vec::new(), 0, 2));
        assert!(leases.wait_until_empty(Duration::ZERO));
        let fresh = insert_lease(&leases);
        assert_eq!((leases.active_leases(), leases.in_flight()), (vec![fresh], 1));
        // The thread of the abandoned lease ended after all.
        leases.schedule_release(late);
        assert_eq!((leases.in_flight(), leases.ticket_count()), (1, 2), "{hanging:?} is still abandoned");
    }

    /// Otherwise one open transaction of a thread that did not end would keep all photos from the queue.
    #[test]
    fn leases_that_a_thread_still_has_are_released_apart_from_the_others() {
        let leases = empty_table();
        let [held, dropped] = [(); 2].map(|()| insert_lease(&leases));
        leases.schedule_release(dropped);
        leases.release_all();
        for lease in [dropped, held] {
            let next = next_to_release(&leases);
            assert_eq!(next.iter().map(|lease| lease.id).collect::<Vec<_>>(), [lease]);
            assert!(!leases.is_empty());
            assert_eq!(leases.remove_released(&next), 1);
        }
        assert!(leases.is_empty());
        assert_eq!((leases.released_count(), leases.unreleased_count()), (2, 0));
    }

    #[test]
    fn a_lease_that_cannot_be_withdrawn_keeps_no_other_from_the_queue() {
        let leases = empty_table();
        for _ in 0..3 {
            insert_lease(&leases);
        }
        leases.release_all();
        let next = || next_to_release(&leases).iter().map(|lease| lease.id).collect::<Vec<_>>();
        let locked = next();
        assert_eq!(locked.len(), 1);
        leases.postpone_withdrawal();
        for _ in 0..2 {
            assert!(next().len() == 1 && next() != locked);
            leases.remove_released(&next_to_release(&leases));
        }
        assert_eq!(next(), locked, "it is tried again");
        assert_eq!(leases.unreleased_count(), 1);
    }

    #[test]
    fn photos_that_no_stage_had_are_not_counted_as_given_back() {
        let leases = empty_table();
        let [unused, dropped] = [(); 2].map(|()| insert_lease(&leases));
        leases.schedule_release_unused(unused);
        leases.schedule_release(dropped);
        let next = next_to_release(&leases);
        assert_eq!((next.len(), leases.remove_released(&next)), (2, 1));
        assert_eq!((leases.released_count(), leases.unreleased_count()), (1, 0));
    }
}
