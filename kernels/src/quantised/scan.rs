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
        assert!(probes.dimension() == rows.dimension(), "probes of {}", probes.dimension());
        assert_eq!(probes.len(), min_scores.len(), "a minimum per probe");
        let margins = (0..probes.len()).map(|probe| probes.probe(probe).margin(rows.max_norm())).collect();
        let mut pass = Pass { probes, rows, margins, min_scores, found };
        self.dots.for_each_block(probes.codes(), rows.lines(), &mut pass);
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

impl<F: FnMut(Candidate) -> f32> Pass<'_, F> {
    /// Looks again at the rows of a block of which at least one may reach the minimum.
    #[inline(never)]
    fn visit_near(&mut self, block: usize, index: usize, dots: &[i32; BLOCK_ROWS]) {
        let (probe, factors) = (self.probes.probe(index), self.rows.factors(block));
        for (lane, dot) in dots.iter().enumerate() {
            let row = block * BLOCK_ROWS + lane;
            let (scale, error) = (factors.scales[lane], factors.errors[lane]);
            let upper = *dot as f32 * (probe.scale * scale) + (probe.norm * error + self.margins[index]);
            if row >= self.rows.len() || upper < self.min_scores[index] {
                continue;
            }
            let (lower, upper) = probe.bound(self.rows.codes(row), scale, error, self.rows.max_norm());
            if upper < self.min_scores[index] {
                continue;
            }
            let raised = (self.found)(Candidate { probe: index, row, lower, upper });
            // `max` leaves it as it is when the other is NaN.
            self.min_scores[index] = self.min_scores[index].max(raised);
        }
    }
}
