//! What is decoded, and the kernel.

use crate::gpu::{Kernel, Source};

pub(crate) static SOURCE: Source = Source {
    name: "characters",
    wgsl: include_str!("characters.wgsl"),
    cuda: include_str!("characters.cu"),
    entries: &["characters"],
};

pub(super) static CHARACTERS: Kernel =
    Kernel { source: &SOURCE, entry: "characters", group: [64, 1, 1], writable: &[2] };

/// A network's output for a batch of strips: strip after strip, column after column, a probability a class.
#[derive(Clone, Copy, Debug)]
pub struct Strips<'a> {
    /// All probabilities.
    pub probabilities: &'a [f32],
    /// Columns of a strip, at most 512.
    pub columns: usize,
    /// Classes, the blank first.
    pub classes: usize,
}

/// A character of a strip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Character {
    /// Its class, 1 or more.
    pub class: usize,
    /// Its probability in the first of its columns.
    pub probability: f32,
}
