//! What is found, and the kernel.

use crate::gpu::{Kernel, Source};
use crate::quantised::RowBits;

pub(crate) static SOURCE: Source = Source {
    name: "near",
    wgsl: include_str!("near.wgsl"),
    cuda: include_str!("near.cu"),
    entries: &["near_rows"],
};

/// Rows of a workgroup, as in the sources.
pub(super) const THREADS: usize = 256;

/// Probes of a workgroup, as in the sources. The sums of twice as many would take half of the registers that a thread may
/// have; a list is in the cache of most devices when it is read again for the next 16.
pub(super) const PROBES: usize = 16;

pub(super) static NEAR_ROWS: Kernel =
    Kernel { source: &SOURCE, entry: "near_rows", group: [THREADS as u32, 1, 1], writable: &[4] };

/// The rows of some lists that may reach the least score of each of some probes.
#[derive(Debug)]
pub struct NearRows {
    probes: usize,
    /// Words of a list and probe.
    stride: usize,
    /// All probes of the first list, then those of the second.
    words: Vec<u32>,
}

impl NearRows {
    /// Nothing found, in lists of at most `rows`.
    pub(super) fn empty(probes: usize, lists: usize, rows: usize) -> Self {
        let stride = count_words(rows);
        Self { probes, stride, words: vec![0; lists * probes * stride] }
    }

    /// Returns the rows of one of the lists, by its index among those that were searched.
    ///
    /// # Panics
    /// When there are fewer lists.
    pub fn list(&self, list: usize) -> RowBits<'_> {
        let all = self.probes * self.stride;
        RowBits { words: &self.words[list * all..][..all], stride: self.stride }
    }

    /// Returns how many there are, of all lists and probes.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn words_of_lists(&mut self, lists: std::ops::Range<usize>) -> &mut [u32] {
        let all = self.probes * self.stride;
        &mut self.words[lists.start * all..lists.end * all]
    }

    /// Marks every row of a list for a probe.
    pub(super) fn mark_all(&mut self, list: usize, probe: usize, rows: usize) {
        for row in 0..rows {
            self.mark(list, probe, row);
        }
    }

    pub(super) fn mark(&mut self, list: usize, probe: usize, row: usize) {
        self.words[(list * self.probes + probe) * self.stride + row / 32] |= 1 << (row % 32);
    }
}

/// Words of bits of a list with so many rows: what whole workgroups write.
pub(super) fn count_words(rows: usize) -> usize {
    rows.div_ceil(THREADS) * (THREADS / 32)
}
