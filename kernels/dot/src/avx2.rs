//! With AVX2. Its instruction for products of bytes saturates, so components are widened to 16 bits first: those of the probes
//! once for all rows, those of a row once for a tile of probes.

#![expect(
    unsafe_code,
    reason = "loads and stores of vectors take pointers; AVX2 is there only where detected"
)]

use std::arch::x86_64::*;

use crate::cpu::Avx2;
use crate::layout::{BLOCK_ROWS, GROUP, Line, Visit};
use crate::prefetch::prefetch;
use crate::probes::{self, Probes};

/// Rows whose groups, widened, fill a vector.
const VECTOR_ROWS: usize = 4;

/// Vectors of a widened line.
const VECTORS: usize = BLOCK_ROWS / VECTOR_ROWS;

/// Probes that are multiplied with two vectors of rows while those are in registers: their eight sums, the rows and a factor
/// are most of the sixteen registers. Two and three were slower, five and six slower with few probes and hardly faster with 32.
const TILE: usize = 4;

/// A group of components of each probe of a tile, 16 bits each.
type WideGroups = [i64; TILE];

/// See [`crate::DotProducts::for_each_block`].
pub(crate) fn for_each_block(_proof: Avx2, probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    debug_assert!(Avx2::is_detected());
    let tiles = widen_probes(probes);
    for (block, lines) in rows.chunks_exact(probes.groups()).enumerate() {
        for (tile, factors) in tiles.chunks_exact(probes.groups()).enumerate() {
            let place = Place { block, first_probe: tile * TILE };
            // SAFETY: the proof says that the processor has AVX2.
            unsafe { multiply(probes, &place, factors, lines, visit) }
        }
    }
}

/// Where a tile is multiplied.
struct Place {
    block: usize,
    first_probe: usize,
}

/// Returns all groups of the first tile, then those of the second. The last tile is filled up with zeros.
fn widen_probes(probes: &Probes) -> Vec<WideGroups> {
    let mut tiles = vec![[0; TILE]; probes.groups() * probes.len().div_ceil(TILE)];
    for probe in 0..probes.len() {
        let wide = &mut tiles[probe / TILE * probes.groups()..][..probes.groups()];
        let narrow = probes.tile(probe / probes::TILE * probes::TILE);
        for (wide, narrow) in wide.iter_mut().zip(narrow) {
            wide[probe % TILE] = widen_group(narrow[probe % probes::TILE]);
        }
    }
    tiles
}

fn widen_group(group: [i8; GROUP]) -> i64 {
    let [a, b, c, d] = group.map(|factor| u64::from(i16::from(factor).cast_unsigned()));
    (a | b << 16 | c << 32 | d << 48).cast_signed()
}

/// Multiplies a block with a tile. One or two probes leave registers for all rows of the block at once.
#[target_feature(enable = "avx2")]
fn multiply(probes: &Probes, place: &Place, factors: &[WideGroups], lines: &[Line], visit: &mut impl Visit) {
    match probes.len() - place.first_probe {
        1 => multiply_tile::<1, VECTORS>(probes, place, factors, lines, visit),
        2 => multiply_tile::<2, VECTORS>(probes, place, factors, lines, visit),
        3 => multiply_tile::<3, 2>(probes, place, factors, lines, visit),
        _ => multiply_tile::<TILE, 2>(probes, place, factors, lines, visit),
    }
}

/// Multiplies the rows of a block, `AT_ONCE` vectors of them at a time, with the first `PROBES` of a tile.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply_tile<const PROBES: usize, const AT_ONCE: usize>(
    probes: &Probes,
    place: &Place,
    factors: &[WideGroups],
    lines: &[Line],
    visit: &mut impl Visit,
) {
    let mut dots = [[0; BLOCK_ROWS]; PROBES];
    for first in (0..VECTORS).step_by(AT_ONCE) {
        // Per vector of rows, the sums of its four rows: two each, of the first and the last two components of the groups.
        let mut sums = [[_mm256_setzero_si256(); AT_ONCE]; PROBES];
        for (line, factors) in lines.iter().zip(factors) {
            if PROBES == 1 {
                prefetch(line);
            }
            let mut components = [_mm256_setzero_si256(); AT_ONCE];
            for (vector, components) in components.iter_mut().enumerate() {
                *components = widen_rows(line, first + vector);
            }
            for (sums, factors) in sums.iter_mut().zip(factors) {
                let factors = _mm256_set1_epi64x(*factors);
                for (sum, components) in sums.iter_mut().zip(components) {
                    // At most 2 * 255 * 127: far from what 32 bits hold.
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(components, factors));
                }
            }
        }
        for (probe, (dots, sums)) in dots.iter_mut().zip(&sums).enumerate() {
            let offset = _mm256_set1_epi32(probes.offset(place.first_probe + probe));
            let dots = &mut dots.as_chunks_mut::<{ 2 * VECTOR_ROWS }>().0[first / 2..];
            for (dots, sums) in dots.iter_mut().zip(sums.as_chunks::<2>().0) {
                store(dots, _mm256_add_epi32(offset, add_pairs(*sums)));
            }
        }
    }
    for (probe, dots) in dots.iter().enumerate() {
        visit.visit(place.block, place.first_probe + probe, dots);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn widen_rows(line: &Line, vector: usize) -> __m256i {
    let rows: &[[u8; GROUP]; VECTOR_ROWS] = &line.0.as_chunks().0[vector];
    // SAFETY: an unaligned load of the array's 16 bytes.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(rows.as_ptr().cast()) })
}

/// Adds the two sums of each row of two vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs(sums: [__m256i; 2]) -> __m256i {
    // The instruction adds within halves of vectors, so its halves alternate: rows 0, 1, 4, 5, then 2, 3, 6, 7.
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(sums[0], sums[1]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(dots: &mut [i32; 2 * VECTOR_ROWS], sums: __m256i) {
    // SAFETY: an unaligned store to the array's 32 bytes.
    unsafe { _mm256_storeu_si256(dots.as_mut_ptr().cast(), sums) };
}
