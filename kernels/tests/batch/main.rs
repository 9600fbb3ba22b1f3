//! The operations on many photos, on every device that can be had without a GPU, compared with plain Rust: WGSL on
//! Mesa's software Vulkan, CUDA C++ on the processor; and CUDA C++ compiled for GPUs. With a GPU, on it too.

mod compile;
mod devices;
mod near;
mod networks;
mod on_cpu;
mod pictures;
mod top_k;
mod warps;
