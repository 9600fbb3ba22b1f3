//! The transforms to 6 and 3 pixels a side. libjpeg-turbo has only plain code for them, which computes in 32 bits: four
//! columns of each block are a vector here.

use std::arch::x86_64::*;
use std::f64::consts::FRAC_1_SQRT_2;

use crate::idct::avx2::lanes::{add, broadcast_row, load_row, sub};
use crate::idct::block::{Coefficients, Quant};
use crate::idct::points::fix;

/// Columns 0 to 3, and columns 4 to 7, of one row of both blocks, dequantised.
#[target_feature(enable = "avx2")]
fn dequantise(pair: [&Coefficients; 2], quant: &Quant, y: usize) -> [__m256i; 2] {
    let (row, factors) = (load_row(pair, y), broadcast_row(quant, y));
    let (low, high) = (_mm256_mullo_epi16(row, factors), _mm256_mulhi_epi16(row, factors));
    [_mm256_unpacklo_epi16(low, high), _mm256_unpackhi_epi16(low, high)]
}

#[target_feature(enable = "avx2")]
fn times(values: __m256i, factor: f64) -> __m256i {
    _mm256_mullo_epi32(values, _mm256_set1_epi32(fix(factor)))
}

/// The sums of 6 points; see [`crate::idct::points`].
#[target_feature(enable = "avx2")]
fn points_6(r: [__m256i; 6]) -> [__m256i; 6] {
    let (tmp0, tmp10) = (_mm256_slli_epi32::<13>(r[0]), times(r[4], FRAC_1_SQRT_2));
    let (tmp1, b) = (add(tmp0, tmp10), sub(sub(tmp0, tmp10), tmp10));
    let tmp2 = times(r[2], 1.224_744_871);
    let (a, c) = (add(tmp1, tmp2), sub(tmp1, tmp2));
    let z = times(add(r[1], r[5]), 0.366_025_404);
    let d = add(z, _mm256_slli_epi32::<13>(add(r[1], r[3])));
    let e = _mm256_slli_epi32::<13>(sub(sub(r[1], r[3]), r[5]));
    let f = add(z, _mm256_slli_epi32::<13>(sub(r[5], r[3])));
    [add(a, d), add(b, e), add(c, f), sub(c, f), sub(b, e), sub(a, d)]
}

/// The sums of 3 points.
#[target_feature(enable = "avx2")]
fn points_3(r: [__m256i; 3]) -> [__m256i; 3] {
    let (tmp0, tmp12) = (_mm256_slli_epi32::<13>(r[0]), times(r[2], FRAC_1_SQRT_2));
    let (even, odd) = (add(tmp0, tmp12), times(r[1], 1.224_744_871));
    [add(even, odd), sub(sub(tmp0, tmp12), tmp12), sub(even, odd)]
}

/// What the first pass passes on.
#[target_feature(enable = "avx2")]
fn descale<const N: usize>(mut sums: [__m256i; N]) -> [__m256i; N] {
    for sum in &mut sums {
        *sum = _mm256_srai_epi32::<11>(add(*sum, _mm256_set1_epi32(1 << 10)));
    }
    sums
}

/// Pixels around zero: the sums divided by 2^18, of which the plain code keeps 10 bits.
#[target_feature(enable = "avx2")]
fn to_pixels<const N: usize>(mut sums: [__m256i; N]) -> [__m256i; N] {
    for sum in &mut sums {
        *sum = _mm256_srai_epi32::<22>(_mm256_slli_epi32::<4>(add(*sum, _mm256_set1_epi32(1 << 17))));
    }
    sums
}

/// Rows to columns, in each lane by itself.
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 4]) -> [__m256i; 4] {
    let (a, b) = (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[0], r[1]));
    let (c, d) = (_mm256_unpacklo_epi32(r[2], r[3]), _mm256_unpackhi_epi32(r[2], r[3]));
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}

/// Four columns of pixels around zero as bytes, row after row.
#[target_feature(enable = "avx2")]
fn turn_to_bytes(columns: [__m256i; 4]) -> __m256i {
    let low = _mm256_packs_epi32(columns[0], columns[1]);
    let high = _mm256_packs_epi32(columns[2], columns[3]);
    let bytes = _mm256_xor_si256(_mm256_packs_epi16(low, high), _mm256_set1_epi8(-128));
    let turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(turn))
}

/// Six pixels a side of each block.
#[target_feature(enable = "avx2")]
pub(super) fn transform_to_6(pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let (mut left, mut right) = ([_mm256_setzero_si256(); 6], [_mm256_setzero_si256(); 6]);
    for y in 0..6 {
        [left[y], right[y]] = dequantise(pair, quant, y);
    }
    let (left, right) = (descale(points_6(left)), descale(points_6(right)));
    for (first, rows) in [(0, 4), (4, 2)] {
        // Below the sixth row these are any rows; they are not stored.
        let [c0, c1, c2, c3] = transpose([0, 1, 2, 3].map(|y| left[(first + y).min(5)]));
        let [c4, c5, ..] = transpose([0, 1, 2, 3].map(|y| right[(first + y).min(5)]));
        let [c0, c1, c2, c3, c4, c5] = to_pixels(points_6([c0, c1, c2, c3, c4, c5]));
        let (left, right) = (turn_to_bytes([c0, c1, c2, c3]), turn_to_bytes([c4, c5, c4, c5]));
        let out = &mut out[first * stride..];
        store_12(_mm256_unpacklo_epi32(left, right), out, stride);
        if rows == 4 {
            store_12(_mm256_unpackhi_epi32(left, right), &mut out[2 * stride..], stride);
        }
    }
}

/// Stores two rows: each lane has 6 pixels of its block in the lower 8 bytes and 6 of the next row in the upper.
#[target_feature(enable = "avx2")]
fn store_12(rows: __m256i, out: &mut [u8], stride: usize) {
    let (a, b) = (_mm256_castsi256_si128(rows), _mm256_extracti128_si256::<1>(rows));
    let join = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1);
    for (y, row) in [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)].into_iter().enumerate() {
        let row = _mm_shuffle_epi8(row, join);
        let out = &mut out[y * stride..][..12];
        out[..8].copy_from_slice(&_mm_cvtsi128_si64(row).to_le_bytes());
        out[8..].copy_from_slice(&_mm_extract_epi32::<2>(row).to_le_bytes());
    }
}

/// Three pixels a side of each block.
#[target_feature(enable = "avx2")]
pub(super) fn transform_to_3(pair: [&Coefficients; 2], quant: &Quant, out: &mut [u8], stride: usize) {
    let [w0, w1, w2] = descale(points_3([0, 1, 2].map(|y| dequantise(pair, quant, y)[0])));
    let [c0, c1, c2, _] = transpose([w0, w1, w2, w2]);
    let [c0, c1, c2] = to_pixels(points_3([c0, c1, c2]));
    let rows = turn_to_bytes([c0, c1, c2, c2]);
    let lanes = [_mm256_castsi256_si128(rows), _mm256_extracti128_si256::<1>(rows)];
    let [a, b] = lanes.map(|lane| [_mm_cvtsi128_si64(lane) as u64, _mm_extract_epi64::<1>(lane) as u64]);
    // Each row of a block is three bytes and one of no use.
    for (y, (a, b)) in [(a[0], b[0]), (a[0] >> 32, b[0] >> 32), (a[1], b[1])].into_iter().enumerate() {
        let row = a & 0xff_ffff | (b & 0xff_ffff) << 24;
        out[y * stride..][..6].copy_from_slice(&row.to_le_bytes()[..6]);
    }
}
