//! One loaded network. Every network takes one input tensor. A session runs on the calling thread only, without a thread
//! pool of its own: the pipeline's threads provide the parallelism.

use std::cell::Cell;

use ort::environment::Environment;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProviderDispatch};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session, SessionOutputs};
use ort::value::TensorRef;
use photofinish_kernels::image::tensor::Tensor;
use photofinish_zoo::NetworkFile;

use crate::onnx::failure;
use crate::onnx::kernels::KernelDevice;
use crate::onnx::runtime::{Backend, NetworkDevice, Runtime};
use crate::onnx::shapes::Shapes;
use crate::onnx::turns::Turns;
use crate::traits::ModelError;

/// What a network is used for. Decides whether input dimensions can be fixed: with a fixed shape, OpenVINO takes 70 % of
/// the time and two thirds of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Detects faces in pictures of any size. ONNX Runtime's own kernels are as fast as OpenVINO here.
    FaceDetection,
    /// Embeds aligned faces.
    Embedding,
    /// Detects text in pictures of one size.
    TextDetection {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// Detects text in pictures of any size.
    DynamicTextDetection,
    /// Looks for numbers on one torso per call; the file fixes the shape.
    BibGate,
    /// Reads strips of text.
    TextRecognition {
        /// Width in pixels.
        width: u32,
    },
}

/// How many items calls of a network have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// One in each call: the network is prepared for that.
    One,
    /// Any number.
    Many,
}

/// Names of the dynamic dimensions in the model files.
const EMBEDDER_BATCH_DIMENSION: &str = "N";
const TEXT_BATCH_DIMENSION: &str = "p2o.DynamicDimension.0";
const RECOGNISER_WIDTH_DIMENSION: &str = "p2o.DynamicDimension.1";
const DETECTOR_HEIGHT_DIMENSION: &str = "p2o.DynamicDimension.1";
const DETECTOR_WIDTH_DIMENSION: &str = "p2o.DynamicDimension.2";

impl Workload {
    /// Returns the dynamic dimensions that this workload fixes, with their sizes.
    fn dimension_overrides(self, items: Items) -> Vec<(&'static str, i64)> {
        let (batch, mut sizes) = match self {
            Self::FaceDetection | Self::DynamicTextDetection | Self::BibGate => (None, Vec::new()),
            Self::Embedding => (Some(EMBEDDER_BATCH_DIMENSION), Vec::new()),
            Self::TextDetection { width, height } => {
                let sizes = [
                    (DETECTOR_HEIGHT_DIMENSION, i64::from(height)),
                    (DETECTOR_WIDTH_DIMENSION, i64::from(width)),
                ];
                (Some(TEXT_BATCH_DIMENSION), sizes.to_vec())
            }
            Self::TextRecognition { width } => {
                (Some(TEXT_BATCH_DIMENSION), vec![(RECOGNISER_WIDTH_DIMENSION, i64::from(width))])
            }
        };
        if items == Items::One {
            sizes.extend(batch.map(|batch| (batch, 1)));
        }
        sizes
    }

    /// Returns where a network of this workload runs, of the device in use. The bib gate has one torso a call: .2 ms of a
    /// core, while each of its layers would be a launch on an NVIDIA GPU, between two copies, in the way of larger calls.
    fn device(self, in_use: NetworkDevice) -> NetworkDevice {
        match (self, in_use) {
            (Self::BibGate, NetworkDevice::Cuda) => NetworkDevice::Cpu,
            _ => in_use,
        }
    }
}

/// A loaded network. Belongs to one thread.
pub struct Network {
    recipe: Recipe,
    sessions: Shapes<DeviceSession>,
}

/// How a session of a network is created.
struct Recipe {
    name: String,
    file: NetworkFile,
    workload: Workload,
    items: Items,
    backend: Backend,
    environment: Environment,
    /// Where the network runs.
    device: NetworkDevice,
    /// Which of several NVIDIA GPUs.
    ordinal: usize,
    turns: Turns,
    /// Where its calls are noted.
    kernels: KernelDevice,
    /// How often the device was lost before the network was loaded.
    losses: u64,
    /// Whether the last call lacked memory.
    lacks_memory: Cell<bool>,
}

/// A session, which has a turn also while it is freed: that touches the device.
struct DeviceSession {
    /// `None` only once it is freed.
    session: Option<Session>,
    turns: Turns,
}

/// The outputs of one run.
pub struct Outputs<'n> {
    name: &'n str,
    outputs: SessionOutputs<'n>,
}

