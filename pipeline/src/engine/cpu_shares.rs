//! Shares the cores among the organizations whose photos are processed. All stages together have more threads than the
//! machine has cores, and the scheduler of the system knows nothing of photos: with one photo among many of another
//! organization, each of its steps would get a small part of a core.
//!
//! A thread takes a step with a share in hand, one share for each core. When several wait for one, the next is of the
//! organization that has the fewest shares, among those of the one that has used least time ([`VirtualTimes`]), and among those
//! of the one that was served longest ago: a photo of somebody else waits for the end of one step, then has a core to itself. A thread that waits with a photo in hand takes the share
//! for another photo that came to its stage meanwhile, if that one's organization is next ([`Candidates`]). A photo whose
//! organization is next takes its share along to a stage that waits for photos ([`HeldShare::carry`]): the time that it
//! takes to get there would be enough for others to begin steps on all cores.
//!
//! Somebody waits for the answer to a selfie, and nobody for the next step of a photo: while a selfie is examined, a core
//! is reserved for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use photofinish_store::model::ids::OrganizationId;

use crate::engine::sync::lock;
use crate::engine::virtual_times::VirtualTimes;

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
    /// The shares from which they are taken.
    shares: Mutex<Weak<Inner>>,
}

/// A core that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedCore(ReservedCores);

/// The shares of a process, as the threads of one generation take them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CpuShares {
    inner: Arc<Inner>,
    generation: Arc<Generation>,
}

/// A generation that takes shares.
#[derive(Debug, Default)]
struct Generation {
    /// Its threads need no share any more. Changed while the state is locked.
    is_closed: AtomicBool,
}

/// Lists the organizations of which a stage could take a step. Called while the shares are locked.
pub(crate) type Candidates = Arc<dyn Fn() -> Vec<OrganizationId> + Send + Sync>;

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    reserved: ReservedCores,
}

#[derive(Debug)]
struct State {
    /// How many steps may run at once when no core is reserved.
    shares: usize,
    /// The steps that run, but for those of closed generations.
    running: Vec<ShareInUse>,
    turns: u64,
    /// In the order of their arrival.
    waiting: Vec<Claim>,
    /// The organizations that have or had a share since nobody waited and nobody had one.
    served: HashMap<OrganizationId, Served>,
    /// What the ended steps of each took, since then.
    times: VirtualTimes,
}

/// A share in use.
#[derive(Debug)]
struct ShareInUse {
    generation: Arc<Generation>,
    owner: OrganizationId,
    since: Instant,
}

/// A thread that waits for a share.
struct Claim {
    generation: Arc<Generation>,
    owner: OrganizationId,
    /// Of the stage, whose claims have the same.
    candidates: Candidates,
    /// Gets the organization for which the share is.
    granted: Sender<OrganizationId>,
}

/// What an organization got.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// The shares that it has now.
    shares: usize,
    /// The turn in which it got the last one.
    last_turn: u64,
}

/// Who is served next: the organization with the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    shares: usize,
    used: Duration,
    last_turn: u64,
}

/// The right to one core, given back on drop. Not to be dropped while an edge is locked: whoever gets it next looks into
/// edges.
#[derive(Debug)]
pub(crate) struct CpuShare {
    shares: CpuShares,
    owner: OrganizationId,
}

/// Keeps a share for the calling thread until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldShare {
    /// Whose photo the share is for.
    pub(crate) owner: OrganizationId,
}

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
            lock(&shares.state).grant_free(self.0.count());
        }
    }
}

impl CpuShares {
    /// Creates as many shares as `cores`, but at least two: a step of a very large photo takes seconds, and those of
    /// others go on beside it. What is reserved is taken from them, but for the last one. All lanes of a process share them.
    pub(crate) fn new(cores: usize, reserved: &ReservedCores) -> Self {
        let state = State {
            shares: cores.max(2),
            running: Vec::new(),
            turns: 0,
            waiting: Vec::new(),
            served: HashMap::new(),
            times: VirtualTimes::default(),
        };
        let inner = Arc::new(Inner { state: Mutex::new(state), reserved: reserved.clone() });
        *lock(&reserved.0.shares) = Arc::downgrade(&inner);
        Self { inner, generation: Arc::default() }
    }

