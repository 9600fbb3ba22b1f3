//! Limits the memory of photos in flight across all stages. Channels limit how many photos there are, budgets how large
//! they are together. Budgets know nothing of photos.
//!
//! A stage requests once all the bytes that it will need ([`Budget::request`]) and puts the [`BudgetPermit`] into its
//! output. Bytes are released by [`BudgetPermit::shrink_to`] and by dropping the permit. A permit never grows, so
//! permit holders cannot deadlock.
//!
//! An owner never has more than half of the budget: the other half is for those who come later, who therefore do not wait
//! until a long photo has ended. A photo that needs more is oversize. It has its owner's half, and there is one such photo
//! at a time in the process, whoever owns it: budgets of several lanes share that place.
//!
//! Requests are served in the order of their arrival, with one exception: a request that waits for its owner's permits, or
//! for another oversize photo, lets those of others pass. They need not wait for that.
//!
//! Permits together never exceed the limit, but an oversize photo needs more memory than its permit says. Stages bound that
//! before they request.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;

use crate::engine::metrics as names;
use crate::engine::stage_stats::exclude_from_busy_time;
use crate::engine::sync::lock;

/// How much of a budget is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLoad {
    /// `files` or `pixels`.
    pub budget: &'static str,
    /// The bytes of all permits.
    pub used_bytes: u64,
    /// The bytes that they may have together.
    pub limit_bytes: u64,
}

/// The names of the budgets.
const FILES: &str = "files";
const PIXELS: &str = "pixels";

/// The budgets of a generation.
pub(crate) struct Budgets {
    /// Bytes of encoded files.
    pub(crate) files: Budget,
    /// Bytes of decoded pixels.
    pub(crate) pixels: Budget,
}

impl Budgets {
    /// Closes both budgets.
    pub(crate) fn close(&self) {
        self.files.close();
        self.pixels.close();
    }

    /// Returns how much of each is in use.
    pub(crate) fn loads(&self) -> Vec<BudgetLoad> {
        [(FILES, &self.files), (PIXELS, &self.pixels)]
            .map(|(name, budget)| BudgetLoad {
                budget: name,
                used_bytes: budget.used() as u64,
                limit_bytes: budget.0.limit as u64,
            })
            .to_vec()
    }
}

/// Changes the gauges, which are the sums of all lanes, by what a lane's budgets have more or less now than they had `before`;
/// a lane without a generation has no budgets.
pub(crate) fn publish_change(before: &[BudgetLoad], now: &[BudgetLoad]) {
    for name in [FILES, PIXELS] {
        let used = |loads: &[BudgetLoad]| -> u64 {
            loads.iter().filter(|load| load.budget == name).map(|load| load.used_bytes).sum()
        };
        metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => name)
            .increment(used(now) as f64 - used(before) as f64);
    }
}

/// How long a stage waits for memory before it looks whether a photo of another owner can go on: what such a photo waits for
/// one that cannot.
pub(crate) const MEMORY_PATIENCE: Duration = Duration::from_millis(10);

/// The place for the only oversize photo of several budgets. Cheap to clone. Those that wait for it in other budgets look
/// again after [`MEMORY_PATIENCE`].
#[derive(Clone, Debug, Default)]
pub(crate) struct OversizePlace(Arc<AtomicUsize>);

impl OversizePlace {
    /// The value without a holder; budgets have other numbers.
    const FREE: usize = 0;

    /// Takes the place for a budget, if it is free.
    fn take(&self, budget: usize) -> bool {
        self.0.compare_exchange(Self::FREE, budget, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Frees the place, if this budget has it.
    fn free(&self, budget: usize) {
        // Another holder keeps it.
        let _holder = self.0.compare_exchange(budget, Self::FREE, Ordering::AcqRel, Ordering::Acquire);
    }

    fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::FREE
    }
}

/// The number of the next budget, by which it holds an [`OversizePlace`].
static NEXT_BUDGET: AtomicUsize = AtomicUsize::new(OversizePlace::FREE + 1);

/// A number of bytes that all photos share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    number: usize,
    oversize: OversizePlace,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The bytes of each owner that uses any.
    used_by: HashMap<OrganizationId, usize>,
    is_closed: bool,
    next_turn: u64,
    /// The requests that wait, in order of arrival. Without the order small requests would overtake a large one forever.
    waiting: VecDeque<Claim>,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    turn: u64,
    owner: OrganizationId,
    bytes: usize,
    /// Whether the photo needs more than `bytes`, which is then the share of an owner.
    is_oversize: bool,
}

