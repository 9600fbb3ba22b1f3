//! Rows that may be answers: those of a scan of the processor, before and after changes; and what is on the device.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use photofinish_kernels::batch::near::{count_bytes, find};
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{Gpu, GpuError, Program, Resident};
use photofinish_kernels::quantised::{Candidate, ProbeBatch, QuantisedRow, QuantisedRows, Scanner, judge};

use crate::devices::{self, Noise};

type Lists = Vec<QuantisedRows>;

fn draw(noise: &mut Noise, dimension: usize) -> Vec<f32> {
    let vector: Vec<f32> = (0..dimension).map(|_| noise.number(-1.0, 1.0)).collect();
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    // Mostly of unit length, as embeddings are.
    let length = if noise.word().is_multiple_of(8) { length * noise.number(0.01, 100.0) } else { length };
    vector.iter().map(|value| value / length).collect()
}

fn draw_lists(noise: &mut Noise, sizes: &[usize], dimension: usize) -> Lists {
    let mut draw_list = |size: &usize| {
        let mut list = QuantisedRows::new(dimension);
        (0..*size).for_each(|_| list.push(&QuantisedRow::new(&draw(noise, dimension))));
        list
    };
    sizes.iter().map(&mut draw_list).collect()
}

fn batch(probes: &[Vec<f32>]) -> ProbeBatch {
    ProbeBatch::new(&probes.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// What must be equal of a candidate, the bits of its bounds included.
fn key(list: usize, candidate: &Candidate) -> [usize; 5] {
    let Candidate { probe, row, lower, upper } = *candidate;
    [list, probe, row, lower.to_bits() as usize, upper.to_bits() as usize]
}

fn scan(probes: &ProbeBatch, lists: &Lists, min_scores: &[f32]) -> BTreeSet<[usize; 5]> {
    let mut found = BTreeSet::new();
    for (index, list) in lists.iter().enumerate() {
        Scanner::new(&Device::Cpu).scan(probes, list, &mut min_scores.to_vec(), |candidate| {
            found.insert(key(index, &candidate));
            f32::NEG_INFINITY
        });
    }
    found
}

/// Candidates, and how many rows the device found for that.
struct Searched {
    found: BTreeSet<[usize; 5]>,
    looked_at: usize,
}

fn search(
    device: &Device,
    probes: &ProbeBatch,
    lists: &Lists,
    min_scores: &[f32],
) -> Result<Searched, GpuError> {
    let near = find(device, probes, &lists.iter().collect::<Vec<_>>(), 7, min_scores)?;
    let mut found = BTreeSet::new();
    for (index, list) in lists.iter().enumerate() {
        judge(probes, list, near.list(index), &mut min_scores.to_vec(), |candidate| {
            found.insert(key(index, &candidate));
            f32::NEG_INFINITY
        });
    }
    Ok(Searched { found, looked_at: near.count() })
}

fn compare(device: &Device, probes: &ProbeBatch, lists: &Lists, min_scores: &[f32]) {
    let expected = scan(probes, lists, min_scores);
    let reference = search(&Device::Cpu, probes, lists, min_scores).expect("no error");
    assert!(reference.found == expected, "the reference");
    let searched = search(device, probes, lists, min_scores).expect("no error");
    assert!(searched.found == expected, "{} of {}", searched.found.len(), expected.len());
    // A device that fuses products and sums may differ by the rows that are exactly at a bound.
    let difference = searched.looked_at.abs_diff(reference.looked_at);
    assert!(difference * 1000 <= reference.looked_at, "{} rows", searched.looked_at);
}

const MIN_SCORES: [f32; 6] = [0.1, f32::NEG_INFINITY, 0.3, f32::INFINITY, 0.0, 0.9];

/// `small` is the size of a buffer into which not all lists fit.
fn compare_all(sizes: &[usize], dimension: usize, probes: usize, small: usize) {
    let mut noise = Noise::new(dimension as u32);
    let lists = draw_lists(&mut noise, sizes, dimension);
    let probes: Vec<Vec<f32>> = (0..probes).map(|_| draw(&mut noise, dimension)).collect();
    let min_scores: Vec<f32> = MIN_SCORES.into_iter().cycle().take(probes.len()).collect();
    devices::for_each(small, |device| {
        lists.iter().for_each(|list| list.device_copy().clear());
        compare(device, &batch(&probes), &lists, &min_scores);
        // Again with what is on the device by now.
        compare(device, &batch(&probes), &lists, &min_scores);
    });
}

#[test]
fn a_device_finds_the_rows_that_a_scan_finds() {
    compare_all(&[1], 3, 1, 4 << 10);
    compare_all(&[0], 3, 1, 4 << 10);
    compare_all(&[257, 1, 40, 256, 0, 31], 128, 17, 64 << 10);
    compare_all(&[600, 513], 256, 32, 256 << 10);
    compare_all(&[40; 9], 7, 33, 3 << 10);
}

#[test]
fn what_is_infinite_or_no_number_is_found_and_the_rest_with_it() {
    let strange = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e30, 1e-30, 1e-45, 0.0, -0.0];
    let mut noise = Noise::new(3);
    let mut vectors: Vec<Vec<f32>> = (0..30).map(|_| draw(&mut noise, 6)).collect();
    for (index, value) in strange.into_iter().enumerate() {
        vectors[index * 3][index % 6] = value;
        vectors[index * 3 + 1] = vec![value; 6];
    }
    devices::for_each(64 << 10, |device| {
        for min_score in [-1.0, 0.0, 0.5, f32::MAX] {
            // Each alone, since one that is infinite makes the bounds of all in its list infinite.
            let mut lists: Lists = Vec::new();
            for vector in &vectors {
                let mut list = QuantisedRows::new(6);
                list.push(&QuantisedRow::new(vector));
                lists.push(list);
            }
            let mut all = QuantisedRows::new(6);
            vectors.iter().for_each(|vector| all.push(&QuantisedRow::new(vector)));
            lists.push(all);
            // The processor's scan finds all rows of a block where one is near, also by a NaN.
            let probes = batch(&vectors);
            let min_scores = vec![min_score; vectors.len()];
            let expected = scan(&probes, &lists, &min_scores);
            let searched = search(device, &probes, &lists, &min_scores).expect("no error");
            assert!(searched.found == expected, "{min_score}");
        }
    });
}

/// A device that knows what is on it, and fails when it is told to.
#[derive(Debug)]
struct Watched {
    gpu: Arc<dyn Gpu>,
    uploads: Mutex<Vec<Upload>>,
    calls: AtomicUsize,
    fails_at: AtomicUsize,
}

#[derive(Debug)]
struct Upload {
    bytes: Vec<u8>,
    memory: Weak<dyn Any + Send + Sync>,
}

impl Watched {
    fn new(gpu: &Arc<dyn Gpu>) -> Arc<Self> {
        let (calls, fails_at) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { gpu: Arc::clone(gpu), uploads: Mutex::default(), calls, fails_at })
    }

    /// The bytes that are on the device.
    fn list_memory(&self) -> Vec<Vec<u8>> {
        let uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        uploads
            .iter()
            .filter(|upload| upload.memory.strong_count() > 0)
            .map(|upload| upload.bytes.clone())
            .collect()
    }

    fn count_uploads(&self) -> usize {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn check_call(&self) -> Result<(), GpuError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = call == self.fails_at.load(Ordering::Relaxed);
        if fails { Err(GpuError::OutOfMemory("none left".into())) } else { Ok(()) }
    }
}

