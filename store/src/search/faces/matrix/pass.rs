//! A pass over the faces of one model: on the processor, or with the first look on a GPU.
//!
//! The GPU says of many rows at once which may score enough, but what is enough is known only when good ones were found.
//! So it looks at rows in stages, each a multiple of those before, and the processor judges what each stage has found
//! before the next begins: of all rows but the first few, some hundreds a probe are left for it.

use std::ops::Range;
use std::sync::OnceLock;

use photofinish_kernels::batch::near::{self, NearRows};
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::GpuError;
use photofinish_kernels::quantised::{Candidate, ProbeBatch, QuantisedRows, Scanner, judge};

use super::model_faces::CHUNK_FACES;
use super::shortlist::{Collector, RowFaces};
use crate::model::cost::{add_helper_cpu, thread_cpu_time};
use crate::search::scoring::FaceQuery;

/// By how many times the chunks of a stage and those before it are more than those before it. With more, each stage finds
/// more that is judged in vain; with fewer, more stages wait for the device.
const STAGE_GROWTH: usize = 8;

/// Rows that one thread judges: about two milliseconds of work, forty times what starting a thread costs.
const THREAD_JUDGED_ROWS: usize = 16 * 1024;

/// How a pass is made.
pub(crate) struct Pass<'a> {
    pub(crate) scanner: Scanner,
    /// Threads that share the work of the processor.
    pub(crate) threads: usize,
    /// Without one the processor looks at all rows.
    pub(crate) gpu: Option<&'a GpuPass>,
}

/// The part of a GPU in a pass. After a failure it has none.
pub(crate) struct GpuPass {
    device: Device,
    failure: OnceLock<GpuError>,
}

impl GpuPass {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, failure: OnceLock::new() }
    }

    /// Returns why the device did not take part to the end.
    pub(crate) fn into_failure(self) -> Option<GpuError> {
        self.failure.into_inner()
    }

    /// Returns the rows that may score enough; `None` where the device has failed.
    fn find(
        &self,
        probes: &ProbeBatch,
        chunks: &[&QuantisedRows],
        first: usize,
        min_cosines: &[f32],
    ) -> Option<NearRows> {
        if self.failure.get().is_some() {
            return None;
        }
        match near::find(&self.device, probes, chunks, first as u32, min_cosines) {
            Ok(near) => Some(near),
            Err(error) => {
                self.failure.get_or_init(|| error);
                None
            }
        }
    }
}

/// The rows of one model and what is searched among them.
pub(super) struct ModelSearch<'a, F> {
    pub(super) faces: &'a F,
    /// All but the last have [`CHUNK_FACES`].
    pub(super) chunks: Vec<&'a QuantisedRows>,
    pub(super) probes: ProbeBatch,
    pub(super) queries: &'a [&'a FaceQuery],
}

/// Chunks that are looked at together, and which of their rows a device has found.
struct Stage {
    chunks: Range<usize>,
    near: Option<NearRows>,
}

impl<'a, F: RowFaces + Sync> ModelSearch<'a, F> {
    /// Returns the collectors of all queries after a pass.
    pub(super) fn run(&self, pass: &Pass<'_>) -> Vec<Collector<'a>> {
        let mut collectors: Vec<Collector<'a>> =
            self.queries.iter().map(|query| Collector::new(query)).collect();
        let mut next = 0;
        while next < self.chunks.len() {
            let end = match pass.gpu {
                None => self.chunks.len(),
                // The processor looks at the first chunk: no row is enough, or all are, before any was seen.
                Some(_) => (next * STAGE_GROWTH).clamp(1, self.chunks.len()),
            };
            let min_cosines: Vec<f32> = collectors.iter().map(Collector::min_cosine).collect();
            let gpu = pass.gpu.filter(|_| next > 0);
            let near =
                gpu.and_then(|gpu| gpu.find(&self.probes, &self.chunks[next..end], next, &min_cosines));
            let threads = match &near {
                Some(near) => (near.count() / THREAD_JUDGED_ROWS).clamp(1, pass.threads.max(1)),
                None => pass.threads.max(1),
            };
            let stage = Stage { chunks: next..end, near };
            collectors = self.collect_stage(pass.scanner, &stage, collectors, threads);
            next = end;
            if next < self.chunks.len() {
                collectors.iter_mut().for_each(|collector| collector.prune(self.faces));
            }
        }
        collectors
    }

    /// Adds the candidates of a stage. Threads share its chunks.
    fn collect_stage(
        &self,
        scanner: Scanner,
        stage: &Stage,
        mut collectors: Vec<Collector<'a>>,
        threads: usize,
    ) -> Vec<Collector<'a>> {
        let part_chunks = stage.chunks.len().div_ceil(threads).max(1);
        let parts: Vec<Range<usize>> = (stage.chunks.clone().step_by(part_chunks))
            .map(|first| first..(first + part_chunks).min(stage.chunks.end))
            .collect();
        std::thread::scope(|scope| {
            let others = parts.iter().skip(1).map(|part| {
                let mut own: Vec<Collector<'a>> = collectors.iter().map(Collector::start_beside).collect();
                let help = move || {
                    self.collect(scanner, stage, part.clone(), &mut own);
                    (own, thread_cpu_time())
                };
                scope.spawn(help)
            });
            let others: Vec<_> = others.collect();
            if let Some(part) = parts.first() {
                self.collect(scanner, stage, part.clone(), &mut collectors);
            }
            for other in others {
                let (found, cpu) = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                add_helper_cpu(cpu);
                collectors.iter_mut().zip(found).for_each(|(own, found)| own.merge(found));
            }
        });
        collectors
    }

    /// Adds the candidates of some chunks of a stage.
    fn collect(
        &self,
        scanner: Scanner,
        stage: &Stage,
        chunks: Range<usize>,
        collectors: &mut [Collector<'a>],
    ) {
        let mut min_cosines: Vec<f32> = collectors.iter().map(Collector::min_cosine).collect();
        for index in chunks {
            let (first_row, rows) = (index * CHUNK_FACES, self.chunks[index]);
            let add = |candidate: Candidate| {
                collectors[candidate.probe].add(first_row + candidate.row, &candidate, self.faces)
            };
            match &stage.near {
                Some(near) => {
                    judge(&self.probes, rows, near.list(index - stage.chunks.start), &mut min_cosines, add);
                }
                None => scanner.scan(&self.probes, rows, &mut min_cosines, add),
            }
        }
    }
}
