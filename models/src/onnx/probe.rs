//! Whether a device runs a tiny network and a tiny kernel. Loading a provider is not enough: it opens the device when a
//! network is loaded, and its libraries when one is run.

use std::path::Path;

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider, ExecutionProviderDispatch};
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::TensorRef;
use photofinish_kernels::batch;
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{self, CudaFolders, Gpu};

use crate::onnx::devices::NetworkDevice;

/// A minimal ONNX file, hand-written protobuf: `y = Relu(x)` for two numbers. Each value follows a byte
/// `field number * 8 + wire type` (0: number; 2: bytes, preceded by their length).
///
/// Line by line: IR version 8; operator set 13; the graph; its node with input, output and operator; the graph's name;
/// its input and its output, each with name, element type (1: f32) and length.
const RELU_MODEL: [u8; 59] = *b"\
    \x08\x08\
    \x42\x02\x10\x0d\
    \x3a\x33\
        \x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\
        \x12\x01g\
        \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x02\
        \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x02";

/// The name of the CPU.
const PROCESSOR: &str = "the processor";

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct DeviceProbe<'p> {
    /// Path of `libonnxruntime.so*`.
    pub library: &'p Path,
    /// The kind of device.
    pub device: NetworkDevice,
    /// As [`crate::onnx::runtime::RuntimeSettings::ordinal`].
    pub ordinal: usize,
    /// Whether software in the place of a GPU is taken.
    pub allow_software: bool,
    /// As [`crate::onnx::runtime::RuntimeSettings::kernel_cache`].
    pub kernel_cache: Option<&'p Path>,
}

/// Runs a kernel and a network on a device, and returns what it is, or why it cannot be used.
pub(super) fn check(environment: &Environment, probe: &DeviceProbe<'_>) -> Result<String, String> {
    let device = probe.device;
    let (is_available, provider_name) = match device {
        NetworkDevice::Cpu => (Ok(true), "CPU"),
        NetworkDevice::Cuda => (ep::CUDA::is_available(), "CUDA"),
        NetworkDevice::Wgpu => (ep::WebGPU::is_available(), "WebGPU"),
    };
    if !is_available.unwrap_or(false) {
        return Err(format!("this ONNX Runtime library has no {provider_name} provider"));
    }
    // First: the WebGPU provider ends the process where it finds no device.
    let name = run_kernel(probe)?;
    let not_opened = if device == NetworkDevice::Cuda { preload_cuda(probe.library) } else { String::new() };
    let builder = session_builder(environment).map_err(|error| error.to_string())?;
    let builder = builder
        .with_execution_providers([provider(device, probe.ordinal)])
        .map_err(|error| format!("the provider for {name} cannot be loaded: {error}{not_opened}"))?;
    let result =
        run_relu_model(builder).map_err(|error| format!("{name} runs no networks: {error}{not_opened}"))?;
    if result == [0.0, 2.0] { Ok(name) } else { Err(format!("{name} computes wrong results: {result:?}")) }
}

/// Opens a device, runs a kernel on it and closes it. Returns its name.
fn run_kernel(probe: &DeviceProbe<'_>) -> Result<String, String> {
    let gpu = match probe.device {
        NetworkDevice::Cpu => None,
        NetworkDevice::Cuda => {
            let folders = find_cuda_folders(probe.library, probe.kernel_cache);
            Some(gpu::open_cuda(probe.ordinal, &folders))
        }
        NetworkDevice::Wgpu => Some(gpu::open_vulkan(probe.allow_software)),
    };
    let gpu = gpu.transpose().map_err(|error| error.to_string())?;
    let name = gpu.as_ref().map_or_else(|| PROCESSOR.to_owned(), |gpu| Gpu::name(&**gpu));
    batch::probe::check(&gpu.map_or(Device::Cpu, Device::Gpu))
        .map_err(|error| format!("{name} runs no kernels: {error}"))?;
    Ok(name)
}

/// Without threads of its own: starting one for each core takes longer than the network.
fn session_builder(environment: &Environment) -> ort::Result<SessionBuilder> {
    Ok(Session::builder(environment)?.with_intra_threads(1)?)
}

/// Opens the libraries of CUDA beside ONNX Runtime's, where set-up and images put them: its provider and cuDNN ask the
/// loader for them by name. Says which are not opened: whether the provider does without them, or finds them elsewhere, is
/// seen when it is loaded, and those of cuDNN when the first real network runs.
fn preload_cuda(library: &Path) -> String {
    let not_opened = library.parent().map(gpu::preload_cuda).unwrap_or_default().join("; ");
    if not_opened.is_empty() {
        return not_opened;
    }
    tracing::info!(not_opened, "some libraries of CUDA were not opened beside ONNX Runtime");
    format!("; of the libraries beside ONNX Runtime were not opened: {not_opened}")
}

/// The run-time compiler beside the library, where images have it, and the folder of compiled kernels.
pub(super) fn find_cuda_folders(library: &Path, kernel_cache: Option<&Path>) -> CudaFolders {
    let has_compiler = |folder: &&Path| {
        let mut entries = folder.read_dir().into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with("libnvrtc.so."))
    };
    let compiler = library.parent().filter(has_compiler).map(Path::to_path_buf);
    CudaFolders { compiler, cache: kernel_cache.map(Path::to_path_buf) }
}

fn provider(device: NetworkDevice, ordinal: usize) -> ExecutionProviderDispatch {
    match device {
        NetworkDevice::Cpu => ep::CPU::default().build(),
        NetworkDevice::Cuda => ep::CUDA::default().with_device_id(ordinal as i32).build().error_on_failure(),
        NetworkDevice::Wgpu => ep::WebGPU::default().build().error_on_failure(),
    }
}

/// Runs [`RELU_MODEL`] on -1 and 2 with the builder's execution provider.
pub(super) fn run_relu_model(mut builder: SessionBuilder) -> ort::Result<Vec<f32>> {
    let mut session = builder.commit_from_memory(&RELU_MODEL)?;
    let input: &[f32] = &[-1.0, 2.0];
    let outputs = session.run(ort::inputs![TensorRef::from_array_view(([input.len()], input))?])?;
    let (_shape, values) = outputs[0].try_extract_tensor::<f32>()?;
    Ok(values.to_vec())
}
