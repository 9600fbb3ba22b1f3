//! YCbCr to RGB with AVX2, 32 pixels a step.

#![expect(
    unsafe_code,
    reason = "loads and stores of vectors take pointers; AVX2 is there only where detected"
)]

use std::arch::x86_64::*;

use crate::colour::portable;
use crate::colour::ycc_row::YccRow;
use crate::cpu::Avx2;

/// Pixels of a step.
const STEP: usize = 32;

/// Where the 16 samples of one colour go in a part of three times 16 bytes of RGB.
const fn spread(colour: usize, part: usize) -> [i8; 16] {
    let mut mask = [-1_i8; 16];
    let mut i = 0;
    while i < 16 {
        let at = part * 16 + i;
        if at % 3 == colour {
            mask[i] = (at / 3) as i8;
        }
        i += 1;
    }
    mask
}

/// By part, then by colour.
static SPREAD: [[[i8; 16]; 3]; 3] = [
    [spread(0, 0), spread(1, 0), spread(2, 0)],
    [spread(0, 1), spread(1, 1), spread(2, 1)],
    [spread(0, 2), spread(1, 2), spread(2, 2)],
];

/// Writes one row of RGB.
pub(super) fn rgb_from_ycc(_proof: Avx2, row: YccRow<'_>, out: &mut [u8]) {
    debug_assert!(Avx2::is_detected());
    // SAFETY: the proof says that the processor has AVX2.
    unsafe { convert(row, out) }
}

#[target_feature(enable = "avx2")]
fn convert(row: YccRow<'_>, out: &mut [u8]) {
    let (pixels, _) = out.as_chunks_mut::<{ STEP * 3 }>();
    let whole = pixels.len() * STEP;
    let (ys, cbs, crs) = (row.y.as_chunks().0, row.cb.as_chunks().0, row.cr.as_chunks().0);
    for (((out, y), cb), cr) in pixels.iter_mut().zip(ys).zip(cbs).zip(crs) {
        convert_step(y, cb, cr, out);
    }
    let rest = YccRow { y: &row.y[whole..], cb: &row.cb[whole..], cr: &row.cr[whole..] };
    portable::rgb_from_ycc(rest, &mut out[whole * 3..]);
}

#[target_feature(enable = "avx2")]
fn load(from: &[u8; STEP], half: usize) -> __m128i {
    debug_assert!(half < 2);
    // SAFETY: an unaligned load of one half of the array's 32 bytes.
    unsafe { _mm_loadu_si128(from.as_ptr().add(half * 16).cast()) }
}

#[target_feature(enable = "avx2")]
fn load_spread(mask: &[i8; 16]) -> __m256i {
    // SAFETY: an unaligned load of the array's 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(mask.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
fn store(rgb: __m256i, out: &mut [u8; STEP * 3], part: usize) {
    debug_assert!(part < 3);
    // SAFETY: an unaligned store to one of three parts of 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(part * 32).cast(), rgb) };
}

/// (factor * x + half) >> 16, from a high product of twice x: exact, and in 16 bits.
#[target_feature(enable = "avx2")]
fn scale(x: __m256i, factor: i16) -> __m256i {
    let high = _mm256_mulhi_epi16(_mm256_add_epi16(x, x), _mm256_set1_epi16(factor));
    _mm256_srai_epi16::<1>(_mm256_add_epi16(high, _mm256_set1_epi16(1)))
}

/// -0.344 cb + 0.286 cr, rounded.
#[target_feature(enable = "avx2")]
fn weigh_for_green(pair: __m256i) -> __m256i {
    let sum = _mm256_madd_epi16(pair, _mm256_set1_epi32((-22_554 & 0xffff) | 18_734 << 16));
    _mm256_srai_epi32::<16>(_mm256_add_epi32(sum, _mm256_set1_epi32(32_768)))
}

/// 16 pixels as 16-bit R, G and B, not clamped.
#[target_feature(enable = "avx2")]
fn rgb_of_16(y: __m128i, cb: __m128i, cr: __m128i) -> [__m256i; 3] {
    let middle = _mm256_set1_epi16(128);
    let y = _mm256_cvtepu8_epi16(y);
    let cb = _mm256_sub_epi16(_mm256_cvtepu8_epi16(cb), middle);
    let cr = _mm256_sub_epi16(_mm256_cvtepu8_epi16(cr), middle);
    // 1.402 is 1 + 0.402.
    let r = _mm256_add_epi16(_mm256_add_epi16(y, cr), scale(cr, 26_345));
    // 1.772 is 2 - 0.228.
    let b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)), scale(cb, -14_942));
    // -0.344 cb - 0.714 cr is (-0.344 cb + 0.286 cr) - cr.
    let low = weigh_for_green(_mm256_unpacklo_epi16(cb, cr));
    let high = weigh_for_green(_mm256_unpackhi_epi16(cb, cr));
    let g = _mm256_add_epi16(_mm256_sub_epi16(y, cr), _mm256_packs_epi32(low, high));
    [r, g, b]
}

#[target_feature(enable = "avx2")]
fn convert_step(y: &[u8; STEP], cb: &[u8; STEP], cr: &[u8; STEP], out: &mut [u8; STEP * 3]) {
    let a = rgb_of_16(load(y, 0), load(cb, 0), load(cr, 0));
    let b = rgb_of_16(load(y, 1), load(cb, 1), load(cr, 1));
    let mut parts = [_mm256_setzero_si256(); 3];
    for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
        let colour = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(a, b));
        for (part, masks) in parts.iter_mut().zip(&SPREAD) {
            *part = _mm256_or_si256(*part, _mm256_shuffle_epi8(colour, load_spread(&masks[i])));
        }
    }
    store(_mm256_permute2x128_si256::<0x20>(parts[0], parts[1]), out, 0);
    store(_mm256_permute2x128_si256::<0x30>(parts[2], parts[0]), out, 1);
    store(_mm256_permute2x128_si256::<0x31>(parts[1], parts[2]), out, 2);
}

#[cfg(test)]
mod tests {
    use crate::colour::{YccRow, rgb_from_ycc};
    use crate::cpu::Cpu;

    #[test]
    fn every_colour_is_the_same_with_vectors_and_plain_code() {
        let ramp: Vec<u8> = (0..=255).collect();
        for cb in 0..=255 {
            for cr in 0..=255 {
                let row = YccRow { y: &ramp, cb: &[cb; 256], cr: &[cr; 256] };
                let mut out = [[0; 768]; 2];
                rgb_from_ycc(Cpu::detect(), row, &mut out[0]);
                rgb_from_ycc(Cpu::Portable, row, &mut out[1]);
                assert_eq!(out[0], out[1], "{cb} {cr}");
            }
        }
    }

    #[test]
    fn rows_of_every_length_are_whole() {
        let samples: Vec<u8> = (0..200).collect();
        for length in 0..=samples.len() {
            let row = YccRow { y: &samples[..length], cb: &samples[..length], cr: &samples[..length] };
            let mut out = [vec![0; length * 3], vec![0; length * 3]];
            rgb_from_ycc(Cpu::detect(), row, &mut out[0]);
            rgb_from_ycc(Cpu::Portable, row, &mut out[1]);
            assert_eq!(out[0], out[1], "{length}");
        }
    }
}
