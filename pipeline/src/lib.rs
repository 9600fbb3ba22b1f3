//! Moves photos from bytes to rows on its own threads: leases work, fetches, decodes, resizes, finds faces, embeds
//! them, reads bibs, writes the results.
//!
//! Knows nothing of HTTP, SQL or object stores; the store's traits and the networks' traits are all it sees. A photo
//! ends exactly once, whatever dies: see [`Pipeline`] for how it is started and stopped, `docs/ARCHITECTURE.md` for
//! how it is built.

#![forbid(unsafe_code)]

mod assembly;
mod book;
mod budget;
mod decode;
mod desk;
mod detect;
mod embed;
mod fault;
mod feed;
mod fetch;
mod generation;
mod grid;
mod index;
#[cfg(test)]
mod mechanics_tests;
mod meters;
pub mod metric_names;
mod network;
mod photo;
mod pipeline;
mod probe;
mod quality;
mod read;
mod resize;
mod runner;
mod settings;
mod sizes;
mod spans;
mod stage;
mod store_call;
mod supervisor;
mod sync;
#[cfg(test)]
mod testing;
mod ticket;

pub use crate::desk::{ProbeFace, ProbeService, ProbeServiceError};
pub use crate::fault::Component;
pub use crate::pipeline::Pipeline;
pub use crate::settings::{Limits, PipelineDependencies, PipelineSettings, ThreadCounts};
pub use crate::supervisor::{PipelineStatus, StopReport};
