//! Turns selfies into face embeddings, on its own thread and with its own models, independent of the pipeline.

pub(crate) mod extractor;
pub(crate) mod service;
