//! Shares the cores among the organizations whose photos are processed. All stages together have more threads than the
//! machine has cores, and the scheduler of the system knows nothing of photos: with one photo among many of another
//! organization, each of its steps would get a small part of a core.
//!
//! A thread takes a step with a share in hand, one share for each core. When several wait for one, the next is of the
//! organization that has the fewest shares, and among those of the one that was served longest ago: a photo of somebody
//! else waits for the end of one step, then has a core to itself.
//!
//! Somebody waits for the answer to a selfie, and nobody for the next step of a photo: while a selfie is examined, a core
//! is reserved for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use photofinish_store::model::ids::OrganizationId;

use crate::engine::sync::lock;

thread_local! {
    /// The share of the step that runs on this thread.
    static HELD: RefCell<Option<CpuShare>> = const { RefCell::new(None) };
}

/// The cores that photos leave to selfies; one for all generations of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ReservedCores(Arc<Reservations>);

#[derive(Debug, Default)]
struct Reservations {
    count: AtomicUsize,
    /// The shares of the running generation.
    shares: Mutex<Weak<Inner>>,
}

/// A core that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedCore(ReservedCores);

/// The shares of a generation. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CpuShares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    reserved: ReservedCores,
}

#[derive(Debug)]
struct State {
    /// How many steps may run at once when no core is reserved.
    shares: usize,
    running: usize,
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

impl ReservedCores {
    /// Reserves one more core. The steps that run are not interrupted: fewer begin.
    pub(crate) fn reserve(&self) -> ReservedCore {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        ReservedCore(self.clone())
    }

    fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }
}

impl Drop for ReservedCore {
    fn drop(&mut self) {
        let ReservedCores(reservations) = &self.0;
        reservations.count.fetch_sub(1, Ordering::Relaxed);
        let shares = lock(&reservations.shares).upgrade();
        if let Some(shares) = shares {
            // Locked in between, so that no step looks at the old count and sleeps after the call.
            drop(lock(&shares.state));
            shares.changed.notify_all();
        }
    }
}

impl CpuShares {
    /// Creates as many shares as `cores`, but at least two: a step of a very large photo takes seconds, and those of
    /// others go on beside it. What is reserved is taken from them, but for the last one.
    pub(crate) fn new(cores: usize, reserved: &ReservedCores) -> Self {
        let state = State {
            shares: cores.max(2),
            running: 0,
            is_closed: false,
            next_turn: 1,
            waiting: Vec::new(),
            served: HashMap::new(),
        };
        let reserved = reserved.clone();
        let inner = Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new(), reserved });
        *lock(&inner.reserved.0.shares) = Arc::downgrade(&inner);
        Self(inner)
    }

    /// Waits for a share for a step of a photo of `owner`, and keeps it for this thread. Once the shares are closed, nobody
    /// waits.
    pub(crate) fn hold(&self, owner: OrganizationId) -> HeldShare {
        let share = self.take(owner);
        HELD.set(Some(share));
        HeldShare(())
    }

    fn take(&self, owner: OrganizationId) -> CpuShare {
        let Inner { state, changed, reserved } = &*self.0;
        let mut state = lock(state);
        let claim = Claim { turn: state.next_turn, owner };
        state.next_turn += 1;
        state.waiting.push(claim);
        let must_wait = |state: &mut State| {
            !state.is_closed && (state.is_full(reserved.count()) || state.next() != Some(claim))
        };
        let mut state = changed.wait_while(state, must_wait).unwrap_or_else(PoisonError::into_inner);
        state.grant(claim);
        let is_more_free = !state.is_full(reserved.count()) && !state.waiting.is_empty();
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
    /// Whether no further step may begin while as many cores are `reserved`. One step runs always.
    fn is_full(&self, reserved: usize) -> bool {
        self.running >= self.shares.saturating_sub(reserved).max(1)
    }

    /// Whose turn it is.
    fn next(&self) -> Option<Claim> {
        let served = |owner| self.served.get(&owner).copied().unwrap_or_default();
        self.waiting.iter().copied().min_by_key(|claim| (served(claim.owner), claim.turn))
    }

    fn grant(&mut self, claim: Claim) {
        self.waiting.retain(|waiting| *waiting != claim);
        self.running += 1;
        let served = self.served.entry(claim.owner).or_default();
        served.shares += 1;
        served.last_turn = self.next_turn;
        self.next_turn += 1;
    }

    fn give_back(&mut self, owner: OrganizationId) {
        self.running -= 1;
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
        let Inner { state, changed, .. } = &*self.shares.0;
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
        let shares = CpuShares::new(2, &ReservedCores::default());
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
        assert!(state.running == 0 && state.served.is_empty(), "{state:?}");
    }

    #[test]
    fn who_waits_for_memory_leaves_its_core_to_others() {
        let shares = CpuShares::new(2, &ReservedCores::default());
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
        assert_eq!(lock(&shares.0.state).running, 2, "the thread has its share again");
        running.end();
    }

    #[test]
    fn a_selfie_takes_the_next_core_and_leaves_the_last() {
        let reserved = ReservedCores::default();
        let shares = CpuShares::new(2, &reserved);
        let owner = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        let first = start_step(&shares, owner, "first", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("first"));
        let selfies = [reserved.reserve(), reserved.reserve(), reserved.reserve()];
        let second = start_step(&shares, owner, "second", &began);
        wait_until_waiting(&shares, 1);
        assert!(beginnings.try_recv().is_err(), "a step on a core that is reserved");
        first.end();
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("second"), "selfies leave one core to photos");
        let third = start_step(&shares, owner, "third", &began);
        wait_until_waiting(&shares, 1);
        drop(selfies);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("third"), "nobody told the waiting step");
        second.end();
        third.end();
    }

    #[test]
    fn nobody_waits_for_closed_shares() {
        let shares = CpuShares::new(2, &ReservedCores::default());
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
