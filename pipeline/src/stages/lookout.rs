//! Says when the feed looks for photos of further organizations while the first edge is full, and for how many. It does not
//! know what is leased.
//!
//! A look that finds none costs two transactions, of the lease and of its return, so that looks are few.

use std::time::{Duration, Instant};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// The same when photos were confirmed in this process meanwhile.
const PAUSE_WHEN_CONFIRMED: Duration = Duration::from_millis(200);

/// The same after a look that found some: more may wait.
const PAUSE_WHEN_FOUND: Duration = Duration::from_millis(50);

/// The number of photos to lease after a look that found some: those of several organizations in turn.
const LIMIT_WHEN_FOUND: usize = 4;

/// When to look next.
#[derive(Debug)]
pub(crate) struct Lookout {
    leased_at: Instant,
    has_found: bool,
    is_hastened: bool,
}

impl Lookout {
    /// Begins after a call that leased photos, and a look that found so many of further organizations.
    pub(crate) fn after(found: usize) -> Self {
        Self { leased_at: Instant::now(), has_found: found > 0, is_hastened: false }
    }

    /// Records that photos were confirmed.
    pub(crate) fn hasten(&mut self) {
        self.is_hastened = true;
    }

    pub(crate) fn is_due(&self) -> bool {
        let pause = match (self.has_found, self.is_hastened) {
            (true, _) => PAUSE_WHEN_FOUND,
            (false, true) => PAUSE_WHEN_CONFIRMED,
            (false, false) => PAUSE,
        };
        self.leased_at.elapsed() >= pause
    }

    /// The number of photos to lease. One tells whether others wait, because the queue serves them in turn.
    pub(crate) fn limit(&self) -> usize {
        if self.has_found { LIMIT_WHEN_FOUND } else { 1 }
    }
}
