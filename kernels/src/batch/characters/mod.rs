//! Greedy CTC decoding of recognised strips: the most probable class of each column, repetitions collapsed, blanks
//! dropped (Graves et al.: "Connectionist Temporal Classification", 2006).

mod cpu;
mod plan;

use crate::device::Device;
use crate::gpu::{GpuError, Kernel, Source};

pub(super) static SOURCE: Source = Source {
    name: "characters",
    wgsl: include_str!("characters.wgsl"),
    cuda: include_str!("characters.cu"),
    entries: &["characters"],
};

static CHARACTERS: Kernel =
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

/// Returns the characters of each strip; of equal probabilities the first class counts. The same on every device.
///
/// # Errors
/// When the device fails, or a strip is more than its largest buffer.
///
/// # Panics
/// When the probabilities are not a whole number of strips, or a strip has no or too many columns.
pub fn decode_all(device: &Device, strips: &Strips<'_>) -> Result<Vec<Vec<Character>>, GpuError> {
    let length = strips.columns * strips.classes;
    assert!(length > 0 && strips.columns <= plan::MAX_COLUMNS, "{} columns", strips.columns);
    assert!(strips.probabilities.len().is_multiple_of(length), "strips of {length} probabilities");
    match device {
        Device::Cpu => {
            let all = strips.probabilities.chunks_exact(length);
            Ok(all.map(|strip| cpu::decode(strip, strips.classes)).collect())
        }
        Device::Gpu(gpu) => plan::decode_all(&**gpu, strips),
    }
}

/// Returns the characters of one strip: columns of `classes` probabilities, the blank first.
pub fn decode(probabilities: &[f32], classes: usize) -> Vec<Character> {
    cpu::decode(probabilities, classes)
}
