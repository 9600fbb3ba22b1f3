//! Runs the real binary as a child process on a free port, and calls it over HTTP as a partner does.
//!
//! It knows the contract and the command line, and nothing of the crates behind them: what a test here sees is what a
//! partner sees. Start with [`Service::start`]; [`Service::partner`] makes calls; [`test_photo`] makes photos.

mod binary;
mod npm;
mod partner;
mod response;
mod service;
mod shared_service;
pub mod test_data;
pub mod test_photo;

pub use binary::{binary_path, isolated_command, run_command};
pub use npm::NpmProgram;
pub use partner::{Partner, UploadFile, expect_string};
pub use photofinish_client::UploadTicket;
pub use photofinish_launcher::{ALL_SCOPES, CommandOutput, Exit, Signal};
pub use photofinish_servers::{
    free_port, is_skipping_forbidden, read_variable, repository_root, skip_or_fail,
    variable_or_installed_path,
};
pub use response::Response;
pub use service::{Service, ServiceOptions, wait_until};
pub use shared_service::{SharedService, SharedServiceRef};
