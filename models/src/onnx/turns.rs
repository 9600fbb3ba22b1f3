//! One call at a time, in the order of arrival.
//!
//! The sessions of ONNX Runtime's WebGPU provider share one device with one command encoder and one cache of buffers, and
//! nothing guards these: two sessions that run at once on two threads end the process (ONNX Runtime issues 27592 and
//! 32561, open as of 1.28). A GPU computes one network at a time anyway, so that little is lost by taking turns.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Lets one caller in at a time, or all of them where none have to wait. Cheap to clone: clones share the turns.
#[derive(Clone, Default)]
pub(crate) struct Turns(Option<Arc<Queue>>);

#[derive(Default)]
struct Queue {
    numbers: Mutex<Numbers>,
    has_moved: Condvar,
}

/// A plain mutex lets the thread that leaves enter again before one that has slept: the pipeline would keep a search
/// waiting. So each arrival draws a number.
#[derive(Default)]
struct Numbers {
    next: u64,
    served: u64,
}

/// The right to call the device, until it is dropped.
#[must_use]
pub(crate) struct Turn<'t>(Option<&'t Queue>);

impl Turns {
    /// Turns that nobody waits for.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// One caller at a time.
    pub fn one_at_a_time() -> Self {
        Self(Some(Arc::default()))
    }

    /// Waits for those that came before.
    pub fn wait(&self) -> Turn<'_> {
        let queue = self.0.as_deref();
        if let Some(queue) = queue {
            let mut numbers = queue.lock();
            let own = numbers.next;
            numbers.next += 1;
            while numbers.served != own {
                numbers = queue.has_moved.wait(numbers).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Turn(queue)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.lock().served += 1;
            queue.has_moved.notify_all();
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "one at a time" } else { "all at once" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_is_inside_at_a_time_in_the_order_of_arrival() {
        let turns = Turns::one_at_a_time();
        let inside = AtomicUsize::new(0);
        let order = Mutex::new(Vec::new());
        let first = turns.wait();
        thread::scope(|scope| {
            for number in 0..4 {
                let (own, inside, order) = (turns.clone(), &inside, &order);
                scope.spawn(move || {
                    let _turn = own.wait();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    order.lock().unwrap().push(number);
                    thread::sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
                let drawn = || turns.0.as_ref().unwrap().lock().next;
                while drawn() < number + 2 {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_caller_that_panics_leaves_its_turn_to_the_next() {
        let turns = Turns::one_at_a_time();
        let failed = thread::scope(|scope| {
            let panics = || {
                let _turn = turns.wait();
                panic!("a network fails");
            };
            scope.spawn(panics).join().is_err()
        });
        assert!(failed);
        // Waits forever where the turn was not passed on.
        let _next = turns.wait();
    }

    #[test]
    fn nobody_waits_where_turns_are_unlimited() {
        let turns = Turns::unlimited();
        let _all = (turns.wait(), turns.wait());
    }
}
