//! Dot products of one unit vector with many: exact, over all of them.

use crate::device::Device;

/// Partial sums kept side by side. A fixed number, summed in a fixed order, so that a score is the same on every
/// processor, however wide its vectors.
const LANES: usize = 32;

/// Scores vectors by their dot product: the cosine, for vectors of unit length. Cheap to clone.
#[derive(Clone, Copy, Debug)]
pub struct Cosine {
    arch: pulp::Arch,
}

/// A search over rows.
#[derive(Clone, Copy, Debug)]
pub struct VectorQuery<'a> {
    /// The vector searched for, of unit length.
    pub probe: &'a [f32],
    /// Minimum score of a hit, -1 to 1.
    pub min_score: f32,
}

/// A row found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Index of the row.
    pub row: usize,
    /// Its dot product with the probe, -1 to 1 for unit vectors.
    pub score: f32,
}

impl Cosine {
    /// Creates a scorer on this device.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu | Device::Gpu(_) => Self { arch: pulp::Arch::new() },
        }
    }

    /// Calls `hit` for each row that scores at least `min_score`, in order. `rows` are vectors of the probe's length,
    /// one after another.
    ///
    /// # Panics
    /// When `rows` is not a whole number of vectors, or the probe is empty.
    pub fn for_each_hit(&self, query: &VectorQuery<'_>, rows: &[f32], hit: impl FnMut(Neighbour)) {
        let dimension = query.probe.len();
        assert!(dimension > 0 && rows.len().is_multiple_of(dimension), "rows of {dimension} numbers");
        self.arch.dispatch(FindHits { query: *query, rows, hit });
    }

    /// Returns the dot product of two vectors of equal length: bit for bit the score that a search gives.
    pub fn score(&self, a: &[f32], b: &[f32]) -> f32 {
        self.arch.dispatch(Dot { a, b })
    }
}

/// The search over rows, for [`crate::vectors`].
struct FindHits<'a, F> {
    query: VectorQuery<'a>,
    rows: &'a [f32],
    hit: F,
}

impl<F: FnMut(Neighbour)> pulp::NullaryFnOnce for FindHits<'_, F> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let Self { query: VectorQuery { probe, min_score }, rows, .. } = self;
        for (row, vector) in rows.chunks_exact(probe.len()).enumerate() {
            let score = dot(probe, vector);
            if score >= min_score {
                (self.hit)(Neighbour { row, score });
            }
        }
    }
}

/// One dot product, for the same.
struct Dot<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl pulp::NullaryFnOnce for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn call(self) -> f32 {
        dot(self.a, self.b)
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] += a * b;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosine() -> Cosine {
        Cosine::new(&Device::Cpu)
    }

    fn hits(query: &VectorQuery<'_>, rows: &[f32]) -> Vec<Neighbour> {
        let mut found = Vec::new();
        cosine().for_each_hit(query, rows, |hit| found.push(hit));
        found
    }

    #[test]
    fn a_search_of_no_rows_finds_nothing() {
        assert!(hits(&VectorQuery { probe: &[1.0, 0.0], min_score: -1.0 }, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn hits_are_the_rows_that_score_enough_in_order(
            dimension in 1_usize..70,
            values in prop::collection::vec(-1.0_f32..1.0, 0..2000),
            min_score in -1.0_f32..1.0,
        ) {
            let count = values.len() / dimension;
            prop_assume!(count > 0);
            let (probe, rows) = values[..count * dimension].split_at(dimension);
            let expected: Vec<Neighbour> = rows.chunks_exact(dimension).enumerate()
                .map(|(row, vector)| Neighbour { row, score: cosine().score(probe, vector) })
                .filter(|hit| hit.score >= min_score)
                .collect();
            prop_assert_eq!(hits(&VectorQuery { probe, min_score }, rows), expected);
        }

        #[test]
        fn a_score_is_the_dot_product(pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..600)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let expected: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            prop_assert!((f64::from(cosine().score(&a, &b)) - expected).abs() < 1e-4);
        }
    }
}
