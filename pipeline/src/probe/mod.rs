//! Turns selfies into face embeddings, on its own thread and models, independent of the pipeline.

pub(crate) mod extractor;
pub(crate) mod service;
