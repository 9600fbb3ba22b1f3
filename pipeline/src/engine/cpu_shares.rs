//! Shares the cores among the organizations whose photos are processed. All stages together have more threads than the
//! machine has cores, and the scheduler of the system knows nothing of photos: with one photo among many of another
//! organization, each of its steps would get a small part of a core.
//!
//! A thread takes a step with a share in hand, one share for each core. When several wait for one, the next is of the
//! organization that has the fewest shares, and among those of the one that was served longest ago: a photo of somebody
//! else waits for the end of one step, then has a core to itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use photofinish_store::model::ids::OrganizationId;

use crate::engine::sync::lock;

thread_local! {
    /// The share of the step that runs on this thread.
    static HELD: RefCell<Option<CpuShare>> = const { RefCell::new(None) };
}

/// The shares of a generation. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CpuShares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    is_closed: bool,
    next_turn: u64,
    waiting: Vec<Claim>,
    /// The organizations that have or had a share since nobody waited and nobody had one.
    served: HashMap<OrganizationId, Served>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    turn: u64,
    owner: OrganizationId,
}

/// What an organization got. Ordered by who is served next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Served {
    /// The shares that it has now.
    shares: usize,
    /// The turn in which it got the last one.
    last_turn: u64,
}

/// The right to one core, given back on drop.
#[derive(Debug)]
struct CpuShare {
    shares: CpuShares,
    owner: OrganizationId,
}

/// Keeps a share for the calling thread until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldShare(());

impl CpuShares {
    /// Creates as many shares as `cores`, but at least two: a step of a very large photo takes seconds, and those of
    /// others go on beside it.
    pub(crate) fn new(cores: usize) -> Self {
        let state = State {
            free: cores.max(2),
            is_closed: false,
            next_turn: 1,
            waiting: Vec::new(),
            served: HashMap::new(),
        };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Waits for a share for a step of a photo of `owner`, and keeps it for this thread. Once the shares are closed, nobody
    /// waits.
    pub(crate) fn hold(&self, owner: OrganizationId) -> HeldShare {
        let share = self.take(owner);
        HELD.set(Some(share));
        HeldShare(())
    }

    fn take(&self, owner: OrganizationId) -> CpuShare {
        let Inner { state, changed } = &*self.0;
        let mut state = lock(state);
        let claim = Claim { turn: state.next_turn, owner };
        state.next_turn += 1;
        state.waiting.push(claim);
        let must_wait =
            |state: &mut State| !state.is_closed && (state.free == 0 || state.next() != Some(claim));
        let mut state = changed.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner);
        state.grant(claim);
        let is_more_free = state.free > 0 && !state.waiting.is_empty();
        drop(state);
        if is_more_free {
            changed.notify_all();
        }
        CpuShare { shares: self.clone(), owner }
    }

    /// Lets everybody who waits, and who comes later, go on without a share.
    pub(crate) fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl State {
    /// Whose turn it is.
    fn next(&self) -> Option<Claim> {
        let served = |owner| self.served.get(&owner).copied().unwrap_or_default();
        self.waiting.iter().copied().min_by_key(|claim| (served(claim.owner), claim.turn))
    }

    fn grant(&mut self, claim: Claim) {
        self.waiting.retain(|waiting| *waiting != claim);
        // Closed shares are given to whoever asks.
        self.free = self.free.saturating_sub(1);
        let served = self.served.entry(claim.owner).or_default();
        served.shares += 1;
        served.last_turn = self.next_turn;
        self.next_turn += 1;
    }

    fn give_back(&mut self, owner: OrganizationId) {
        self.free += 1;
        if let Some(served) = self.served.get_mut(&owner) {
            served.shares = served.shares.saturating_sub(1);
        }
        if self.waiting.is_empty() && self.served.values().all(|served| served.shares == 0) {
            self.served.clear();
        }
    }
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        let Inner { state, changed } = &*self.shares.0;
        let mut state = lock(state);
        state.give_back(self.owner);
        let is_awaited = !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            changed.notify_all();
        }
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        drop(HELD.take());
    }
}

/// Runs `wait` without the share that this thread holds, if it does: what waits for something else needs no core. It waits for
/// a share afterwards, so `wait` must not return with a lock.
pub(crate) fn wait_without_share<T>(wait: impl FnOnce() -> T) -> T {
    let Some(share) = HELD.take() else { return wait() };
    let (shares, owner) = (share.shares.clone(), share.owner);
    drop(share);
    let result = wait();
    HELD.set(Some(shares.take(owner)));
    result
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A step on a thread of its own, which ends when it is told to.
    struct RunningStep {
        end: mpsc::Sender<()>,
        thread: thread::JoinHandle<()>,
    }

    impl RunningStep {
        fn end(self) {
            self.end.send(()).unwrap();
            self.thread.join().unwrap();
        }
    }

    /// Starts a step of `owner`, which sends `name` once it has a share.
    fn start_step(
        shares: &CpuShares,
        owner: OrganizationId,
        name: &'static str,
        began: &mpsc::Sender<&'static str>,
    ) -> RunningStep {
        let (end, ended) = mpsc::channel();
        let (shares, began) = (shares.clone(), began.clone());
        let step = move || {
            let _share = shares.hold(owner);
            began.send(name).unwrap();
            ended.recv().unwrap();
        };
        RunningStep { end, thread: thread::Builder::new().name(name.into()).spawn(step).unwrap() }
    }

    fn wait_until_waiting(shares: &CpuShares, count: usize) {
        while lock(&shares.0.state).waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_step_of_another_is_next_however_many_wait() {
        let shares = CpuShares::new(2);
        let (many, one) = (OrganizationId::generate(), OrganizationId::generate());
        let (began, beginnings) = mpsc::channel();
        let first = start_step(&shares, many, "first", &began);
        let second = start_step(&shares, many, "second", &began);
        let running: Vec<_> = (0..2).map(|_| beginnings.recv_timeout(TIMEOUT).unwrap()).collect();
        assert!(running.contains(&"first") && running.contains(&"second"), "{running:?}");
        let third = start_step(&shares, many, "third", &began);
        wait_until_waiting(&shares, 1);
        let other = start_step(&shares, one, "other", &began);
        wait_until_waiting(&shares, 2);
        assert!(beginnings.try_recv().is_err(), "more steps than shares");
        first.end();
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("other"));
        second.end();
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("third"));
        other.end();
        third.end();
        let state = lock(&shares.0.state);
        assert!(state.free == 2 && state.served.is_empty(), "{state:?}");
    }

    #[test]
    fn who_waits_for_memory_leaves_its_core_to_others() {
        let shares = CpuShares::new(2);
        let owner = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        let running = start_step(&shares, owner, "running", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("running"));
        let _share = shares.hold(owner);
        let other = start_step(&shares, OrganizationId::generate(), "other", &began);
        wait_until_waiting(&shares, 1);
        wait_without_share(|| {
            assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("other"));
            other.end();
        });
        assert_eq!(lock(&shares.0.state).free, 0, "the thread has its share again");
        running.end();
    }

    #[test]
    fn nobody_waits_for_closed_shares() {
        let shares = CpuShares::new(2);
        let owner = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        let steps = ["one", "two", "three"].map(|name| start_step(&shares, owner, name, &began));
        wait_until_waiting(&shares, 1);
        shares.close();
        for _ in 0..3 {
            beginnings.recv_timeout(TIMEOUT).unwrap();
        }
        steps.into_iter().for_each(RunningStep::end);
        drop(shares.hold(owner));
    }
}
