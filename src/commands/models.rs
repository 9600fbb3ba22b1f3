//! `photofinish models`: verifies the model files. `cargo xtask setup` fetches them.

use std::process::ExitCode;

use clap::Subcommand;
use photofinish_zoo::Zoo;

use crate::config::Config;

/// What to do with the model files.
#[derive(Subcommand)]
pub enum ModelsCommand {
    /// Compares every model file with its SHA-256; exit code 1 when no set is complete
    Verify,
}

/// Prints a line per model and the set in use.
///
/// # Errors
/// When the folder cannot be read.
pub fn verify(config: &Config) -> anyhow::Result<ExitCode> {
    let zoo = Zoo::embedded();
    println!("models in {}", config.settings.models.models_dir.display());
    for status in zoo.verify(&config.settings.models.models_dir) {
        println!("  {status}");
    }
    match zoo.choose_set(&config.settings.models.models_dir) {
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
