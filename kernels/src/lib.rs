//! Pixel, tensor and vector kernels: resizing, rotation, face alignment, letterboxing, DBNet post-processing, exact
//! nearest-neighbour scoring.
//!
//! Most kernels take one picture and run on the thread that calls them. Those of [`batch`] take many and run on any
//! [`device::Device`].
//!
//! Knows nothing of networks, files, threads or any other crate of the workspace. Kernels that could run on other
//! devices are created with a [`device::Device`]. Kernels of pixels own their buffers: one per thread, and a warm call
//! allocates nothing.

pub mod batch;
pub mod cosine;
pub mod device;
pub mod geometry;
pub mod gpu;
pub mod image;
pub mod lattice;
pub mod quantised;
pub mod regions;
pub mod resize;
pub mod sharpness;
mod vectors;
pub mod warp;
