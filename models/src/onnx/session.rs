//! One network, loaded. All our networks take one tensor; each session runs on the thread that calls it alone,
//! without a thread pool: the pipeline's threads are the parallelism.

use std::path::Path;

use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProviderDispatch};
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::session::{Session, SessionOutputs};
use ort::value::TensorRef;
use photofinish_kernels::tensor::Tensor;

use crate::onnx::runtime::{NetworkDevice, Precision, Runtime};
use crate::traits::ModelError;

/// What a network is for decides which provider serves it best on a CPU, and whether its shape can be fixed: OpenVINO
/// runs a network of one shape in 7 tenths of the time and two thirds of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Faces in pictures of any size: ONNX Runtime's own kernels are as fast as OpenVINO's.
    FaceDetection,
    /// One aligned face a call.
    Embedding,
    /// Text in pictures of one size.
    TextDetection {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// Text in pictures of any size.
    DynamicTextDetection,
    /// One strip of text a call.
    TextRecognition {
        /// Pixels across.
        width: u32,
    },
}

/// Names of the dimensions that the networks leave open.
const EMBEDDER_BATCH_DIMENSION: &str = "N";
const TEXT_BATCH_DIMENSION: &str = "p2o.DynamicDimension.0";
const RECOGNISER_WIDTH_DIMENSION: &str = "p2o.DynamicDimension.1";
const DETECTOR_HEIGHT_DIMENSION: &str = "p2o.DynamicDimension.1";
const DETECTOR_WIDTH_DIMENSION: &str = "p2o.DynamicDimension.2";

impl Workload {
    /// The open dimensions that this use closes.
    fn dimension_overrides(self) -> Vec<(&'static str, i64)> {
        match self {
            Self::FaceDetection | Self::DynamicTextDetection => Vec::new(),
            Self::Embedding => vec![(EMBEDDER_BATCH_DIMENSION, 1)],
            Self::TextDetection { width, height } => {
                vec![
                    (TEXT_BATCH_DIMENSION, 1),
                    (DETECTOR_HEIGHT_DIMENSION, i64::from(height)),
                    (DETECTOR_WIDTH_DIMENSION, i64::from(width)),
                ]
            }
            Self::TextRecognition { width } => {
                vec![(TEXT_BATCH_DIMENSION, 1), (RECOGNISER_WIDTH_DIMENSION, i64::from(width))]
            }
        }
    }

    /// How exactly OpenVINO computes it; `None` where ONNX Runtime itself does. Embeddings in 16 bits keep a cosine of
    /// .9995 to those in 32 and take a third of the time.
    fn precision(self, text: Precision) -> Option<Precision> {
        match self {
            Self::FaceDetection => None,
            Self::Embedding => Some(Precision::Bf16),
            Self::TextDetection { .. } | Self::DynamicTextDetection | Self::TextRecognition { .. } => {
                Some(text)
            }
        }
    }
}

/// One network, loaded; belongs to one thread.
pub struct Network {
    name: String,
    session: Session,
}

/// What a run gave.
pub struct Outputs<'n> {
    name: &'n str,
    outputs: SessionOutputs<'n>,
}

/// One output.
#[derive(Clone, Copy, Debug)]
pub struct OutputTensor<'o> {
    /// Length of each dimension.
    pub shape: &'o [i64],
    /// Row-major.
    pub values: &'o [f32],
}

impl Network {
    /// Loads a network.
    ///
    /// # Errors
    /// `File` when the file is not there or the runtime refuses it, `Device` when the device does not take it.
    pub fn load(runtime: &Runtime, path: &Path, workload: Workload) -> Result<Self, ModelError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let refused = |detail: String| ModelError::File { name: name.clone(), detail };
        if !path.is_file() {
            return Err(refused(format!("there is no file {}", path.display())));
        }
        let mut builder = session_builder(runtime).map_err(|error: ort::Error| refused(error.to_string()))?;
        if let Some(provider) = execution_provider(runtime, workload) {
            builder = builder.with_execution_providers([provider]).map_err(|error| ModelError::Device {
                device: format!("{:?}", runtime.device()).to_lowercase(),
                detail: error.to_string(),
            })?;
        }
        if runtime.openvino.is_some() {
            for (dimension, size) in workload.dimension_overrides() {
                builder = builder
                    .with_dimension_override(dimension, size)
                    .map_err(|error| refused(error.to_string()))?;
            }
        }
        let session = builder.commit_from_file(path).map_err(|error| refused(error.to_string()))?;
        Ok(Self { name, session })
    }

    /// Runs on one tensor.
    ///
    /// # Errors
    /// `Inference` with the runtime's words.
    pub fn run(&mut self, input: &Tensor) -> Result<Outputs<'_>, ModelError> {
        let name = &self.name;
        let failed =
            |error: ort::Error| ModelError::Inference { name: name.clone(), detail: error.to_string() };
        let view = TensorRef::from_array_view((input.shape(), input.data())).map_err(failed)?;
        let outputs = self.session.run(ort::inputs![view]).map_err(failed)?;
        Ok(Outputs { name, outputs })
    }
}

impl Outputs<'_> {
    /// The first (or only) output.
    ///
    /// # Errors
    /// `Inference` when there is none or it does not hold f32.
    pub fn first(&self) -> Result<OutputTensor<'_>, ModelError> {
        let name = self.outputs.keys().next().ok_or_else(|| self.missing_output("any output"))?;
        self.get(name)
    }

    /// The output of this name.
    ///
    /// # Errors
    /// `Inference` when there is none or it does not hold f32.
    pub fn get(&self, name: &str) -> Result<OutputTensor<'_>, ModelError> {
        let value = self.outputs.get(name).ok_or_else(|| self.missing_output(name))?;
        let (shape, values) = value.try_extract_tensor::<f32>().map_err(|error| ModelError::Inference {
            name: self.name.to_owned(),
            detail: error.to_string(),
        })?;
        Ok(OutputTensor { shape, values })
    }

    fn missing_output(&self, output: &str) -> ModelError {
        ModelError::Inference { name: self.name.to_owned(), detail: format!("it does not give {output}") }
    }
}

fn session_builder(runtime: &Runtime) -> ort::Result<SessionBuilder> {
    Ok(Session::builder(&runtime.environment)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(1)?
        .with_intra_op_spinning(false)?)
}

fn execution_provider(runtime: &Runtime, workload: Workload) -> Option<ExecutionProviderDispatch> {
    if runtime.device() == NetworkDevice::Cuda {
        // Shapes change with the photos: an exhaustive search per shape would cost seconds each.
        let cuda = ep::CUDA::default().with_conv_algorithm_search(ep::cuda::ConvAlgorithmSearch::Heuristic);
        return Some(cuda.build().error_on_failure());
    }
    if workload == Workload::FaceDetection {
        // The arena keeps the largest picture's memory for ever (80 MB after one at 1280) and saves no time here.
        return Some(ep::CPU::default().with_arena_allocator(false).build());
    }
    let precision = match workload.precision(runtime.openvino?)? {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    };
    // The cache keeps what was prepared for each shape ever seen: 20 MB a shape, at no gain in time.
    let config = format!(
        r#"{{"CPU":{{"INFERENCE_PRECISION_HINT":"{precision}","INFERENCE_NUM_THREADS":"1","NUM_STREAMS":"1","CPU_RUNTIME_CACHE_CAPACITY":"0"}}}}"#
    );
    let openvino =
        ep::OpenVINO::default().with_device_type("CPU").with_arbitrary_config("load_config", config);
    Some(openvino.build().error_on_failure())
}
