//! ONNX Runtime: the library, and the device that networks run on. Found at run time: one binary runs on a CPU with
//! or without OpenVINO, or on CUDA. Nothing here panics when a library is missing or too old.

use std::fmt;
use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider};
use ort::session::Session;

use crate::traits::{BatchSizes, ModelError};

/// The oldest minor version of ONNX Runtime 1 that serves: the `api-23` feature of the binding.
const OLDEST_MINOR: u32 = 23;

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA where it is, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU, or an error.
    Cuda,
    /// For kernels only: networks do not run on it.
    Wgpu,
}

/// How exactly the text networks compute where OpenVINO runs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 16 bits with the range of 32: half the time on CPUs with AVX512-BF16 or AMX, at no bib fewer of 177. CPUs
    /// without them compute in 32 bits all the same.
    Bf16,
}

/// The device in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkDevice {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

/// What [`Runtime::open`] needs.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// The file `libonnxruntime.so*`.
    pub library: PathBuf,
    /// Where networks run.
    pub device: DeviceChoice,
    /// Of the text networks under OpenVINO.
    pub text_precision: Precision,
}

/// The loaded library with its environment. One a process.
pub struct Runtime {
    pub(crate) environment: Environment,
    library: PathBuf,
    version: u32,
    device: NetworkDevice,
    pub(crate) openvino: Option<Precision>,
}

impl Runtime {
    /// Loads the library and opens the device.
    ///
    /// # Errors
    /// `Runtime` when the library is missing, damaged or older than 1.23; `Device` when the device asked for does
    /// not serve.
    pub fn open(settings: &RuntimeSettings) -> Result<Self, ModelError> {
        let version = probe(&settings.library)?;
        let environment = ort::init_from(&settings.library)
            .map_err(|error| ModelError::Runtime(error.to_string()))?
            .with_name("photofinish")
            .with_telemetry(false)
            .build()
            .map_err(|error| ModelError::Runtime(error.to_string()))?;
        let device = open_device(&environment, settings.device)?;
        let has_openvino = device == NetworkDevice::Cpu && ep::OpenVINO::is_available().unwrap_or(false);
        Ok(Self {
            environment,
            library: settings.library.clone(),
            version,
            device,
            openvino: has_openvino.then_some(settings.text_precision),
        })
    }

    /// The device in use.
    pub fn device(&self) -> NetworkDevice {
        self.device
    }

    /// Batch sizes that suit the device. On a CPU a batch costs more an item than one alone (activations leave the
    /// cache), and networks of one fixed shape are faster.
    pub fn batch_sizes(&self) -> BatchSizes {
        match self.device {
            NetworkDevice::Cpu => BatchSizes { detect: 1, embed: 1, read: 1 },
            NetworkDevice::Cuda => BatchSizes { detect: 16, embed: 64, read: 16 },
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = match (self.device, self.openvino) {
            (NetworkDevice::Cuda, _) => "CUDA".to_owned(),
            (NetworkDevice::Cpu, Some(precision)) => format!("CPU, text by OpenVINO {precision:?}"),
            (NetworkDevice::Cpu, None) => "CPU".to_owned(),
        };
        write!(f, "ONNX Runtime 1.{} ({}), {device}", self.version, self.library.display())
    }
}

/// The minor version of an ONNX Runtime 1 library, without initialising it.
///
/// # Errors
/// `Runtime` when it is missing, no ONNX Runtime, or too old.
pub fn probe(library: &Path) -> Result<u32, ModelError> {
    if !library.is_file() {
        return Err(ModelError::Runtime(format!("there is no library {}", library.display())));
    }
    match ort::util::probe(library) {
        Some(minor) if minor >= OLDEST_MINOR => Ok(minor),
        Some(minor) => Err(ModelError::Runtime(format!(
            "{} is version 1.{minor}, older than 1.{OLDEST_MINOR}",
            library.display()
        ))),
        None => Err(ModelError::Runtime(format!("{} is no ONNX Runtime 1 library", library.display()))),
    }
}

fn open_device(environment: &Environment, choice: DeviceChoice) -> Result<NetworkDevice, ModelError> {
    match choice {
        DeviceChoice::Cpu => Ok(NetworkDevice::Cpu),
        DeviceChoice::Wgpu => Err(ModelError::Device {
            device: "wgpu".into(),
            detail: "networks run on the CPU or on CUDA only".into(),
        }),
        DeviceChoice::Cuda => try_cuda(environment)
            .map_err(|detail| ModelError::Device { device: "cuda".into(), detail })
            .map(|()| NetworkDevice::Cuda),
        DeviceChoice::Auto => Ok(match try_cuda(environment) {
            Ok(()) => NetworkDevice::Cuda,
            Err(reason) => {
                tracing::info!(reason, "networks run on the CPU");
                NetworkDevice::Cpu
            }
        }),
    }
}

/// Loads the CUDA provider; says plainly why it does not serve.
fn try_cuda(environment: &Environment) -> Result<(), String> {
    if !ep::CUDA::is_available().unwrap_or(false) {
        return Err("this ONNX Runtime library has no CUDA provider".into());
    }
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    builder
        .with_execution_providers([ep::CUDA::default().build().error_on_failure()])
        .map(drop)
        .map_err(|error| format!("the CUDA provider does not load: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = probe(Path::new("/nowhere/libonnxruntime.so")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libonnxruntime.so"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = probe(&manifest).unwrap_err().to_string();
        assert!(error.contains("no ONNX Runtime"), "{error}");
    }
}
