//! A device of the NVIDIA driver: memory, modules, launches, all on one stream in order.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;

use crate::cache::KernelCache;
use crate::{CudaError, libraries};

/// The longest time that launches may take. A device that needs longer does not answer any more.
const MAX_RUN_TIME: Duration = Duration::from_mins(1);

/// The first version of CUDA, times 1000 with ten times the minor one, whose drivers let a context be told how threads wait.
const FIRST_WITH_FLAGS: i32 = 12_010;

/// How long a thread looks for the end of launches without a pause, and its pause then.
const SPIN_TIME: Duration = Duration::from_micros(200);
const WAIT_PAUSE: Duration = Duration::from_micros(100);

/// An open device with a stream. Shared by all threads.
#[derive(Debug)]
pub struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    architecture: String,
    name: String,
    cache: KernelCache,
}

/// Bytes on a device.
#[derive(Debug)]
pub struct Memory {
    slice: CudaSlice<u8>,
}

/// Compiled kernels.
#[derive(Debug)]
pub struct Module {
    module: Arc<CudaModule>,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    function: CudaFunction,
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block in x, y and z.
    pub threads: [u32; 3],
}

/// Returns the version of CUDA that the driver supports, as [`FIRST_WITH_FLAGS`].
fn driver_version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: the driver is there, as devices were counted, and writes one number.
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut version) }.result().map_err(unavailable)?;
    Ok(version)
}

impl CudaDevice {
    /// Counts the devices that the driver shows to this process.
    ///
    /// # Errors
    /// `Unavailable` when there is no driver, or it does not start.
    pub fn count() -> Result<usize, CudaError> {
        libraries::check_driver()?;
        let count = CudaContext::device_count().map_err(unavailable)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens device `ordinal`, with the compiler of a folder or of the system, and the kernels that were compiled before.
    ///
    /// # Errors
    /// `Unavailable` when there is no driver, compiler or such device.
    pub fn open(ordinal: usize, compiler: Option<&Path>, cache: KernelCache) -> Result<Self, CudaError> {
        let count = Self::count()?;
        libraries::open_compiler(compiler)?;
        if ordinal >= count {
            return Err(CudaError::Unavailable(format!("the driver has {count} devices, none is {ordinal}")));
        }
        let context = CudaContext::new(ordinal).map_err(unavailable)?;
        if driver_version()? >= FIRST_WITH_FLAGS {
            // Of the networks' threads too: they use the same context. Looking for the end all the time takes a core from others.
            context.set_blocking_synchronize().map_err(unavailable)?;
        }
        let (major, minor) = context.compute_capability().map_err(unavailable)?;
        let stream = context.new_stream().map_err(unavailable)?;
        let name = context.name().map_err(unavailable)?;
        Ok(Self { context, stream, architecture: format!("sm_{major}{minor}"), name, cache })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Loads kernels, compiled for this device now or before.
    ///
    /// # Errors
    /// `Compile` with the compiler's messages.
    pub fn load(&self, name: &str, source: &'static str) -> Result<Module, CudaError> {
        let compiled = self.cache.compile(name, source, &self.architecture)?;
        let module = self.context.load_module(Ptx::from_binary(compiled.code)).map_err(to_error)?;
        Ok(Module { module })
    }

    /// Copies bytes to the device, followed by zeros up to `length`.
    ///
    /// # Errors
    /// When there is not enough memory, or the driver fails.
    pub fn upload(&self, bytes: &[u8], length: usize) -> Result<Memory, CudaError> {
        let mut slice = self.stream.alloc_zeros::<u8>(length.max(bytes.len())).map_err(to_error)?;
        if !bytes.is_empty() {
            self.stream.memcpy_htod(bytes, &mut slice.slice_mut(..bytes.len())).map_err(to_error)?;
        }
        Ok(Memory { slice })
    }

    /// Copies the first bytes back, after every launch before.
    ///
    /// # Errors
    /// When the driver fails, of a launch before too.
    pub fn download(&self, memory: &Memory, length: usize) -> Result<Vec<u8>, CudaError> {
        let mut bytes = vec![0; length];
        self.wait()?;
        if length > 0 {
            self.stream.memcpy_dtoh(&memory.slice.slice(..length), &mut bytes).map_err(to_error)?;
            self.stream.synchronize().map_err(to_error)?;
        }
        Ok(bytes)
    }

    /// Waits for every launch before. The driver's own waits have no end: with a device that does not answer the thread
    /// would hang.
    fn wait(&self) -> Result<(), CudaError> {
        let start = Instant::now();
        let done = self.stream.record_event(None).map_err(to_error)?;
        while !done.try_is_complete().map_err(to_error)? {
            let waited = start.elapsed();
            if waited > MAX_RUN_TIME {
                return Err(CudaError::Lost(format!("no answer within {} s", MAX_RUN_TIME.as_secs())));
            }
            // Most programs take less than a millisecond: a longer pause would be most of their time.
            if waited < SPIN_TIME { std::thread::yield_now() } else { std::thread::sleep(WAIT_PAUSE) }
        }
        Ok(())
    }

    /// Launches a kernel whose parameters are pointers to these memories, in order.
    ///
    /// # Errors
    /// When memory is another device's, or the driver refuses the launch.
    pub fn launch(&self, function: &Function, grid: Grid, memories: &[&Memory]) -> Result<(), CudaError> {
        if memories.iter().any(|memory| !Arc::ptr_eq(memory.slice.stream(), &self.stream)) {
            return Err(CudaError::Driver("memory of another device".into()));
        }
        let mut launch = self.stream.launch_builder(&function.function);
        for memory in memories {
            launch.arg(&memory.slice);
        }
        let [x, y, z] = grid.blocks;
        let [threads_x, threads_y, threads_z] = grid.threads;
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (threads_x, threads_y, threads_z),
            shared_mem_bytes: 0,
        };
        // SAFETY: every parameter of our kernels is a pointer to memory of this device, as was checked, that is borrowed here
        // and freed on the same stream, so after the kernel has run; the kernels stay within it (see the crate's documentation).
        unsafe { launch.launch(config) }.map(|_| ()).map_err(to_error)
    }
}

impl Module {
    /// Finds a kernel.
    ///
    /// # Errors
    /// When the module has none of this name.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let function = self.module.load_function(name).map_err(to_error)?;
        Ok(Function { function })
    }
}

