//! Operations on many photos at once, on any device.
//!
//! Each operation has a reference in plain Rust (`cpu.rs`, or the kernel for one picture that the rest of this crate
//! has), and the same arithmetic in WGSL and in CUDA C++ beside it. Coefficients, homographies and weights are computed
//! on the host in f64 and passed as tables, so that devices add and multiply the same numbers in the same order: pixels
//! are equal on every device whose products and sums are rounded one by one.
//!
//! What is more than a device's largest buffer is split: batches between items, one photo between rows.

pub mod characters;
pub mod downscale;
pub mod faces;
pub mod letterbox;
pub mod near;
mod pixels;
pub mod probe;
pub mod text_map;
pub mod top_k;
pub mod warp;

/// All sources of kernels: for tests and checks of all.
pub fn list_sources() -> Vec<&'static crate::gpu::Source> {
    vec![
        &letterbox::SOURCE,
        &downscale::SOURCE,
        &warp::SOURCE,
        &faces::SOURCE,
        &text_map::SOURCE,
        &characters::SOURCE,
        &top_k::SOURCE,
        &near::SOURCE,
    ]
}
