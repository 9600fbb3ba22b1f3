//! Checks whether the files in a folder are those that the zoo lists.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::catalog::{Model, ModelFile, ModelRole, ModelSet, Zoo};

/// State of one file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// Present, with an accepted digest.
    Valid,
    /// Not present.
    Missing,
    /// Not present, and not needed: the binary contains it.
    CompiledIn,
    /// Not present, and not needed: the file that it is made of does the same, more slowly on some devices.
    NotMade,
    /// Present with another digest than that of the binary's, which is given: the operator's own.
    Own(String),
    /// Present with another digest, which is given.
    WrongDigest(String),
    /// Present but not readable; the error.
    Unreadable(String),
}

impl FileState {
    /// Whether the file can be used.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Valid | Self::CompiledIn | Self::NotMade | Self::Own(_))
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("right"),
            Self::Missing => f.write_str("missing"),
            Self::CompiledIn => f.write_str("in the binary"),
            Self::NotMade => f.write_str("not made, `cargo xtask setup` makes it"),
            Self::Own(digest) => write!(f, "the operator's own (sha256 {digest})"),
            Self::WrongDigest(digest) => write!(f, "wrong (sha256 {digest})"),
            Self::Unreadable(error) => write!(f, "unreadable ({error})"),
        }
    }
}

/// State of a model's files.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    /// `name@version`.
    pub identity: String,
    /// The sets it belongs to.
    pub sets: Vec<ModelSet>,
    /// Its task.
    pub role: ModelRole,
    /// Name and state of each file.
    pub files: Vec<(String, FileState)>,
}

impl ModelStatus {
    /// Whether every file can be used.
    pub fn is_complete(&self) -> bool {
        self.files.iter().all(|(_, state)| state.is_usable())
    }
}

impl fmt::Display for ModelStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets: Vec<String> = self.sets.iter().map(ToString::to_string).collect();
        write!(f, "{} ({})", self.identity, sets.join(", "))?;
        for (name, state) in &self.files {
            write!(f, "  {name}: {state}")?;
        }
        Ok(())
    }
}

/// No model set is complete.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no complete set of models in {folder}: {problems}; run `cargo xtask setup`, or name another folder")]
pub struct NoModelSet {
    folder: String,
    problems: String,
}

impl Zoo {
    /// Checks every file of every model in `folder`, in the zoo's order. Reads and hashes the files.
    pub fn verify(&self, folder: &Path) -> Vec<ModelStatus> {
        self.models.iter().map(|model| check_model(model, folder)).collect()
    }

    /// Returns the set to use: the default set if all its files in `folder` are valid, else the registry set.
    ///
    /// # Errors
    /// When neither is complete: the message names every file that is missing or wrong.
    pub fn choose_set(&self, folder: &Path) -> Result<ModelSet, NoModelSet> {
        choose_set(self, folder)
    }
}

/// Checks a model's files in `folder`.
fn check_model(model: &Model, folder: &Path) -> ModelStatus {
    let state = |file: &ModelFile| match check_file(file, folder) {
        FileState::Missing if model.is_compiled_in() && !is_of_own_network(model, file, folder) => {
            FileState::CompiledIn
        }
        FileState::Missing if file.made_from().is_some() => FileState::NotMade,
        FileState::WrongDigest(digest) if model.is_compiled_in() => FileState::Own(digest),
        state => state,
    };
    let files = model.files.iter().map(|file| (file.name.clone(), state(file))).collect();
    ModelStatus { identity: model.identity(), sets: model.sets.clone(), role: model.role, files }
}

/// Whether the file of the binary is not used because it was made of the network in the binary, and the folder has another.
fn is_of_own_network(model: &Model, file: &ModelFile, folder: &Path) -> bool {
    file.made_from().is_some() && folder.join(model.network_file()).exists()
}

/// Returns the first complete set; the default set is tried first.
fn choose_set(zoo: &Zoo, folder: &Path) -> Result<ModelSet, NoModelSet> {
    let mut problems = Vec::new();
    for set in [ModelSet::Default, ModelSet::Registry] {
        let wrong = list_wrong_files(zoo, set, folder);
        if wrong.is_empty() {
            return Ok(set);
        }
        problems.push(format!("{set} lacks {}", wrong.join(", ")));
    }
    Err(NoModelSet { folder: folder.display().to_string(), problems: problems.join("; ") })
}

