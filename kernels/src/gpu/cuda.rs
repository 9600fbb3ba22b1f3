//! Programs on NVIDIA GPUs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_cuda::CudaError;
use photofinish_cuda::cache::KernelCache;
use photofinish_cuda::device::{CudaDevice, Function, Grid, Memory};

use crate::gpu::open::CudaFolders;
use crate::gpu::{Buffer, Gpu, GpuError, Kernel, Program, Resident, padded_bytes};

/// Kernels compute indices of bytes in 32 bits.
const MAX_BUFFER_BYTES: usize = (u32::MAX / 4 * 4) as usize;

/// An open device. Shared by all threads.
pub struct Cuda {
    device: CudaDevice,
    functions: Mutex<HashMap<&'static str, Function>>,
}

impl Cuda {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// When there is no driver, compiler or such device.
    pub fn open(ordinal: usize, folders: &CudaFolders) -> Result<Self, GpuError> {
        let cache = folders.cache.as_deref().map_or_else(KernelCache::none, KernelCache::in_folder);
        let device = CudaDevice::open(ordinal, folders.compiler.as_deref(), cache)?;
        Ok(Self { device, functions: Mutex::default() })
    }

    /// Loads all kernels of a source when the first of them is used.
    fn function(&self, kernel: &'static Kernel) -> Result<Function, GpuError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(known) = functions.entry(kernel.entry) {
            return Ok(known.get().clone());
        }
        let module = self.device.load(kernel.source.name, kernel.source.cuda)?;
        for entry in kernel.source.entries {
            functions.insert(entry, module.function(entry)?);
        }
        let function = functions.get(kernel.entry).cloned();
        function.ok_or_else(|| GpuError::Failed(format!("{} has no {}", kernel.source.name, kernel.entry)))
    }

    fn create(&self, buffer: &Buffer<'_>) -> Result<Arc<Memory>, GpuError> {
        match buffer {
            Buffer::Input(bytes) => Ok(Arc::new(self.device.upload(bytes, padded_bytes(bytes.len()))?)),
            Buffer::Scratch(bytes) | Buffer::Output(bytes) => {
                Ok(Arc::new(self.device.upload(&[], padded_bytes(*bytes))?))
            }
            Buffer::Resident(resident) => Arc::clone(&resident.memory)
                .downcast::<Memory>()
                .map_err(|_| GpuError::Failed("memory of another device".into())),
        }
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Gpu for Cuda {
    fn name(&self) -> String {
        self.device.name().to_owned()
    }

    fn max_buffer_bytes(&self) -> usize {
        MAX_BUFFER_BYTES
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        let memory = self.device.upload(bytes, padded_bytes(bytes.len()))?;
        Ok(Resident { bytes: bytes.len(), memory: Arc::new(memory) })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        let memories: Vec<Arc<Memory>> =
            program.buffers.iter().map(|buffer| self.create(buffer)).collect::<Result<_, _>>()?;
        for step in &program.steps {
            let function = self.function(step.kernel)?;
            let arguments: Vec<&Memory> = step.bindings.iter().map(|&index| &*memories[index]).collect();
            let grid = Grid { blocks: step.groups, threads: step.kernel.group };
            self.device.launch(&function, grid, &arguments)?;
        }
        let outputs = program.buffers.iter().zip(&memories).filter_map(|(buffer, memory)| match buffer {
            Buffer::Output(bytes) => Some((memory, *bytes)),
            _ => None,
        });
        outputs.map(|(memory, bytes)| Ok(self.device.download(memory, bytes)?)).collect()
    }
}

impl From<CudaError> for GpuError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::OutOfMemory(text) => Self::OutOfMemory(text),
            CudaError::Lost(text) => Self::Lost(text),
            other => Self::Failed(other.to_string()),
        }
    }
}
