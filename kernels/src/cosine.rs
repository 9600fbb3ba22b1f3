//! Finds the nearest of many unit vectors by their dot product with one: exact, all of them, every time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::device::Device;

/// Partial sums kept side by side. A fixed number, summed in a fixed order, so that a score is the same on every
/// processor, however wide its vectors.
const LANES: usize = 32;

/// Scores vectors. Cheap to clone.
#[derive(Clone, Copy, Debug)]
pub struct Cosine {
    arch: pulp::Arch,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct VectorQuery<'a> {
    /// Unit length.
    pub probe: &'a [f32],
    /// The least score of a hit, -1 to 1.
    pub min_score: f32,
    /// The most hits.
    pub k: usize,
}

/// A vector found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Which row.
    pub row: usize,
    /// Its dot product with the probe.
    pub score: f32,
}

impl Cosine {
    /// A scorer on this device.
    pub fn new(device: &Device) -> Self {
        match device {
            Device::Cpu => Self { arch: pulp::Arch::new() },
        }
    }

    /// The nearest rows, best first, equal scores by row. `rows` holds vectors of the probe's length one after
    /// the other.
    ///
    /// # Panics
    /// When `rows` is not a whole number of vectors, or the probe is empty.
    pub fn nearest(&self, search: &VectorQuery<'_>, rows: &[f32]) -> Vec<Neighbour> {
        let mut best = Best { heap: BinaryHeap::with_capacity(search.k.min(1024) + 1), k: search.k };
        self.for_each_hit(search, rows, |near| best.offer(near));
        best.into_sorted()
    }

    /// Calls `hit` for each row that scores at least `at_least`, in order; `k` is not looked at.
    ///
    /// # Panics
    /// When `rows` is not a whole number of vectors, or the probe is empty.
    pub fn for_each_hit(&self, search: &VectorQuery<'_>, rows: &[f32], mut hit: impl FnMut(Neighbour)) {
        let dimension = search.probe.len();
        assert!(dimension > 0 && rows.len().is_multiple_of(dimension), "rows of {dimension} numbers");
        self.arch.dispatch(|| {
            for (row, vector) in rows.chunks_exact(dimension).enumerate() {
                let score = dot(search.probe, vector);
                if score >= search.min_score {
                    hit(Neighbour { row, score });
                }
            }
        });
    }

    /// The dot product of two vectors of equal length, equal to the score that a search gives.
    pub fn score(&self, a: &[f32], b: &[f32]) -> f32 {
        self.arch.dispatch(|| dot(a, b))
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

/// The best so far; the worst of them on top of the heap.
struct Best {
    heap: BinaryHeap<Worst>,
    k: usize,
}

#[derive(PartialEq)]
struct Worst(Neighbour);

impl Eq for Worst {}

impl PartialOrd for Worst {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Worst {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.score.total_cmp(&self.0.score).then(self.0.row.cmp(&other.0.row))
    }
}

impl Best {
    fn offer(&mut self, near: Neighbour) {
        if self.heap.len() == self.k {
            // Rows come in order, so an equal score stands behind those that are here.
            if self.heap.peek().is_none_or(|worst| near.score <= worst.0.score) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Worst(near));
    }

    fn into_sorted(self) -> Vec<Neighbour> {
        self.heap.into_sorted_vec().into_iter().map(|worst| worst.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosine() -> Cosine {
        Cosine::new(&Device::Cpu)
    }

    #[test]
    fn equal_scores_come_in_the_order_of_rows() {
        let rows = [1.0, 0.0].repeat(5);
        let search = VectorQuery { probe: &[1.0, 0.0], min_score: 0.0, k: 3 };
        let found: Vec<usize> = cosine().nearest(&search, &rows).iter().map(|near| near.row).collect();
        assert_eq!(found, [0, 1, 2]);
    }

    #[test]
    fn a_search_of_no_rows_finds_nothing() {
        let search = VectorQuery { probe: &[1.0, 0.0], min_score: -1.0, k: 10 };
        assert!(cosine().nearest(&search, &[]).is_empty());
        assert!(cosine().nearest(&VectorQuery { k: 0, ..search }, &[1.0, 0.0]).is_empty());
    }

    proptest! {
        #[test]
        fn a_search_agrees_with_sorting_everything(
            dimension in 1_usize..70,
            values in prop::collection::vec(-1.0_f32..1.0, 0..2000),
            at_least in -1.0_f32..1.0,
            k in 0_usize..20,
        ) {
            let count = values.len() / dimension;
            prop_assume!(count > 0);
            let (probe, rows) = values[..count * dimension].split_at(dimension);
            let mut wanted: Vec<Neighbour> = rows.chunks_exact(dimension).enumerate()
                .map(|(row, vector)| Neighbour { row, score: cosine().score(probe, vector) })
                .filter(|near| near.score >= at_least)
                .collect();
            wanted.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
            wanted.truncate(k);
            prop_assert_eq!(cosine().nearest(&VectorQuery { probe, min_score: at_least, k }, rows), wanted);
        }

        #[test]
        fn a_score_is_the_dot_product(pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..600)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let wanted: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            prop_assert!((f64::from(cosine().score(&a, &b)) - wanted).abs() < 1e-4);
        }
    }
}
