//! Runs networks on tensors and gives back faces, embeddings and text in photo coordinates.
//!
//! Knows nothing of files of photos, threads, rows or HTTP. The pipeline asks through [`traits`]; `src` chooses the
//! factory: [`factory::ZooModels`], the real networks, or [`fakes::FakeModels`] for tests of everything around them.

pub mod faces;
pub mod factory;
pub mod fakes;
pub mod onnx;
pub mod reading;
pub mod traits;
