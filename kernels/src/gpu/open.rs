//! Opens devices, those that this program was built for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "cuda")]
use photofinish_cuda::{device::CudaDevice, libraries};

#[cfg(feature = "cuda")]
use crate::gpu::cuda::Cuda;
#[cfg(feature = "wgpu")]
use crate::gpu::vulkan::{Adapters, Vulkan};
use crate::gpu::{Gpu, GpuError};

/// Folders of a device with CUDA.
#[derive(Clone, Debug, Default)]
pub struct CudaFolders {
    /// Where the run-time compiler is; `None`: on the search path of the system.
    pub compiler: Option<PathBuf>,
    /// Where compiled kernels are kept; `None`: nowhere. It has to belong to the service.
    pub cache: Option<PathBuf>,
}

/// Opens the libraries of CUDA that a folder has, so that whoever asks for them by name finds them. Returns those that it
/// has not, or that do not open, each with the reason.
pub fn preload_cuda(folder: &Path) -> Vec<String> {
    #[cfg(feature = "cuda")]
    return libraries::preload_in_order(&[folder.to_owned()]).iter().map(ToString::to_string).collect();
    #[cfg(not(feature = "cuda"))]
    return vec![format!("built without CUDA: nothing of {} is opened", folder.display())];
}

/// Counts the NVIDIA GPUs that the driver shows to this process.
///
/// # Errors
/// When there is no driver, or this program was built without CUDA.
pub fn count_cuda() -> Result<usize, GpuError> {
    #[cfg(feature = "cuda")]
    return Ok(CudaDevice::count()?);
    #[cfg(not(feature = "cuda"))]
    return Err(GpuError::Failed("built without CUDA".to_owned()));
}

/// Opens an NVIDIA GPU.
///
/// # Errors
/// When there is no driver, compiler or such device, or this program was built without CUDA.
pub fn open_cuda(ordinal: usize, folders: &CudaFolders) -> Result<Arc<dyn Gpu>, GpuError> {
    #[cfg(feature = "cuda")]
    return Ok(Arc::new(Cuda::open(ordinal, folders)?));
    #[cfg(not(feature = "cuda"))]
    return Err(GpuError::Failed(format!(
        "built without CUDA: neither device {ordinal} nor {folders:?} is used"
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
