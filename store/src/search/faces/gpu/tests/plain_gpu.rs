//! A device in plain Rust that runs the kernel of the search alone, knows what is in its memory, and has faults.

use std::any::Any;
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident, Step};

/// The words before the first block of rows.
const HEADER: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct PlainGpu {
    uploads: Mutex<Vec<Upload>>,
    fault: Mutex<Option<Fault>>,
    /// Uploads and programs, those that failed too.
    calls: AtomicUsize,
    programs: AtomicUsize,
}

/// What goes wrong, once.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The number of the call from now on, from 1.
    pub(crate) call: usize,
    pub(crate) error: GpuError,
}

#[derive(Debug)]
struct Upload {
    words: Vec<u32>,
    memory: Weak<dyn Any + Send + Sync>,
}

impl PlainGpu {
    pub(crate) fn fail(&self, fault: Fault) {
        let call = self.count_calls() + fault.call;
        *self.fault.lock().unwrap() = Some(Fault { call, ..fault });
    }

    pub(crate) fn count_calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns how many programs have run.
    pub(crate) fn count_programs(&self) -> usize {
        self.programs.load(Ordering::SeqCst)
    }

    /// Returns the bytes that are in its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.list_memory().iter().map(|words| words.len() * 4).sum()
    }

    /// Whether the approximation of a vector is in its memory.
    pub(crate) fn holds(&self, vector: &[f32]) -> bool {
        self.list_memory().iter().any(|words| {
            let groups = vector.len().div_ceil(4);
            (0..words[1] as usize).any(|row| {
                let (scale, _) = factors(words, groups, row);
                let codes = codes(words, groups, row);
                vector
                    .iter()
                    .zip(codes.as_flattened())
                    .all(|(value, code)| (value - f32::from(*code) * scale).abs() <= scale)
            })
        })
    }

    fn list_memory(&self) -> Vec<Vec<u32>> {
        let uploads = self.uploads.lock().unwrap();
        let present = uploads.iter().filter(|upload| upload.memory.strong_count() > 0);
        present.map(|upload| upload.words.clone()).collect()
    }

    fn check_call(&self) -> Result<(), GpuError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault.lock().unwrap().take_if(|fault| fault.call == call) {
            Some(fault) => Err(fault.error),
            None => Ok(()),
        }
    }
}

impl Gpu for PlainGpu {
    fn name(&self) -> String {
        "plain".into()
    }

    fn max_buffer_bytes(&self) -> usize {
        64 << 10
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        self.check_call()?;
        let words = to_words(bytes);
        let memory: Arc<dyn Any + Send + Sync> = Arc::new(words.clone());
        self.uploads.lock().unwrap().push(Upload { words, memory: Arc::downgrade(&memory) });
        Ok(Resident { bytes: bytes.len(), memory })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        self.check_call()?;
        self.programs.fetch_add(1, Ordering::SeqCst);
        let mut memories: Vec<Cow<'_, [u32]>> = program.buffers.iter().map(read).collect();
        program.steps.iter().for_each(|step| find_near_rows(step, &mut memories));
        let outputs =
            program.buffers.iter().zip(memories).filter(|(buffer, _)| matches!(buffer, Buffer::Output(_)));
        Ok(outputs.map(|(_, words)| words.iter().flat_map(|word| word.to_ne_bytes()).collect()).collect())
    }
}

fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

fn read<'b>(buffer: &'b Buffer<'_>) -> Cow<'b, [u32]> {
    match buffer {
        Buffer::Input(bytes) => Cow::Owned(to_words(bytes)),
        Buffer::Scratch(bytes) | Buffer::Output(bytes) => Cow::Owned(vec![0; bytes / 4]),
        Buffer::Resident(resident) => {
            Cow::Borrowed(resident.memory.downcast_ref::<Vec<u32>>().expect("memory of this device"))
        }
    }
}

fn codes(words: &[u32], groups: usize, row: usize) -> Vec<[i8; 4]> {
    let first = HEADER + row / 16 * groups * 16 + row % 16;
    let signed = |word: u32| (word ^ 0x8080_8080).to_ne_bytes().map(u8::cast_signed);
    (0..groups).map(|group| signed(words[first + group * 16])).collect()
}

fn probe_codes(words: &[u32], groups: usize, probe: usize) -> Vec<i8> {
    let first = probe / 16 * groups * 16 + probe % 16;
    (0..groups).flat_map(|group| words[first + group * 16].to_ne_bytes()).map(u8::cast_signed).collect()
}

/// A loop in its plainest form: tests are not optimised, and this is most of what a search costs there.
fn dot(codes: &[i8], others: &[i8]) -> i32 {
    assert_eq!(codes.len(), others.len());
    let (mut sum, mut place) = (0, 0);
    while place < codes.len() {
        sum += i32::from(codes[place]) * i32::from(others[place]);
        place += 1;
    }
    sum
}

fn factors(words: &[u32], groups: usize, row: usize) -> (f32, f32) {
    let blocks = (words[1] as usize).div_ceil(16);
    let first = HEADER + blocks * groups * 16 + row / 16 * 32 + row % 16;
    (f32::from_bits(words[first]), f32::from_bits(words[first + 16]))
}

/// The kernel `near_rows`, see near.wgsl.
fn find_near_rows(step: &Step, memories: &mut [Cow<'_, [u32]>]) {
    assert_eq!(step.kernel.entry, "near_rows");
    let [search, rows, probes, bounds, bits] = step.bindings[..] else { panic!("five bindings") };
    let [count, groups, first, stride] = memories[search][..4] else { panic!("four words") };
    let (count, groups, stride) = (count as usize, groups as usize, stride as usize);
    let list = (memories[rows][0] - first) as usize;
    let padded = step.groups[1] as usize * 16;
    let probes: Vec<Vec<i8>> =
        (0..count).map(|probe| probe_codes(&memories[probes], groups, probe)).collect();
    for row in 0..memories[rows][1] as usize {
        let codes = codes(&memories[rows], groups, row);
        let (scale, error) = factors(&memories[rows], groups, row);
        for probe in 0..count {
            let dot = dot(codes.as_flattened(), &probes[probe]);
            let bound: Vec<f32> = memories[bounds][(list * padded + probe) * 4..][..4]
                .iter()
                .map(|bits| f32::from_bits(*bits))
                .collect();
            let upper = dot as f32 * (bound[0] * scale) + (bound[1] * error + bound[2]);
            if upper >= bound[3] || !error.is_finite() {
                memories[bits].to_mut()[(list * count + probe) * stride + row / 32] |= 1 << (row % 32);
            }
        }
    }
}