impl Gpu for Watched {
    fn name(&self) -> String {
        self.gpu.name()
    }

    fn max_buffer_bytes(&self) -> usize {
        self.gpu.max_buffer_bytes()
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        self.check_call()?;
        let resident = self.gpu.upload(bytes)?;
        let upload = Upload { bytes: bytes.to_vec(), memory: Arc::downgrade(&resident.memory) };
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).push(upload);
        Ok(resident)
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        self.check_call()?;
        self.gpu.run(program)
    }
}

/// Whether a row of these vectors is in memory as it is stored: all first words of 16 rows, then all second ones.
fn contains(memory: &[u8], vector: &[f32]) -> bool {
    let mut list = QuantisedRows::new(vector.len());
    list.push(&QuantisedRow::new(vector));
    // What a device gets of one row is the only source of its stored form here.
    let watched = Watched::new(&devices::list()[0]);
    let device = Device::Gpu(Arc::clone(&watched) as _);
    find(&device, &batch(&[vector.to_vec()]), &[&list], 0, &[0.0]).expect("no error");
    let stored = watched.list_memory().remove(0);
    let words: Vec<&[u8]> =
        stored[64..].chunks(64).take(vector.len().div_ceil(4)).map(|line| &line[..4]).collect();
    let mut blocks = memory[64..].chunks(64 * words.len());
    blocks.any(|block| {
        (0..16).any(|lane| {
            words.iter().enumerate().all(|(word, bytes)| {
                block.get(word * 64 + lane * 4..word * 64 + lane * 4 + 4) == Some(*bytes)
            })
        })
    })
}