    /// Returns the same shares for another generation, which is closed by itself.
    pub(crate) fn for_generation(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), generation: Arc::default() }
    }

    /// Waits for a share for a step of a photo of `owner`, or of one of the candidates if that one is next before `owner`,
    /// and keeps it for this thread. Once the generation is closed, nobody waits.
    pub(crate) fn hold(&self, owner: OrganizationId, candidates: &Candidates) -> HeldShare {
        let share = self.take(owner, Arc::clone(candidates));
        let owner = share.owner;
        HELD.set(Some(share));
        HeldShare { owner }
    }

    /// Keeps a share that came with a photo for this thread.
    pub(crate) fn hold_carried(share: CpuShare) -> HeldShare {
        let owner = share.owner;
        HELD.set(Some(share));
        HeldShare { owner }
    }

    /// Waits for a share, as [`Self::hold`] does.
    pub(crate) fn take(&self, owner: OrganizationId, candidates: Candidates) -> CpuShare {
        let mut state = lock(&self.inner.state);
        if self.is_closed() {
            return CpuShare { shares: self.clone(), owner };
        }
        let (granted, grant) = bounded(1);
        let generation = Arc::clone(&self.generation);
        state.waiting.push(Claim { generation, owner, candidates, granted });
        state.grant_free(self.inner.reserved.count());
        drop(state);
        // Every claim is granted, at the latest when the generation is closed.
        let owner = grant.recv().unwrap_or(owner);
        CpuShare { shares: self.clone(), owner }
    }

    /// Lets every thread of the generation that waits, or comes later, go on without a share. What its threads have is given
    /// back now: one that hangs would keep it from those of the other generations.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.inner.state);
        self.generation.is_closed.store(true, Ordering::Relaxed);
        let is_ours = |generation: &Arc<Generation>| Arc::ptr_eq(generation, &self.generation);
        for claim in state.waiting.extract_if(.., |claim| is_ours(&claim.generation)) {
            claim.tell(claim.owner);
        }
        let ended: Vec<ShareInUse> = state.running.extract_if(.., |step| is_ours(&step.generation)).collect();
        ended.iter().for_each(|step| state.count_end(step));
        state.grant_free(self.inner.reserved.count());
    }

    fn is_closed(&self) -> bool {
        self.generation.is_closed.load(Ordering::Relaxed)
    }
}

impl Claim {
    /// Tells the thread for whom it has a share.
    fn tell(&self, owner: OrganizationId) {
        // The channel has space: a claim is granted once. Its thread waits.
        let _waits = self.granted.try_send(owner);
    }
}

impl State {
    /// Whether no further step may begin while as many cores are `reserved`. One step runs always.
    fn is_full(&self, reserved: usize) -> bool {
        self.running.len() >= self.shares.saturating_sub(reserved).max(1)
    }

    /// Gives the free shares to those who wait.
    fn grant_free(&mut self, reserved: usize) {
        while !self.is_full(reserved)
            && let Some((index, owner)) = self.next()
        {
            let claim = self.waiting.remove(index);
            self.grant(&claim, owner);
        }
    }

    fn rank(&self, owner: OrganizationId) -> Rank {
        let Served { shares, last_turn } = self.served.get(&owner).copied().unwrap_or_default();
        Rank { shares, used: self.times.used_by(owner), last_turn }
    }

