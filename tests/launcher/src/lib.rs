//! Runs the photofinish binary as a child process: the one launcher that the tests, the soak, the benchmarks and the
//! demonstration share.
//!
//! An [`Installation`] is the binary with the settings that all its commands share; [`Installation::start`] starts a role
//! of it as a [`ServiceProcess`]. It knows the command line, the settings and the health endpoints, and nothing of the
//! crates behind them.

#![forbid(unsafe_code)]

mod installation;
mod process;
mod resources;

pub use installation::{CommandOutput, Installation};
pub use process::{Exit, ServiceProcess, log_tail};
pub use resources::find_runtime_library;
pub use rustix::process::Signal;

/// The scopes that a key can have.
pub const ALL_SCOPES: [&str; 3] = ["search:read", "photo:upload", "album:manage"];
