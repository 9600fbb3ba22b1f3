//! Lets one lane of the process have a crash suspect while no lane has any other photo. It knows nothing of threads: feeds ask
//! it before they lease.
//!
//! A lane that is alone never waits here.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::leases::LeaseTable;
use crate::engine::sync::lock;

/// The gate; one for all lanes of a process.
#[derive(Debug, Default)]
pub(crate) struct SuspectGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The lease tables of the lanes that run.
    lanes: Vec<Arc<LeaseTable>>,
    /// Calls that lease photos now, of all lanes.
    leasing: usize,
    closed: Option<Closed>,
}

/// Who may lease while all others may not.
#[derive(Debug)]
struct Closed {
    by: Arc<LeaseTable>,
    /// Guards of that lane. Without any it stays closed until nothing of the lane is in flight: its feed may end before the
    /// threads that have its suspect.
    guards: usize,
}

/// Keeps the gate closed for all lanes but one.
#[derive(Debug)]
pub(crate) struct ClosedGate {
    gate: Arc<SuspectGate>,
    lane: Arc<LeaseTable>,
}

/// The right to lease photos beside those of other lanes, for one call.
#[derive(Debug)]
pub(crate) struct LeasePass<'g>(&'g SuspectGate);

impl SuspectGate {
    /// Adds a lane, which has no leases yet.
    pub(crate) fn add(&self, lane: &Arc<LeaseTable>) {
        lock(&self.state).lanes.push(Arc::clone(lane));
    }

    /// Removes a lane that has ended: what the queue does not have back will expire, and nobody waits for it.
    pub(crate) fn remove(&self, lane: &Arc<LeaseTable>) {
        let mut state = lock(&self.state);
        state.lanes.retain(|other| !Arc::ptr_eq(other, lane));
        state.closed.take_if(|closed| Arc::ptr_eq(&closed.by, lane));
    }

    /// Returns the number of photos in flight in all lanes.
    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).lanes.iter().map(|lane| lane.in_flight()).sum()
    }

    /// Whether other lanes run.
    pub(crate) fn has_others(&self, lane: &Arc<LeaseTable>) -> bool {
        lock(&self.state).lanes.iter().any(|other| !Arc::ptr_eq(other, lane))
    }

    /// Whether `lane` may lease photos now.
    pub(crate) fn is_open_for(&self, lane: &Arc<LeaseTable>) -> bool {
        lock(&self.state).is_open_for(lane)
    }

    /// Returns the right to lease photos of any kind, to be dropped once they have tickets; `None` while another lane has a
    /// crash suspect, or is about to.
    pub(crate) fn pass(&self, lane: &Arc<LeaseTable>) -> Option<LeasePass<'_>> {
        let mut state = lock(&self.state);
        if !state.is_open_for(lane) {
            return None;
        }
        state.leasing += 1;
        Some(LeasePass(self))
    }

    /// Closes the gate for all lanes but this one; `None` while another has closed it.
    pub(crate) fn close_for_others(self: &Arc<Self>, lane: &Arc<LeaseTable>) -> Option<ClosedGate> {
        let mut state = lock(&self.state);
        if !state.is_open_for(lane) {
            return None;
        }
        state.closed.get_or_insert_with(|| Closed { by: Arc::clone(lane), guards: 0 }).guards += 1;
        Some(ClosedGate { gate: Arc::clone(self), lane: Arc::clone(lane) })
    }
}

impl State {
    fn is_open_for(&mut self, lane: &Arc<LeaseTable>) -> bool {
        // Once its feed is done with suspects, a lane leases other photos, which keep nobody out.
        let is_over = |closed: &mut Closed| {
            closed.guards == 0 && (Arc::ptr_eq(&closed.by, lane) || closed.by.is_empty())
        };
        self.closed.take_if(is_over);
        self.closed.as_ref().is_none_or(|closed| Arc::ptr_eq(&closed.by, lane))
    }
}

