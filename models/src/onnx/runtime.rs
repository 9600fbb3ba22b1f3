//! Loads the ONNX Runtime library and opens the device that networks run on. Both are chosen at run time: one binary runs
//! on a CPU, with or without OpenVINO, or on CUDA. A missing or outdated library is an error, never a panic.

use std::fmt;
use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider};
use photofinish_kernels::gpu;

pub use crate::onnx::devices::{DeviceChoice, NetworkDevice};
use crate::onnx::kernels::KernelDevice;
pub use crate::onnx::probe::DeviceProbe;
use crate::onnx::turns::Turns;
use crate::onnx::{devices, probe};
use crate::traits::{BatchSizes, ModelError};

/// Oldest supported minor version of ONNX Runtime 1; matches the `api-23` feature of the `ort` crate.
const MIN_MINOR_VERSION: u32 = 23;

/// Precision of a network under OpenVINO or on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// 16 bits with the exponent range of 32. Takes half the time on CPUs with AMX-BF16 and finds as many of the 177
    /// labelled bibs; twice the time on those with AVX512-BF16 alone, and two to four times on others, which emulate it.
    Bf16,
    /// 16 bits with 5 of exponent. Only for CPUs with AVX512-FP16 or AMX-FP16, and for GPUs.
    F16,
    /// 8-bit integers in the heaviest convolutions of the networks that have a file for it, 32-bit floats elsewhere. Takes
    /// about half the time of floats on CPUs with VNNI instructions; without them sums of two products may overflow.
    Int8,
}

impl Precision {
    /// What OpenVINO calls the precision of what is not quantised in the file.
    pub(crate) fn openvino_hint(self) -> &'static str {
        match self {
            Self::F32 | Self::Int8 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

/// What computes a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// ONNX Runtime's own kernels, or those of its provider for the device, in f32.
    OnnxRuntime,
    /// The same in f16, with the network's file for it. For GPUs: CPUs convert and compute in f32.
    OnnxRuntimeF16,
    /// OpenVINO.
    OpenVino(Precision),
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnnxRuntime => f.write_str("ONNX Runtime f32"),
            Self::OnnxRuntimeF16 => f.write_str("ONNX Runtime f16"),
            Self::OpenVino(precision) => write!(f, "OpenVINO {precision}"),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        })
    }
}

/// Settings of [`Runtime::open`].
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// Path of `libonnxruntime.so*`.
    pub library: PathBuf,
    /// The device to open.
    pub device: DeviceChoice,
    /// Which of several NVIDIA GPUs, by the order in which the driver shows them; 0 on other devices.
    pub ordinal: usize,
    /// Folder in which kernels are kept that are compiled for CUDA; `None`: nowhere. For Vulkan the driver keeps its own.
    pub kernel_cache: Option<PathBuf>,
}

/// The loaded library with its environment, on a device. Open at most one per process; others are [`Runtime::on_device`].
pub struct Runtime {
    pub(crate) environment: Environment,
    /// How it was opened.
    settings: RuntimeSettings,
    version: u32,
    device: NetworkDevice,
    has_openvino: bool,
    turns: Turns,
    kernels: KernelDevice,
}

impl Runtime {
    /// Loads the library and opens the device.
    ///
    /// # Errors
    /// `Runtime` when the library is missing, damaged or older than 1.23; `Device` when the configured device cannot be
    /// used.
    pub fn open(settings: &RuntimeSettings) -> Result<Self, ModelError> {
        let version = read_library_version(&settings.library)?;
        let environment = open_environment(&settings.library)?;
        let probe = |device, allow_software| {
            let probe = DeviceProbe {
                library: &settings.library,
                device,
                ordinal: settings.ordinal,
                allow_software,
                kernel_cache: settings.kernel_cache.as_deref(),
            };
            vec![probe::check(&environment, &probe)]
        };
        let device = devices::choose(settings.device, probe)?.device;
        let has_openvino = device == NetworkDevice::Cpu && ep::OpenVINO::is_available().unwrap_or(false);
        let kernels = open_kernels(device, settings);
        let turns = match device {
            NetworkDevice::Wgpu => Turns::one_at_a_time(),
            NetworkDevice::Cpu | NetworkDevice::Cuda => Turns::unlimited(),
        };
        Ok(Self { environment, settings: settings.clone(), version, device, has_openvino, turns, kernels })
    }