/// The budget was closed and gives out no more permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget is closed")]
pub struct BudgetClosed;

/// The right to use a number of bytes, released on drop.
#[derive(Debug)]
pub struct BudgetPermit {
    budget: Budget,
    owner: OrganizationId,
    bytes: AtomicUsize,
    /// Whether the photo needs more than its owner's share.
    is_oversize: AtomicBool,
}

/// A place in the queue for bytes, left on drop.
#[derive(Debug)]
pub struct BudgetRequest {
    budget: Budget,
    claim: Claim,
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self::with_place(limit, OversizePlace::default())
    }

    /// Creates a budget that shares the place for an oversize photo with others.
    pub(crate) fn with_place(limit: usize, oversize: OversizePlace) -> Self {
        let number = NEXT_BUDGET.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Inner { limit, number, oversize, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Asks for `bytes` for `owner`. A request above an owner's share, half of the limit, is reduced to it: one huge photo
    /// waits until there is no other, not forever. It then uses more memory than the budget counts. Callers must therefore
    /// check first that the machine has enough memory for such a photo; `image::decoder` refuses larger ones.
    pub fn request(&self, owner: OrganizationId, bytes: usize) -> BudgetRequest {
        let share = self.0.share();
        let mut state = lock(&self.0.state);
        let claim =
            Claim { turn: state.next_turn, owner, bytes: bytes.min(share), is_oversize: bytes > share };
        state.next_turn += 1;
        state.waiting.push_back(claim);
        drop(state);
        BudgetRequest { budget: self.clone(), claim }
    }

    /// Waits for `bytes` for `owner` as long as it takes.
    #[cfg(test)]
    pub fn acquire(&self, owner: OrganizationId, bytes: usize) -> Result<BudgetPermit, BudgetClosed> {
        let request = self.request(owner, bytes);
        loop {
            if let Some(permit) = request.take_within(Duration::from_secs(1))? {
                return Ok(permit);
            }
        }
    }

    /// Fails all waiting and all later requests. The place for an oversize photo becomes free: a thread that hangs would keep
    /// it forever.
    pub fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.oversize.free(self.0.number);
        self.0.changed.notify_all();
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        lock(&self.0.state).used
    }

    fn release(&self, owner: OrganizationId, bytes: usize, ends_oversize: bool) {
        if bytes == 0 && !ends_oversize {
            return;
        }
        let mut state = lock(&self.0.state);
        state.used -= bytes;
        if let Some(used) = state.used_by.get_mut(&owner) {
            *used -= bytes;
            if *used == 0 {
                state.used_by.remove(&owner);
            }
        }
        if ends_oversize {
            self.0.oversize.free(self.0.number);
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Inner {
    /// The most bytes of one owner.
    fn share(&self) -> usize {
        self.limit.div_ceil(2)
    }

    fn can_grant(&self, state: &State, claim: &Claim) -> bool {
        let fits = state.used + claim.bytes <= self.limit && !self.waits_for_its_own(state, claim);
        let is_next = || {
            state
                .waiting
                .iter()
                .take_while(|other| *other != claim)
                .all(|earlier| self.lets_pass(state, earlier, claim))
        };
        state.is_closed || (fits && is_next())
    }

    /// Whether an earlier request lets a later one pass.
    fn lets_pass(&self, state: &State, earlier: &Claim, later: &Claim) -> bool {
        earlier.owner != later.owner
            && (state.used_by.contains_key(&earlier.owner) || self.waits_for_its_own(state, earlier))
    }

    /// Whether a request waits for something else than free bytes: its owner's share, or another oversize photo.
    fn waits_for_its_own(&self, state: &State, claim: &Claim) -> bool {
        let used = state.used_by.get(&claim.owner).copied().unwrap_or_default();
        used + claim.bytes > self.share() || (claim.is_oversize && !self.oversize.is_free())
    }
}

impl BudgetRequest {
    /// Waits at most `patience` until the bytes are free and it is the request's turn. `None` when they are not: the
    /// request keeps its place.
    ///
    /// # Errors
    /// When the budget is closed, before or during the wait.
    pub fn take_within(&self, patience: Duration) -> Result<Option<BudgetPermit>, BudgetClosed> {
        let inner = &self.budget.0;
        let mut state = lock(&inner.state);
        if !state.waiting.contains(&self.claim) {
            // It was granted and its permit dropped by a panic: without a place, everybody would be before it.
            state.waiting.push_front(self.claim);
        }
        if !inner.can_grant(&state, &self.claim) {
            // Without the lock afterwards: the thread may then wait for a core.
            exclude_from_busy_time(|| drop(self.wait_for_turn(state, patience)));
            state = lock(&inner.state);
        }
        if state.is_closed {
            return Err(BudgetClosed);
        }
        if !inner.can_grant(&state, &self.claim) {
            return Ok(None);
        }
        let Claim { owner, bytes, is_oversize, .. } = self.claim;
        // Another budget may have taken it since.
        if is_oversize && !inner.oversize.take(inner.number) {
            return Ok(None);
        }
        state.waiting.retain(|waiting| *waiting != self.claim);
        state.used += bytes;
        if bytes > 0 {
            *state.used_by.entry(owner).or_default() += bytes;
        }
        drop(state);
        // The next request may fit too.
        inner.changed.notify_all();
        let (budget, bytes, is_oversize) =
            (self.budget.clone(), AtomicUsize::new(bytes), AtomicBool::new(is_oversize));
        Ok(Some(BudgetPermit { budget, owner, bytes, is_oversize }))
    }

    fn wait_for_turn<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        let inner = &self.budget.0;
        let must_wait = |state: &mut State| !inner.can_grant(state, &self.claim);
        let waited = inner.changed.wait_timeout_while(state, patience, must_wait);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for BudgetRequest {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.0.state);
        let before = state.waiting.len();
        state.waiting.retain(|waiting| *waiting != self.claim);
        let has_left = state.waiting.len() < before;
        drop(state);
        if has_left {
            self.budget.0.changed.notify_all();
        }
    }
}

impl BudgetPermit {
    /// Releases all but `bytes`; does nothing if the permit has no more than that.
    pub fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::AcqRel);
        let ends_oversize = bytes <= self.budget.0.share() && self.is_oversize.swap(false, Ordering::AcqRel);
        self.budget.release(self.owner, before.saturating_sub(bytes), ends_oversize);
    }

    /// Returns the bytes of the permit.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{LazyLock, mpsc};
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    static OWNER: LazyLock<OrganizationId> = LazyLock::new(OrganizationId::generate);

    fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("test".into())
            .spawn(move || {
                // The receiver is gone if the test has ended already.
                let _ended = sender.send(work());
            })
            .unwrap();
        receiver
    }

    fn acquire_on_thread(
        budget: &Budget,
        bytes: usize,
    ) -> mpsc::Receiver<Result<BudgetPermit, BudgetClosed>> {
        acquire_for(*OWNER, budget, bytes)
    }

    fn acquire_for(
        owner: OrganizationId,
        budget: &Budget,
        bytes: usize,
    ) -> mpsc::Receiver<Result<BudgetPermit, BudgetClosed>> {
        let budget = budget.clone();
        run_on_thread(move || budget.acquire(owner, bytes))
    }

    fn wait_until_queued(budget: &Budget, count: usize) {
        while lock(&budget.0.state).waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn an_owner_has_half_and_another_need_not_wait_for_it() {
        let budget = Budget::new(100);
        let first = budget.acquire(*OWNER, 50).unwrap();
        let more = acquire_on_thread(&budget, 1);
        wait_until_queued(&budget, 1);
        let other =
            acquire_for(OrganizationId::generate(), &budget, 50).recv_timeout(TIMEOUT).unwrap().unwrap();
        assert!(more.try_recv().is_err(), "an owner has more than half");
        drop(other);
        thread::sleep(Duration::from_millis(5));
        assert!(more.try_recv().is_err(), "an owner has more than half of an otherwise free budget");
        drop(first);
        assert_eq!(more.recv_timeout(TIMEOUT).unwrap().unwrap().bytes(), 1);
    }

    #[test]
    fn there_is_one_oversize_photo_at_a_time_and_others_pass_it() {
        let budget = Budget::new(100);
        let huge = budget.acquire(*OWNER, 1_000_000).unwrap();
        assert_eq!(budget.used(), 50);
        let other = OrganizationId::generate();
        let second = acquire_for(other, &budget, 51);
        wait_until_queued(&budget, 1);
        let third =
            acquire_for(OrganizationId::generate(), &budget, 50).recv_timeout(TIMEOUT).unwrap().unwrap();
        drop(third);
        huge.shrink_to(60);
        thread::sleep(Duration::from_millis(5));
        assert!(second.try_recv().is_err(), "two oversize photos at once");
        huge.shrink_to(50);
        let second = second.recv_timeout(TIMEOUT).unwrap().unwrap();
        huge.shrink_to(10);
        assert_eq!((second.bytes(), budget.used()), (50, 60));
        drop((huge, second));
        assert!(budget.0.oversize.is_free() && budget.used() == 0);
    }

    #[test]
    fn budgets_with_one_place_have_one_oversize_photo_together() {
        let place = OversizePlace::default();
        let [first, second] = [(); 2].map(|()| Budget::with_place(100, place.clone()));
        let huge = first.acquire(*OWNER, 1_000).unwrap();
        let waiting = second.request(*OWNER, 1_000);
        assert!(waiting.take_within(Duration::from_millis(1)).unwrap().is_none());
        assert!(second.acquire(OrganizationId::generate(), 50).is_ok(), "others wait for it");
        drop(huge);
        let taken = waiting.take_within(Duration::ZERO).unwrap().unwrap();
        let abandoned = first.request(*OWNER, 1_000);
        assert!(abandoned.take_within(Duration::ZERO).unwrap().is_none());
        // The permit stays in a thread that hangs.
        second.close();
        let other = abandoned.take_within(Duration::ZERO).unwrap().unwrap();
        drop(taken);
        assert!(!place.is_free(), "a closed budget freed the place of another");
        drop(other);
        assert!(place.is_free());
    }

    #[test]
    fn small_requests_do_not_overtake_a_large_one() {
        let budget = Budget::new(100);
        let (other, third) = (OrganizationId::generate(), OrganizationId::generate());
        let first = budget.acquire(*OWNER, 40).unwrap();
        let second = budget.acquire(other, 40).unwrap();
        let large = acquire_for(third, &budget, 50);
        wait_until_queued(&budget, 1);
        let small = acquire_on_thread(&budget, 10);
        wait_until_queued(&budget, 2);
        thread::sleep(Duration::from_millis(5));
        assert!(small.try_recv().is_err(), "the small request came first because 20 bytes are free");
        drop(first);
        assert!(large.recv_timeout(TIMEOUT).unwrap().is_ok());
        assert!(small.recv_timeout(TIMEOUT).unwrap().is_ok());
        drop(second);
    }

    #[test]
    fn a_request_lets_others_pass_only_while_its_owner_has_permits() {
        let budget = Budget::new(100);
        let other = OrganizationId::generate();
        let first = budget.acquire(*OWNER, 50).unwrap();
        let large = acquire_on_thread(&budget, 50);
        wait_until_queued(&budget, 1);
        let passing = acquire_for(other, &budget, 50).recv_timeout(TIMEOUT).unwrap().unwrap();
        let of_same_owner = acquire_on_thread(&budget, 1);
        wait_until_queued(&budget, 2);
        assert!(of_same_owner.try_recv().is_err(), "an owner's requests keep their order");
        drop(first);
        drop(large.recv_timeout(TIMEOUT).unwrap());
        assert!(of_same_owner.recv_timeout(TIMEOUT).unwrap().is_ok());
        drop(passing);
        assert!(lock(&budget.0.state).used_by.is_empty());
    }

    #[test]
    fn a_request_keeps_its_place_until_it_is_dropped() {
        let budget = Budget::new(100);
        let first = budget.acquire(*OWNER, 50).unwrap();
        let waiting = budget.request(*OWNER, 10);
        assert!(waiting.take_within(Duration::from_millis(1)).unwrap().is_none());
        let later = budget.request(*OWNER, 10);
        drop(first);
        assert!(later.take_within(Duration::ZERO).unwrap().is_none(), "it is not its turn");
        drop(waiting);
        assert!(later.take_within(Duration::ZERO).unwrap().is_some());
    }

    /// As after a panic of the step that had the permit.
    #[test]
    fn a_request_that_was_granted_before_is_not_behind_everybody() {
        let budget = Budget::new(100);
        let first = budget.request(*OWNER, 50);
        drop(first.take_within(Duration::ZERO).unwrap().expect("a permit"));
        let (_large, later) = (budget.request(*OWNER, 60), budget.request(*OWNER, 50));
        assert!(later.take_within(Duration::ZERO).unwrap().is_none(), "others were before it");
        assert!(first.take_within(Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn closing_wakes_all_waiters() {
        let budget = Budget::new(10);
        let _all = budget.acquire(*OWNER, 10).unwrap();
        let waiters: Vec<_> = (0..4).map(|_| acquire_on_thread(&budget, 1)).collect();
        wait_until_queued(&budget, 4);
        budget.close();
        for waiter in waiters {
            assert_eq!(waiter.recv_timeout(TIMEOUT).unwrap().map(drop), Err(BudgetClosed));
        }
        assert!(budget.acquire(*OWNER, 0).is_err());
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Acquire { bytes: usize },
        Shrink { permit: usize, bytes: usize },
        Drop { permit: usize },
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0_usize..60).prop_map(|bytes| Operation::Acquire { bytes }),
            (0_usize..8, 0_usize..60).prop_map(|(permit, bytes)| Operation::Shrink { permit, bytes }),
            (0_usize..8).prop_map(|permit| Operation::Drop { permit }),
        ]
    }

    proptest! {
        #[test]
        fn the_used_bytes_are_the_sum_of_all_permits(operations in prop::collection::vec(operation(), 1..60)) {
            let budget = Budget::new(100);
            let mut permits: Vec<BudgetPermit> = Vec::new();
            for operation in operations {
                match operation {
                    // Only requests that fit: a single thread must not wait for its own permits.
                    Operation::Acquire { bytes } if budget.used() + bytes <= 50 => {
                        permits.push(budget.acquire(*OWNER, bytes).unwrap());
                    }
                    Operation::Shrink { permit, bytes } if permit < permits.len() => permits[permit].shrink_to(bytes),
                    Operation::Drop { permit } if permit < permits.len() => drop(permits.swap_remove(permit)),
                    _ => {}
                }
                prop_assert_eq!(budget.used(), permits.iter().map(BudgetPermit::bytes).sum::<usize>());
                prop_assert!(budget.used() <= 50);
            }
            drop(permits);
            prop_assert_eq!(budget.used(), 0);
        }

        #[test]
        fn threads_never_acquire_more_than_the_limit_and_all_finish(
            requests in prop::collection::vec(0_usize..150, 1..40),
        ) {
            let budget = Budget::new(100);
            let threads: Vec<_> = requests
                .chunks(10)
                .map(|requests| {
                    let (budget, requests) = (budget.clone(), requests.to_vec());
                    let owner = OrganizationId::generate();
                    run_on_thread(move || {
                        requests.iter().all(|bytes| {
                            let permit = budget.acquire(owner, *bytes).unwrap();
                            let is_within_limit = budget.used() <= 100;
                            permit.shrink_to(bytes / 2);
                            is_within_limit
                        })
                    })
                })
                .collect();
            for thread in threads {
                prop_assert!(thread.recv_timeout(TIMEOUT).unwrap());
            }
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
