//! Pixel, tensor and vector kernels: resizing, rotation, face alignment, letterboxing, DBNet post-processing, exact
//! nearest-neighbour scoring.
//!
//! Knows nothing of networks, files, threads or any other crate of the workspace. Kernels that could run on other
//! devices are created with a [`device::Device`]. Each kernel owns its buffers: one per thread, and a warm call
//! allocates nothing.

pub mod align;
mod area;
mod bilinear;
pub mod cosine;
pub mod device;
pub mod frame;
pub mod geometry;
pub mod letterbox;
pub mod nms;
pub mod orient;
pub mod rectify;
pub mod regions;
pub mod resize;
pub mod sharpness;
pub mod tensor;
mod warp;
