//! What one connection is doing, kept by the connection itself and read when another one needs its seat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A client that has read nothing for this long has stalled; networks pause for less.
const STALL: Duration = Duration::from_secs(5);

/// In place of a time: the phases in which a connection waits for nothing that its client owes.
const ANSWERING: u64 = 0;
const FLUSHING: u64 = 1;
const FIRST_TIME: u64 = 2;

/// The activity of one connection. Written a few times per request, so it has no lock.
#[derive(Debug)]
pub(crate) struct Activity {
    epoch: Instant,
    /// Since when the head of the next request is awaited, or a phase.
    phase: AtomicU64,
    /// Since when the client reads nothing of the response; 0 if it does.
    stalled_since: AtomicU64,
    /// How many requests there were so far.
    requests: AtomicU64,
    leave: Notify,
}

impl Activity {
    /// Creates the activity of a new connection, whose first head is awaited. `epoch` is the zero of its times.
    pub(crate) fn new(epoch: Instant) -> Arc<Self> {
        let activity = Self {
            epoch,
            phase: AtomicU64::new(ANSWERING),
            stalled_since: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            leave: Notify::new(),
        };
        activity.phase.store(activity.now(), Ordering::Relaxed);
        Arc::new(activity)
    }

    /// Records that a head is complete; the request is being answered as long as the guard lives.
    pub(crate) fn begin_request(self: &Arc<Self>) -> AnswerGuard {
        self.phase.store(ANSWERING, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        AnswerGuard(Arc::clone(self))
    }

    /// Records that everything was handed to the operating system. Returns whether that was the end of a response, so
    /// that the next head is awaited from now on.
    pub(crate) fn end_flush(&self) -> bool {
        self.stalled_since.store(0, Ordering::Relaxed);
        let has_ended = self.phase.load(Ordering::Relaxed) == FLUSHING;
        if has_ended {
            self.phase.store(self.now(), Ordering::Relaxed);
        }
        has_ended
    }

    /// Whether the head of a request is awaited, and no response is being sent.
    pub(crate) fn awaits_head(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= FIRST_TIME
    }

    /// Returns the number of the request whose response is complete and being sent; `None` in other phases.
    pub(crate) fn flushing_request(&self) -> Option<u64> {
        let is_flushing = self.phase.load(Ordering::Relaxed) == FLUSHING;
        is_flushing.then(|| self.requests.load(Ordering::Relaxed))
    }

    /// Records that the client reads nothing from now on.
    pub(crate) fn begin_stall(&self) {
        self.stalled_since.store(self.now(), Ordering::Relaxed);
    }

    /// Records that the client reads again.
    pub(crate) fn end_stall(&self) {
        self.stalled_since.store(0, Ordering::Relaxed);
    }

    /// Since when the connection has waited for its client; `None` while it has work to do.
    pub(super) fn waiting_since(&self) -> Option<u64> {
        let phase = self.phase.load(Ordering::Relaxed);
        if phase >= FIRST_TIME {
            return Some(phase);
        }
        let stalled_since = self.stalled_since.load(Ordering::Relaxed);
        let has_stalled = stalled_since != 0 && self.now() - stalled_since >= milliseconds(STALL);
        has_stalled.then_some(stalled_since)
    }

    /// Makes the connection close.
    pub(super) fn ask_to_leave(&self) {
        self.leave.notify_one();
    }

    /// Waits until another connection needs the seat.
    pub(crate) async fn wait_until_asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn now(&self) -> u64 {
        FIRST_TIME + milliseconds(self.epoch.elapsed())
    }
}

/// Marks a request as being answered. It is dropped with the body of the response, when all of it is in a buffer.
#[derive(Debug)]
pub(crate) struct AnswerGuard(Arc<Activity>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.phase.store(FLUSHING, Ordering::Relaxed);
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_waits_before_a_head_and_after_a_response_was_sent() {
        let activity = Activity::new(Instant::now());
        assert!(activity.awaits_head() && activity.waiting_since().is_some());
        let answer = activity.begin_request();
        assert!(!activity.end_flush() && activity.waiting_since().is_none());
        drop(answer);
        assert!(!activity.awaits_head() && activity.waiting_since().is_none());
        assert!(activity.end_flush() && activity.awaits_head() && !activity.end_flush());
    }

    #[test]
    fn a_stalled_response_counts_as_waiting_after_a_while() {
        let long_ago = Instant::now().checked_sub(2 * STALL).unwrap();
        let activity = Activity::new(long_ago);
        let _answer = activity.begin_request();
        activity.begin_stall();
        assert_eq!(activity.waiting_since(), None);
        activity.stalled_since.store(FIRST_TIME, Ordering::Relaxed);
        assert_eq!(activity.waiting_since(), Some(FIRST_TIME));
        activity.end_stall();
        assert_eq!(activity.waiting_since(), None);
    }
}
