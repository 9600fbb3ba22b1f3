//! Where the bytes of a network are: in a file of the models directory, or in the binary.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::catalog::{Model, ModelFile};
use crate::contract::Contract;

/// The networks that the binary contains, by file name.
const COMPILED_IN: [(&str, &[u8]); 3] = [
    ("bib_gate.onnx", include_bytes!("../../trained/bib_gate.onnx")),
    ("light_text_detector.onnx", include_bytes!("../../trained/light_text_detector.onnx")),
    ("light_text_detector_int8.onnx", include_bytes!("../../trained/light_text_detector_int8.onnx")),
];

/// The bytes of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkFile {
    /// A file.
    Path(PathBuf),
    /// Part of the binary.
    CompiledIn {
        /// Its name in `models/trained`.
        name: &'static str,
        /// An ONNX model.
        bytes: &'static [u8],
    },
}

/// The file of a network in another precision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertedFile {
    /// Where it is.
    pub file: NetworkFile,
    /// Its SHA-256, lowercase hexadecimal.
    pub sha256: String,
}

impl NetworkFile {
    /// The file's name without its folder.
    pub fn name(&self) -> String {
        match self {
            Self::Path(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::CompiledIn { name, .. } => (*name).to_owned(),
        }
    }
}

impl Model {
    /// Returns the file in `folder` for calls with several items, if the network has one of its own for them.
    pub fn locate_for_batches(&self, folder: &Path) -> NetworkFile {
        match &self.contract {
            Contract::TextDetector { file_for_batches: Some(name) } => NetworkFile::Path(folder.join(name)),
            _ => self.locate(folder),
        }
    }

    /// Returns the file in `folder` of the same network with 8-bit integers, if it is there; that of the binary where the
    /// network itself is that of the binary.
    pub fn locate_quantised(&self, folder: &Path) -> Option<ConvertedFile> {
        let is_of_this = |file: &&ModelFile| file.quantised_from.as_deref() == Some(self.network_file());
        let listed = self.files.iter().find(is_of_this)?;
        let path = folder.join(&listed.name);
        let is_of_folder = matches!(self.locate(folder), NetworkFile::Path(_));
        let pinned = listed.sha256.first()?.clone();
        match compiled_in(&listed.name) {
            Some(file) if !is_of_folder => Some(ConvertedFile { file, sha256: pinned }),
            // An operator's own.
            Some(_) => {
                let sha256 = hex::encode(Sha256::digest(std::fs::read(&path).ok()?));
                Some(ConvertedFile { file: NetworkFile::Path(path), sha256 })
            }
            None => path.is_file().then_some(ConvertedFile { file: NetworkFile::Path(path), sha256: pinned }),
        }
    }

    /// Returns the file in `folder` of the same network with floats of 16 bits, if it is there.
    pub fn locate_halved(&self, folder: &Path) -> Option<ConvertedFile> {
        let is_of_this = |file: &&ModelFile| file.halved_from.as_deref() == Some(self.network_file());
        let listed = self.files.iter().find(is_of_this)?;
        let (path, sha256) = (folder.join(&listed.name), listed.sha256.first()?.clone());
        path.is_file().then_some(ConvertedFile { file: NetworkFile::Path(path), sha256 })
    }

