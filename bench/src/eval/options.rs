//! Options of the end-to-end evaluations.

use crate::paths::InputPaths;
use crate::report::OutputOptions;

/// Options of the evaluation of bibs.
#[derive(Clone, Debug, clap::Args)]
pub struct BibOptions {
    /// Composes the photos into crowds of 4, 9 and 16 and compares with the same photos alone.
    #[arg(long)]
    pub crowds: bool,
    /// How many random arrangements of the crowds to read.
    #[arg(long, default_value_t = 5)]
    pub seeds: u32,
    #[command(flatten)]
    pub common: EvalOptions,
}

/// Options of the evaluation of faces.
#[derive(Clone, Debug, clap::Args)]
pub struct FaceOptions {
    /// How many jittered pictures of each face to search with.
    #[arg(long, default_value_t = 5)]
    pub seeds: u32,
    #[command(flatten)]
    pub common: EvalOptions,
}

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