/// One output tensor.
#[derive(Clone, Copy, Debug)]
pub struct OutputTensor<'o> {
    /// Size of each dimension.
    pub shape: &'o [i64],
    /// Elements in row-major order.
    pub values: &'o [f32],
}

impl Network {
    /// Loads a network. On a CPU, `backend` computes it.
    ///
    /// # Errors
    /// `File` when the file is missing or the runtime rejects it; `Device` when the execution provider cannot be loaded, or
    /// the device is lost.
    pub fn load(
        runtime: &Runtime,
        file: &NetworkFile,
        workload: Workload,
        items: Items,
        backend: Backend,
    ) -> Result<Self, ModelError> {
        let device = workload.device(runtime.device());
        let kernels = match device {
            NetworkDevice::Cpu => KernelDevice::cpu(),
            NetworkDevice::Cuda | NetworkDevice::Wgpu => runtime.kernels().clone(),
        };
        let recipe = Recipe {
            name: file.name(),
            file: file.clone(),
            workload,
            items,
            backend,
            environment: runtime.environment.clone(),
            device,
            ordinal: runtime.ordinal(),
            turns: runtime.turns().clone(),
            losses: kernels.losses(),
            kernels,
            lacks_memory: Cell::new(false),
        };
        let session = recipe.create_session().inspect_err(|error| recipe.note_failure(error))?;
        let sessions = match device {
            NetworkDevice::Cuda => Shapes::one_each(session),
            NetworkDevice::Cpu | NetworkDevice::Wgpu => Shapes::one_for_all(session),
        };
        Ok(Self { recipe, sessions })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Returns an entry of the file's metadata; `None` if there is none of this name.
    pub fn metadata(&self, key: &str) -> Option<String> {
        self.sessions.first()?.session.as_ref()?.metadata().ok()?.custom(key)
    }

    /// Runs on one tensor.
    ///
    /// # Errors
    /// With the runtime's message: `OutOfMemory` or `Device` where the device is why, else `Inference`. After a lack of memory
    /// the next call frees the sessions for other shapes.
    pub fn run(&mut self, input: &Tensor) -> Result<Outputs<'_>, ModelError> {
        let Self { recipe, sessions } = self;
        let failed = |error: ort::Error| failure::classify(&recipe.name, recipe.device, error.to_string());
        let view = TensorRef::from_array_view((input.shape(), input.data())).map_err(failed)?;
        if recipe.lacks_memory.take() {
            sessions.keep_only(input.shape());
        }
        let borrowed = sessions.borrow(input.shape(), || recipe.create_session());
        let borrowed = borrowed.inspect_err(|error| recipe.note_failure(error))?;
        let session = borrowed.session.as_mut().ok_or_else(|| failed(ort::Error::new("it is freed")))?;
        let _turn = recipe.turns.wait();
        let _call = recipe.kernels.begin_call();
        // Outputs are in the memory of the host: reading and freeing them needs no turn.
        let outputs = session.run(ort::inputs![view]).map_err(failed);
        let outputs = outputs.inspect_err(|error| recipe.note_failure(error))?;
        Ok(Outputs { name: &recipe.name, outputs })
    }
}

impl Recipe {
    fn note_failure(&self, error: &ModelError) {
        self.lacks_memory.set(matches!(error, ModelError::OutOfMemory { .. }));
        self.kernels.note_failure(error, self.losses);
    }

    fn create_session(&self) -> Result<DeviceSession, ModelError> {
        let Self { name, file, device, .. } = self;
        let file_error = |detail: String| ModelError::File { name: name.clone(), detail };
        if let NetworkFile::Path(path) = file
            && !path.is_file()
        {
            return Err(file_error(format!("no file at {}", path.display())));
        }
        let _turn = self.turns.wait();
        let builder = session_builder(&self.environment);
        let mut builder = builder.map_err(|error| file_error(error.to_string()))?;
        let providers = execution_providers(*device, self.ordinal, self.workload, self.backend);
        if !providers.is_empty() {
            builder = builder.with_execution_providers(providers).map_err(|error| ModelError::Device {
                device: device.to_string(),
                detail: error.to_string(),
            })?;
        }
        for (dimension, size) in self.workload.dimension_overrides(self.items) {
            builder = builder
                .with_dimension_override(dimension, size)
                .map_err(|error| file_error(error.to_string()))?;
        }
        let _call = self.kernels.begin_call();
        let session = match file {
            NetworkFile::Path(path) => builder.commit_from_file(path),
            NetworkFile::CompiledIn { bytes, .. } => builder.commit_from_memory(bytes),
        };
        let session = session.map_err(|error| failure::classify_load(name, *device, error.to_string()))?;
        Ok(DeviceSession { session: Some(session), turns: self.turns.clone() })
    }
}

