//! The probes of one pass.

use photofinish_dot::{GROUP, Probes};

use super::codes::{Codes, round_up};
use super::rows::QuantisedRows;

/// The largest number of which a device computes bounds: what is multiplied and added is finite then.
const MAX_DEVICE_NUMBER: f32 = (1_u64 << 30) as f32;

/// Probes of one length, with what the bounds of their scores need.
pub struct ProbeBatch {
    dimension: usize,
    probes: Vec<Probe>,
    codes: Probes,
}

pub(super) struct Probe {
    /// Its components, filled up with zeros.
    groups: Vec<[f32; GROUP]>,
    /// Those of its approximation.
    codes: Vec<[i8; GROUP]>,
    pub(super) scale: f32,
    /// Upper bound of its length.
    pub(super) norm: f32,
    /// Upper bound of the distance to its approximation.
    error: f32,
}

impl ProbeBatch {
    /// Approximates the probes.
    ///
    /// # Panics
    /// When there is none, they differ in length, or are empty.
    pub fn new(vectors: &[&[f32]]) -> Self {
        let all: Vec<Codes> = vectors.iter().map(|vector| Codes::new(vector)).collect();
        let codes: Vec<&[i8]> = all.iter().map(|probe| probe.codes.as_slice()).collect();
        let codes = Probes::new(&codes);
        let probes = vectors.iter().zip(all).map(|(vector, codes)| Probe {
            groups: group(vector, 0.0),
            codes: group(&codes.codes, 0),
            scale: codes.scale,
            norm: length(vector),
            error: codes.error,
        });
        Self { dimension: vectors[0].len(), probes: probes.collect(), codes }
    }

    /// Returns the number of probes.
    pub fn len(&self) -> usize {
        self.probes.len()
    }

    /// Whether there is no probe; never.
    pub fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    /// Returns the length of the probes.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    pub(crate) fn codes(&self) -> &Probes {
        &self.codes
    }

    /// Returns the approximation of a probe, the last group filled up with zeros.
    pub(crate) fn codes_of(&self, probe: usize) -> &[[i8; GROUP]] {
        &self.probes[probe].codes
    }

    /// Returns the dot product of the approximations of a probe and a row.
    pub(crate) fn dot(&self, probe: usize, rows: &QuantisedRows, row: usize) -> i32 {
        let product = |(a, b): (&i8, &i8)| i32::from(*a) * i32::from(*b);
        let groups = self.probes[probe].codes.iter().zip(rows.codes(row));
        groups.map(|(own, other)| own.iter().zip(&other).map(product).sum::<i32>()).sum()
    }

    /// Returns what a device needs to know of a probe to find rows that may score `min_score`: scale, norm, margin and the
    /// least score. `None` where a sum could be infinite.
    pub(crate) fn device_bound(
        &self,
        index: usize,
        rows: &QuantisedRows,
        min_score: f32,
    ) -> Option<[f32; 4]> {
        let probe = &self.probes[index];
        let numbers = [probe.scale, probe.norm, probe.error, rows.max_norm()];
        // A NaN is not below it.
        if min_score.is_nan() || !numbers.iter().all(|number| *number < MAX_DEVICE_NUMBER) {
            return None;
        }
        let margin = probe.device_margin(rows.max_norm(), self.dimension);
        Some([probe.scale, probe.norm, margin, min_score.clamp(f32::MIN, f32::MAX)])
    }

    #[inline(always)]
    pub(super) fn probe(&self, probe: usize) -> &Probe {
        &self.probes[probe]
    }
}

impl Probe {
    /// Returns by how much the approximate score of a row of no error may be off, if its approximation is no longer than
    /// `max_norm`.
    pub(super) fn margin(&self, max_norm: f32) -> f32 {
        let margin = f64::from(self.error) * f64::from(max_norm) + self.rounding(max_norm);
        round_up(margin)
    }

    /// Returns the same for a device that may fuse products and sums, add in another order and take the smallest numbers
    /// for zero: more than [`Self::margin`] by all that this can change in the upper bound of a row.
    fn device_margin(&self, max_norm: f32, dimension: usize) -> f32 {
        // An upper bound of what is added: the product of the approximations, the margin, and the norm times the error of
        // a row, which is at most half a scale a component, while `max_norm` is at least 127 scales.
        let product = (f64::from(self.norm) + f64::from(self.error)) * f64::from(max_norm);
        let sum = product * (2.0 + (dimension as f64).sqrt() / 127.0);
        // Six roundings here and there.
        let rounding = 16.0 * f64::from(f32::EPSILON) * sum;
        // What is taken for zero is multiplied by at most another factor and a dot product, which is below 2^31.
        let factors = 1.0 + f64::from(self.norm) + f64::from(self.error) + f64::from(max_norm);
        let lost = f64::from(f32::MIN_POSITIVE) * factors * 2_f64.powi(33);
        round_up(f64::from(self.margin(max_norm)) + rounding + lost)
    }

    /// Returns an upper bound of all rounding: of a score in `f32` as `cosine` computes it (a sum of products in 32 lanes,
    /// then of the lanes), and of the few operations on an approximate one. Twice what they can add up to.
    fn rounding(&self, max_norm: f32) -> f64 {
        let operations = (self.groups.len() * GROUP).div_ceil(32) as f64 + 16.0;
        let product = (f64::from(self.norm) + f64::from(self.error)) * f64::from(max_norm);
        2.0 * operations * f64::from(f32::EPSILON) * product + operations * f64::from(f32::MIN_POSITIVE)
    }

    /// Returns bounds of the score of a row, from the probe in full and the row's approximation. Summed in lanes: in one,
    /// each addition waits for the one before it, and a search of a million faces bounds thousands.
    pub(super) fn bound(
        &self,
        codes: impl Iterator<Item = [i8; GROUP]>,
        scale: f32,
        error: f32,
        max_norm: f32,
    ) -> (f32, f32) {
        let mut sums = [0.0; GROUP];
        for (values, codes) in self.groups.iter().zip(codes) {
            for ((sum, value), code) in sums.iter_mut().zip(values).zip(codes) {
                *sum += f64::from(*value) * f64::from(code);
            }
        }
        let score = f64::from(scale) * sums.iter().sum::<f64>();
        let row_norm = f64::from(max_norm) + f64::from(error);
        let margin = f64::from(self.norm) * f64::from(error) + self.rounding(round_up(row_norm));
        (-round_up(margin - score), round_up(score + margin))
    }
}

fn group<T: Copy>(vector: &[T], zero: T) -> Vec<[T; GROUP]> {
    let (whole, rest) = vector.as_chunks::<GROUP>();
    let mut groups = whole.to_vec();
    if !rest.is_empty() {
        let mut last = [zero; GROUP];
        last[..rest.len()].copy_from_slice(rest);
        groups.push(last);
    }
    groups
}

/// Returns an upper bound of the length of a vector; infinite or NaN if a component is.
fn length(vector: &[f32]) -> f32 {
    round_up(vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt())
}
