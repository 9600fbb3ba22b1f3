//! Creates the real networks: those of one model set of the zoo, loaded with a runtime.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_zoo::{Contract, Model, ModelRole, ModelSet, Zoo};

use crate::faces::embedder::AlignedEmbedder;
use crate::faces::libfacedetection::Libfacedetection;
use crate::faces::yunet::{Yunet, YunetThresholds};
use crate::onnx::runtime::{Backend, Runtime};
use crate::onnx::session::{Network, Workload};
use crate::reading::{self, ReaderNetworks, SharedTextDetector, TorsoBibReader};
use crate::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};
use crate::tuning::{self, Backends, Candidate, Measurements, PrecisionChoice};

/// Input values of black and white pixels of the text networks.
const TEXT_BLACK_AND_WHITE: [f32; 2] = [-1.0, 1.0];

/// Creates the networks of one model set.
pub struct ZooModels {
    runtime: Arc<Runtime>,
    folder: PathBuf,
    zoo: Zoo,
    model_set: ModelSet,
    backends: Backends,
    /// Shared by all readers: it is rarely used and takes more memory than any other network. Loaded on first use.
    full_frame_detector: Mutex<Option<SharedTextDetector>>,
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
        Ok(Self { runtime, folder, zoo, model_set: set, backends, full_frame_detector: Mutex::default() })
    }

    /// Chooses what computes each network: the configured precision, or the fastest, which is measured unless the file
    /// `cache` has it.
    ///
    /// # Errors
    /// When a network cannot be loaded or run.
    pub fn with_precision(
        mut self,
        precision: PrecisionChoice,
        cache: Option<&Path>,
    ) -> Result<Self, ModelError> {
        if !self.runtime.has_openvino() {
            return Ok(self);
        }
        self.backends = match precision {
            PrecisionChoice::Always(precision) => Backends::all(Backend::OpenVino(precision)),
            PrecisionChoice::Auto => {
                let measurements = self.measure(cache)?;
                let fastest = |role| self.model(role).map(|model| measurements.fastest(&model.identity()));
                Backends {
                    embedder: fastest(ModelRole::FaceEmbedder)?,
                    text_detector: fastest(ModelRole::TextDetector)?,
                    recogniser: fastest(ModelRole::TextRecogniser)?,
                }
            }
        };
        let Backends { embedder, text_detector, recogniser } = self.backends;
        tracing::info!(%embedder, %text_detector, %recogniser, "chose the backends of the networks");
        Ok(self)
    }

    /// Measures every network whose input has one shape, or returns what `cache` knows.
    ///
    /// # Errors
    /// When a network cannot be loaded or run.
    pub fn measure(&self, cache: Option<&Path>) -> Result<Measurements, ModelError> {
        tuning::measure_or_load(&self.runtime, &self.list_candidates()?, cache)
    }

    fn list_candidates(&self) -> Result<Vec<Candidate>, ModelError> {
        let candidate = |model: &Model, workload, rows: u32, columns: u32, black_and_white| Candidate {
            identity: model.identity(),
            file: self.folder.join(model.network_file()),
            workload,
            input_shape: [3, rows as usize, columns as usize],
            black_and_white,
        };
        let embedder = self.model(ModelRole::FaceEmbedder)?;
        let Contract::Embedder(contract) = &embedder.contract else { return Err(wrong_contract(embedder)) };
        let black_and_white = [0.0, 255.0].map(|value| (value - contract.mean[0]) / contract.deviation[0]);
        let canvas = reading::FIRST_PASS_CANVAS;
        let strip = reading::RECOGNISER_INPUT;
        let detector = self.model(ModelRole::TextDetector)?;
        let recogniser = self.model(ModelRole::TextRecogniser)?;
        Ok(vec![
            candidate(embedder, Workload::Embedding, contract.size, contract.size, black_and_white),
            candidate(
                detector,
                reading::FIRST_PASS_WORKLOAD,
                canvas.height,
                canvas.width,
                TEXT_BLACK_AND_WHITE,
            ),
            candidate(
                recogniser,
                reading::RECOGNISER_WORKLOAD,
                strip.height,
                strip.width,
                TEXT_BLACK_AND_WHITE,
            ),
        ])
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
        let mut shared = self.full_frame_detector.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(finder) = shared.as_ref() {
            return Ok(finder.clone());
        }
        let network =
            self.load_network(detector, Workload::DynamicTextDetection, self.backends.text_detector)?;
        Ok(shared.insert(SharedTextDetector::new(&Device::Cpu, network)).clone())
    }

    fn load_network(
        &self,
        model: &Model,
        workload: Workload,
        backend: Backend,
    ) -> Result<Network, ModelError> {
        Network::load(&self.runtime, &self.folder.join(model.network_file()), workload, backend)
    }
}

impl ModelFactory for ZooModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        let model = self.model(ModelRole::FaceDetector)?;
        match model.contract {
            Contract::Yunet { score_threshold, iou_threshold } => {
                let network = self.load_network(model, Workload::FaceDetection, Backend::OnnxRuntime)?;
                let thresholds = YunetThresholds { score: score_threshold, iou: iou_threshold };
                Ok(Box::new(Yunet::new(network, thresholds, identity(model))))
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
        let backends = &self.backends;
        let networks = ReaderNetworks {
            first_pass: self.load_network(detector, reading::FIRST_PASS_WORKLOAD, backends.text_detector)?,
            second_pass: self.load_network(
                detector,
                reading::SECOND_PASS_WORKLOAD,
                backends.text_detector,
            )?,
            full_frame: self.load_full_frame_detector(detector)?,
            recogniser: self.load_network(recogniser, reading::RECOGNISER_WORKLOAD, backends.recogniser)?,
            characters: characters.clone(),
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
}

fn identity(model: &Model) -> ModelIdentity {
    ModelIdentity { name: model.name.clone(), version: model.version }
}

fn wrong_contract(model: &Model) -> ModelError {
    ModelError::File { name: model.name.clone(), detail: "its contract does not fit its role".into() }
}
