//! Limits the memory of photos in flight across all stages. Channels limit how many photos there are, budgets how large
//! they are together. Budgets know nothing of photos.
//!
//! A stage acquires once all the bytes that it will need ([`Budget::acquire`]) and puts the [`BudgetPermit`] into its
//! output. Bytes are released by [`BudgetPermit::shrink_to`] and by dropping the permit. A permit never grows, so
//! permit holders cannot deadlock.
//!
//! Requests are served in the order of their arrival, with one exception: a request whose owner has permits already lets
//! those of others pass. It waits, at least in part, for its owner, and others need not wait for that. As soon as its owner
//! has none, it is next.
//!
//! Permits together never exceed the limit, but one photo may need more memory than its permit says. Stages bound that
//! before they acquire: the budget then only keeps other photos away.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use photofinish_store::model::ids::OrganizationId;

use crate::engine::metrics as names;
use crate::engine::stage_stats::exclude_from_busy_time;
use crate::engine::sync::lock;

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

    /// Sets the gauges to the bytes in use.
    pub(crate) fn publish_used(&self) {
        publish_used_bytes("files", self.files.used());
        publish_used_bytes("pixels", self.pixels.used());
    }
}

/// Sets the gauges to 0, for when there is no generation.
pub(crate) fn publish_no_budgets() {
    publish_used_bytes("files", 0);
    publish_used_bytes("pixels", 0);
}

fn publish_used_bytes(budget: &'static str, bytes: usize) {
    metrics::gauge!(names::BUDGET_USED_BYTES, "budget" => budget).set(bytes as f64);
}

/// A number of bytes that all photos share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
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
    waiting: VecDeque<Request>,
}

/// A request for bytes that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    turn: u64,
    owner: OrganizationId,
    bytes: usize,
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
}

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Acquires `bytes` for `owner`, waiting until they are free and it is the request's turn.
    ///
    /// A request above the limit is reduced to the limit: one huge photo waits until it has the whole budget, not
    /// forever. It then uses more memory than the budget counts. Callers must therefore check first that the machine
    /// has enough memory for such a photo alone; `image::decoder` refuses larger ones.
    ///
    /// # Errors
    /// When the budget is closed, before or during the wait.
    pub fn acquire(&self, owner: OrganizationId, bytes: usize) -> Result<BudgetPermit, BudgetClosed> {
        let bytes = bytes.min(self.0.limit);
        let mut state = lock(&self.0.state);
        let request = Request { turn: state.next_turn, owner, bytes };
        state.next_turn += 1;
        state.waiting.push_back(request);
        if !self.can_acquire(&state, &request) {
            state = exclude_from_busy_time(|| self.wait_for_turn(state, &request));
        }
        state.waiting.retain(|waiting| *waiting != request);
        // The next request may fit too.
        self.0.changed.notify_all();
        if state.is_closed {
            return Err(BudgetClosed);
        }
        state.used += bytes;
        if bytes > 0 {
            *state.used_by.entry(owner).or_default() += bytes;
        }
        Ok(BudgetPermit { budget: self.clone(), owner, bytes: AtomicUsize::new(bytes) })
    }

    /// Fails all waiting and all later requests.
    pub fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        lock(&self.0.state).used
    }

    fn can_acquire(&self, state: &State, request: &Request) -> bool {
        let lets_pass =
            |earlier: &Request| earlier.owner != request.owner && state.used_by.contains_key(&earlier.owner);
        let is_next = || state.waiting.iter().take_while(|waiting| *waiting != request).all(lets_pass);
        state.is_closed || (state.used + request.bytes <= self.0.limit && is_next())
    }

    fn wait_for_turn<'a>(&'a self, state: MutexGuard<'a, State>, request: &Request) -> MutexGuard<'a, State> {
        self.0
            .changed
            .wait_while(state, |state| !self.can_acquire(state, request))
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, owner: OrganizationId, bytes: usize) {
        if bytes == 0 {
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
        drop(state);
        self.0.changed.notify_all();
    }
}

impl BudgetPermit {
    /// Releases all but `bytes`; does nothing if the permit has no more than that.
    pub fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::AcqRel);
        self.budget.release(self.owner, before.saturating_sub(bytes));
    }

    /// Returns the bytes of the permit.
    #[cfg(test)]
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
    fn a_request_above_the_limit_gets_the_whole_budget() {
        let budget = Budget::new(100);
        let large = budget.acquire(*OWNER, 1_000_000).unwrap();
        assert_eq!(budget.used(), 100);
        large.shrink_to(10);
        assert_eq!(budget.acquire(*OWNER, 90).unwrap().bytes(), 90);
    }

    #[test]
    fn small_requests_do_not_overtake_a_large_one() {
        let budget = Budget::new(100);
        let first = budget.acquire(*OWNER, 50).unwrap();
        let large = acquire_on_thread(&budget, 100);
        wait_until_queued(&budget, 1);
        let small = acquire_on_thread(&budget, 10);
        wait_until_queued(&budget, 2);
        assert!(small.try_recv().is_err(), "the small request came first because 50 bytes are free");
        drop(first);
        let large = large.recv_timeout(TIMEOUT).unwrap();
        assert!(small.try_recv().is_err());
        drop(large);
        assert_eq!(small.recv_timeout(TIMEOUT).unwrap().unwrap().bytes(), 10);
    }

    #[test]
    fn a_large_request_lets_others_pass_only_while_its_owner_has_permits() {
        let budget = Budget::new(100);
        let other = OrganizationId::generate();
        let first = budget.acquire(*OWNER, 50).unwrap();
        let large = acquire_on_thread(&budget, 100);
        wait_until_queued(&budget, 1);
        let passing = acquire_for(other, &budget, 20).recv_timeout(TIMEOUT).unwrap().unwrap();
        let of_same_owner = acquire_on_thread(&budget, 1);
        wait_until_queued(&budget, 2);
        assert!(of_same_owner.try_recv().is_err(), "an owner's requests keep their order");
        drop(first);
        let late = acquire_for(other, &budget, 20);
        wait_until_queued(&budget, 3);
        assert!(late.try_recv().is_err(), "the large request is next, because its owner has nothing");
        drop(passing);
        drop(large.recv_timeout(TIMEOUT).unwrap());
        assert!(of_same_owner.recv_timeout(TIMEOUT).unwrap().is_ok());
        assert!(late.recv_timeout(TIMEOUT).unwrap().is_ok());
        assert!(lock(&budget.0.state).used_by.is_empty());
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
                    Operation::Acquire { bytes } if budget.used() + bytes <= 100 => {
                        permits.push(budget.acquire(*OWNER, bytes).unwrap());
                    }
                    Operation::Shrink { permit, bytes } if permit < permits.len() => permits[permit].shrink_to(bytes),
                    Operation::Drop { permit } if permit < permits.len() => drop(permits.swap_remove(permit)),
                    _ => {}
                }
                prop_assert_eq!(budget.used(), permits.iter().map(BudgetPermit::bytes).sum::<usize>());
                prop_assert!(budget.used() <= 100);
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
                    run_on_thread(move || {
                        requests.iter().all(|bytes| {
                            let permit = budget.acquire(*OWNER, *bytes).unwrap();
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
