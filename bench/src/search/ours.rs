//! Our search, as the face index makes it: a pass over rows of 8 bits a component, then exact scores of the candidates.

use std::cell::Cell;

use photofinish_kernels::cosine::{Cosine, VectorQuery};
use photofinish_kernels::device::Device;
use photofinish_kernels::quantised::{Candidate, ProbeBatch, QuantisedRow, QuantisedRows, Scanner};

use super::contender::{DIMENSION, HITS, REPETITIONS, SearchTimes, time};
use crate::process;

/// Rows of a chunk, as in the face index.
const CHUNK_ROWS: usize = 8192;

/// Candidates of a probe from which on those that are too far are dropped.
const PRUNED: usize = 256;

/// The best rows of a probe with their scores, best first.
pub type Answer = Vec<(usize, f32)>;

/// Rows in 8 bits a component, and in full as a database has them.
pub struct QuantisedAlbum<'a> {
    vectors: &'a [f32],
    chunks: Vec<QuantisedRows>,
    resident_bytes: u64,
    candidates: Cell<usize>,
    searches: Cell<usize>,
}

/// Returns the answers of comparing all rows in `f32`.
pub fn search_in_full(probes: &[&[f32]], rows: &[f32]) -> Vec<Answer> {
    let scorer = Cosine::new(&Device::Cpu);
    let answer = |probe: &&[f32]| {
        let mut scores = Vec::with_capacity(rows.len() / DIMENSION);
        scorer.for_each_hit(&VectorQuery { probe, min_score: -2.0 }, rows, |hit| {
            scores.push((hit.row, hit.score));
        });
        sort_answer(&mut scores);
        scores.truncate(HITS);
        scores
    };
    probes.iter().map(answer).collect()
}

fn sort_answer(answer: &mut Answer) {
    answer.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

impl<'a> QuantisedAlbum<'a> {
    /// Quantises the rows.
    pub fn new(vectors: &'a [f32]) -> Self {
        let resident = || process::read_memory(std::process::id()).map_or(0, |memory| memory.resident);
        let before = resident();
        let chunks = vectors.chunks(CHUNK_ROWS * DIMENSION).map(|vectors| {
            let mut chunk = QuantisedRows::new(DIMENSION);
            chunk.reserve_exact(CHUNK_ROWS);
            for vector in vectors.chunks_exact(DIMENSION) {
                chunk.push(&QuantisedRow::new(vector));
            }
            chunk
        });
        let chunks = chunks.collect();
        let resident_bytes = resident().saturating_sub(before);
        Self { vectors, chunks, resident_bytes, candidates: Cell::new(0), searches: Cell::new(0) }
    }

    /// Returns the bytes of the vectors' components alone, which a search reads.
    pub fn vector_bytes(&self) -> usize {
        self.vectors.len()
    }

    /// Returns by how much the memory of this process grew for the rows.
    pub fn bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Returns the mean number of vectors that were scored in full, per probe.
    pub fn candidates_per_search(&self) -> f64 {
        self.candidates.get() as f64 / self.searches.get() as f64
    }

    /// Measures searches with one probe and with all in one pass.
    pub fn measure(
        &self,
        scanner: Scanner,
        threads: usize,
        probes: &[&[f32]],
        expected: &[Answer],
    ) -> SearchTimes {
        let mut times = SearchTimes { recall: 1.0, ..SearchTimes::default() };
        for repetition in 0..REPETITIONS {
            let probe = repetition % probes.len();
            let mut answers = Vec::new();
            times.one.push(time(|| answers = self.search(scanner, threads, &probes[probe..=probe])));
            times.checked += 1;
            times.right += usize::from(answers[0] == expected[probe]);
        }
        for _ in 0..REPETITIONS.div_ceil(3) {
            let mut answers = Vec::new();
            let all = time(|| answers = self.search(scanner, threads, probes));
            times.each_of_many.push(all / probes.len() as f64);
            times.checked += probes.len();
            times.right += answers.iter().zip(expected).filter(|(found, expected)| found == expected).count();
        }
        let found = |(answer, expected): (&Answer, &Answer)| {
            expected.iter().filter(|hit| answer.iter().any(|found| found.0 == hit.0)).count()
        };
        let answers = self.search(scanner, threads, probes);
        let hits: usize = answers.iter().zip(expected).map(found).sum();
        times.recall = hits as f64 / (HITS * probes.len()) as f64;
        times
    }

    fn search(&self, scanner: Scanner, threads: usize, probes: &[&[f32]]) -> Vec<Answer> {
        let batch = ProbeBatch::new(probes);
        let part_chunks = self.chunks.len().div_ceil(threads);
        let (chunks, batch_ref) = (&self.chunks, &batch);
        let parts: Vec<Vec<Collector>> = std::thread::scope(|scope| {
            let collect =
                move |part: usize| collect(scanner, batch_ref, chunks, part * part_chunks, part_chunks);
            let others: Vec<_> = (1..threads).map(|part| scope.spawn(move || collect(part))).collect();
            let own = collect(0);
            let others = others.into_iter().map(|part| part.join().expect("a search does not panic"));
            std::iter::once(own).chain(others).collect()
        });
        let scorer = Cosine::new(&Device::Cpu);
        probes.iter().enumerate().map(|(probe, vector)| self.rank(scorer, vector, probe, &parts)).collect()
    }

    /// Scores the candidates of a probe in full.
    fn rank(&self, scorer: Cosine, vector: &[f32], probe: usize, parts: &[Vec<Collector>]) -> Answer {
        let mut all = Collector::default();
        for part in parts {
            all.found.extend(&part[probe].found);
        }
        all.prune();
        let score = |found: &Candidate| {
            let row = &self.vectors[found.row * DIMENSION..][..DIMENSION];
            (found.row, scorer.score(vector, row))
        };
        let mut answer: Answer = all.found.iter().map(score).collect();
        self.candidates.set(self.candidates.get() + answer.len());
        self.searches.set(self.searches.get() + 1);
        sort_answer(&mut answer);
        answer.truncate(HITS);
        answer
    }
}

/// The candidates of one probe.
#[derive(Clone, Default)]
struct Collector {
    found: Vec<Candidate>,
    prune_at: usize,
}

impl Collector {
    /// Drops candidates that others are certain to surpass; returns the score that more must be able to reach.
    fn prune(&mut self) -> f32 {
        let mut lowers: Vec<f32> = self.found.iter().map(|found| found.lower).collect();
        if lowers.len() < HITS {
            return -2.0;
        }
        let least = *lowers.select_nth_unstable_by(HITS - 1, |a, b| b.total_cmp(a)).1;
        self.found.retain(|found| found.upper >= least);
        self.prune_at = PRUNED.max(2 * self.found.len());
        least
    }
}

fn collect(
    scanner: Scanner,
    probes: &ProbeBatch,
    chunks: &[QuantisedRows],
    first: usize,
    count: usize,
) -> Vec<Collector> {
    let mut collectors = vec![Collector { prune_at: PRUNED, ..Collector::default() }; probes.len()];
    let mut min_scores = vec![-2.0; probes.len()];
    for (index, chunk) in chunks.iter().enumerate().skip(first).take(count) {
        scanner.scan(probes, chunk, &mut min_scores, |candidate| {
            let collector = &mut collectors[candidate.probe];
            collector.found.push(Candidate { row: index * CHUNK_ROWS + candidate.row, ..candidate });
            if collector.found.len() >= collector.prune_at { collector.prune() } else { -2.0 }
        });
    }
    collectors
}
