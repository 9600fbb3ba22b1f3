//! Processes photos on its own threads: leases them, fetches the files, decodes, resizes, detects and embeds faces, reads
//! bibs and writes the results. Also turns selfies into face embeddings.
//!
//! The crate uses the traits of the store and the models and knows nothing of HTTP, SQL or object stores. Every leased
//! photo ends exactly once, whatever fails. See [`Pipeline`] for how to start and stop it, and `docs/ARCHITECTURE.md`
//! for its design.

#![forbid(unsafe_code)]

mod assembly;
mod engine;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod image;
mod lane;
pub mod marking;
mod pipeline;
mod probe;
mod settings;
mod stages;
#[cfg(test)]
mod testing;

pub use photofinish_models::onnx::kernels::DEVICE_CALL_LIMIT;

pub use crate::engine::budget::BudgetLoad;
pub use crate::engine::cpu_shares::ReservedCores;
pub use crate::engine::fault::Component;
pub use crate::engine::metrics;
pub use crate::engine::pipeline_stats::StageLoad;
pub use crate::engine::status::{PipelineStatus, StopReport};
pub use crate::image::decoder::MAX_BYTES_PER_PIXEL;
pub use crate::image::pool::IDLE_LIFETIME;
pub use crate::pipeline::Pipeline;
pub use crate::probe::error::ProbeServiceError;
pub use crate::probe::extractor::ProbeFace;
pub use crate::probe::service::{ProbeService, ProbeSettings, ProbeTurn};
pub use crate::probe::state::ProbeStatus;
pub use crate::settings::{Limits, PipelineDependencies, PipelineSettings, ThreadCounts};
