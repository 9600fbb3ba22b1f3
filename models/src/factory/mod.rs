//! Creates the real networks: those of one model set of the zoo, loaded with a runtime.

mod candidates;
mod until_loss;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::Gpu;
use photofinish_zoo::{Contract, Model, ModelRole, ModelSet, Zoo};

use self::until_loss::UntilLoss;
use crate::bucket::Bucket;
use crate::faces::embedder::AlignedEmbedder;
use crate::faces::libfacedetection::Libfacedetection;
use crate::faces::yunet::{Yunet, YunetThresholds};
use crate::onnx::cpu::Cpu;
use crate::onnx::kernels::KernelDevice;
use crate::onnx::runtime::{Backend, NetworkDevice, Precision, Runtime};
use crate::onnx::session::{Items, Network, Workload};
use crate::reading::{
    self, BibGate, GateScope, ReaderNetworks, SharedTextDetector, TorsoBibReader, TorsoPassKind,
};
use crate::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};
use crate::tuning::{self, Backends, Measurements, PrecisionChoice};

/// Photos of a batch for each full frame of a call: few photos need one, and it has as many pixels as six torsos.
const PHOTOS_PER_FULL_FRAME: usize = 2;

/// Which torsos are read only where a bib gate, the operator's or else the one of the binary, sees a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BibGateChoice {
    /// All.
    All,
    /// Those of small runners.
    Small,
    /// None: those of small runners are not read at all, all others are.
    Off,
}

impl BibGateChoice {
    fn scope(self) -> Option<GateScope> {
        match self {
            Self::All => Some(GateScope::All),
            Self::Small => Some(GateScope::Small),
            Self::Off => None,
        }
    }
}

/// Creates the networks of one model set.
pub struct ZooModels {
    runtime: Arc<Runtime>,
    folder: PathBuf,
    zoo: Zoo,
    model_set: ModelSet,
    backends: Backends,
    bib_gate: BibGateChoice,
    has_light_pass: bool,
    /// Shared by all readers: it is rarely used and takes more memory than any other network. Loaded on first use, and again
    /// where it cannot be used any more.
    full_frame_detector: UntilLoss<SharedTextDetector>,
}

impl ZooModels {
    /// Chooses the best complete model set in `folder`, after checking the SHA-256 of every file. Every network is
    /// computed by ONNX Runtime until [`Self::with_precision`].
    ///
    /// # Errors
    /// `File` when no set is complete: the message names every file that is missing or wrong.
    pub fn open(runtime: Arc<Runtime>, folder: PathBuf) -> Result<Self, ModelError> {
        let zoo = Zoo::embedded();
        let set = zoo
            .choose_set(&folder)
            .map_err(|error| ModelError::File { name: "zoo".into(), detail: error.to_string() })?;
        if set == ModelSet::Registry {
            tracing::warn!(
                folder = %folder.display(),
                "default face models not found: using the less accurate registry set"
            );
        }
        let backends = Backends::all(Backend::OnnxRuntime);
        Ok(Self {
            runtime,
            folder,
            zoo,
            model_set: set,
            backends,
            bib_gate: BibGateChoice::Small,
            has_light_pass: true,
            full_frame_detector: UntilLoss::default(),
        })
    }

    /// Returns the same networks on another NVIDIA GPU.
    #[must_use]
    pub fn on_device(&self, ordinal: usize) -> Self {
        Self {
            runtime: Arc::new(self.runtime.on_device(ordinal)),
            folder: self.folder.clone(),
            zoo: Zoo::embedded(),
            full_frame_detector: UntilLoss::default(),
            ..*self
        }
    }

    /// Sets what the bib gate decides, which is about small runners unless this is called. Call before
    /// [`Self::with_precision`], which measures what is used.
    #[must_use]
    pub fn with_bib_gate(self, choice: BibGateChoice) -> Self {
        Self { bib_gate: choice, ..self }
    }

