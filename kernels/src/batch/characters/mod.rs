//! Greedy CTC decoding of recognised strips: the most probable class of each column, repetitions collapsed, blanks
//! dropped (Graves et al.: "Connectionist Temporal Classification", 2006).

mod cpu;
mod plan;
mod types;

use crate::device::Device;
use crate::gpu::GpuError;

pub(super) use self::types::SOURCE;
pub use self::types::{Character, Strips};

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