    /// Returns the network's file in `folder`; that of the binary where the folder has none.
    pub fn locate(&self, folder: &Path) -> NetworkFile {
        let path = folder.join(self.network_file());
        let in_binary = compiled_in(self.network_file()).filter(|_| self.is_compiled_in() && !path.exists());
        in_binary.unwrap_or(NetworkFile::Path(path))
    }
}

fn compiled_in(name: &str) -> Option<NetworkFile> {
    let (name, bytes) = COMPILED_IN.iter().find(|(known, _)| *known == name)?;
    Some(NetworkFile::CompiledIn { name, bytes })
}

/// Returns the SHA-256 of the file that is compiled in under this name, lowercase hexadecimal; `None` if there is none.
pub fn compiled_in_sha256(name: &str) -> Option<String> {
    let (_, bytes) = COMPILED_IN.iter().find(|(known, _)| *known == name)?;
    Some(hex::encode(Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ModelRole, ModelSet, Zoo};

    #[test]
    fn the_binary_contains_the_files_whose_digests_the_list_pins() {
        for model in Zoo::embedded().models.iter().filter(|model| model.is_compiled_in()) {
            for file in &model.files {
                let digest = compiled_in_sha256(&file.name).expect("listed as compiled in");
                assert!(file.sha256.contains(&digest), "{} has the SHA-256 {digest}", file.name);
            }
        }
    }

    #[test]
    fn a_quantised_file_is_found_by_the_file_that_it_is_made_of() {
        let (zoo, folder) = (Zoo::embedded(), tempfile::tempdir().unwrap());
        let quantised = |role| {
            let model = zoo.model(ModelSet::Default, role).unwrap();
            model.locate_quantised(folder.path()).map(|quantised| quantised.file.name())
        };
        assert_eq!(quantised(ModelRole::TextDetector), None, "it is not there");
        std::fs::write(folder.path().join("pp_ocrv4_det_int8.onnx"), b"a network").unwrap();
        assert_eq!(quantised(ModelRole::TextDetector).as_deref(), Some("pp_ocrv4_det_int8.onnx"));
        assert_eq!(quantised(ModelRole::FaceDetector), None);
    }

    #[test]
    fn a_file_with_floats_of_16_bits_is_found_by_the_file_that_it_is_made_of() {
        let (zoo, folder) = (Zoo::embedded(), tempfile::tempdir().unwrap());
        let halved = |role| {
            let model = zoo.model(ModelSet::Default, role).unwrap();
            model.locate_halved(folder.path()).map(|halved| halved.file.name())
        };
        assert_eq!(halved(ModelRole::FaceEmbedder), None, "it is not there");
        std::fs::write(folder.path().join("omz_face_reid_0095_f16.onnx"), b"a network").unwrap();
        std::fs::write(folder.path().join("omz_face_reid_0095_int8.onnx"), b"another").unwrap();
        assert_eq!(halved(ModelRole::FaceEmbedder).as_deref(), Some("omz_face_reid_0095_f16.onnx"));
        assert_eq!(halved(ModelRole::TextDetector), None, "its sums exceed the range");
    }

    #[test]
    fn the_quantised_file_of_the_binary_belongs_to_the_network_of_the_binary() {
        let (zoo, folder) = (Zoo::embedded(), tempfile::tempdir().unwrap());
        let light = zoo.model(ModelSet::Default, ModelRole::LightTextDetector).unwrap();
        let quantised = || light.locate_quantised(folder.path()).map(|quantised| quantised.file);
        assert!(matches!(quantised(), Some(NetworkFile::CompiledIn { .. })));
        std::fs::write(folder.path().join(light.network_file()), b"trained by the operator").unwrap();
        assert_eq!(quantised(), None, "it is another network's");
        let own = folder.path().join("light_text_detector_int8.onnx");
        std::fs::write(&own, b"made by the operator").unwrap();
        assert_eq!(quantised(), Some(NetworkFile::Path(own)));
        let digest = light.locate_quantised(folder.path()).unwrap().sha256;
        assert!(!light.files[1].sha256.contains(&digest), "what is measured is kept for this file");
    }

    #[test]
    fn a_file_in_the_folder_comes_before_the_one_in_the_binary() {
        let folder = tempfile::tempdir().unwrap();
        let zoo = Zoo::embedded();
        let gate = zoo.model(ModelSet::Default, ModelRole::BibGate).unwrap();
        assert!(matches!(gate.locate(folder.path()), NetworkFile::CompiledIn { .. }));
        let own = folder.path().join(gate.network_file());
        std::fs::write(&own, b"trained by the operator").unwrap();
        assert_eq!(gate.locate(folder.path()), NetworkFile::Path(own));
    }
}
