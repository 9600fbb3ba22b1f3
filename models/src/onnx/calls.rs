//! Calls of a device that have not returned. One that never does cannot be ended: its thread is lost, and the device with it
//! as long as this process runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// Calls that this thread waits for: one, or one within another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How long calls of this thread took since it was last asked.
    static CALLED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns how long the calling thread waited for calls of a device since this was last called.
pub fn take_device_time() -> Duration {
    CALLED.take()
}

/// The running calls of a device, of all threads. Cheap to clone: clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceCalls(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    next: u64,
    /// When each began.
    begun: BTreeMap<u64, Instant>,
}

/// A call, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct DeviceCall {
    calls: DeviceCalls,
    number: u64,
    began_at: Instant,
    /// A call belongs to the thread that waits for it.
    of_one_thread: PhantomData<*const ()>,
}

impl DeviceCalls {
    /// Notes the beginning of a call.
    pub fn begin(&self) -> DeviceCall {
        let mut running = self.lock();
        let (number, began_at) = (running.next, Instant::now());
        running.next += 1;
        running.begun.insert(number, began_at);
        DEPTH.set(DEPTH.get() + 1);
        DeviceCall { calls: self.clone(), number, began_at, of_one_thread: PhantomData }
    }

    /// For how long the oldest call has been running; `None` when there is none.
    pub fn longest(&self) -> Option<Duration> {
        self.lock().begun.first_key_value().map(|(_, begun)| begun.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DeviceCall {
    fn drop(&mut self) {
        self.calls.lock().begun.remove(&self.number);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            CALLED.set(CALLED.get() + self.began_at.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_call_counts_until_it_returns() {
        let calls = DeviceCalls::default();
        assert_eq!(calls.longest(), None);
        let first = calls.begin();
        std::thread::sleep(Duration::from_millis(20));
        let before_second = Instant::now();
        let second = calls.begin();
        assert!(calls.longest().unwrap() >= Duration::from_millis(20));
        drop(first);
        assert!(calls.longest().unwrap() <= before_second.elapsed());
        drop(second);
        assert_eq!(calls.longest(), None);
    }

    #[test]
    fn a_thread_is_told_of_its_own_calls_and_of_nested_ones_once() {
        take_device_time();
        let calls = DeviceCalls::default();
        let before = Instant::now();
        let outer = calls.begin();
        let inner = calls.begin();
        std::thread::sleep(Duration::from_millis(20));
        drop(inner);
        drop(outer);
        let elapsed = before.elapsed();
        let (elsewhere, limit) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let before = Instant::now();
                drop(calls.begin());
                (take_device_time(), before.elapsed())
            });
            other.join().unwrap()
        });
        assert!(elsewhere <= limit, "{elsewhere:?} of {limit:?}");
        let taken = take_device_time();
        assert!(taken >= Duration::from_millis(20) && taken <= elapsed, "{taken:?} of {elapsed:?}");
        assert_eq!(take_device_time(), Duration::ZERO);
    }
}
