//! Log lines on standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::{Config, LogFormat};

/// Writes events to standard error, filtered and formatted as configured.
pub fn log_layer(config: &Config) -> Box<dyn Layer<Registry> + Send + Sync> {
    let filter = EnvFilter::new(&config.settings.service.log);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match config.settings.service.log_format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    }
}
