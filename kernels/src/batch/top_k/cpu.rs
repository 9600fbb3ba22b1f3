//! The reference: every score, sorted.

use super::album::{Album, BLOCK, Kind, Memory, Packed};
use super::types::{Found, keep_best};

pub(super) fn search(album: &Album, probes: &Packed, k: usize) -> Vec<Vec<Found>> {
    let each = probes.words.chunks_exact(probes.stride).zip(&probes.factors);
    each.map(|(probe, factor)| search_one(album, probe, *factor, k)).collect()
}

fn search_one(album: &Album, probe: &[u32], probe_factor: f32, k: usize) -> Vec<Found> {
    let mut found = Vec::new();
    for part in album.parts() {
        let Memory::Host { words, factors } = &part.memory else { continue };
        found.extend(factors.iter().enumerate().map(|(row, factor)| {
            let first = row / BLOCK * BLOCK * part.stride + row % BLOCK;
            let vector = words[first..].iter().step_by(BLOCK).take(part.stride);
            let pairs = vector.copied().zip(probe.iter().copied());
            let dot = match album.kind() {
                Kind::I8 => pairs.map(|(a, b)| dot_of_bytes(a, b)).sum::<i32>() as f32,
                Kind::F16 => dot_of_halves(pairs),
            };
            Found { row: part.first + row, score: dot * (factor * probe_factor) }
        }));
        keep_best(&mut found, k);
    }
    found
}

fn dot_of_bytes(a: u32, b: u32) -> i32 {
    let bytes = |word: u32| word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
    bytes(a).into_iter().zip(bytes(b)).map(|(a, b)| a * b).sum()
}

/// One sum, in order, as a GPU's thread has it.
fn dot_of_halves(pairs: impl Iterator<Item = (u32, u32)>) -> f32 {
    let mut sum = 0.0;
    for (a, b) in pairs {
        sum += half_to_f32(a) * half_to_f32(b);
        sum += half_to_f32(a >> 16) * half_to_f32(b >> 16);
    }
    sum
}

/// The number of which the lower 16 bits are the half precision: exponent and fraction are moved to where those of 32
/// bits are, and the difference of the biases, 112, is multiplied away.
fn half_to_f32(half: u32) -> f32 {
    let magnitude = f32::from_bits((half & 0x7fff) << 13) * f32::from_bits((112 + 127) << 23);
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_exactly() {
        let known =
            [(0x3c00, 1.0), (0xbc00, -1.0), (0x3555, 0.333_251_95), (0x0001, 5.960_464_5e-8), (0x0000, 0.0)];
        for (bits, value) in known {
            assert_eq!(half_to_f32(bits), value, "{bits:04x}");
        }
        assert_eq!(half_to_f32(0x7bff), 65_504.0);
    }
}
