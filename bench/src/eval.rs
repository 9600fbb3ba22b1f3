//! How right the answers are: bib search and selfie search end to end, and what a cosine is worth.

mod bibs;
mod calibrate;
mod faces;
pub mod gallery;
mod logistic;

use clap::Subcommand;

use crate::finish;
use crate::places::Places;
use crate::report::Output;

/// What to judge.
#[derive(Clone, Debug, Subcommand)]
pub enum Evaluation {
    /// Bib search over the labelled race photos, end to end through the API.
    Bibs(Options),
    /// Selfie search: runners by another photo's face, portraits by person.
    Faces(Options),
    /// Fits the confidence of a face hit from its cosine.
    Calibrate(calibrate::Options),
}

/// What every evaluation takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where things are.
    #[command(flatten)]
    pub places: Places,
    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// Judges.
///
/// # Errors
/// When the service or the labelled photos cannot be had.
pub fn run(evaluation: Evaluation) -> anyhow::Result<()> {
    match evaluation {
        Evaluation::Bibs(options) => finish(bibs::run(&options)?, &options.output),
        Evaluation::Faces(options) => finish(faces::run(&options)?, &options.output),
        Evaluation::Calibrate(options) => finish(calibrate::run(&options)?, &options.output),
    }
}
