//! The same on a GPU: a list of k for each chunk of rows and probe, merged by the host.

use super::album::{Album, Kind, Memory, Packed, Part};
use super::types::{Found, TOP_K_F16, TOP_K_I8, keep_best};
use crate::gpu::{Buffer, Gpu, GpuError, MAX_GROUPS, Program, to_words};

/// Rows of a workgroup, and probes, as in the sources.
const CHUNK: usize = 1024;
const PROBES: usize = 4;

/// Least score of a row; less is what a list has where there are no more rows.
const LEAST_SCORE: f32 = -1e38;

pub(super) fn search(
    gpu: &dyn Gpu,
    album: &Album,
    probes: &Packed,
    k: usize,
) -> Result<Vec<Vec<Found>>, GpuError> {
    let mut found = vec![Vec::new(); probes.factors.len()];
    for part in album.parts() {
        let chunks = part.rows.div_ceil(CHUNK);
        // So many probes that the lists fit a buffer.
        let most = gpu.max_buffer_bytes() / (chunks * k * 8) / PROBES * PROBES;
        let most = most.clamp(PROBES, MAX_GROUPS * PROBES);
        for first in (0..found.len()).step_by(most) {
            let last = (first + most).min(found.len());
            let part_search = PartSearch { kind: album.kind(), part, probes, first, k };
            part_search.run(gpu, &mut found[first..last])?;
        }
    }
    Ok(found)
}

/// The search of some probes in some rows.
struct PartSearch<'a> {
    kind: Kind,
    part: &'a Part,
    probes: &'a Packed,
    /// Index of the first probe.
    first: usize,
    k: usize,
}

impl PartSearch<'_> {
    fn run(&self, gpu: &dyn Gpu, found: &mut [Vec<Found>]) -> Result<(), GpuError> {
        let Self { kind, part, probes, first, k } = *self;
        let Memory::Device { words, factors } = &part.memory else { return Ok(()) };
        let (chunks, count) = (part.rows.div_ceil(CHUNK), found.len());
        // Whole groups of probes; those after the last are zeros.
        let padded = count.next_multiple_of(PROBES);
        let mut probe_words = probes.words[first * probes.stride..(first + count) * probes.stride].to_vec();
        probe_words.resize(padded * probes.stride, 0);
        let mut probe_factors: Vec<u32> =
            probes.factors[first..first + count].iter().map(|factor| factor.to_bits()).collect();
        probe_factors.resize(padded, 0);
        let mut program = Program::default();
        let search = [part.rows, part.stride, k, count].map(|value| value as u32);
        let bindings = [
            program.words(&search),
            program.add(Buffer::Resident(words.clone())),
            program.add(Buffer::Resident(factors.clone())),
            program.words(&probe_words),
            program.words(&probe_factors),
            program.output(count * chunks * k * 8),
        ];
        let kernel = match kind {
            Kind::I8 => &TOP_K_I8,
            Kind::F16 => &TOP_K_F16,
        };
        program.launch(kernel, &bindings, [chunks * 256, padded / PROBES, 1]);
        let outputs = gpu.run(&program)?;
        let lists = outputs.first().map(|bytes| to_words(bytes)).unwrap_or_default();
        for (found, lists) in found.iter_mut().zip(lists.chunks_exact(chunks * k * 2)) {
            let rows = lists
                .as_chunks::<2>()
                .0
                .iter()
                .map(|[row, bits]| Found { row: part.first + *row as usize, score: f32::from_bits(*bits) });
            found.extend(rows.filter(|row| row.score > LEAST_SCORE));
            keep_best(found, k);
        }
        Ok(())
    }
}
