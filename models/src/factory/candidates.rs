//! Which networks are measured to choose what computes them, and with which inputs.

use photofinish_zoo::{Contract, FileState, Model, ModelRole};

use super::{BibGateChoice, ZooModels, wrong_contract};
use crate::onnx::session::Workload;
use crate::reading::{self, TorsoPassKind};
use crate::traits::ModelError;
use crate::tuning::Candidate;

/// Letters of a digest that tell an operator's networks apart.
const DIGEST_LETTERS: usize = 12;

/// Input values of black and white pixels of the text networks.
const TEXT_BLACK_AND_WHITE: [f32; 2] = [-1.0, 1.0];

impl ZooModels {
    /// The networks with a choice: on a GPU those that have a file for it, in calls of as many items as are usual there.
    pub(super) fn list_candidates(&self) -> Result<Vec<Candidate>, ModelError> {
        let (is_gpu, sizes) = (self.runtime.is_gpu(), self.runtime.batch_sizes());
        let candidate = |model: &Model, workload, rows: u32, columns: u32, black_and_white| Candidate {
            identity: model.identity(),
            file: model.locate(&self.folder),
            quantised: model.locate_quantised(&self.folder).filter(|_| !is_gpu),
            halved: model.locate_halved(&self.folder).filter(|_| is_gpu),
            workload,
            input_shape: [
                if model.role == ModelRole::FaceEmbedder { sizes.embed } else { sizes.read },
                3,
                rows as usize,
                columns as usize,
            ],
            black_and_white,
        };
        let embedder = self.model(ModelRole::FaceEmbedder)?;
        let Contract::Embedder(contract) = &embedder.contract else { return Err(wrong_contract(embedder)) };
        let black_and_white = [0.0, 255.0].map(|value| (value - contract.mean[0]) / contract.deviation[0]);
        let canvas = reading::FIRST_PASS_CANVAS;
        let strip = reading::RECOGNISER_INPUT;
        let detector = self.model(ModelRole::TextDetector)?;
        let recogniser = self.model(ModelRole::TextRecogniser)?;
        let mut candidates = vec![
            candidate(embedder, Workload::Embedding, contract.size, contract.size, black_and_white),
            candidate(
                detector,
                TorsoPassKind::First.whole_workload(),
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
        ];
        if self.uses_light_detector() {
            let (canvas, pass) = (reading::LIGHT_PASS_CANVAS, TorsoPassKind::Light);
            let light = self.model(ModelRole::LightTextDetector)?;
            let workload = pass.whole_workload();
            let measured = candidate(light, workload, canvas.height, canvas.width, TEXT_BLACK_AND_WHITE);
            candidates.push(Candidate { identity: self.identity_in_use(light.role)?, ..measured });
        }
        if self.bib_gate != BibGateChoice::Off {
            let input = reading::BIB_GATE_INPUT;
            let gate = self.model(ModelRole::BibGate)?;
            let measured = candidate(gate, Workload::BibGate, input.height, input.width, [0.0, 255.0]);
            candidates.push(Candidate { identity: self.identity_in_use(gate.role)?, ..measured });
        }
        candidates.retain(|candidate| !is_gpu || candidate.halved.is_some());
        Ok(candidates)
    }

    /// Name and version of a network that the binary contains; of an operator's own the beginning of its digest.
    pub(super) fn identity_in_use(&self, role: ModelRole) -> Result<String, ModelError> {
        let model = self.model(role)?;
        let own = self.zoo.verify(&self.folder).into_iter().find(|status| status.role == role);
        match own.and_then(|status| status.files.into_iter().next()) {
            Some((name, FileState::Own(digest))) => Ok(format!("{name} {}", &digest[..DIGEST_LETTERS])),
            _ => Ok(model.identity()),
        }
    }
}
