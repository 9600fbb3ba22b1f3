//! The same on a GPU: a launch for each list, in as few programs as fit its buffers.

use super::types::{NEAR_ROWS, NearRows, PROBES, THREADS, count_words};
use crate::gpu::{Buffer, Gpu, GpuError, MAX_GROUPS, Program, Resident, to_words};
use crate::quantised::{BLOCK_ROWS, ProbeBatch, QuantisedRows};

/// Words before the first block of a list: a line of the cache, so that blocks begin with one.
const HEADER_WORDS: usize = 16;

/// A bound that no row reaches whose scale and error are numbers.
const UNREACHED: [f32; 4] = [0.0, 0.0, 0.0, f32::MAX];

/// Scale, norm, margin and least score of each probe for each list.
pub(super) struct Bounds {
    /// Of whole workgroups; those after the last probe are not reached.
    probes: usize,
    values: Vec<[f32; 4]>,
    /// Lists and probes of which a device could say nothing: every row is near.
    unbounded: Vec<Unbounded>,
}

/// A list and a probe with numbers so large that sums could be infinite.
pub(super) struct Unbounded {
    pub(super) list: usize,
    pub(super) probe: usize,
}

impl Bounds {
    pub(super) fn new(probes: &ProbeBatch, lists: &[&QuantisedRows], min_scores: &[f32]) -> Self {
        let padded = probes.len().next_multiple_of(PROBES);
        let mut bounds =
            Self { probes: padded, values: vec![UNREACHED; lists.len() * padded], unbounded: Vec::new() };
        for (list, rows) in lists.iter().enumerate() {
            for (probe, min_score) in min_scores.iter().enumerate() {
                match probes.device_bound(probe, rows, *min_score) {
                    Some(bound) => bounds.values[list * padded + probe] = bound,
                    None => bounds.unbounded.push(Unbounded { list, probe }),
                }
            }
        }
        bounds
    }

    pub(super) fn get(&self, list: usize, probe: usize) -> [f32; 4] {
        self.values[list * self.probes + probe]
    }

    pub(super) fn unbounded(&self) -> &[Unbounded] {
        &self.unbounded
    }

    fn of_lists(&self, lists: std::ops::Range<usize>) -> &[f32] {
        self.values[lists.start * self.probes..lists.end * self.probes].as_flattened()
    }
}

/// Returns the bytes that rows take on a device.
pub(super) fn count_bytes(rows: &QuantisedRows) -> usize {
    HEADER_WORDS * 4 + QuantisedRows::bytes_of(rows.len(), rows.dimension())
}

/// Copies rows to a device as they are, unless they are there.
pub(super) fn place(gpu: &dyn Gpu, rows: &QuantisedRows, number: u32) -> Result<Resident, GpuError> {
    if let Some(resident) = rows.copy().get(number) {
        return Ok(resident);
    }
    let (bytes, limit) = (count_bytes(rows), gpu.max_buffer_bytes());
    if bytes > limit || rows.len() > MAX_GROUPS * THREADS {
        return Err(GpuError::TooLarge { bytes, limit });
    }
    let mut memory = Vec::with_capacity(bytes);
    let mut header = [0_u32; HEADER_WORDS];
    (header[0], header[1]) = (number, rows.len() as u32);
    memory.extend_from_slice(bytemuck::cast_slice(&header));
    for line in rows.lines() {
        memory.extend_from_slice(line.0.as_flattened());
    }
    for block in 0..rows.len().div_ceil(BLOCK_ROWS) {
        let factors = rows.factors(block);
        memory.extend_from_slice(bytemuck::cast_slice(&factors.scales));
        memory.extend_from_slice(bytemuck::cast_slice(&factors.errors));
    }
    let resident = gpu.upload(&memory)?;
    rows.copy().put(number, resident.clone());
    Ok(resident)
}

/// The search of some lists on a GPU.
pub(super) struct GpuSearch<'a> {
    pub(super) gpu: &'a dyn Gpu,
    pub(super) probes: &'a ProbeBatch,
    pub(super) lists: &'a [&'a QuantisedRows],
    pub(super) bounds: &'a Bounds,
    /// Number of the first list.
    pub(super) first: u32,
}

impl GpuSearch<'_> {
    /// Sets the bits of all lists.
    pub(super) fn run(&self, near: &mut NearRows) -> Result<(), GpuError> {
        let longest = self.lists.iter().map(|rows| rows.len()).max().unwrap_or(0);
        // So many lists that neither the bits nor the bounds are more than a buffer.
        let bits = self.probes.len() * count_words(longest) * 4;
        let bounds = self.bounds.probes * size_of::<[f32; 4]>();
        let most = (self.gpu.max_buffer_bytes() / bits.max(bounds)).max(1);
        let words = self.pack_probes();
        for first in (0..self.lists.len()).step_by(most) {
            let lists = first..(first + most).min(self.lists.len());
            let found = self.run_program(&words, lists.clone(), count_words(longest))?;
            let into = near.words_of_lists(lists);
            if found.len() != into.len() {
                return Err(GpuError::Failed(format!("{} words of {}", found.len(), into.len())));
            }
            into.copy_from_slice(&found);
        }
        Ok(())
    }

    fn run_program(
        &self,
        probes: &[u32],
        lists: std::ops::Range<usize>,
        stride: usize,
    ) -> Result<Vec<u32>, GpuError> {
        let mut program = Program::default();
        let first = self.first + lists.start as u32;
        let search = [self.probes.len() as u32, self.words_of_row() as u32, first, stride as u32];
        let search = program.words(&search);
        let probes = program.words(probes);
        let bounds = program.floats(self.bounds.of_lists(lists.clone()));
        let bits = program.output(lists.len() * self.probes.len() * stride * 4);
        let numbered = (first..).zip(&self.lists[lists]);
        for (number, rows) in numbered.filter(|(_, rows)| !rows.is_empty()) {
            let copy = program.add(Buffer::Resident(place(self.gpu, rows, number)?));
            let threads = [rows.len(), self.bounds.probes / PROBES, 1];
            program.launch(&NEAR_ROWS, &[search, copy, probes, bounds, bits], threads);
        }
        let outputs = self.gpu.run(&program)?;
        Ok(outputs.first().map(|bytes| to_words(bytes)).unwrap_or_default())
    }

    /// The first word of each probe of a workgroup, then the second ones; zeros after the last probe.
    fn pack_probes(&self) -> Vec<u32> {
        let words = self.words_of_row();
        let mut packed = vec![0; self.bounds.probes * words];
        for probe in 0..self.probes.len() {
            let first = probe / PROBES * PROBES * words + probe % PROBES;
            for (word, codes) in self.probes.codes_of(probe).iter().enumerate() {
                packed[first + word * PROBES] = u32::from_le_bytes(codes.map(i8::cast_unsigned));
            }
        }
        packed
    }

    fn words_of_row(&self) -> usize {
        self.probes.codes().groups()
    }
}
