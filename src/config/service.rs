//! Settings of the process itself: its addresses, its folder, its environment and its log.

use std::net::SocketAddr;
use std::path::PathBuf;

use photofinish_api::context::Environment;

use super::parsers::{self, Choice};

const ENVIRONMENTS: Choice<Environment> = Choice(&[
    ("local", Environment::Local),
    ("sandbox", Environment::Sandbox),
    ("production", Environment::Production),
]);

const LOG_FORMATS: Choice<LogFormat> = Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one object a line.
    Json,
}

/// Settings of the process.
#[derive(clap::Args, Clone, Debug)]
#[command(
    next_help_heading = "Service (roles all, serve, work; each setting is also an environment variable)"
)]
pub struct ServiceArguments {
    /// Address of the API
    #[arg(long, env = "PHOTOFINISH_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    #[arg(value_parser = parsers::address)]
    pub listen: SocketAddr,
    /// Address of health and metrics [default: the address of the API]
    #[arg(long, env = "PHOTOFINISH_ADMIN_LISTEN", value_name = "ADDRESS", value_parser = parsers::address)]
    pub admin_listen: Option<SocketAddr>,
    /// Folder of the database, the photos and the secrets created at first start
    #[arg(long, env = "PHOTOFINISH_DATA_DIR", value_name = "FOLDER", default_value = "data")]
    pub data_dir: PathBuf,
    /// Which API keys are accepted: production accepts live keys, sandbox test keys, local both
    #[arg(long, env = "PHOTOFINISH_ENVIRONMENT", value_name = "NAME", default_value = "local")]
    #[arg(value_parser = ENVIRONMENTS)]
    pub environment: Environment,
    /// Which events are logged, as a filter of the crate tracing-subscriber
    #[arg(long, env = "PHOTOFINISH_LOG", value_name = "FILTER", default_value = "info,ort=warn")]
    #[arg(value_parser = parsers::log_filter)]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "PHOTOFINISH_LOG_FORMAT", value_name = "NAME", default_value = "text")]
    #[arg(value_parser = LOG_FORMATS)]
    pub log_format: LogFormat,
}