    /// Sets whether a light text detector looks at torsos first, as it does unless this is called. Call before
    /// [`Self::with_precision`].
    #[must_use]
    pub fn with_light_pass(self, has_light_pass: bool) -> Self {
        Self { has_light_pass, ..self }
    }

    /// Chooses what computes each network: the configured precision, or the fastest, which is measured unless the file
    /// `cache` has it.
    ///
    /// # Errors
    /// When a network cannot be loaded or run, or would be wrong in the configured precision on this CPU.
    pub fn with_precision(
        mut self,
        precision: PrecisionChoice,
        cache: Option<&Path>,
    ) -> Result<Self, ModelError> {
        if !self.has_choice() {
            return Ok(self);
        }
        self.backends = match precision {
            PrecisionChoice::Always(precision) if self.runtime.is_gpu() => Backends::on_gpu(precision),
            PrecisionChoice::Always(precision) => {
                tuning::check_precision(precision, &Cpu::detect())?;
                Backends::in_precision(precision)
            }
            PrecisionChoice::Auto => {
                let measurements = self.measure(cache)?;
                let fastest = |role| self.model(role).map(|model| measurements.fastest(&model.identity()));
                Backends {
                    embedder: fastest(ModelRole::FaceEmbedder)?,
                    text_detector: fastest(ModelRole::TextDetector)?,
                    light_text_detector: measurements
                        .fastest(&self.identity_in_use(ModelRole::LightTextDetector)?),
                    recogniser: fastest(ModelRole::TextRecogniser)?,
                    bib_gate: measurements.fastest(&self.identity_in_use(ModelRole::BibGate)?),
                }
            }
        };
        let Backends { embedder, text_detector, light_text_detector, recogniser, bib_gate } = self.backends;
        tracing::info!(
            %embedder,
            %text_detector,
            %light_text_detector,
            %recogniser,
            %bib_gate,
            "chose the backends of the networks"
        );
        Ok(self)
    }

    /// Whether networks can be computed in several ways here: the library contains OpenVINO, or there are files for GPUs.
    pub fn has_choice(&self) -> bool {
        let has_gpu_files = || self.list_candidates().is_ok_and(|candidates| !candidates.is_empty());
        self.runtime.has_openvino() || self.runtime.is_gpu() && has_gpu_files()
    }

    /// Measures every network whose input has one shape, or returns what `cache` knows.
    ///
    /// # Errors
    /// When a network cannot be loaded or run.
    pub fn measure(&self, cache: Option<&Path>) -> Result<Measurements, ModelError> {
        tuning::measure_or_load(&self.runtime, &self.list_candidates()?, cache)
    }

    /// Returns what `cache` knows of the networks in use; `None` if they have to be measured.
    ///
    /// # Errors
    /// When the model set lacks a network.
    pub fn measured(&self, cache: &Path) -> Result<Option<Measurements>, ModelError> {
        Ok(tuning::load(&self.runtime, &self.list_candidates()?, cache))
    }

    /// Loads the bib gate and says which it is and how it decides; `None` when none is used.
    ///
    /// # Errors
    /// When its file cannot be used.
    pub fn describe_bib_gate(&self) -> Result<Option<String>, ModelError> {
        let Some(gate) = self.load_bib_gate()? else { return Ok(None) };
        Ok(Some(format!("{}, {}", self.identity_in_use(ModelRole::BibGate)?, gate.thresholds())))
    }

    fn load_bib_gate(&self) -> Result<Option<BibGate>, ModelError> {
        let Some(scope) = self.bib_gate.scope() else { return Ok(None) };
        let model = self.model(ModelRole::BibGate)?;
        let network = self.load_network(model, Workload::BibGate, self.backends.bib_gate)?;
        BibGate::new(&Device::Cpu, network, scope).map(Some)
    }

