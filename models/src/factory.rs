//! Creates the real networks: those of one model set of the zoo, loaded with a runtime.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_kernels::device::Device;
use photofinish_zoo::{Contract, Model, ModelRole, ModelSet, Zoo};

use crate::faces::embedder::AlignedEmbedder;
use crate::faces::libfacedetection::Libfacedetection;
use crate::faces::yunet::{Yunet, YunetThresholds};
use crate::onnx::runtime::Runtime;
use crate::onnx::session::{Network, Workload};
use crate::reading::{self, ReaderNetworks, SharedTextDetector, TorsoBibReader};
use crate::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};

/// Creates the networks of one model set.
pub struct ZooModels {
    runtime: Arc<Runtime>,
    folder: PathBuf,
    zoo: Zoo,
    model_set: ModelSet,
    /// Shared by all readers: it is rarely used and takes more memory than any other network. Loaded on first use.
    full_frame_detector: Mutex<Option<SharedTextDetector>>,
}

impl ZooModels {
    /// Chooses the best complete model set in `folder`, after checking the SHA-256 of every file.
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
        Ok(Self { runtime, folder, zoo, model_set: set, full_frame_detector: Mutex::default() })
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
        let network = self.load_network(detector, Workload::DynamicTextDetection)?;
        Ok(shared.insert(SharedTextDetector::new(&Device::Cpu, network)).clone())
    }

    fn load_network(&self, model: &Model, workload: Workload) -> Result<Network, ModelError> {
        Network::load(&self.runtime, &self.folder.join(model.network_file()), workload)
    }
}

impl ModelFactory for ZooModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        let model = self.model(ModelRole::FaceDetector)?;
        match model.contract {
            Contract::Yunet { score_threshold, iou_threshold } => {
                let network = self.load_network(model, Workload::FaceDetection)?;
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
        let network = self.load_network(model, Workload::Embedding)?;
        let batch = self.runtime.batch_sizes().embed;
        Ok(Box::new(AlignedEmbedder::new(network, contract, identity(model), batch)))
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        let detector = self.model(ModelRole::TextDetector)?;
        let recogniser = self.model(ModelRole::TextRecogniser)?;
        let Contract::TextRecogniser { characters } = &recogniser.contract else {
            return Err(wrong_contract(recogniser));
        };
        let networks = ReaderNetworks {
            first_pass: self.load_network(detector, reading::FIRST_PASS_WORKLOAD)?,
            second_pass: self.load_network(detector, reading::SECOND_PASS_WORKLOAD)?,
            full_frame: self.load_full_frame_detector(detector)?,
            recogniser: self.load_network(recogniser, reading::RECOGNISER_WORKLOAD)?,
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
