//! Moves photos from bytes to rows on its own threads: leases work, fetches, decodes, resizes, finds faces, embeds
//! them, reads bibs, writes the results.
//!
//! Knows nothing of HTTP, SQL or object stores; the store's traits and the networks' traits are all it sees. A photo
//! ends exactly once, whatever dies: see [`Pipeline`] for how it is started and stopped, `docs/ARCHITECTURE.md` for
//! how it is built.

#![forbid(unsafe_code)]

mod assembly;
mod engine;
mod image;
mod pipeline;
mod probe;
mod settings;
mod stages;
#[cfg(test)]
mod testing;

pub use crate::engine::fault::Component;
pub use crate::engine::metrics;
pub use crate::engine::supervisor::{PipelineStatus, StopReport};
pub use crate::pipeline::Pipeline;
pub use crate::probe::extractor::ProbeFace;
pub use crate::probe::service::{ProbeService, ProbeServiceError};
pub use crate::settings::{Limits, PipelineDependencies, PipelineSettings, ThreadCounts};
