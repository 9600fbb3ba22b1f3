//! Turns pixels into tensors and scores vectors, the same on every device.
//!
//! Knows nothing of networks, files, threads or any other crate of ours. The only crate with `unsafe`, in
//! [`foreign`] alone. Kernels that other devices will take over are opened with a [`device::Device`]; each keeps
//! its buffers, so a thread owns its own and a warm call allocates nothing.

pub mod align;
mod area;
mod bilinear;
pub mod cosine;
pub mod device;
pub mod foreign;
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
