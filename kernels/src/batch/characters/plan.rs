//! The same on a GPU.

use super::types::{CHARACTERS, Character, Strips};
use crate::gpu::{Gpu, GpuError, MAX_GROUPS, Program, to_words};

/// Columns that the kernel has room for, as in the sources.
pub(super) const MAX_COLUMNS: usize = 512;

pub(super) fn decode_all(gpu: &dyn Gpu, strips: &Strips<'_>) -> Result<Vec<Vec<Character>>, GpuError> {
    let (length, limit) = (strips.columns * strips.classes, gpu.max_buffer_bytes());
    let words = strips.columns * 2 + 1;
    let bytes = length.max(words) * 4;
    let most = (limit / bytes).min(MAX_GROUPS);
    if most == 0 {
        return Err(GpuError::TooLarge { bytes, limit });
    }
    let mut decoded = Vec::with_capacity(strips.probabilities.len() / length);
    for part in strips.probabilities.chunks(most * length) {
        let count = part.len() / length;
        let mut program = Program::default();
        let bindings = [
            program.words(&[strips.columns as u32, strips.classes as u32]),
            program.floats(part),
            program.output(count * words * 4),
        ];
        program.launch(&CHARACTERS, &bindings, [count * 64, 1, 1]);
        let outputs = gpu.run(&program)?;
        let found = outputs.first().map(|bytes| to_words(bytes)).unwrap_or_default();
        decoded.extend(found.chunks_exact(words).map(read_strip));
    }
    Ok(decoded)
}

fn read_strip(words: &[u32]) -> Vec<Character> {
    let characters = words[1..].as_chunks::<2>().0.iter().take(words[0] as usize);
    let read =
        |[class, bits]: &[u32; 2]| Character { class: *class as usize, probability: f32::from_bits(*bits) };
    characters.map(read).collect()
}
