//! Log lines, traces and metrics of the process: installed once, before anything else runs.

pub(crate) mod logging;
#[cfg(feature = "otlp")]
pub(crate) mod traces;
