//! The harness and the photo generator that the integration tests, the soak and the benchmarks share.

#![forbid(unsafe_code)]

pub mod harness;
pub use photofinish_scenes as scenes;
