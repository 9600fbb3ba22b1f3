//! `photofinish models`: looks after the model files. Fetching them is the set-up's business.

use std::process::ExitCode;

use clap::Subcommand;
use photofinish_zoo::{ModelStatus, Zoo};

use crate::config::Config;

/// What to do with model files.
#[derive(Subcommand)]
pub enum ModelsCommand {
    /// Compares every model file with its sha256; exit code 1 when no whole set is there
    Verify,
}

/// Prints a line per model.
///
/// # Errors
/// When the folder cannot be read.
pub fn verify(config: &Config) -> anyhow::Result<ExitCode> {
    let zoo = Zoo::embedded();
    println!("models in {}", config.models_dir.display());
    for status in zoo.verify(&config.models_dir) {
        println!("{}", format_status(&status));
    }
    match zoo.choose_set(&config.models_dir) {
        Ok(set) => {
            println!("in use: {set}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn format_status(status: &ModelStatus) -> String {
    format!("  {status}")
}
