//! Accuracy: bib search and selfie search end to end, and the calibration of face confidences.

mod bibs;
mod calibrate;
mod faces;
pub mod gallery;
mod logistic;

use clap::Subcommand;

use crate::paths::InputPaths;
use crate::publish_report;
use crate::report::OutputOptions;

/// What to evaluate.
#[derive(Clone, Debug, Subcommand)]
pub enum Evaluation {
    /// Bib search over the labelled race photos, end to end through the API.
    Bibs(EvalOptions),
    /// Selfie search: runners by another photo's face, portraits by person.
    Faces(EvalOptions),
    /// Fits the confidence of a face hit from its cosine.
    Calibrate(calibrate::CalibrateOptions),
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

/// Runs an evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(evaluation: Evaluation) -> anyhow::Result<()> {
    match evaluation {
        Evaluation::Bibs(options) => publish_report(bibs::run(&options)?, &options.output),
        Evaluation::Faces(options) => publish_report(faces::run(&options)?, &options.output),
        Evaluation::Calibrate(options) => publish_report(calibrate::run(&options)?, &options.output),
    }
}