    /// Returns the runtime for another NVIDIA GPU, with the same environment of the library and kernels of its own.
    #[must_use]
    pub fn on_device(&self, ordinal: usize) -> Self {
        let settings = RuntimeSettings { ordinal, ..self.settings.clone() };
        Self {
            environment: self.environment.clone(),
            kernels: open_kernels(self.device, &settings),
            settings,
            turns: self.turns.clone(),
            ..*self
        }
    }

    /// Counts the devices of a kind: several only of NVIDIA GPUs. Where they cannot be counted there is one to try, which says
    /// why. A driver may end the process: call this in one of its own.
    pub fn count_devices(device: NetworkDevice) -> usize {
        match device {
            NetworkDevice::Cuda => gpu::count_cuda().unwrap_or(1).max(1),
            NetworkDevice::Cpu | NetworkDevice::Wgpu => 1,
        }
    }

    /// Runs a tiny network and a tiny kernel on a device, and returns its name. A provider that cannot start may end the
    /// process: call this in one of its own.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn probe(probe: &DeviceProbe<'_>) -> Result<String, ModelError> {
        read_library_version(probe.library)?;
        let environment = open_environment(probe.library)?;
        probe::check(&environment, probe)
            .map_err(|detail| ModelError::Device { device: probe.device.to_string(), detail })
    }

    /// Describes the library by version and size, not by its path: the same library elsewhere computes the same.
    pub(crate) fn describe_library(&self) -> String {
        let bytes = std::fs::metadata(&self.settings.library).map_or(0, |file| file.len());
        format!("ONNX Runtime 1.{} ({bytes} bytes)", self.version)
    }

    /// Describes the GPU by its kind and name; `None` on a CPU.
    pub(crate) fn describe_gpu(&self) -> Option<String> {
        if self.device == NetworkDevice::Cpu {
            return None;
        }
        // Where it does not open, the first network says why.
        let gpu = self.kernels.open().ok().and_then(|()| self.kernels.lend());
        Some(format!("{} {}", self.device, gpu.map(|gpu| gpu.name()).unwrap_or_default()))
    }

    /// The library's file.
    pub fn library(&self) -> &Path {
        &self.settings.library
    }

    /// When a session may be created, called or freed.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The device of the kernels: the one that networks run on.
    pub fn kernels(&self) -> &KernelDevice {
        &self.kernels
    }

    /// Whether networks can run under OpenVINO: the library contains it and the device is a CPU.
    pub fn has_openvino(&self) -> bool {
        self.has_openvino
    }

    /// Whether networks run on a GPU.
    pub fn is_gpu(&self) -> bool {
        self.device != NetworkDevice::Cpu
    }

    /// The device in use.
    pub fn device(&self) -> NetworkDevice {
        self.device
    }

    /// Which of several NVIDIA GPUs it is.
    pub fn ordinal(&self) -> usize {
        self.settings.ordinal
    }

    /// Names an NVIDIA GPU among others; `None` for devices of which a process has one.
    pub fn device_name(&self) -> Option<String> {
        (self.device == NetworkDevice::Cuda).then(|| format!("{}:{}", self.device, self.ordinal()))
    }

    /// Returns the batch sizes that suit the device. On a CPU an item costs more in a batch than alone (activations no
    /// longer fit the cache), and networks with one fixed shape are faster.
    pub fn batch_sizes(&self) -> BatchSizes {
        match self.device {
            // Vulkan as the CPU: shaders are compiled for one shape of each network.
            NetworkDevice::Cpu | NetworkDevice::Wgpu => BatchSizes { detect: 1, embed: 1, read: 1 },
            NetworkDevice::Cuda => BatchSizes { detect: 16, embed: 64, read: 16 },
        }
    }

    /// Whether calls of networks have several items.
    pub(crate) fn batches(&self) -> bool {
        !self.batch_sizes().are_single()
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = match (self.device, self.has_openvino) {
            (NetworkDevice::Cuda, _) => "CUDA",
            (NetworkDevice::Wgpu, _) => "WebGPU",
            (NetworkDevice::Cpu, true) => "CPU with OpenVINO",
            (NetworkDevice::Cpu, false) => "CPU",
        };
        write!(f, "ONNX Runtime 1.{} ({}), {device}", self.version, self.settings.library.display())
    }
}

