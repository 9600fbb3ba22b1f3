//! Says when the feed looks for photos of further organizations while the first edge is full, and for how many, and how long it
//! leases nothing after a search that brought long photos alone. It does not know what is leased.
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

/// How much sooner than it would a search begins when photos were confirmed meanwhile: the queue is not asked for each of them.
const SEARCH_HASTE: u32 = 10;

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

/// How long to wait after a search that brought nothing but long photos for which there is no place. Others may wait behind them,
/// so it begins short; each search in vain doubles it, because such a search costs two transactions too.
#[derive(Debug)]
pub(crate) struct SearchPause(Duration);

impl Default for SearchPause {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl SearchPause {
    /// Returns the pause after one more search in vain.
    pub(crate) fn extend(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(PAUSE_WHEN_IN_VAIN);
        pause
    }

    /// Returns what is left of a pause when photos were confirmed in it.
    pub(crate) fn hasten(pause: Duration) -> Duration {
        pause / SEARCH_HASTE
    }

    /// Records that a search was of use, or that there is a place for a long photo.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
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

    /// A feed that leased sixteen photos in vain twenty times a second was as busy as one that processes photos.
    #[test]
    fn searches_in_vain_become_rare_until_one_is_of_use() {
        let mut search_pause = SearchPause::default();
        let pauses: Vec<u128> = (0..6).map(|_| search_pause.extend().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(SearchPause::hasten(search_pause.extend()).as_millis(), 500);
        search_pause.reset();
        assert_eq!(SearchPause::hasten(search_pause.extend()).as_millis(), 50);
    }

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
