//! Opens devices, those that this program was built for.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::gpu::cuda::Cuda;
#[cfg(feature = "wgpu")]
use crate::gpu::vulkan::{Adapters, Vulkan};
use crate::gpu::{Gpu, GpuError};

/// Counts the NVIDIA GPUs that the driver shows to this process.
///
/// # Errors
/// When there is no driver, or this program was built without CUDA.
pub fn count_cuda() -> Result<usize, GpuError> {
    #[cfg(feature = "cuda")]
    return Ok(photofinish_cuda::device::CudaDevice::count()?);
    #[cfg(not(feature = "cuda"))]
    return Err(GpuError::Failed("built without CUDA".to_owned()));
}

/// Opens an NVIDIA GPU, with the run-time compiler of a folder or of the system.
///
/// # Errors
/// When there is no driver, compiler or such device, or this program was built without CUDA.
pub fn open_cuda(ordinal: usize, compiler: Option<&Path>) -> Result<Arc<dyn Gpu>, GpuError> {
    #[cfg(feature = "cuda")]
    return Ok(Arc::new(Cuda::open(ordinal, compiler)?));
    #[cfg(not(feature = "cuda"))]
    return Err(GpuError::Failed(format!(
        "built without CUDA: neither device {ordinal} nor {compiler:?} is used"
    )));
}

/// Opens the best device with Vulkan; one that the processor computes only where `allow_software`.
///
/// # Errors
/// When there is none, or this program was built without Vulkan.
pub fn open_vulkan(allow_software: bool) -> Result<Arc<dyn Gpu>, GpuError> {
    #[cfg(feature = "wgpu")]
    {
        let adapters = if allow_software { Adapters::Any } else { Adapters::Hardware };
        Ok(Arc::new(Vulkan::open(adapters)?))
    }
    #[cfg(not(feature = "wgpu"))]
    return Err(GpuError::Failed(format!("built without Vulkan (software allowed: {allow_software})")));
}
