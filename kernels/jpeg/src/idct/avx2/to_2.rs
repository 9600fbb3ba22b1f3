//! The transform to 2 pixels a side, which computes in 16 bits between the passes.

use std::arch::x86_64::*;

use crate::idct::avx2::lanes::{add, row, sub, weigh};
use crate::idct::block::{Coefficients, Quant};
use crate::idct::points::fix;

/// The first pass, of four columns a lane: input 0 in the upper 16 bits, the others in pairs.
#[target_feature(enable = "avx2")]
fn points_2(r0: __m256i, r13: __m256i, r57: __m256i) -> [__m256i; 2] {
    let even = add(_mm256_srai_epi32::<1>(r0), _mm256_set1_epi32(1 << 12));
    let odd = add(
        weigh(r13, fix(3.624_509_785), -fix(1.272_758_580)),
        weigh(r57, fix(0.850_430_095), -fix(0.720_959_822)),
    );
    [_mm256_srai_epi32::<13>(add(even, odd)), _mm256_srai_epi32::<13>(sub(even, odd))]
}

/// Two pixels a side of each block.
#[target_feature(enable = "avx2")]
pub(super) fn transform_to_2(pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let zero = _mm256_setzero_si256();
    let [r0, r1, r3, r5, r7] = [0, 1, 3, 5, 7].map(|y| row(pair, quant, y));
    let low = points_2(
        _mm256_unpacklo_epi16(zero, r0),
        _mm256_unpacklo_epi16(r1, r3),
        _mm256_unpacklo_epi16(r5, r7),
    );
    let high = points_2(
        _mm256_unpackhi_epi16(zero, r0),
        _mm256_unpackhi_epi16(r1, r3),
        _mm256_unpackhi_epi16(r5, r7),
    );
    let [w0, w1] = [_mm256_packs_epi32(low[0], high[0]), _mm256_packs_epi32(low[1], high[1])];
    // Along a row: columns 1, 3, 5 and 7 weighed and added, column 0 alone.
    let factors = _mm_setr_epi16(
        0,
        fix(3.624_509_785) as i16,
        0,
        -fix(1.272_758_580) as i16,
        0,
        fix(0.850_430_095) as i16,
        0,
        -fix(0.720_959_822) as i16,
    );
    let factors = _mm256_broadcastsi128_si256(factors);
    let sums = _mm256_hadd_epi32(_mm256_madd_epi16(w0, factors), _mm256_madd_epi16(w1, factors));
    let odd = _mm256_hadd_epi32(sums, sums);
    let even = _mm256_srai_epi32::<1>(_mm256_unpacklo_epi16(zero, _mm256_unpacklo_epi16(w0, w1)));
    let even = add(even, _mm256_set1_epi32(1 << 19));
    let pixels = _mm256_unpacklo_epi32(add(even, odd), sub(even, odd));
    let pixels = _mm256_srai_epi32::<20>(pixels);
    let pixels = _mm256_packs_epi32(pixels, pixels);
    let pixels = _mm256_xor_si256(_mm256_packs_epi16(pixels, pixels), _mm256_set1_epi8(-128));
    let a = _mm_cvtsi128_si32(_mm256_castsi256_si128(pixels)) as u32;
    let b = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(pixels)) as u32;
    for (y, row) in [a & 0xffff | b << 16, a >> 16 | b & 0xffff_0000].into_iter().enumerate() {
        out[y * stride..][..4].copy_from_slice(&row.to_le_bytes());
    }
}
