//! The real networks: a set of the zoo, opened with a runtime.

use std::path::PathBuf;
use std::sync::Arc;

use photofinish_kernels::device::Device;
use photofinish_zoo::{Contract, Model, ModelSet, Role, Zoo};

use crate::embedder::AlignedEmbedder;
use crate::libfacedetection::Libfacedetection;
use crate::reading::{BibRecipe, ReaderNetworks};
use crate::runtime::Runtime;
use crate::session::{Network, Workload};
use crate::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory, ModelIdentity,
};
use crate::yunet::{Yunet, YunetThresholds};

/// Makes the networks of one set.
pub struct ZooModels {
    runtime: Arc<Runtime>,
    folder: PathBuf,
    zoo: Zoo,
    set: ModelSet,
}

impl ZooModels {
    /// The best whole set in `folder`; every file is digested and compared first.
    ///
    /// # Errors
    /// `File` when no set is whole: the message names every file that is missing or wrong.
    pub fn open(runtime: Arc<Runtime>, folder: PathBuf) -> Result<Self, ModelError> {
        let zoo = Zoo::embedded();
        let set = zoo
            .choose(&folder)
            .map_err(|error| ModelError::File { name: "zoo".into(), detail: error.to_string() })?;
        if set == ModelSet::Registry {
            tracing::warn!("the default face networks are not there: the registry set reads faces, less exactly");
        }
        Ok(Self { runtime, folder, zoo, set })
    }

    /// The set in use.
    pub fn set(&self) -> ModelSet {
        self.set
    }

    /// The runtime in use.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn model(&self, role: Role) -> Result<&Model, ModelError> {
        self.zoo.model(self.set, role).ok_or_else(|| ModelError::File {
            name: format!("{role:?}"),
            detail: format!("the {} has none", self.set),
        })
    }

    fn load(&self, model: &Model, workload: Workload) -> Result<Network, ModelError> {
        Network::load(&self.runtime, &self.folder.join(model.file()), workload)
    }
}

impl ModelFactory for ZooModels {
    fn face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        let model = self.model(Role::FaceDetector)?;
        match model.contract {
            Contract::Yunet { score_threshold, iou_threshold } => {
                let network = self.load(model, Workload::Faces)?;
                let thresholds = YunetThresholds { score: score_threshold, iou: iou_threshold };
                Ok(Box::new(Yunet::new(network, thresholds, identity(model))))
            }
            Contract::Libfacedetection { score_threshold } => {
                let openmp = model.files.get(1).map_or("", |file| &file.name);
                let detector = Libfacedetection::open(
                    &self.folder.join(model.file()),
                    &self.folder.join(openmp),
                    score_threshold,
                    identity(model),
                )?;
                Ok(Box::new(detector))
            }
            _ => Err(wrong_contract(model)),
        }
    }

    fn face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        let model = self.model(Role::FaceEmbedder)?;
        let Contract::Embedder(contract) = &model.contract else { return Err(wrong_contract(model)) };
        let network = self.load(model, Workload::Faces)?;
        let batch = self.runtime.batch_sizes().embed;
        Ok(Box::new(AlignedEmbedder::new(network, contract, identity(model), batch)))
    }

    fn bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        let detector = self.model(Role::TextDetector)?;
        let recogniser = self.model(Role::TextRecogniser)?;
        let Contract::TextRecogniser { characters } = &recogniser.contract else {
            return Err(wrong_contract(recogniser));
        };
        // One session per shape: OpenVINO prepares a network for the shape it sees, and would do so again at each
        // change.
        let networks = ReaderNetworks {
            first_look: self.load(detector, Workload::Text)?,
            second_look: self.load(detector, Workload::Text)?,
            whole: self.load(detector, Workload::Text)?,
            recogniser: self.load(recogniser, Workload::Text)?,
            characters: characters.clone(),
        };
        let identity = ModelIdentity {
            name: format!("{}+{}", detector.name, recogniser.name),
            version: detector.version.max(recogniser.version),
        };
        Ok(Box::new(BibRecipe::new(&Device::Cpu, networks, identity)))
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
