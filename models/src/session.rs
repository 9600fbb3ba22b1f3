//! One network, loaded. All our networks take one tensor; each session runs on the thread that calls it alone,
//! without a thread pool: the pipeline's threads are the parallelism.

use std::path::Path;

use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProviderDispatch};
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionOutputs};
use ort::value::TensorRef;
use photofinish_kernels::tensor::Tensor;

use crate::runtime::{NetworkDevice, Precision, Runtime};
use crate::traits::ModelError;

/// What a network is for decides which provider serves it best on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Face networks: ONNX Runtime's own kernels are as fast as OpenVINO's, and shapes may change freely.
    Faces,
    /// Text networks: OpenVINO is 1.4 to 3 times faster.
    Text,
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
pub struct Output<'o> {
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
        let mut builder = Session::builder(&runtime.environment)
            .map_err(|error| refused(error.to_string()))?
            .with_optimization_level(GraphOptimizationLevel::All)
            .map_err(|error| refused(error.to_string()))?
            .with_intra_threads(1)
            .map_err(|error| refused(error.to_string()))?
            .with_intra_op_spinning(false)
            .map_err(|error| refused(error.to_string()))?;
        if let Some(provider) = provider(runtime, workload) {
            builder = builder.with_execution_providers([provider]).map_err(|error| ModelError::Device {
                device: format!("{:?}", runtime.device()).to_lowercase(),
                detail: error.to_string(),
            })?;
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
    pub fn first(&self) -> Result<Output<'_>, ModelError> {
        let name = self.outputs.keys().next().ok_or_else(|| self.lacks("any output"))?;
        self.named(name)
    }

    /// The output of this name.
    ///
    /// # Errors
    /// `Inference` when there is none or it does not hold f32.
    pub fn named(&self, name: &str) -> Result<Output<'_>, ModelError> {
        let value = self.outputs.get(name).ok_or_else(|| self.lacks(name))?;
        let (shape, values) = value.try_extract_tensor::<f32>().map_err(|error| ModelError::Inference {
            name: self.name.to_owned(),
            detail: error.to_string(),
        })?;
        Ok(Output { shape, values })
    }

    fn lacks(&self, output: &str) -> ModelError {
        ModelError::Inference { name: self.name.to_owned(), detail: format!("it does not give {output}") }
    }
}

fn provider(runtime: &Runtime, workload: Workload) -> Option<ExecutionProviderDispatch> {
    if runtime.device() == NetworkDevice::Cuda {
        // Shapes change with the photos: an exhaustive search per shape would cost seconds each.
        let cuda = ep::CUDA::default().with_conv_algorithm_search(ep::cuda::ConvAlgorithmSearch::Heuristic);
        return Some(cuda.build().error_on_failure());
    }
    let precision = match (workload, runtime.openvino?) {
        (Workload::Faces, _) => return None,
        (Workload::Text, Precision::F32) => "f32",
        (Workload::Text, Precision::Bf16) => "bf16",
    };
    let config = format!(
        r#"{{"CPU":{{"INFERENCE_PRECISION_HINT":"{precision}","INFERENCE_NUM_THREADS":"1","NUM_STREAMS":"1"}}}}"#
    );
    let openvino =
        ep::OpenVINO::default().with_device_type("CPU").with_arbitrary_config("load_config", config);
    Some(openvino.build().error_on_failure())
}