fn list_wrong_files(zoo: &Zoo, set: ModelSet, folder: &Path) -> Vec<String> {
    let models = ModelRole::ALL.iter().filter_map(|role| zoo.model(set, *role));
    let files = models.flat_map(|found| check_model(found, folder).files);
    files.filter(|(_, state)| !state.is_usable()).map(|(name, state)| format!("{name} ({state})")).collect()
}

fn check_file(file: &ModelFile, folder: &Path) -> FileState {
    match sha256(&folder.join(&file.name)) {
        Ok(digest) if file.sha256.contains(&digest) => FileState::Valid,
        Ok(digest) => FileState::WrongDigest(digest),
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileState::Missing,
        Err(error) => FileState::Unreadable(error.to_string()),
    }
}

/// Returns the SHA-256 of a file, lowercase hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex::encode(digest.finalize()));
        }
        digest.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_has_no_set_and_the_message_names_every_file() {
        let folder = tempfile::tempdir().unwrap();
        let message = Zoo::embedded().choose_set(folder.path()).unwrap_err().to_string();
        for file in ["yunet_n_dynamic.onnx", "libfacedetection.so", "rec_v4_alnum.onnx"] {
            assert!(message.contains(file), "{file} is not in: {message}");
        }
    }

    #[test]
    fn a_network_of_the_binary_needs_no_file_and_may_be_the_operators_own() {
        let folder = tempfile::tempdir().unwrap();
        let gate = || {
            let statuses = Zoo::embedded().verify(folder.path());
            statuses.into_iter().find(|status| status.role == ModelRole::BibGate).unwrap()
        };
        assert_eq!(gate().files[0].1, FileState::CompiledIn);
        std::fs::write(folder.path().join("bib_gate.onnx"), b"another").unwrap();
        assert!(matches!(gate().files[0].1, FileState::Own(_)));
        assert!(gate().is_complete());
        let problems = Zoo::embedded().choose_set(folder.path()).unwrap_err().to_string();
        assert!(!problems.contains("bib_gate.onnx"), "{problems}");
    }

    #[test]
    fn the_quantised_file_of_the_binary_is_not_that_of_an_operators_own_network() {
        let folder = tempfile::tempdir().unwrap();
        let states = || {
            let statuses = Zoo::embedded().verify(folder.path());
            let light =
                statuses.into_iter().find(|status| status.role == ModelRole::LightTextDetector).unwrap();
            light.files.into_iter().map(|(_, state)| state).collect::<Vec<_>>()
        };
        assert_eq!(states(), [FileState::CompiledIn, FileState::CompiledIn]);
        std::fs::write(folder.path().join("light_text_detector.onnx"), b"another").unwrap();
        assert!(matches!(states()[..], [FileState::Own(_), FileState::NotMade]), "{:?}", states());
    }

    #[test]
    fn a_set_needs_no_quantised_file_but_a_damaged_one_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let zoo = Zoo::embedded();
        let state = || {
            let statuses = zoo.verify(folder.path());
            let files = statuses.into_iter().flat_map(|status| status.files);
            files.into_iter().find(|(name, _)| name == "rec_v4_alnum_int8.onnx").unwrap().1
        };
        assert_eq!(state(), FileState::NotMade);
        assert!(!zoo.choose_set(folder.path()).unwrap_err().to_string().contains("int8"));
        std::fs::write(folder.path().join("rec_v4_alnum_int8.onnx"), b"damaged").unwrap();
        assert!(!state().is_usable());
    }

    #[test]
    fn a_damaged_file_has_a_wrong_digest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("yunet_n_dynamic.onnx"), b"damaged").unwrap();
        let status = &Zoo::embedded().verify(folder.path())[0];
        assert!(!status.is_complete());
        assert!(matches!(status.files[0].1, FileState::WrongDigest(_)), "{status}");
    }
}
