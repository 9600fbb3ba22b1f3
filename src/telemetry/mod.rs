//! Log lines, traces and metrics of the process: installed once, before anything else runs.

mod logging;
pub mod metrics;
pub mod metrics_page;
#[cfg(feature = "otlp")]
mod traces;

use photofinish_api::context::TraceHook;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Config;
use crate::role::Role;
#[cfg(feature = "otlp")]
use crate::telemetry::traces::TraceExporter;

/// Writes the log of a command that changes what is there, on standard error as that of a role. Once per process.
pub fn start_log(config: &Config) {
    tracing_subscriber::registry().with(logging::log_layer(config)).init();
}

/// The installed log lines and traces.
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    traces: Option<TraceExporter>,
}

impl Telemetry {
    /// Installs the subscriber of the process. Once per process.
    ///
    /// # Errors
    /// When the trace exporter cannot be built from the settings.
    #[cfg(feature = "otlp")]
    pub fn start(config: &Config, role: Role) -> anyhow::Result<Self> {
        let traces =
            config.traces.as_ref().map(|settings| TraceExporter::start(settings, role)).transpose()?;
        let trace_layer = traces.as_ref().map(TraceExporter::layer);
        tracing_subscriber::registry().with(logging::log_layer(config)).with(trace_layer).init();
        if let Some(settings) = &config.traces {
            let endpoint = crate::config::redact::redact_url(settings.endpoint.as_str());
            tracing::info!(endpoint, sampling = %settings.sampling, "exporting traces");
        }
        Ok(Self { traces })
    }

    /// Installs the subscriber of the process. Once per process.
    ///
    /// # Errors
    /// None: this build exports no traces.
    #[cfg(not(feature = "otlp"))]
    pub fn start(config: &Config, _role: Role) -> anyhow::Result<Self> {
        tracing_subscriber::registry().with(logging::log_layer(config)).init();
        Ok(Self {})
    }

    /// Links the span of each API request to the caller's trace; does nothing where no traces are exported.
    pub fn trace_hook(&self) -> TraceHook {
        #[cfg(feature = "otlp")]
        if self.traces.is_some() {
            return traces::trace_hook();
        }
        std::sync::Arc::new(|_, _| {})
    }

    /// Exports the remaining spans. Blocks for up to 5 seconds.
    pub fn stop(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.stop();
        }
    }
}
