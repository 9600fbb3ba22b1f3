//! Options of the end-to-end evaluations.

use crate::paths::InputPaths;
use crate::report::OutputOptions;

/// Options of the end-to-end evaluations.
#[derive(Clone, Debug, clap::Args)]
pub struct EvalOptions {
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}
