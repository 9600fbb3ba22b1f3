//! Bytes in flight, bounded across all stages. Channels bound how many photos are in the house, budgets how large
//! they may be together. Knows nothing of photos.
//!
//! A stage asks once for what it will need ([`Budget::hold`]) and puts the [`Held`] into what travels on; it gives
//! bytes back by [`Held::shrink_to`] or by dropping. Nothing held ever grows, so holders cannot wait for each other.
//!
//! What is held is never above the limit; what a single photo takes may be. How far, is for the stage to bound before
//! it asks: a budget only keeps others away meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::engine::stage_stats;
use crate::engine::sync::lock;

/// A number of bytes that all photos together may hold. Cheap to clone.
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
    is_closed: bool,
    next_turn: u64,
    /// Who waits, in the order they came. Without an order small photos would slip past a giant one for ever.
    waiting: VecDeque<u64>,
}

/// The house is closing: nothing more may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget is closed")]
pub struct BudgetClosed;

/// Bytes held; given back on drop.
#[derive(Debug)]
pub struct BudgetPermit {
    budget: Budget,
    bytes: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Waits until `bytes` fit and it is the caller's turn. An ask above the limit is clamped to it: one giant photo
    /// waits for an empty house, not for ever. It then takes more than it holds, so nobody asks for a photo of which it
    /// is not known that the machine has room for it alone (`decode::bounded` refuses others).
    ///
    /// # Errors
    /// When the budget is closed, also while waiting.
    pub fn acquire(&self, bytes: usize) -> Result<BudgetPermit, BudgetClosed> {
        let bytes = bytes.min(self.0.limit);
        let mut state = lock(&self.0.state);
        let number = state.next_turn;
        state.next_turn += 1;
        state.waiting.push_back(number);
        if !self.can_acquire(&state, number, bytes) {
            state = stage_stats::exclude_from_busy_time(|| self.wait_for_turn(state, number, bytes));
        }
        state.waiting.retain(|waiting| *waiting != number);
        // The next in line may fit too.
        self.0.changed.notify_all();
        if state.is_closed {
            return Err(BudgetClosed);
        }
        state.used += bytes;
        Ok(BudgetPermit { budget: self.clone(), bytes: AtomicUsize::new(bytes) })
    }

    /// Wakes everyone who waits; from now on nobody gets anything.
    pub fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        lock(&self.0.state).used
    }

    fn can_acquire(&self, state: &State, number: u64, bytes: usize) -> bool {
        state.is_closed || (state.waiting.front() == Some(&number) && state.used + bytes <= self.0.limit)
    }

    fn wait_for_turn<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        number: u64,
        bytes: usize,
    ) -> MutexGuard<'a, State> {
        self.0
            .changed
            .wait_while(state, |state| !self.can_acquire(state, number, bytes))
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            lock(&self.0.state).used -= bytes;
            self.0.changed.notify_all();
        }
    }
}

impl BudgetPermit {
    /// Gives back all but `bytes`; does nothing when it holds no more than that.
    pub fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::AcqRel);
        self.budget.release(before.saturating_sub(bytes));
    }

    /// Bytes held.
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
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("test".into())
            .spawn(move || {
                // The test may have ended already.
                let _ended = sender.send(work());
            })
            .unwrap();
        receiver
    }

    fn wait_until_queued(budget: &Budget, count: usize) {
        while lock(&budget.0.state).waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_request_above_the_limit_gets_the_whole_budget() {
        let budget = Budget::new(100);
        let giant = budget.acquire(1_000_000).unwrap();
        assert_eq!(budget.used(), 100);
        giant.shrink_to(10);
        assert_eq!(budget.acquire(90).unwrap().bytes(), 90);
    }

    #[test]
    fn small_requests_do_not_overtake_a_large_one() {
        let budget = Budget::new(100);
        let first = budget.acquire(50).unwrap();
        let giant = run_on_thread({
            let budget = budget.clone();
            move || budget.acquire(100).unwrap()
        });
        wait_until_queued(&budget, 1);
        let small = run_on_thread({
            let budget = budget.clone();
            move || budget.acquire(10).unwrap()
        });
        wait_until_queued(&budget, 2);
        assert!(small.try_recv().is_err(), "the small one came first though 50 bytes are free");
        drop(first);
        let giant = giant.recv_timeout(LONG).unwrap();
        assert!(small.try_recv().is_err());
        drop(giant);
        assert_eq!(small.recv_timeout(LONG).unwrap().bytes(), 10);
    }

    #[test]
    fn closing_wakes_all_waiters() {
        let budget = Budget::new(10);
        let _all = budget.acquire(10).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let budget = budget.clone();
                run_on_thread(move || budget.acquire(1).map(drop))
            })
            .collect();
        wait_until_queued(&budget, 4);
        budget.close();
        for end in waiting {
            assert_eq!(end.recv_timeout(LONG).unwrap(), Err(BudgetClosed));
        }
        assert!(budget.acquire(0).is_err());
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Acquire(usize),
        Shrink(usize, usize),
        Drop(usize),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (0_usize..60).prop_map(Operation::Acquire),
            (0_usize..8, 0_usize..60).prop_map(|(which, to)| Operation::Shrink(which, to)),
            (0_usize..8).prop_map(Operation::Drop),
        ]
    }

    proptest! {
        #[test]
        fn the_used_bytes_are_the_sum_of_all_permits(steps in prop::collection::vec(operation(), 1..60)) {
            let budget = Budget::new(100);
            let mut held: Vec<BudgetPermit> = Vec::new();
            for step in steps {
                match step {
                    // Only asks that fit: one thread must not wait for itself.
                    Operation::Acquire(bytes) if budget.used() + bytes <= 100 => held.push(budget.acquire(bytes).unwrap()),
                    Operation::Shrink(which, to) if which < held.len() => held[which].shrink_to(to),
                    Operation::Drop(which) if which < held.len() => drop(held.swap_remove(which)),
                    _ => {}
                }
                prop_assert_eq!(budget.used(), held.iter().map(BudgetPermit::bytes).sum::<usize>());
                prop_assert!(budget.used() <= 100);
            }
            drop(held);
            prop_assert_eq!(budget.used(), 0);
        }

        #[test]
        fn threads_never_acquire_more_than_the_limit_and_all_finish(asks in prop::collection::vec(0_usize..150, 1..40)) {
            let budget = Budget::new(100);
            let ends: Vec<_> = asks
                .chunks(10)
                .map(|asks| {
                    let (budget, asks) = (budget.clone(), asks.to_vec());
                    run_on_thread(move || {
                        asks.iter().all(|bytes| {
                            let held = budget.acquire(*bytes).unwrap();
                            let within = budget.used() <= 100;
                            held.shrink_to(bytes / 2);
                            within
                        })
                    })
                })
                .collect();
            for end in ends {
                prop_assert!(end.recv_timeout(LONG).unwrap());
            }
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