#[test]
fn after_random_changes_a_device_finds_the_rows_of_now_and_copies_only_what_has_changed() {
    for gpu in devices::list() {
        let mut noise = Noise::new(5);
        let mut lists = draw_lists(&mut noise, &[50, 33, 16, 1], 20);
        let probes: Vec<Vec<f32>> = (0..20).map(|_| draw(&mut noise, 20)).collect();
        let min_scores = vec![0.2; probes.len()];
        let watched = Watched::new(gpu);
        let device = Device::Gpu(Arc::clone(&watched) as _);
        compare(&device, &batch(&probes), &lists, &min_scores);
        let mut uploads = watched.count_uploads();
        assert_eq!(uploads, lists.len());
        for _ in 0..30 {
            let mut changed = BTreeSet::new();
            for _ in 0..noise.word() % 4 {
                let index = noise.word() as usize % lists.len();
                let list = &mut lists[index];
                let len = list.len();
                let row = QuantisedRow::new(&draw(&mut noise, 20));
                match noise.word() % 3 {
                    0 if len > 1 => drop(list.pop()),
                    1 if len > 0 => list.set(noise.word() as usize % len, &row),
                    _ => list.push(&row),
                }
                assert_eq!(list.device_copy().bytes(), 0, "a change gives the copy up");
                changed.insert(index);
            }
            compare(&device, &batch(&probes), &lists, &min_scores);
            uploads += changed.len();
            assert_eq!(watched.count_uploads(), uploads, "only {changed:?} are copied again");
            let bytes: usize = lists.iter().map(|list| list.device_copy().bytes()).sum();
            assert_eq!(bytes, watched.list_memory().iter().map(Vec::len).sum::<usize>());
            assert_eq!(bytes, lists.iter().map(count_bytes).sum::<usize>());
        }
    }
}

#[test]
fn a_row_that_was_removed_or_replaced_is_not_on_the_device() {
    for gpu in devices::list() {
        let mut noise = Noise::new(6);
        let vectors: Vec<Vec<f32>> = (0..40).map(|_| draw(&mut noise, 16)).collect();
        let mut list = QuantisedRows::new(16);
        vectors.iter().for_each(|vector| list.push(&QuantisedRow::new(vector)));
        let watched = Watched::new(gpu);
        let device = Device::Gpu(Arc::clone(&watched) as _);
        let probes = batch(&vectors[..1]);
        let has = |vector: &[f32]| watched.list_memory().iter().any(|memory| contains(memory, vector));
        find(&device, &probes, &[&list], 0, &[0.5]).expect("no error");
        assert!(vectors.iter().all(|vector| has(vector)));

        // As a deleted face goes: the last row takes its place.
        let last = list.pop();
        list.set(7, &last);
        assert!(watched.list_memory().is_empty(), "before it is searched again");
        find(&device, &probes, &[&list], 0, &[0.5]).expect("no error");
        assert!(!has(&vectors[7]) && has(&vectors[39]) && has(&vectors[8]));
        list.pop();
        find(&device, &probes, &[&list], 0, &[0.5]).expect("no error");
        assert!(!has(&vectors[38]));

        let copy = list.device_copy();
        assert!(copy.has_rows() && copy.bytes() > 0);
        drop(list);
        assert!(watched.list_memory().is_empty() && !copy.has_rows() && copy.bytes() == 0);
        copy.clear();
    }
}

#[test]
fn a_call_that_fails_is_an_error_and_the_next_search_is_right() {
    for gpu in devices::list() {
        let mut noise = Noise::new(8);
        let lists = draw_lists(&mut noise, &[20, 30, 10], 12);
        let probes: Vec<Vec<f32>> = (0..3).map(|_| draw(&mut noise, 12)).collect();
        // Three uploads and a program.
        for call in 1..=4 {
            lists.iter().for_each(|list| list.device_copy().clear());
            let watched = Watched::new(gpu);
            watched.fails_at.store(call, Ordering::Relaxed);
            let device = Device::Gpu(Arc::clone(&watched) as _);
            let failed = search(&device, &batch(&probes), &lists, &[0.1; 3]).err();
            assert!(matches!(failed, Some(GpuError::OutOfMemory(_))), "call {call}: {failed:?}");
            compare(&device, &batch(&probes), &lists, &[0.1; 3]);
        }
    }
}

#[test]
fn a_list_larger_than_a_buffer_is_an_error() {
    let lists = draw_lists(&mut Noise::new(9), &[600], 64);
    let probes = batch(&[vec![0.5; 64]]);
    devices::for_each(32 << 10, |device| {
        lists[0].device_copy().clear();
        let Device::Gpu(gpu) = device else { return };
        let fits = gpu.max_buffer_bytes() >= count_bytes(&lists[0]);
        match search(device, &probes, &lists, &[0.1]) {
            Ok(_) => assert!(fits),
            Err(error) => assert!(!fits && matches!(error, GpuError::TooLarge { .. }), "{error}"),
        }
    });
}
