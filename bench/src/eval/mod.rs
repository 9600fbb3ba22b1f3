//! Accuracy: bib search and selfie search end to end, and the calibration of face confidences.

mod bibs;
mod bootstrap;
mod calibrate;
mod crowds;
mod faces;
mod formats;
pub mod gallery;
mod logistic;
mod options;
mod start_list;
mod tally;
mod variants;

use clap::Subcommand;

use self::options::{BibOptions, FaceOptions};

/// What to evaluate.
#[derive(Clone, Debug, Subcommand)]
pub enum Evaluation {
    /// Bib search over the labelled race photos, end to end through the API.
    Bibs(BibOptions),
    /// Selfie search: runners by another photo's face, portraits by person.
    Faces(FaceOptions),
    /// Fits the confidence of a face hit from its cosine.
    Calibrate(calibrate::CalibrateOptions),
}

/// Runs an evaluation.
///
/// # Errors
/// When the service or the labelled photos are not available.
pub fn run(evaluation: Evaluation) -> anyhow::Result<()> {
    match evaluation {
        Evaluation::Bibs(options) if options.start_list => {
            start_list::run(&options)?.publish(&options.common.output)
        }
        Evaluation::Bibs(options) if options.formats => {
            formats::run(&options)?.publish(&options.common.output)
        }
        Evaluation::Bibs(options) if options.crowds => crowds::run(&options)?.publish(&options.common.output),
        Evaluation::Bibs(options) => bibs::run(&options)?.publish(&options.common.output),
        Evaluation::Faces(options) => faces::run(&options)?.publish(&options.common.output),
        Evaluation::Calibrate(options) => calibrate::run(&options)?.publish(&options.output),
    }
}
