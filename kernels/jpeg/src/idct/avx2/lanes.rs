//! Loads, stores and sums of vectors with a block in each 128-bit lane.

#![expect(unsafe_code, reason = "loads and stores of vectors take pointers")]

use std::arch::x86_64::*;

use crate::idct::block::{Coefficients, Quant};

#[target_feature(enable = "avx2")]
pub(super) fn load(from: &[i16; 8]) -> __m128i {
    // SAFETY: an unaligned load of the array's 16 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
pub(super) fn load_wide(from: &[i16; 16]) -> __m256i {
    // SAFETY: an unaligned load of the array's 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
pub(super) fn store_16(pixels: __m128i, out: &mut [u8], offset: usize) {
    let out: &mut [u8; 16] = out[offset..].first_chunk_mut().expect("planes have room for pairs of blocks");
    // SAFETY: an unaligned store to the array's 16 bytes.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), pixels) };
}

/// Row `y` of both blocks.
#[target_feature(enable = "avx2")]
pub(super) fn load_row(pair: [&Coefficients; 2], y: usize) -> __m256i {
    let (a, b) = (load(&pair[0].as_chunks().0[y]), load(&pair[1].as_chunks().0[y]));
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}

/// Row `y` of a quantisation table, in both lanes.
#[target_feature(enable = "avx2")]
pub(super) fn broadcast_row(quant: &Quant, y: usize) -> __m256i {
    _mm256_broadcastsi128_si256(load(&quant.as_chunks().0[y]))
}

/// Row `y` of both blocks, dequantised to 16 bits.
#[target_feature(enable = "avx2")]
pub(super) fn row(pair: [&Coefficients; 2], quant: &Quant, y: usize) -> __m256i {
    _mm256_mullo_epi16(load_row(pair, y), broadcast_row(quant, y))
}

/// Two 16-bit factors for `_mm256_madd_epi16`, side by side in every 32 bits.
#[target_feature(enable = "avx2")]
fn factors(low: i32, high: i32) -> __m256i {
    _mm256_set1_epi32((low & 0xffff) | high << 16)
}

/// `low` times the lower of each pair of 16-bit numbers plus `high` times the upper.
#[target_feature(enable = "avx2")]
pub(super) fn weigh(pair: __m256i, low: i32, high: i32) -> __m256i {
    _mm256_madd_epi16(pair, factors(low, high))
}

#[target_feature(enable = "avx2")]
pub(super) fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
pub(super) fn sub(a: __m256i, b: __m256i) -> __m256i {
    _mm256_sub_epi32(a, b)
}
