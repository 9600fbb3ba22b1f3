//! Whether a device runs a tiny network and a tiny kernel. Loading a provider is not enough: it opens the device when a
//! network is loaded, and its libraries when one is run.

use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider, ExecutionProviderDispatch};
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::TensorRef;
use photofinish_kernels::batch;
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::{self, Gpu};

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

/// Runs a kernel and a network on a device, of several NVIDIA GPUs the one with this number, and returns what it is, or why it
/// cannot be used.
pub(super) fn check(
    environment: &Environment,
    library: &Path,
    device: NetworkDevice,
    ordinal: usize,
    allow_software: bool,
) -> Result<String, String> {
    let (is_available, name) = match device {
        NetworkDevice::Cpu => return Ok("the processor".into()),
        NetworkDevice::Cuda => (ep::CUDA::is_available(), "CUDA"),
        NetworkDevice::Wgpu => (ep::WebGPU::is_available(), "WebGPU"),
    };
    if !is_available.unwrap_or(false) {
        return Err(format!("this ONNX Runtime library has no {name} provider"));
    }
    // First: the WebGPU provider ends the process where it finds no device.
    let gpu = match device {
        NetworkDevice::Wgpu => gpu::open_vulkan(allow_software),
        _ => gpu::open_cuda(ordinal, find_compiler(library).as_deref()),
    };
    let gpu = gpu.map_err(|error| error.to_string())?;
    let name = Gpu::name(&*gpu);
    batch::probe::check(&Device::Gpu(gpu)).map_err(|error| format!("{name} runs no kernels: {error}"))?;
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder
        .with_execution_providers([provider(device, ordinal)])
        .map_err(|error| format!("the provider for {name} cannot be loaded: {error}"))?;
    let result = run_relu_model(builder).map_err(|error| format!("{name} runs no networks: {error}"))?;
    if result == [0.0, 2.0] { Ok(name) } else { Err(format!("{name} computes wrong results: {result:?}")) }
}

/// The run-time compiler beside the library, where images have it.
pub(super) fn find_compiler(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let mut names = folder.read_dir().ok()?.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("libnvrtc.so.")).then(|| folder.to_path_buf())
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
