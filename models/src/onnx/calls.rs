//! Calls of a device that have not returned. One that never does cannot be ended: its thread is lost, and the device with it
//! as long as this process runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
}

impl DeviceCalls {
    /// Notes the beginning of a call.
    pub fn begin(&self) -> DeviceCall {
        let mut running = self.lock();
        let number = running.next;
        running.next += 1;
        running.begun.insert(number, Instant::now());
        DeviceCall { calls: self.clone(), number }
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
        let second = calls.begin();
        assert!(calls.longest().unwrap() >= Duration::from_millis(20));
        drop(first);
        assert!(calls.longest().unwrap() < Duration::from_millis(20));
        drop(second);
        assert_eq!(calls.longest(), None);
    }
}