    /// Whose turn it is: the place of the claim, and for which organization.
    fn next(&self) -> Option<(usize, OrganizationId)> {
        let mut of_stages: Vec<(&Candidates, Option<OrganizationId>)> = Vec::new();
        let mut best: Option<(Rank, usize, OrganizationId)> = None;
        for (index, claim) in self.waiting.iter().enumerate() {
            let known = of_stages.iter().find(|(candidates, _)| Arc::ptr_eq(candidates, &claim.candidates));
            let candidate = known.map(|(_, candidate)| *candidate).unwrap_or_else(|| {
                let candidate = (claim.candidates)().into_iter().min_by_key(|owner| self.rank(*owner));
                of_stages.push((&claim.candidates, candidate));
                candidate
            });
            let better = candidate.filter(|candidate| self.rank(*candidate) < self.rank(claim.owner));
            let owner = better.unwrap_or(claim.owner);
            let rank = self.rank(owner);
            if best.is_none_or(|(least, _, _)| rank < least) {
                best = Some((rank, index, owner));
            }
        }
        best.map(|(_, index, owner)| (index, owner))
    }

    /// Whether `owner`, giving back its share, would be served again before the others that wait. Not if nobody else waits.
    fn is_next(&self, generation: &Arc<Generation>, owner: OrganizationId, reserved: usize) -> bool {
        let Some(index) = self.position(generation, owner) else { return false };
        let Some((_, other)) = self.next().filter(|(_, other)| *other != owner) else { return false };
        let rank = self.rank(owner);
        let (shares, used) = (rank.shares.saturating_sub(1), rank.used + self.running[index].since.elapsed());
        let has_core = self.running.len() <= self.shares.saturating_sub(reserved).max(1);
        has_core && Rank { shares, used, ..rank } < self.rank(other)
    }

    fn grant(&mut self, claim: &Claim, owner: OrganizationId) {
        let generation = Arc::clone(&claim.generation);
        self.running.push(ShareInUse { generation, owner, since: Instant::now() });
        self.turns += 1;
        let served = self.served.entry(owner).or_default();
        served.shares += 1;
        served.last_turn = self.turns;
        claim.tell(owner);
    }

    /// Returns where a share of a generation is among the steps that run; `None` once the generation is closed.
    fn position(&self, generation: &Arc<Generation>, owner: OrganizationId) -> Option<usize> {
        let is_it = |step: &ShareInUse| step.owner == owner && Arc::ptr_eq(&step.generation, generation);
        self.running.iter().position(is_it)
    }

    fn move_share(&mut self, generation: &Arc<Generation>, from: OrganizationId, to: OrganizationId) {
        let Some(index) = self.position(generation, from) else { return };
        self.running[index].owner = to;
        if let Some(served) = self.served.get_mut(&from) {
            served.shares = served.shares.saturating_sub(1);
        }
        self.served.entry(to).or_default().shares += 1;
    }

    fn give_back(&mut self, generation: &Arc<Generation>, owner: OrganizationId) {
        let Some(index) = self.position(generation, owner) else { return };
        let ended = self.running.swap_remove(index);
        self.count_end(&ended);
    }

    fn count_end(&mut self, ended: &ShareInUse) {
        self.times.charge(ended.owner, ended.since.elapsed());
        if let Some(served) = self.served.get_mut(&ended.owner) {
            served.shares = served.shares.saturating_sub(1);
        }
        if self.waiting.is_empty() && self.served.values().all(|served| served.shares == 0) {
            self.served.clear();
            self.times = VirtualTimes::default();
        }
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        let Inner { state, reserved } = &*self.shares.inner;
        let mut state = lock(state);
        state.give_back(&self.shares.generation, self.owner);
        state.grant_free(reserved.count());
    }
}

impl HeldShare {
    /// Makes the share one of the organization whose photo it is used for.
    pub(crate) fn charge_to(&mut self, owner: OrganizationId) {
        self.owner = owner;
        HELD.with_borrow_mut(|held| {
            if let Some(share) = held {
                let mut state = lock(&share.shares.inner.state);
                state.move_share(&share.shares.generation, share.owner, owner);
                share.owner = owner;
            }
        });
    }

