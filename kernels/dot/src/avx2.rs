//! With AVX2. Its instruction for products of bytes saturates, so components are widened to 16 bits first: once for two
//! probes, because widening is what the processor has one unit for.

#![expect(
    unsafe_code,
    reason = "loads and stores of vectors take pointers; AVX2 is there only where detected"
)]

use std::arch::x86_64::*;

use crate::cpu::Avx2;
use crate::layout::{BLOCK_ROWS, GROUP, Line, Visit};
use crate::probes::{Probes, TILE};

/// Rows whose groups, widened, fill a vector.
const VECTOR_ROWS: usize = 4;

/// Vectors of a widened line.
const VECTORS: usize = BLOCK_ROWS / VECTOR_ROWS;

/// Per vector of a line, the sums of its four rows: two each, of the first and the last two components of the groups.
type Sums = [__m256i; VECTORS];

/// See [`crate::DotProducts::for_each_block`].
pub(crate) fn for_each_block(_proof: Avx2, probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    debug_assert!(Avx2::is_detected());
    // SAFETY: the proof says that the processor has AVX2.
    unsafe { multiply(probes, rows, visit) }
}

#[target_feature(enable = "avx2")]
fn multiply(probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    for (block, lines) in rows.chunks_exact(probes.groups()).enumerate() {
        for first in (0..probes.len()).step_by(2) {
            if first + 1 < probes.len() {
                let [one, other] = multiply_probes(probes, [first, first + 1], lines);
                visit.visit(block, first, &store(&one, probes.offset(first)));
                visit.visit(block, first + 1, &store(&other, probes.offset(first + 1)));
            } else {
                let [one] = multiply_probes(probes, [first], lines);
                visit.visit(block, first, &store(&one, probes.offset(first)));
            }
        }
    }
}

/// Returns the sums of a block with some probes of one tile.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply_probes<const PROBES: usize>(
    probes: &Probes,
    which: [usize; PROBES],
    lines: &[Line],
) -> [Sums; PROBES] {
    let tile = probes.tile(which[0] / TILE * TILE);
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; PROBES];
    for (line, group) in lines.iter().zip(tile) {
        let factors = which.map(|probe| widen_factors(group[probe % TILE]));
        for (vector, rows) in line.0.as_chunks::<VECTOR_ROWS>().0.iter().enumerate() {
            let components = widen(rows);
            for probe in 0..PROBES {
                // At most 2 * 255 * 127: far from what 32 bits hold.
                let products = _mm256_madd_epi16(components, _mm256_set1_epi64x(factors[probe]));
                sums[probe][vector] = _mm256_add_epi32(sums[probe][vector], products);
            }
        }
    }
    sums
}

/// Four factors of 16 bits.
#[inline(always)]
fn widen_factors(group: [i8; GROUP]) -> i64 {
    let [a, b, c, d] = group.map(|factor| u64::from(i16::from(factor).cast_unsigned()));
    (a | b << 16 | c << 32 | d << 48).cast_signed()
}

#[inline]
#[target_feature(enable = "avx2")]
fn widen(rows: &[[u8; GROUP]; VECTOR_ROWS]) -> __m256i {
    // SAFETY: an unaligned load of the array's 16 bytes.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(rows.as_ptr().cast()) })
}

/// Adds the two sums of each row, and the offset.
#[inline]
#[target_feature(enable = "avx2")]
fn store(sums: &Sums, offset: i32) -> [i32; BLOCK_ROWS] {
    let mut dots = [0; BLOCK_ROWS];
    for (rows, sums) in dots.as_chunks_mut::<VECTOR_ROWS>().0.iter_mut().zip(sums) {
        let mut pairs = [0; 2 * VECTOR_ROWS];
        // SAFETY: an unaligned store to the array's 32 bytes.
        unsafe { _mm256_storeu_si256(pairs.as_mut_ptr().cast(), *sums) };
        for (dot, pair) in rows.iter_mut().zip(pairs.as_chunks::<2>().0) {
            *dot = pair[0] + pair[1] + offset;
        }
    }
    dots
}
