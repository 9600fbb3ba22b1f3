//! Log lines, traces and metrics of the process: installed once, before anything else runs.

pub(crate) mod logging;
pub(crate) mod metrics_page;
#[cfg(feature = "otlp")]
pub(crate) mod traces;