impl ClosedGate {
    /// Waits until no lane has a photo in flight or a lease to release, at most `timeout` for each of them. Returns whether
    /// that was reached; others then have none until the guard is dropped.
    pub(crate) fn wait_until_empty(&self, timeout: Duration) -> bool {
        let SuspectGate { state, changed } = &*self.gate;
        let is_leasing = |state: &mut State| state.leasing > 0;
        let waited = changed.wait_timeout_while(lock(state), timeout, is_leasing);
        let (state, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let (leasing, lanes) = (state.leasing, state.lanes.clone());
        drop(state);
        leasing == 0 && lanes.iter().all(|lane| lane.wait_until_empty(timeout))
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        // If the lane has ended meanwhile, another may have closed the gate.
        let mut state = lock(&self.gate.state);
        let ours = state.closed.as_mut().filter(|closed| Arc::ptr_eq(&closed.by, &self.lane));
        if let Some(closed) = ours {
            closed.guards = closed.guards.saturating_sub(1);
        }
    }
}

impl Drop for LeasePass<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).leasing -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::ids::PhotoId;

    use super::*;
    use crate::engine::ticket::Ticket;
    use crate::testing::memory_queue::{MemoryQueue, new_lease};

    const MOMENT: Duration = Duration::from_millis(1);

    fn gate_with_lanes() -> (Arc<SuspectGate>, [Arc<LeaseTable>; 2]) {
        let gate = Arc::<SuspectGate>::default();
        let lanes = [(); 2].map(|()| Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default()))));
        lanes.iter().for_each(|lane| gate.add(lane));
        (gate, lanes)
    }

    fn open_ticket(lane: &Arc<LeaseTable>) -> Ticket {
        Ticket::open(lane, Arc::new(new_lease(PhotoId::generate())))
    }

    #[test]
    fn a_lane_with_a_suspect_waits_for_the_photos_of_others_and_for_calls_that_lease_some() {
        let (gate, [own, other]) = gate_with_lanes();
        let pass = gate.pass(&other).unwrap();
        let closed = gate.close_for_others(&own).unwrap();
        assert!(!closed.wait_until_empty(MOMENT), "another lane is leasing");
        let photo = open_ticket(&other);
        drop(pass);
        assert!(!closed.wait_until_empty(MOMENT), "another lane has a photo");
        assert_eq!(gate.in_flight(), 1);
        photo.leave_to_expire();
        assert!(closed.wait_until_empty(MOMENT));
    }

    #[test]
    fn others_lease_nothing_until_the_suspect_has_ended_even_if_its_feed_has() {
        let (gate, [own, other]) = gate_with_lanes();
        let closed = gate.close_for_others(&own).unwrap();
        assert!(gate.pass(&other).is_none() && gate.close_for_others(&other).is_none());
        let suspect = open_ticket(&own);
        drop(closed);
        assert!(!gate.is_open_for(&other), "its threads still have it");
        suspect.leave_to_expire();
        assert!(gate.is_open_for(&other));
        let closed = gate.close_for_others(&own).unwrap();
        drop(open_ticket(&own));
        drop(closed);
        assert!(!gate.is_open_for(&other), "the queue does not have it back yet");
    }

    #[test]
    fn a_lane_that_leases_other_photos_keeps_nobody_out() {
        let (gate, [own, other]) = gate_with_lanes();
        drop(gate.close_for_others(&own).unwrap());
        let pass = gate.pass(&own);
        assert!(pass.is_some());
        let _photo = open_ticket(&own);
        assert!(gate.is_open_for(&other));
    }

    #[test]
    fn a_lane_never_waits_for_itself_nor_for_one_that_has_ended() {
        let (gate, [own, other]) = gate_with_lanes();
        // A feed of an earlier generation that still waits for the database.
        let old = gate.close_for_others(&own).unwrap();
        let suspect = open_ticket(&own);
        assert!(gate.pass(&own).is_some() && gate.close_for_others(&own).is_some());
        assert!(!gate.is_open_for(&other));
        gate.remove(&own);
        let closed = gate.close_for_others(&other).expect("the other lane has ended");
        assert!(closed.wait_until_empty(MOMENT), "what it has left expires");
        drop((old, suspect));
        assert!(!gate.is_open_for(&own), "an old guard opens nothing");
    }
}
