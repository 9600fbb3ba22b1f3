//! With AVX-512 VNNI: one instruction adds four products to each of 16 sums, and none of its steps saturates.

#![expect(
    unsafe_code,
    reason = "loads and stores of vectors take pointers; VNNI is there only where detected"
)]

use std::arch::x86_64::*;

use crate::cpu::Vnni;
use crate::layout::{BLOCK_ROWS, GROUP, Line, Visit};
use crate::prefetch::prefetch;
use crate::probes::{Probes, TILE};

/// Blocks that are multiplied with a tile of probes at once: 16 sums hide the instruction's latency of five cycles.
const TILE_BLOCKS: usize = 2;

/// Sums of one probe, for the same reason.
const CHAINS: usize = 4;

/// See [`crate::DotProducts::for_each_block`].
pub(crate) fn for_each_block(_proof: Vnni, probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    debug_assert!(Vnni::is_detected());
    if probes.len() == 1 {
        // SAFETY: the proof says that the processor has AVX-512 F, BW and VNNI.
        unsafe { multiply_one(probes, rows, visit) }
    } else {
        // SAFETY: as above.
        unsafe { multiply_many(probes, rows, visit) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_one(probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    let (tile, offset) = (probes.tile(0), _mm512_set1_epi32(probes.offset(0)));
    let (chained_groups, last_groups) = tile.as_chunks::<CHAINS>();
    for (block, lines) in rows.chunks_exact(probes.groups()).enumerate() {
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        let (chained, last) = lines.as_chunks::<CHAINS>();
        for (lines, groups) in chained.iter().zip(chained_groups) {
            for chain in 0..CHAINS {
                prefetch(&lines[chain]);
                sums[chain] = _mm512_dpbusd_epi32(sums[chain], load(&lines[chain]), repeat(groups[chain][0]));
            }
        }
        for (line, group) in last.iter().zip(last_groups) {
            sums[0] = _mm512_dpbusd_epi32(sums[0], load(line), repeat(group[0]));
        }
        let halves = [_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3])];
        visit.visit(block, 0, &store(_mm512_add_epi32(offset, _mm512_add_epi32(halves[0], halves[1]))));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_many(probes: &Probes, rows: &[Line], visit: &mut impl Visit) {
    let groups = probes.groups();
    let mut block = 0;
    for pair in rows.chunks(TILE_BLOCKS * groups) {
        let blocks = pair.len() / groups;
        for first in (0..probes.len()).step_by(TILE) {
            let (one, other) = pair.split_at(groups);
            if blocks == TILE_BLOCKS {
                let sums = multiply_tile(probes, first, [one, other]);
                visit_tile(probes, first, block, &sums, visit);
            } else {
                visit_tile(probes, first, block, &multiply_tile(probes, first, [one]), visit);
            }
        }
        block += blocks;
    }
}

/// Returns the sums of each block with each probe of the tile that begins with `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_tile<const BLOCKS: usize>(
    probes: &Probes,
    first: usize,
    blocks: [&[Line]; BLOCKS],
) -> [[__m512i; TILE]; BLOCKS] {
    let mut sums = [[_mm512_setzero_si512(); TILE]; BLOCKS];
    let tile = probes.tile(first);
    let blocks = blocks.map(|lines| &lines[..tile.len()]);
    for (at, group) in tile.iter().enumerate() {
        let mut lines = [_mm512_setzero_si512(); BLOCKS];
        for (line, block) in lines.iter_mut().zip(blocks) {
            *line = load(&block[at]);
        }
        for probe in 0..TILE {
            let factors = repeat(group[probe]);
            for block in 0..BLOCKS {
                sums[block][probe] = _mm512_dpbusd_epi32(sums[block][probe], lines[block], factors);
            }
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn visit_tile<const BLOCKS: usize>(
    probes: &Probes,
    first: usize,
    first_block: usize,
    sums: &[[__m512i; TILE]; BLOCKS],
    visit: &mut impl Visit,
) {
    for (block, sums) in sums.iter().enumerate() {
        for (probe, sum) in (first..probes.len()).zip(sums) {
            let offset = _mm512_set1_epi32(probes.offset(probe));
            visit.visit(first_block + block, probe, &store(_mm512_add_epi32(offset, *sum)));
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn repeat(group: [i8; GROUP]) -> __m512i {
    _mm512_set1_epi32(i32::from_le_bytes(group.map(i8::cast_unsigned)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &Line) -> __m512i {
    // SAFETY: a load of the line's 64 bytes, which its type aligns to 64.
    unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(sums: __m512i) -> [i32; BLOCK_ROWS] {
    let mut dots = [0; BLOCK_ROWS];
    // SAFETY: an unaligned store to the array's 64 bytes.
    unsafe { _mm512_storeu_si512(dots.as_mut_ptr().cast(), sums) };
    dots
}
