//! Says when the feed looks for photos of further organizations while the first edge is full, and for how many. It does not
//! know what is leased.
//!
//! A look costs a statement that reads, and one that leases in vain, because it is not the turn of those who wait or there is
//! no place for their photos, two transactions, of the lease and of its return. So looks are few, and fewer after such ones.

use std::time::{Duration, Instant};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// The same when photos were confirmed in this process meanwhile.
const PAUSE_WHEN_CONFIRMED: Duration = Duration::from_millis(200);

/// The same after a look that found some: more may wait.
const PAUSE_WHEN_FOUND: Duration = Duration::from_millis(50);

/// The same after many looks that leased in vain, each of which doubles it.
const PAUSE_WHEN_IN_VAIN: Duration = Duration::from_secs(5);

/// The number of photos to lease after a look that found some: those of several organizations in turn.
const LIMIT_WHEN_FOUND: usize = 4;

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No photo of further organizations waits.
    NobodyWaits,
    /// At least one was leased.
    Found,
    /// What was leased had room in the edge: an ordinary lease.
    HadRoom,
    /// What was leased went back.
    InVain,
}

/// When to look next.
#[derive(Debug)]
pub(crate) struct Lookout {
    leased_at: Instant,
    pause: Duration,
    is_hastened: bool,
}

impl Lookout {
    /// Begins now.
    pub(crate) fn start() -> Self {
        Self { leased_at: Instant::now(), pause: PAUSE, is_hastened: false }
    }

    /// Records a lease of photos for which there was room: it has the effect of a look.
    pub(crate) fn note_lease(&mut self) {
        (self.leased_at, self.is_hastened) = (Instant::now(), false);
    }

    /// Records a look.
    pub(crate) fn note(&mut self, look: Look) {
        self.note_lease();
        self.pause = match look {
            Look::NobodyWaits | Look::HadRoom => PAUSE,
            Look::Found => PAUSE_WHEN_FOUND,
            Look::InVain => (2 * self.pause.max(PAUSE)).min(PAUSE_WHEN_IN_VAIN),
        };
    }

    /// Records that photos were confirmed.
    pub(crate) fn hasten(&mut self) {
        self.is_hastened = true;
    }

    pub(crate) fn is_due(&self) -> bool {
        let is_shortened = self.is_hastened && self.pause == PAUSE;
        let pause = if is_shortened { PAUSE_WHEN_CONFIRMED } else { self.pause };
        self.leased_at.elapsed() >= pause
    }

    /// The number of photos to lease. One tells whether others wait, because the queue serves them in turn.
    pub(crate) fn limit(&self) -> usize {
        if self.pause == PAUSE_WHEN_FOUND { LIMIT_WHEN_FOUND } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_in_vain_become_rare_and_one_that_finds_some_is_followed_soon() {
        let mut lookout = Lookout::start();
        let mut pauses = Vec::new();
        for look in [Look::InVain; 5].into_iter().chain([Look::Found, Look::InVain, Look::HadRoom]) {
            lookout.note(look);
            pauses.push((lookout.pause.as_millis(), lookout.limit()));
        }
        let expected = [(1000, 1), (2000, 1), (4000, 1), (5000, 1), (5000, 1), (50, 4), (1000, 1), (500, 1)];
        assert_eq!(pauses, expected);
        lookout.leased_at -= PAUSE_WHEN_CONFIRMED;
        assert!(!lookout.is_due());
        lookout.hasten();
        assert!(lookout.is_due());
        lookout.note_lease();
        assert!(!lookout.is_due(), "the lease would have brought them");
    }
}
