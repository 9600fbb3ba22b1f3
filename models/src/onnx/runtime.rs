//! ONNX Runtime: the library, and the device that networks run on. Found at run time: one binary runs on a CPU with
//! or without OpenVINO, or on CUDA. Nothing here panics when a library is missing or too old.

use std::fmt;
use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::ep::{self, ExecutionProvider};
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::TensorRef;

use crate::traits::{BatchSizes, ModelError};

/// The oldest minor version of ONNX Runtime 1 that serves: the `api-23` feature of the binding.
const MIN_MINOR_VERSION: u32 = 23;

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
        let version = read_library_version(&settings.library)?;
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
pub fn read_library_version(library: &Path) -> Result<u32, ModelError> {
    if !library.is_file() {
        return Err(ModelError::Runtime(format!("there is no library {}", library.display())));
    }
    match ort::util::probe(library) {
        Some(minor) if minor >= MIN_MINOR_VERSION => Ok(minor),
        Some(minor) => Err(ModelError::Runtime(format!(
            "{} is version 1.{minor}, older than 1.{MIN_MINOR_VERSION}",
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

/// A small network that computes something, `y = Relu(x)` of two numbers, as a file of ONNX. Written by hand: before each
/// value stands a byte `field number * 8 + wire type` (0: a number, 2: bytes, behind how many they are).
///
/// By line: version 8 of the format; version 13 of the operators; the graph; in it a node with its input, its output and
/// its operator; the graph's name; its input and its output, each a name, a type (1: f32) and the length of its dimension.
const RELU_MODEL: [u8; 59] = *b"\
    \x08\x08\
    \x42\x02\x10\x0d\
    \x3a\x33\
        \x0a\x0c\x0a\x01x\x12\x01y\x22\x04Relu\
        \x12\x01g\
        \x5a\x0f\x0a\x01x\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x02\
        \x62\x0f\x0a\x01y\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x02";

/// Runs a network on CUDA; says plainly why it does not serve. A provider that loads is not enough: it looks for its
/// device when a network is loaded, and for its libraries when one is run.
fn try_cuda(environment: &Environment) -> Result<(), String> {
    if !ep::CUDA::is_available().unwrap_or(false) {
        return Err("this ONNX Runtime library has no CUDA provider".into());
    }
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder
        .with_execution_providers([ep::CUDA::default().build().error_on_failure()])
        .map_err(|error| format!("the CUDA provider does not load: {error}"))?;
    let answer =
        run_relu_model(builder).map_err(|error| format!("the CUDA device does not serve: {error}"))?;
    if answer == [0.0, 2.0] { Ok(()) } else { Err(format!("the CUDA device computes nonsense: {answer:?}")) }
}

/// What [`TINY`] makes of -1 and 2, by whichever provider the builder has.
fn run_relu_model(mut builder: SessionBuilder) -> ort::Result<Vec<f32>> {
    let mut session = builder.commit_from_memory(&RELU_MODEL)?;
    let input: &[f32] = &[-1.0, 2.0];
    let outputs = session.run(ort::inputs![TensorRef::from_array_view(([input.len()], input))?])?;
    let (_shape, values) = outputs[0].try_extract_tensor::<f32>()?;
    Ok(values.to_vec())
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
        assert!(error.contains("no ONNX Runtime"), "{error}");
    }

    /// The library that the set-up got, or the one that is configured; none after saying so.
    #[expect(
        clippy::disallowed_methods,
        reason = "tests are told by the environment where set-up put things"
    )]
    fn find_library() -> Option<PathBuf> {
        let set_up = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.photofinish/runtime");
        let place = std::env::var("PHOTOFINISH_ONNXRUNTIME").map_or(set_up, PathBuf::from);
        if place.is_file() {
            return Some(place);
        }
        let is_library = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
        };
        let files = std::fs::read_dir(&place).ok().into_iter().flatten();
        let found = files.filter_map(|file| Some(file.ok()?.path())).filter(is_library).min();
        let is_required = std::env::var("REQUIRE_SHARED").is_ok_and(|value| value == "1");
        assert!(found.is_some() || !is_required, "no library in {}, and REQUIRE_SHARED=1", place.display());
        if found.is_none() {
            println!("SKIPPED: no ONNX Runtime in {}", place.display());
        }
        found
    }

    #[test]
    fn the_relu_model_loads_and_runs() {
        let Some(library) = find_library() else { return };
        let settings = RuntimeSettings { library, device: DeviceChoice::Cpu, text_precision: Precision::F32 };
        let runtime = Runtime::open(&settings).unwrap();
        let builder = Session::builder(&runtime.environment).unwrap();
        assert_eq!(run_relu_model(builder).unwrap(), [0.0, 2.0]);
    }
}
