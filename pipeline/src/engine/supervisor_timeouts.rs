//! How long the parts of a generation's end and of a stop may take.

use std::time::Duration;

use crate::engine::generation::EXIT_TIMEOUT;

/// The timeouts of the supervisor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupervisorTimeouts {
    /// A generation that has been idle for so long has recovered from an outage.
    pub(crate) recovered_after: Duration,
    /// How long threads may take to exit after an outage.
    pub(crate) thread_exit: Duration,
    /// How long threads may take to exit at a stop, after the drain grace. Their photos are given back in any case.
    pub(crate) thread_exit_at_stop: Duration,
    /// How long the queue may take to take photos back at a stop, and in addition what the threads left of their time.
    pub(crate) release_at_stop: Duration,
}

impl SupervisorTimeouts {
    /// The timeouts of the service; tests use shorter ones.
    pub(crate) const SERVICE: Self = Self {
        recovered_after: Duration::from_secs(5),
        thread_exit: EXIT_TIMEOUT,
        thread_exit_at_stop: Duration::from_secs(4),
        release_at_stop: Duration::from_secs(6),
    };

    /// Returns how long the queue may take to take photos back at a stop whose threads took so long to end; `None` if it began
    /// while no generation was running, and may have waited for long already.
    pub(crate) fn for_release(&self, drain_grace: Duration, took: Option<Duration>) -> Duration {
        let left = took.map(|took| (drain_grace + self.thread_exit_at_stop).saturating_sub(took));
        self.release_at_stop + left.unwrap_or_default()
    }
}
