//! Runs neural networks on photos and returns faces, embeddings and text in photo coordinates.
//!
//! Does not read photo files and knows nothing of threads, the database or HTTP. The pipeline calls the networks through
//! [`traits`]; the binary chooses the factory: [`factory::ZooModels`] makes the real networks, `fakes::FakeModels` (cargo
//! feature `fakes`, for tests) makes stand-ins that read painted marks.

pub mod bucket;
pub mod faces;
pub mod factory;
#[cfg(feature = "fakes")]
pub mod fakes;
pub mod onnx;
pub mod reading;
pub mod traits;
pub mod tuning;
