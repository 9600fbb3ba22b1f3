//! Runs the real binary as a partner would meet it: a child process on a free port, spoken to over HTTP.
//!
//! Knows the contract and the command line, and nothing of the crates behind them: what a test here sees is what a
//! partner sees. Start with [`Service::start`]; [`Service::partner`] makes calls; [`pictures`] makes photos.

mod answer;
mod binary;
mod group;
mod partner;
pub mod pictures;
pub mod raw_http;
mod service;
pub mod shared;

pub use answer::{Answer, STATUS_CODES};
pub use binary::{Output, binary, command, run};
pub use group::{Group, Shared};
pub use partner::{File, Partner, Ticket, text};
pub use photofinish_servers::{free_port, repository_root, required, skip_or_fail, variable};
pub use rustix::process::Signal;
pub use service::{Options, Service, tail, wait_until};
