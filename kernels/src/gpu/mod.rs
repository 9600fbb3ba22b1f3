//! Programs for a GPU: buffers, and kernels launched on them in order. An operation of [`crate::batch`] describes its
//! work once as a [`Program`]; what executes it, Vulkan or CUDA, implements [`Gpu`].
//!
//! Every kernel exists twice, in WGSL and in CUDA C++, with the same name, the same buffers in the same order and the
//! same size of a workgroup, and has the arithmetic of the plain Rust that it is compared with.

#[cfg(feature = "cuda")]
pub mod cuda;
mod open;
#[cfg(feature = "wgpu")]
pub mod vulkan;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use self::open::{CudaFolders, count_cuda, open_cuda, open_vulkan, preload_cuda};

/// A file of kernels in both languages.
#[derive(Debug)]
pub struct Source {
    /// Name without extension, for messages.
    pub name: &'static str,
    /// The text for Vulkan.
    pub wgsl: &'static str,
    /// The text for CUDA.
    pub cuda: &'static str,
    /// Names of the kernels.
    pub entries: &'static [&'static str],
}

/// A kernel of a source.
#[derive(Debug)]
pub struct Kernel {
    /// Where it is.
    pub source: &'static Source,
    /// Its name.
    pub entry: &'static str,
    /// Threads of a workgroup, or block, in x, y and z.
    pub group: [u32; 3],
    /// Bindings that are declared as written to.
    pub writable: &'static [usize],
}

/// Memory of a program.
#[derive(Debug)]
pub enum Buffer<'a> {
    /// Copied to the device before the first launch.
    Input(Cow<'a, [u8]>),
    /// On the device already.
    Resident(Resident),
    /// Zeros, of this many bytes; not copied back.
    Scratch(usize),
    /// Zeros, of this many bytes; copied back after the last launch.
    Output(usize),
}

/// Bytes on a device, freed with the last clone.
#[derive(Clone)]
pub struct Resident {
    /// How many.
    pub bytes: usize,
    /// What the device that made it keeps.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// One launch.
#[derive(Debug)]
pub struct Step {
    /// What is launched.
    pub kernel: &'static Kernel,
    /// Indices of buffers, in the order of the kernel's bindings.
    pub bindings: Vec<usize>,
    /// Workgroups in x, y and z, each 1 to 65,535.
    pub groups: [u32; 3],
}

/// Buffers, and launches in order: each sees what those before it wrote.
#[derive(Debug, Default)]
pub struct Program<'a> {
    /// All memory.
    pub buffers: Vec<Buffer<'a>>,
    /// All launches.
    pub steps: Vec<Step>,
}

/// Why a program did not run. Nothing was computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// A single item needs a buffer larger than the device has.
    #[error("a buffer of {bytes} bytes is more than the {limit} of the device")]
    TooLarge {
        /// Bytes needed.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The device has not enough free memory: a smaller batch may have.
    #[error("the device is out of memory: {0}")]
    OutOfMemory(String),
    /// The device is gone or does not answer: it has to be opened again.
    #[error("the device is lost: {0}")]
    Lost(String),
    /// Anything else, such as a kernel that the driver rejects.
    #[error("{0}")]
    Failed(String),
}

/// Most workgroups in one dimension, on every device.
pub const MAX_GROUPS: usize = 65_535;

/// A device that runs programs. Shared by all threads.
pub trait Gpu: fmt::Debug + Send + Sync {
    /// The name of the device, with its driver where known.
    fn name(&self) -> String;

    /// Most bytes of one buffer.
    fn max_buffer_bytes(&self) -> usize;

    /// Copies bytes to the device, to stay there.
    ///
    /// # Errors
    /// When the device has no memory for them, or fails.
    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError>;

    /// Runs a program and returns its outputs in their order. A device that does not answer within a minute is lost. (Where the
    /// driver itself does not return meanwhile, this does not either: callers have a watchdog.)
    ///
    /// # Errors
    /// When the device fails: see [`GpuError`].
    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError>;
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes on a device", self.bytes)
    }
}

impl<'a> Program<'a> {
    /// Adds bytes to copy to the device; returns the buffer's index.
    pub fn input(&mut self, bytes: impl Into<Cow<'a, [u8]>>) -> usize {
        self.add(Buffer::Input(bytes.into()))
    }

    /// Adds words to copy to the device.
    pub fn words(&mut self, words: &[u32]) -> usize {
        self.input(bytemuck::cast_slice(words).to_vec())
    }

    /// Adds numbers to copy to the device.
    pub fn floats(&mut self, values: &'a [f32]) -> usize {
        self.input(bytemuck::cast_slice(values))
    }

    /// Adds memory of the device.
    pub fn scratch(&mut self, bytes: usize) -> usize {
        self.add(Buffer::Scratch(bytes))
    }

    /// Adds memory to copy back.
    pub fn output(&mut self, bytes: usize) -> usize {
        self.add(Buffer::Output(bytes))
    }

    /// Adds any buffer.
    pub fn add(&mut self, buffer: Buffer<'a>) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// Adds a launch with one thread for each of `threads`; nothing where one of them is 0.
    pub fn launch(&mut self, kernel: &'static Kernel, bindings: &[usize], threads: [usize; 3]) {
        let groups: [usize; 3] =
            std::array::from_fn(|axis| threads[axis].div_ceil(kernel.group[axis] as usize));
        if groups.iter().all(|&count| count > 0) {
            debug_assert!(groups.iter().all(|&count| count <= MAX_GROUPS), "{groups:?} workgroups");
            let groups = groups.map(|count| count as u32);
            self.steps.push(Step { kernel, bindings: bindings.to_vec(), groups });
        }
    }
}

impl Buffer<'_> {
    /// Bytes on the device: whole words, and no buffer is empty.
    pub fn device_bytes(&self) -> usize {
        let bytes = match self {
            Self::Input(bytes) => bytes.len(),
            Self::Resident(resident) => resident.bytes,
            Self::Scratch(bytes) | Self::Output(bytes) => *bytes,
        };
        padded_bytes(bytes)
    }
}

/// Bytes that a buffer of `bytes` has on a device.
pub fn padded_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(4).max(16)
}

/// Reads words that a kernel wrote.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Reads numbers that a kernel wrote.
pub(crate) fn to_floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_ne_bytes(*word)).collect()
}
