//! CUDA C++ that is compiled at run time and launched: the only crate that calls NVIDIA's libraries.
//!
//! Nothing is linked. Libraries are opened by their path ([`libraries`]), because cudarc opens them by name and panics
//! where there are none; a library that is loaded already is found by its name wherever it came from. So every entry
//! into cudarc here is behind a check that its library is there, and a missing one is an error.
//!
//! # Why this is sound
//! [`device::Module`] takes texts that are compiled into the program, and a kernel stays within the memory that it is given as
//! any `unsafe` code does: by review, and by tests that compare it with plain Rust at every size, here on a processor
//! through `on_cpu` and on a GPU by `cargo xtask gpu-check`. Arguments are device memory that a launch borrows, so it
//! lives until the launch is done.

pub mod cache;
pub mod compile;
pub mod device;
pub mod libraries;
#[cfg(feature = "on-cpu")]
pub mod on_cpu;

/// Why something of CUDA cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library is missing, or of another version.
    #[error("{0}")]
    Unavailable(String),
    /// A kernel does not compile.
    #[error("{name} does not compile: {log}")]
    Compile {
        /// The source's name.
        name: String,
        /// What the compiler said.
        log: String,
    },
    /// The device has not enough free memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The driver reports that the device or its context is no longer usable.
    #[error("device lost: {0}")]
    Lost(String),
    /// Any other failure of the driver.
    #[error("{0}")]
    Driver(String),
}
