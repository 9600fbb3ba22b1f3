//! A resource that is in use for known times: cores, an accelerator, a decoding engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Units of one kind, each of which does one thing after the other, in the order of the requests.
#[derive(Debug)]
pub struct Resource {
    /// When each unit is free.
    free_at: Mutex<Vec<Instant>>,
    busy_nanos: AtomicU64,
}

impl Resource {
    /// Creates `units` idle units, at least one.
    pub fn new(units: usize) -> Self {
        Self { free_at: Mutex::new(vec![Instant::now(); units.max(1)]), busy_nanos: AtomicU64::new(0) }
    }

    /// Takes the unit that is free first for `time`, and returns when it is done. The caller sleeps until then: what a
    /// sleep takes too long does not add up, because the next use begins where this one ends.
    pub fn reserve(&self, time: Duration) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut done = now + time;
        if let Some(first) = free_at.iter_mut().min() {
            done = (*first).max(now) + time;
            *first = done;
        }
        self.busy_nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        done
    }

    /// When a use that is requested now could begin.
    pub fn next_free(&self) -> Instant {
        let free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        free_at.iter().min().copied().unwrap_or_else(Instant::now).max(Instant::now())
    }

    /// The times of all uses together.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed))
    }

    /// How many units there are.
    pub fn units(&self) -> usize {
        self.free_at.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Sleeps until `end`.
pub fn sleep_until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_one_unit_follow_each_other_and_those_of_two_overlap() {
        let time = Duration::from_secs(10);
        let one = Resource::new(1);
        let first = one.reserve(time);
        assert_eq!(one.reserve(time) - first, time);
        assert_eq!(one.busy(), 2 * time);
        let two = Resource::new(2);
        let first = two.reserve(time);
        assert!(two.reserve(time) - first < time);
        assert!(two.next_free() >= first);
    }
}
