//! Turns pixels into tensors and scores vectors, the same on every device.
//!
//! Knows nothing of networks, files, threads or any other crate of ours. The only crate with `unsafe`.

pub mod frame;
pub mod geometry;
