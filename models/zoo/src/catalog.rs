//! The list of networks, as `models/models.toml` says it.

use std::fmt;

use serde::Deserialize;

use crate::contract::Contract;

/// All networks that Photofinish can use.
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
    /// Stored, with the version, beside each embedding.
    pub name: String,
    /// Raised when embeddings or boxes change their meaning.
    pub version: u32,
    /// Its task.
    pub role: ModelRole,
    /// The sets it belongs to.
    pub sets: Vec<ModelSet>,
    /// Licence, as stated by its authors.
    pub licence: String,
    /// Authors and version.
    pub origin: String,
    /// Its files in the models directory: the network first, then files that it needs.
    pub files: Vec<ModelFile>,
    /// How to call it.
    pub contract: Contract,
    /// Where set-up fetches it from, in order of preference.
    pub sources: Vec<Source>,
}

/// One file of a network.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the models directory.
    pub name: String,
    /// Accepted digests, lowercase hexadecimal. Several if the bytes of a conversion depend on the tool's version.
    pub sha256: Vec<String>,
    /// The file that it is made of, by set-up unless it is compiled in: the same network with 8-bit integers.
    pub quantised_from: Option<String>,
    /// The file that it is made of by set-up: the same network with floats of 16 bits, for GPUs.
    pub halved_from: Option<String>,
}

impl ModelFile {
    /// The file of the same network that it is made of; `None`: it is fetched.
    pub fn made_from(&self) -> Option<&str> {
        self.quantised_from.as_deref().or(self.halved_from.as_deref())
    }
}

/// The task of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelRole {
    /// Detects faces.
    FaceDetector,
    /// Turns faces into embeddings.
    FaceEmbedder,
    /// Detects text.
    TextDetector,
    /// Detects text on torsos, faster and less surely than the text detector, which looks after it.
    LightTextDetector,
    /// Reads text.
    TextRecogniser,
    /// Tells which torsos may show a number, and where, before text is detected.
    BibGate,
}

impl fmt::Display for ModelRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FaceDetector => "face detector",
            Self::FaceEmbedder => "face embedder",
            Self::TextDetector => "text detector",
            Self::LightTextDetector => "light text detector",
            Self::TextRecogniser => "text recogniser",
            Self::BibGate => "bib gate",
        })
    }
}

impl ModelRole {
    /// Every role; a complete set has a model for each.
    pub const ALL: [Self; 6] = [
        Self::FaceDetector,
        Self::FaceEmbedder,
        Self::TextDetector,
        Self::LightTextDetector,
        Self::TextRecogniser,
        Self::BibGate,
    ];
}

/// A set of networks that work together, one per role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSet {
    /// The most accurate networks that may be used freely.
    Default,
    /// Networks available from package registries, for machines that reach nothing else.
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

/// Where a network can be fetched from. The operator's models directory always comes first.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A folder `shared/models` beside the checkout with the finished files.
    Shared,
    /// A public HTTPS origin.
    Https {
        /// URLs to fetch.
        files: Vec<String>,
        /// Name of the conversion; `None` uses the files as they are.
        convert: Option<String>,
    },
    /// A package of a registry.
    Package {
        /// The registry.
        registry: PackageRegistry,
        /// The package.
        package: String,
        /// Its exact version.
        version: String,
        /// The file to extract from the package.
        member: Option<String>,
        /// Name of the conversion; `None` uses the member as it is.
        convert: Option<String>,
    },
    /// Compiled into the binary. A file of this name in the models directory is used in its place, whatever its digest:
    /// an operator may train a network for the photos of their own events.
    CompiledIn,
}

/// A package registry, accessed with its ordinary client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageRegistry {
    /// PyPI, the Python registry.
    Pypi,
    /// npm, the Node.js registry.
    Npm,
}

impl Zoo {
    /// Parses the list that is compiled into this binary.
    pub fn embedded() -> Self {
        toml::from_str(include_str!("../../models.toml")).expect("a unit test parses the same text")
    }

    /// Returns the model of a set for a role.
    pub fn model(&self, set: ModelSet, role: ModelRole) -> Option<&Model> {
        self.models.iter().find(|model| model.role == role && model.sets.contains(&set))
    }
}

impl Model {
    /// Returns `name@version`, as stored beside embeddings.
    pub fn identity(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Whether the binary contains it, so that nothing needs to be fetched.
    pub fn is_compiled_in(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, Source::CompiledIn))
    }

    /// Name of the network's own file.
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
                assert!(zoo.model(set, role).is_some(), "{set} has no {role}");
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
