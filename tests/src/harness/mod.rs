//! Runs the real binary as a partner would meet it: a child process on a free port, spoken to over HTTP.
//!
//! Knows the contract and the command line, and nothing of the crates behind them: what a test here sees is what a
//! partner sees. Start with [`Service::start`]; [`Service::partner`] makes calls; [`pictures`] makes photos.

mod binary;
mod partner;
pub mod raw_http;
mod response;
mod service;
mod shared_service;
pub mod test_data;
pub mod test_photo;

pub use binary::{CommandOutput, binary_path, isolated_command, run_command};
pub use partner::{Partner, UploadFile, UploadTicket, expect_string};
pub use photofinish_servers::{
    free_port, is_skipping_forbidden, read_variable, repository_root, skip_or_fail,
};
pub use response::{ERROR_TABLE, Response};
pub use rustix::process::Signal;
pub use service::{Service, ServiceOptions, log_tail, wait_until};
pub use shared_service::{SharedService, SharedServiceRef};
