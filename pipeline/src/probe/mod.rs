//! Turns selfies into face embeddings, on its own thread and with its own models, independent of the pipeline.
//!
//! Organizations take turns ([`turns`]); the [`service`] passes one selfie at a time to the thread of a [`worker`], which
//! owns an [`extractor`], and replaces a worker that hangs. Where a process has several [`devices`], the next one is used when
//! one fails.

mod devices;
pub(crate) mod error;
pub(crate) mod extractor;
pub(crate) mod service;
pub(crate) mod state;
mod supervisor;
mod turns;
mod worker;
