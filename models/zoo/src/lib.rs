//! The model zoo: which networks exist, where they come from, and whether the files on disk are the right ones.
//!
//! Knows no runtime and fetches nothing: `cargo xtask setup` fetches from the [`Source`]s listed here. The list is
//! `models/models.toml`, compiled into the binary, so that both always agree.

pub mod catalog;
pub mod contract;
pub mod network_file;
pub mod verify;

pub use catalog::{Model, ModelFile, ModelRole, ModelSet, PackageRegistry, Source, Zoo};
pub use contract::{Calibration, ChannelOrder, Contract, EmbedderContract};
pub use network_file::{ConvertedFile, NetworkFile};
pub use verify::{FileState, ModelStatus, NoModelSet};