    /// Loads a text detector for each height of a pass's canvas. Without a gate nothing says where on a torso a number is;
    /// on a GPU small inputs take as long as large ones.
    fn load_torso_detectors(&self, pass: TorsoPassKind) -> Result<Vec<Network>, ModelError> {
        let detector = self.model(ModelRole::TextDetector)?;
        let uses_windows = self.bib_gate == BibGateChoice::All && self.runtime.device() == NetworkDevice::Cpu;
        let workloads = if uses_windows { pass.workloads().to_vec() } else { vec![pass.whole_workload()] };
        let load = |workload| self.load_network(detector, workload, self.backends.text_detector);
        workloads.into_iter().map(load).collect()
    }

    /// Whether the light text detector is used: on a GPU small inputs take as long as large ones.
    fn uses_light_detector(&self) -> bool {
        self.has_light_pass && self.runtime.device() == NetworkDevice::Cpu
    }

    /// Loads the light text detector and says which it is; `None` when none is used.
    ///
    /// # Errors
    /// When its file cannot be used.
    pub fn describe_light_detector(&self) -> Result<Option<String>, ModelError> {
        let light = self.load_light_detector()?;
        light.map(|_| self.identity_in_use(ModelRole::LightTextDetector)).transpose()
    }

    fn load_light_detector(&self) -> Result<Option<Network>, ModelError> {
        if !self.uses_light_detector() {
            return Ok(None);
        }
        let light = self.model(ModelRole::LightTextDetector)?;
        let workload = TorsoPassKind::Light.whole_workload();
        let mut network = self.load_network(light, workload, self.backends.light_text_detector)?;
        reading::check_light_detector(&mut network)?;
        Ok(Some(network))
    }

    /// The model set in use.
    pub fn model_set(&self) -> ModelSet {
        self.model_set
    }

    /// The runtime in use.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn model(&self, role: ModelRole) -> Result<&Model, ModelError> {
        self.zoo.model(self.model_set, role).ok_or_else(|| ModelError::File {
            name: role.to_string(),
            detail: format!("the {} has none", self.model_set),
        })
    }

    fn load_full_frame_detector(&self, detector: &Model) -> Result<SharedTextDetector, ModelError> {
        let load = || {
            let network =
                self.load_network(detector, Workload::DynamicTextDetection, self.backends.text_detector)?;
            let bucket = Bucket::new(self.runtime.batch_sizes().read.div_ceil(PHOTOS_PER_FULL_FRAME));
            Ok(SharedTextDetector::new(&Device::Cpu, network, bucket))
        };
        self.full_frame_detector.get_or_make(self.runtime.kernels(), SharedTextDetector::is_usable, load)
    }

    fn load_network(
        &self,
        model: &Model,
        workload: Workload,
        backend: Backend,
    ) -> Result<Network, ModelError> {
        self.full_frame_detector.free_if_lost(self.runtime.kernels());
        let (items, in_f32) = match self.runtime.batches() {
            true => (Items::Many, model.locate_for_batches(&self.folder)),
            false => (Items::One, model.locate(&self.folder)),
        };
        let converted = match backend {
            Backend::OpenVino(Precision::Int8) => model.locate_quantised(&self.folder),
            Backend::OnnxRuntimeF16 => model.locate_halved(&self.folder),
            Backend::OnnxRuntime | Backend::OpenVino(_) => None,
        };
        let file = converted.map_or(in_f32, |converted| converted.file);
        Network::load(&self.runtime, &file, workload, items, backend)
    }
}