impl Drop for DeviceSession {
    fn drop(&mut self) {
        let _turn = self.turns.wait();
        drop(self.session.take());
    }
}

impl Outputs<'_> {
    /// Returns the first (often the only) output.
    ///
    /// # Errors
    /// `Inference` when it does not exist or its elements are not f32.
    pub fn first(&self) -> Result<OutputTensor<'_>, ModelError> {
        let name = self.outputs.keys().next().ok_or_else(|| self.missing_output("at all"))?;
        self.get(name)
    }

    /// Returns the output with this name.
    ///
    /// # Errors
    /// `Inference` when it does not exist or its elements are not f32.
    pub fn get(&self, name: &str) -> Result<OutputTensor<'_>, ModelError> {
        let value = self.outputs.get(name).ok_or_else(|| self.missing_output(name))?;
        let (shape, values) = value.try_extract_tensor::<f32>().map_err(|error| ModelError::Inference {
            name: self.name.to_owned(),
            detail: error.to_string(),
        })?;
        Ok(OutputTensor { shape, values })
    }

    fn missing_output(&self, output: &str) -> ModelError {
        ModelError::Inference { name: self.name.to_owned(), detail: format!("it has no output {output}") }
    }
}

fn session_builder(environment: &Environment) -> ort::Result<SessionBuilder> {
    Ok(Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(1)?
        .with_intra_op_spinning(false)?)
}

/// The providers in the order of preference; ONNX Runtime's own with its defaults where there is none. `ordinal` is which of
/// several NVIDIA GPUs is meant.
fn execution_providers(
    device: NetworkDevice,
    ordinal: usize,
    workload: Workload,
    backend: Backend,
) -> Vec<ExecutionProviderDispatch> {
    if device == NetworkDevice::Cuda {
        // Input shapes vary with the photos, and an exhaustive algorithm search takes seconds per shape.
        let cuda = ep::CUDA::default()
            .with_device_id(ordinal as i32)
            // TF32, with ten bits of a factor, moves outputs of the face detector by .005 and saves at most a seventh of a
            // network's time on an H200: what a device reads is what the CPU reads.
            .with_tf32(false)
            // Each session has an arena, which would grow to the next power of two.
            .with_arena_extend_strategy(ep::ArenaExtendStrategy::SameAsRequested)
            .with_conv_algorithm_search(ep::cuda::ConvAlgorithmSearch::Heuristic);
        return vec![cuda.build().error_on_failure()];
    }
    if device == NetworkDevice::Wgpu {
        return vec![ep::WebGPU::default().build().error_on_failure()];
    }
    let without_arena = ep::CPU::default().with_arena_allocator(false).build();
    if workload == Workload::FaceDetection {
        // The arena never releases the memory of the largest picture (80 MB after one at 1280) and saves no time here.
        return vec![without_arena];
    }
    let Backend::OpenVino(precision) = backend else { return Vec::new() };
    let hint = precision.openvino_hint();
    // The runtime cache would keep 20 MB for every input shape ever seen, and saves no time.
    let config = format!(
        r#"{{"CPU":{{"INFERENCE_PRECISION_HINT":"{hint}","INFERENCE_NUM_THREADS":"1","NUM_STREAMS":"1","CPU_RUNTIME_CACHE_CAPACITY":"0"}}}}"#
    );
    let openvino =
        ep::OpenVINO::default().with_device_type("CPU").with_arbitrary_config("load_config", config);
    // OpenVINO computes, but ONNX Runtime allocates the outputs: an arena would keep those of the largest picture.
    vec![openvino.build().error_on_failure(), without_arena]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bib_gate_stays_on_the_processor_beside_an_nvidia_gpu() {
        use NetworkDevice::{Cpu, Cuda, Wgpu};
        assert_eq!([Cpu, Cuda, Wgpu].map(|device| Workload::BibGate.device(device)), [Cpu, Cpu, Wgpu]);
        let others = [Workload::FaceDetection, Workload::Embedding, Workload::DynamicTextDetection];
        assert!(others.iter().all(|workload| workload.device(Cuda) == Cuda));
        let providers = execution_providers(Cpu, 0, Workload::BibGate, Backend::OnnxRuntime);
        assert!(providers.is_empty(), "ONNX Runtime's own, which every library has");
    }
}
