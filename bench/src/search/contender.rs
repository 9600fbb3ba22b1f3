//! What all contenders are asked for, and their times.

use std::time::Instant;

use crate::report::statistics::to_milliseconds;

/// Length of the default model's embeddings.
pub const DIMENSION: usize = 256;

/// Probes of a large pass.
pub const MANY_PROBES: usize = 32;

/// Hits of a search.
pub const HITS: usize = 100;

/// Searches of which the median counts, per round.
pub const REPETITIONS: usize = 15;

/// Times of one contender on one number of threads, milliseconds.
#[derive(Clone, Debug, Default)]
pub struct SearchTimes {
    /// Of a search with one probe.
    pub one: Vec<f64>,
    /// Of a search with [`MANY_PROBES`], per probe.
    pub each_of_many: Vec<f64>,
    /// Searches whose hits are those of the full comparison, in the same order.
    pub right: usize,
    /// Searches that were checked.
    pub checked: usize,
    /// Hits of the full comparison that were found.
    pub recall: f64,
}

/// Returns the time of `work` in milliseconds.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    to_milliseconds(start.elapsed())
}
