//! A pass over rows: which of them may score enough.

use photofinish_dot::{BLOCK_ROWS, DotProducts, Visit};

use super::probes::ProbeBatch;
use super::rows::QuantisedRows;
use crate::device::Device;

/// A row that may be an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Index of the probe.
    pub probe: usize,
    /// Index of the row.
    pub row: usize,
    /// Its score, as [`crate::cosine::Cosine::score`] computes it, is at least this, unless this is NaN.
    pub lower: f32,
    /// Its score is at most this, unless this is NaN.
    pub upper: f32,
}

/// A bit for each probe and row: the rows that a device has found near.
#[derive(Clone, Copy, Debug)]
pub struct RowBits<'a> {
    /// Those of the first probe, then those of the second; row 0 is bit 0 of its first word.
    pub words: &'a [u32],
    /// Words of a probe.
    pub stride: usize,
}

/// Makes passes over rows. Cheap to clone.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    dots: DotProducts,
}

impl Scanner {
    /// Creates a scanner on this device.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu | Device::Gpu(_) => Self { dots: DotProducts::detect() },
        }
    }

    /// Returns one per kind of vector instructions of this processor: they find the same candidates.
    pub fn list_supported() -> Vec<Self> {
        DotProducts::list_supported().into_iter().map(|dots| Self { dots }).collect()
    }

    /// Returns the name of the vector instructions.
    pub fn name(&self) -> &'static str {
        self.dots.name()
    }

    /// Calls `found` with every row whose score may reach the minimum of its probe in `min_scores`. It may raise that
    /// minimum by what it returns: fewer rows are found from then on. A score that is NaN counts as one that may reach it.
    ///
    /// # Panics
    /// When probes and rows differ in length, or there is not one minimum per probe.
    pub fn scan(
        &self,
        probes: &ProbeBatch,
        rows: &QuantisedRows,
        min_scores: &mut [f32],
        found: impl FnMut(Candidate) -> f32,
    ) {
        let mut pass = Pass::new(probes, rows, min_scores, found);
        self.dots.for_each_block(probes.codes(), rows.lines(), &mut pass);
    }
}

/// Calls `found` as [`Scanner::scan`] does, with those of the `near` rows that a scan finds.
///
/// # Panics
/// When probes and rows differ in length, or there is not one minimum per probe.
pub fn judge(
    probes: &ProbeBatch,
    rows: &QuantisedRows,
    near: RowBits<'_>,
    min_scores: &mut [f32],
    found: impl FnMut(Candidate) -> f32,
) {
    let mut pass = Pass::new(probes, rows, min_scores, found);
    for (probe, words) in near.words.chunks_exact(near.stride.max(1)).enumerate() {
        for (first, word) in (0..).step_by(u32::BITS as usize).zip(words) {
            let mut left = *word;
            while left != 0 {
                let row: usize = first + left.trailing_zeros() as usize;
                left &= left - 1;
                if row < rows.len() {
                    pass.visit_row(row, probe, probes.dot(probe, rows, row));
                }
            }
        }
    }
}

struct Pass<'a, F> {
    probes: &'a ProbeBatch,
    rows: &'a QuantisedRows,
    /// Per probe.
    margins: Vec<f32>,
    min_scores: &'a mut [f32],
    found: F,
}

impl<F: FnMut(Candidate) -> f32> Visit for Pass<'_, F> {
    #[inline(always)]
    fn visit(&mut self, block: usize, probe: usize, dots: &[i32; BLOCK_ROWS]) {
        let factors = self.rows.factors(block);
        let (scale, norm) = (self.probes.probe(probe).scale, self.probes.probe(probe).norm);
        let (margin, min_score) = (self.margins[probe], self.min_scores[probe]);
        let mut is_any_near = false;
        for ((dot, row_scale), error) in dots.iter().zip(&factors.scales).zip(&factors.errors) {
            let upper = *dot as f32 * (scale * row_scale) + (norm * error + margin);
            is_any_near |= upper >= min_score || upper.is_nan();
        }
        if is_any_near {
            self.visit_near(block, probe, dots);
        }
    }
}

impl<'a, F: FnMut(Candidate) -> f32> Pass<'a, F> {
    fn new(probes: &'a ProbeBatch, rows: &'a QuantisedRows, min_scores: &'a mut [f32], found: F) -> Self {
        assert!(probes.dimension() == rows.dimension(), "probes of {}", probes.dimension());
        assert_eq!(probes.len(), min_scores.len(), "a minimum per probe");
        let margins = (0..probes.len()).map(|probe| probes.probe(probe).margin(rows.max_norm())).collect();
        Self { probes, rows, margins, min_scores, found }
    }

    /// Looks again at the rows of a block of which at least one may reach the minimum.
    #[inline(never)]
    fn visit_near(&mut self, block: usize, index: usize, dots: &[i32; BLOCK_ROWS]) {
        for (lane, dot) in dots.iter().enumerate() {
            let row = block * BLOCK_ROWS + lane;
            if row < self.rows.len() {
                self.visit_row(row, index, *dot);
            }
        }
    }

    /// Looks at a row by the dot product of the approximations, then with the probe in full.
    #[inline(always)]
    fn visit_row(&mut self, row: usize, index: usize, dot: i32) {
        let probe = self.probes.probe(index);
        let (scale, error) = self.rows.row_factors(row);
        let upper = dot as f32 * (probe.scale * scale) + (probe.norm * error + self.margins[index]);
        if upper < self.min_scores[index] {
            return;
        }
        let (lower, upper) = probe.bound(self.rows.codes(row), scale, error, self.rows.max_norm());
        if upper < self.min_scores[index] {
            return;
        }
        let raised = (self.found)(Candidate { probe: index, row, lower, upper });
        // `max` leaves it as it is when the other is NaN.
        self.min_scores[index] = self.min_scores[index].max(raised);
    }
}