impl ModelFactory for ZooModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        let model = self.model(ModelRole::FaceDetector)?;
        match model.contract {
            Contract::Yunet { score_threshold, iou_threshold } => {
                let network = self.load_network(model, Workload::FaceDetection, Backend::OnnxRuntime)?;
                let thresholds = YunetThresholds { score: score_threshold, iou: iou_threshold };
                self.runtime.kernels().open()?;
                // What the network reads and writes on CUDA is in the memory of the host. With its copies, a call on an H200 places
                // four frames in 19 ms, a core in 28; but it decodes boxes in .6 ms, a core in .1, and the canvas comes back at
                // 1.3 GB/s, to be copied there again. The service was not measured with one kernel of the two.
                let kernels = match self.runtime.device() {
                    NetworkDevice::Cuda => KernelDevice::cpu(),
                    NetworkDevice::Cpu | NetworkDevice::Wgpu => self.runtime.kernels().clone(),
                };
                let bucket = Bucket::new(self.runtime.batch_sizes().detect);
                let yunet = Yunet::new(network, thresholds, identity(model));
                Ok(Box::new(yunet.on_device(kernels, bucket)))
            }
            Contract::Libfacedetection { score_threshold } => {
                let openmp_file = model.files.get(1).map_or("", |file| &file.name);
                let detector = Libfacedetection::open(
                    &self.folder.join(model.network_file()),
                    &self.folder.join(openmp_file),
                    score_threshold,
                    identity(model),
                )?;
                Ok(Box::new(detector))
            }
            _ => Err(wrong_contract(model)),
        }
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        let model = self.model(ModelRole::FaceEmbedder)?;
        let Contract::Embedder(contract) = &model.contract else { return Err(wrong_contract(model)) };
        let network = self.load_network(model, Workload::Embedding, self.backends.embedder)?;
        let batch = self.runtime.batch_sizes().embed;
        Ok(Box::new(AlignedEmbedder::new(network, contract, identity(model), batch)))
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        let detector = self.model(ModelRole::TextDetector)?;
        let recogniser = self.model(ModelRole::TextRecogniser)?;
        let Contract::TextRecogniser { characters } = &recogniser.contract else {
            return Err(wrong_contract(recogniser));
        };
        let bib_gate = self.load_bib_gate()?;
        let strips = reading::RECOGNISER_WORKLOAD;
        let networks = ReaderNetworks {
            bib_gate,
            light_pass: self.load_light_detector()?,
            first_pass: self.load_torso_detectors(TorsoPassKind::First)?,
            second_pass: self.load_torso_detectors(TorsoPassKind::Second)?,
            third_pass: self.load_torso_detectors(TorsoPassKind::Third)?,
            full_frame: self.load_full_frame_detector(detector)?,
            recogniser: self.load_network(recogniser, strips, self.backends.recogniser)?,
            characters: characters.clone(),
            // 64 torsos a call take four times as long as 16 on an H200, and four times the memory.
            batch: self.runtime.batch_sizes().read,
        };
        let identity = ModelIdentity {
            name: format!("{}+{}", detector.name, recogniser.name),
            version: detector.version.max(recogniser.version),
        };
        Ok(Box::new(TorsoBibReader::new(&Device::Cpu, networks, identity)))
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.runtime.batch_sizes()
    }

    fn longest_device_call(&self) -> Option<Duration> {
        self.runtime.kernels().longest_call()
    }

    fn uses_cores(&self) -> bool {
        self.runtime.device() == NetworkDevice::Cpu
    }

    fn lend_gpu(&self) -> Option<Arc<dyn Gpu>> {
        self.runtime.kernels().lend()
    }

    fn device_name(&self) -> Option<String> {
        self.runtime.device_name()
    }

    fn identities(&self) -> Vec<(&'static str, ModelIdentity)> {
        let roles = [
            ("faceDetector", ModelRole::FaceDetector),
            ("faceEmbedder", ModelRole::FaceEmbedder),
            ("textDetector", ModelRole::TextDetector),
            ("textRecogniser", ModelRole::TextRecogniser),
        ];
        let light = self.uses_light_detector().then_some(("lightTextDetector", ModelRole::LightTextDetector));
        let model = |(name, role)| self.model(role).ok().map(|model| (name, identity(model)));
        roles.into_iter().chain(light).filter_map(model).collect()
    }
}

fn identity(model: &Model) -> ModelIdentity {
    ModelIdentity { name: model.name.clone(), version: model.version }
}

fn wrong_contract(model: &Model) -> ModelError {
    ModelError::File { name: model.name.clone(), detail: "its contract does not fit its role".into() }
}