fn unavailable(error: DriverError) -> CudaError {
    CudaError::Unavailable(error.to_string())
}

fn to_error(error: DriverError) -> CudaError {
    classify(error.0, error.to_string())
}

/// What the driver's result means. After those that are a loss "the process must be relaunched", says NVIDIA, or the device is
/// gone; `models/src/onnx/failure.rs` has their numbers for what ONNX Runtime reports.
fn classify(result: CUresult, text: String) -> CudaError {
    match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => CudaError::OutOfMemory(text),
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUresult::CUDA_ERROR_CONTAINED
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
        | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUresult::CUDA_ERROR_NO_DEVICE
        | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
        | CUresult::CUDA_ERROR_UNKNOWN => CudaError::Lost(text),
        _ => CudaError::Driver(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without [`to_error`], whose text comes from the driver.
    #[test]
    fn what_a_process_does_not_survive_is_a_lost_device() {
        let of = |result| classify(result, "text".into());
        for result in [
            CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUresult::CUDA_ERROR_CONTAINED,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            CUresult::CUDA_ERROR_LAUNCH_FAILED,
            CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
            CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
        ] {
            assert_eq!(of(result), CudaError::Lost("text".into()), "{result:?}");
        }
        assert_eq!(of(CUresult::CUDA_ERROR_OUT_OF_MEMORY), CudaError::OutOfMemory("text".into()));
        assert_eq!(of(CUresult::CUDA_ERROR_INVALID_VALUE), CudaError::Driver("text".into()));
    }
}
