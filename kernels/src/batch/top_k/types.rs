//! Vectors, rows that are found, and the kernels.

use crate::gpu::{Kernel, Source};

pub(crate) static SOURCE: Source = Source {
    name: "top_k",
    wgsl: include_str!("top_k.wgsl"),
    cuda: include_str!("top_k.cu"),
    entries: &["top_k_i8", "top_k_f16"],
};

pub(super) static TOP_K_I8: Kernel =
    Kernel { source: &SOURCE, entry: "top_k_i8", group: [256, 1, 1], writable: &[5] };
pub(super) static TOP_K_F16: Kernel =
    Kernel { source: &SOURCE, entry: "top_k_f16", group: [256, 1, 1], writable: &[5] };

/// Most rows that a search returns a probe.
pub const MAX_K: usize = 256;

/// Vectors of equal length: their components, and a factor for each vector.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    /// Vector after vector.
    pub components: Components<'a>,
    /// By which a vector's components are multiplied, one a vector.
    pub factors: &'a [f32],
}

/// A row found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its index.
    pub row: usize,
    /// The dot product of the components times both factors.
    pub score: f32,
}

/// Components of vectors.
#[derive(Clone, Copy, Debug)]
pub enum Components<'a> {
    /// Whole numbers.
    I8(&'a [i8]),
    /// Bits of IEEE 754 half precision; finite.
    F16(&'a [u16]),
}

/// Sorts best first and keeps `k`.
pub(super) fn keep_best(found: &mut Vec<Found>, k: usize) {
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
    found.truncate(k);
}
