//! What the service tells of itself while it runs: log lines on standard error and, where an endpoint is named, the
//! spans of requests and photos as traces. Knows what lines look like, not what is in them.

use std::io::IsTerminal;
use std::sync::Arc;

use photofinish_api::context::TraceHook;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::{Config, LogFormat};
use crate::run::Role;
#[cfg(feature = "otlp")]
use crate::telemetry::traces::TraceExporter;

/// What has to be ended so that nothing told is lost.
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    traces: Option<TraceExporter>,
}

impl Telemetry {
    /// From now on everything is told. Once a process.
    ///
    /// # Errors
    /// When traces cannot be sent as the settings ask for.
    #[cfg(feature = "otlp")]
    pub fn start(config: &Config, role: Role) -> anyhow::Result<Self> {
        let traces =
            config.traces.as_ref().map(|settings| TraceExporter::start(settings, role)).transpose()?;
        let layer = traces.as_ref().map(TraceExporter::layer);
        tracing_subscriber::registry().with(log_layer(config)).with(layer).init();
        if let Some(settings) = &config.traces {
            let endpoint = crate::config::redact::redact_url(settings.endpoint.as_str());
            tracing::info!(endpoint, sampling = ?settings.sampling, "traces are sent");
        }
        Ok(Self { traces })
    }

    /// From now on everything is told. Once a process.
    ///
    /// # Errors
    /// None: this build sends no traces.
    #[cfg(not(feature = "otlp"))]
    pub fn start(config: &Config, _role: Role) -> anyhow::Result<Self> {
        tracing_subscriber::registry().with(log_layer(config)).init();
        Ok(Self {})
    }

    /// What ties a request to the trace of who sent it.
    pub fn trace_hook(&self) -> TraceHook {
        #[cfg(feature = "otlp")]
        if self.traces.is_some() {
            return crate::telemetry::traces::trace_hook();
        }
        Arc::new(|_, _| {})
    }

    /// Sends what is left. Blocks, a few seconds at most.
    pub fn stop(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.stop();
        }
    }
}

/// Lines on standard error, of what the operator's filter lets through.
fn log_layer(config: &Config) -> Box<dyn Layer<Registry> + Send + Sync> {
    let filter = EnvFilter::new(&config.log);
    let lines = tracing_subscriber::fmt::layer().with_ansi(std::io::stderr().is_terminal());
    let lines = lines.with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    }
}