/// Names the device of the kernels, which the first network opens.
fn open_kernels(device: NetworkDevice, settings: &RuntimeSettings) -> KernelDevice {
    match device {
        NetworkDevice::Cpu => KernelDevice::cpu(),
        NetworkDevice::Cuda => {
            let folders = probe::find_cuda_folders(&settings.library, settings.kernel_cache.as_deref());
            let ordinal = settings.ordinal;
            KernelDevice::opened_by(move || gpu::open_cuda(ordinal, &folders))
        }
        // Software was refused before, where it is not wanted.
        NetworkDevice::Wgpu => KernelDevice::opened_by(|| gpu::open_vulkan(true)),
    }
}

fn open_environment(library: &Path) -> Result<Environment, ModelError> {
    let failed = |error: ort::Error| ModelError::Runtime(error.to_string());
    let builder = ort::init_from(library).map_err(|error| ModelError::Runtime(error.to_string()))?;
    builder.with_name("photofinish").with_telemetry(false).build().map_err(failed)
}

/// Returns the minor version of an ONNX Runtime 1 library without initialising it.
///
/// # Errors
/// `Runtime` when the file is missing, not an ONNX Runtime library, or too old.
pub fn read_library_version(library: &Path) -> Result<u32, ModelError> {
    if !library.is_file() {
        return Err(ModelError::Runtime(format!("no library at {}", library.display())));
    }
    match ort::util::probe(library) {
        Some(minor) if minor >= MIN_MINOR_VERSION => Ok(minor),
        Some(minor) => Err(ModelError::Runtime(format!(
            "{} is version 1.{minor}, older than 1.{MIN_MINOR_VERSION}",
            library.display()
        ))),
        None => Err(ModelError::Runtime(format!("{} is not an ONNX Runtime 1 library", library.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = read_library_version(Path::new("/nowhere/libonnxruntime.so")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libonnxruntime.so"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_an_error() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = read_library_version(&manifest).unwrap_err().to_string();
        assert!(error.contains("not an ONNX Runtime"), "{error}");
    }

    /// Returns the configured library or the one that set-up fetched; prints a skip message when there is none.
    #[expect(clippy::disallowed_methods, reason = "the environment tells tests where set-up put its files")]
    fn find_library() -> Option<PathBuf> {
        let set_up = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.photofinish/runtime");
        let path = std::env::var("PHOTOFINISH_ONNXRUNTIME").map_or(set_up, PathBuf::from);
        if path.is_file() {
            return Some(path);
        }
        let is_library = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
        };
        let files = std::fs::read_dir(&path).ok().into_iter().flatten();
        let found = files.filter_map(|file| Some(file.ok()?.path())).filter(is_library).min();
        let is_required =
            std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        assert!(found.is_some() || !is_required, "no library in {}, and REQUIRE_SHARED=1", path.display());
        if found.is_none() {
            println!("SKIPPED: no ONNX Runtime in {}", path.display());
        }
        found
    }

    #[test]
    fn the_relu_model_loads_and_runs() {
        let Some(library) = find_library() else { return };
        let settings = RuntimeSettings { library, device: DeviceChoice::Cpu, ordinal: 0, kernel_cache: None };
        // Has run it once already, as on every device that it opens.
        let runtime = Runtime::open(&settings).unwrap();
        let builder = ort::session::Session::builder(&runtime.environment).unwrap();
        assert_eq!(probe::run_relu_model(builder).unwrap(), [0.0, 2.0]);
        // The environment is shared, and lives as long as one of them.
        let other = runtime.on_device(1);
        drop(runtime);
        let builder = ort::session::Session::builder(&other.environment).unwrap();
        assert_eq!(probe::run_relu_model(builder).unwrap(), [0.0, 2.0]);
        assert_eq!((other.ordinal(), other.device_name()), (1, None), "only GPUs have names");
    }
}
