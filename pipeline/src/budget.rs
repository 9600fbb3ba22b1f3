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

use crate::meters;
use crate::sync::lock;

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
    closed: bool,
    next_number: u64,
    /// Who waits, in the order they came. Without an order small photos would slip past a giant one for ever.
    waiting: VecDeque<u64>,
}

/// The house is closing: nothing more may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget is closed")]
pub struct Closed;

/// Bytes held; given back on drop.
#[derive(Debug)]
pub struct Held {
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
    pub fn hold(&self, bytes: usize) -> Result<Held, Closed> {
        let bytes = bytes.min(self.0.limit);
        let mut state = lock(&self.0.state);
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.push_back(number);
        if !self.is_turn_of(&state, number, bytes) {
            state = meters::waiting(|| self.wait_for_turn(state, number, bytes));
        }
        state.waiting.retain(|waiting| *waiting != number);
        // The next in line may fit too.
        self.0.changed.notify_all();
        if state.closed {
            return Err(Closed);
        }
        state.used += bytes;
        Ok(Held { budget: self.clone(), bytes: AtomicUsize::new(bytes) })
    }

    /// Wakes everyone who waits; from now on nobody gets anything.
    pub fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_all();
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        lock(&self.0.state).used
    }

    fn is_turn_of(&self, state: &State, number: u64, bytes: usize) -> bool {
        state.closed || (state.waiting.front() == Some(&number) && state.used + bytes <= self.0.limit)
    }

    fn wait_for_turn<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        number: u64,
        bytes: usize,
    ) -> MutexGuard<'a, State> {
        self.0
            .changed
            .wait_while(state, |state| !self.is_turn_of(state, number, bytes))
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            lock(&self.0.state).used -= bytes;
            self.0.changed.notify_all();
        }
    }
}

impl Held {
    /// Gives back all but `bytes`; does nothing when it holds no more than that.
    pub fn shrink_to(&self, bytes: usize) {
        let before = self.bytes.fetch_min(bytes, Ordering::AcqRel);
        self.budget.give_back(before.saturating_sub(bytes));
    }

    /// Bytes held.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Drop for Held {
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

    fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
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

    fn until_waiting(budget: &Budget, count: usize) {
        while lock(&budget.0.state).waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_giant_gets_the_empty_house() {
        let budget = Budget::new(100);
        let giant = budget.hold(1_000_000).unwrap();
        assert_eq!(budget.used(), 100);
        giant.shrink_to(10);
        assert_eq!(budget.hold(90).unwrap().bytes(), 90);
    }

    #[test]
    fn small_ones_do_not_slip_past_a_waiting_giant() {
        let budget = Budget::new(100);
        let first = budget.hold(50).unwrap();
        let giant = on_a_thread({
            let budget = budget.clone();
            move || budget.hold(100).unwrap()
        });
        until_waiting(&budget, 1);
        let small = on_a_thread({
            let budget = budget.clone();
            move || budget.hold(10).unwrap()
        });
        until_waiting(&budget, 2);
        assert!(small.try_recv().is_err(), "the small one came first though 50 bytes are free");
        drop(first);
        let giant = giant.recv_timeout(LONG).unwrap();
        assert!(small.try_recv().is_err());
        drop(giant);
        assert_eq!(small.recv_timeout(LONG).unwrap().bytes(), 10);
    }

    #[test]
    fn closing_wakes_everyone_who_waits() {
        let budget = Budget::new(10);
        let _all = budget.hold(10).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let budget = budget.clone();
                on_a_thread(move || budget.hold(1).map(drop))
            })
            .collect();
        until_waiting(&budget, 4);
        budget.close();
        for end in waiting {
            assert_eq!(end.recv_timeout(LONG).unwrap(), Err(Closed));
        }
        assert!(budget.hold(0).is_err());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Hold(usize),
        Shrink(usize, usize),
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_usize..60).prop_map(Step::Hold),
            (0_usize..8, 0_usize..60).prop_map(|(which, to)| Step::Shrink(which, to)),
            (0_usize..8).prop_map(Step::Drop),
        ]
    }

    proptest! {
        #[test]
        fn what_is_used_is_the_sum_of_what_is_held(steps in prop::collection::vec(step(), 1..60)) {
            let budget = Budget::new(100);
            let mut held: Vec<Held> = Vec::new();
            for step in steps {
                match step {
                    // Only asks that fit: one thread must not wait for itself.
                    Step::Hold(bytes) if budget.used() + bytes <= 100 => held.push(budget.hold(bytes).unwrap()),
                    Step::Shrink(which, to) if which < held.len() => held[which].shrink_to(to),
                    Step::Drop(which) if which < held.len() => drop(held.swap_remove(which)),
                    _ => {}
                }
                prop_assert_eq!(budget.used(), held.iter().map(Held::bytes).sum::<usize>());
                prop_assert!(budget.used() <= 100);
            }
            drop(held);
            prop_assert_eq!(budget.used(), 0);
        }

        #[test]
        fn threads_never_hold_more_than_the_limit_and_all_get_through(asks in prop::collection::vec(0_usize..150, 1..40)) {
            let budget = Budget::new(100);
            let ends: Vec<_> = asks
                .chunks(10)
                .map(|asks| {
                    let (budget, asks) = (budget.clone(), asks.to_vec());
                    on_a_thread(move || {
                        asks.iter().all(|bytes| {
                            let held = budget.hold(*bytes).unwrap();
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