    /// Returns the share for the next step of the photo, in another stage, if its organization would be served before all
    /// others that wait. Otherwise it is given back.
    pub(crate) fn carry(self) -> Option<CpuShare> {
        let share = HELD.take()?;
        let Inner { state, reserved } = &*share.shares.inner;
        let is_next = lock(state).is_next(&share.shares.generation, share.owner, reserved.count());
        (is_next && !share.shares.is_closed()).then_some(share)
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
    HELD.set(Some(shares.take(owner, no_candidates())));
    result
}

/// For a thread that goes on with the photo in its hands.
fn no_candidates() -> Candidates {
    Arc::new(Vec::new)
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
            let _share = shares.hold(owner, &no_candidates());
            began.send(name).unwrap();
            ended.recv().unwrap();
        };
        RunningStep { end, thread: thread::Builder::new().name(name.into()).spawn(step).unwrap() }
    }

    fn wait_until_waiting(shares: &CpuShares, count: usize) {
        while lock(&shares.inner.state).waiting.len() < count {
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
        let state = lock(&shares.inner.state);
        assert!(state.running.is_empty() && state.served.is_empty(), "{state:?}");
    }

    #[test]
    fn on_one_core_who_has_used_least_is_next() {
        let reserved = ReservedCores::default();
        let shares = CpuShares::new(2, &reserved);
        let (many, one) = (OrganizationId::generate(), OrganizationId::generate());
        let (began, beginnings) = mpsc::channel();
        let _selfie = reserved.reserve();
        let first = start_step(&shares, many, "first", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("first"));
        let second = start_step(&shares, many, "second", &began);
        wait_until_waiting(&shares, 1);
        lock(&shares.inner.state).times.charge(many, Duration::from_secs(10));
        let mut step = start_step(&shares, one, "one", &began);
        wait_until_waiting(&shares, 2);
        first.end();
        // Each of its steps ends with the next one waiting.
        for _ in 0..3 {
            assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("one"));
            let next = start_step(&shares, one, "one", &began);
            wait_until_waiting(&shares, 2);
            step.end();
            step = next;
        }
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("one"));
        step.end();
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("second"));
        second.end();
    }

    #[test]
    fn who_waits_for_memory_leaves_its_core_to_others() {
        let shares = CpuShares::new(2, &ReservedCores::default());
        let owner = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        let running = start_step(&shares, owner, "running", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("running"));
        let _share = shares.hold(owner, &no_candidates());
        let other = start_step(&shares, OrganizationId::generate(), "other", &began);
        wait_until_waiting(&shares, 1);
        wait_without_share(|| {
            assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("other"));
            other.end();
        });
        assert_eq!(lock(&shares.inner.state).running.len(), 2, "the thread has its share again");
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
    fn a_thread_that_waits_takes_the_photo_of_who_is_next() {
        let shares = CpuShares::new(2, &ReservedCores::default());
        let (many, one) = (OrganizationId::generate(), OrganizationId::generate());
        let (began, beginnings) = mpsc::channel();
        let steps = ["first", "second"].map(|name| start_step(&shares, many, name, &began));
        for _ in &steps {
            beginnings.recv_timeout(TIMEOUT).unwrap();
        }
        let arrived: Arc<Mutex<Vec<OrganizationId>>> = Arc::default();
        let candidates: Candidates = Arc::new({
            let arrived = Arc::clone(&arrived);
            move || lock(&arrived).clone()
        });
        let waiting = thread::Builder::new().name("waiting".into()).spawn({
            let shares = shares.clone();
            move || shares.hold(many, &candidates).owner
        });
        wait_until_waiting(&shares, 1);
        lock(&arrived).extend([many, one]);
        steps.into_iter().for_each(RunningStep::end);
        assert_eq!(waiting.unwrap().join().unwrap(), one);
    }

    #[test]
    fn a_photo_takes_its_share_along_if_its_organization_is_next() {
        let reserved = ReservedCores::default();
        let shares = CpuShares::new(2, &reserved);
        let (many, one) = (OrganizationId::generate(), OrganizationId::generate());
        let (began, beginnings) = mpsc::channel();
        let first = start_step(&shares, many, "first", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("first"));
        assert!(shares.hold(one, &no_candidates()).carry().is_none(), "kept though nobody waits");
        let held = shares.hold(one, &no_candidates());
        let second = start_step(&shares, many, "second", &began);
        wait_until_waiting(&shares, 1);
        let carried = held.carry().expect("others have a core");
        assert!(beginnings.try_recv().is_err(), "a share that goes on is free");
        let held = CpuShares::hold_carried(carried);
        let selfie = reserved.reserve();
        assert!(held.carry().is_none(), "kept though the core is reserved");
        drop(selfie);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("second"), "the share was lost");
        first.end();
        second.end();
        assert_eq!(lock(&shares.inner.state).running.len(), 0);
    }

    #[test]
    fn a_share_counts_for_whom_it_is_used() {
        let shares = CpuShares::new(2, &ReservedCores::default());
        let (granted, using) = (OrganizationId::generate(), OrganizationId::generate());
        let mut held = shares.hold(granted, &no_candidates());
        held.charge_to(using);
        assert_eq!(held.owner, using);
        let shares_of = |owner| lock(&shares.inner.state).served.get(&owner).map(|served| served.shares);
        assert_eq!((shares_of(granted), shares_of(using)), (Some(0), Some(1)));
        drop(held);
        let state = lock(&shares.inner.state);
        assert!(state.running.is_empty() && state.served.is_empty(), "{state:?}");
    }

    #[test]
    fn who_has_all_cores_gives_one_to_whoever_waits() {
        let shares = CpuShares::new(2, &ReservedCores::default());
        let many = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        let first = start_step(&shares, many, "first", &began);
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("first"));
        let held = shares.hold(many, &no_candidates());
        let other = start_step(&shares, OrganizationId::generate(), "other", &began);
        wait_until_waiting(&shares, 1);
        assert!(held.carry().is_none());
        assert_eq!(beginnings.recv_timeout(TIMEOUT), Ok("other"));
        first.end();
        other.end();
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
        drop(shares.hold(owner, &no_candidates()));
    }

    #[test]
    fn what_a_closed_generation_had_is_free_for_others_and_only_its_own_threads_stop_waiting() {
        let first = CpuShares::new(2, &ReservedCores::default());
        let second = first.for_generation();
        let owner = OrganizationId::generate();
        let (began, beginnings) = mpsc::channel();
        // Threads that hang: they go on after their generation.
        let hanging = ["one", "two"].map(|name| start_step(&first, owner, name, &began));
        for _ in &hanging {
            beginnings.recv_timeout(TIMEOUT).unwrap();
        }
        let late = start_step(&first, owner, "late", &began);
        wait_until_waiting(&first, 1);
        let others = ["three", "four", "five"].map(|name| start_step(&second, owner, name, &began));
        wait_until_waiting(&first, 4);
        first.close();
        let began_now: Vec<_> = (0..3).map(|_| beginnings.recv_timeout(TIMEOUT).unwrap()).collect();
        assert!(began_now.contains(&"late"), "a thread of a closed generation waits: {began_now:?}");
        assert_eq!(lock(&first.inner.state).running.len(), 2, "those of the other generation");
        assert_eq!(lock(&first.inner.state).waiting.len(), 1, "it has two shares for three steps");
        // Their ends give nothing back a second time.
        hanging.into_iter().chain([late]).for_each(RunningStep::end);
        assert_eq!(lock(&first.inner.state).running.len(), 2);
        assert!(beginnings.try_recv().is_err(), "more steps than shares");
        others.iter().for_each(|step| step.end.send(()).unwrap());
        others.into_iter().for_each(|step| step.thread.join().unwrap());
        let state = lock(&first.inner.state);
        assert!(state.running.is_empty() && state.served.is_empty(), "{state:?}");
    }
}
