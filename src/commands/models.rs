//! `photofinish models`: verifies the model files, which `cargo xtask setup` fetches, and measures the networks.

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use photofinish_zoo::Zoo;

use crate::config::Config;
use crate::models;

/// What to do with the model files.
#[derive(Subcommand)]
pub enum ModelsCommand {
    /// Compares every model file with its SHA-256; exit code 1 when no set is complete
    Verify,
    /// Measures again how fast each network is on this device in each library and precision, and keeps the choice
    Tune,
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

/// Measures every network, prints a line per network and backend, and keeps the measurements for the next start.
///
/// # Errors
/// When a network cannot be loaded or run, or the old measurements cannot be removed.
pub fn tune(config: &Config) -> anyhow::Result<ExitCode> {
    let file = models::tuning_file(config);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("removing {}", file.display()));
        }
        Ok(()) | Err(_) => {}
    }
    let networks = models::open_networks(config, models::open_runtime(config)?.runtime)?;
    if !networks.has_choice() {
        println!("{}: nothing to choose", networks.runtime());
        return Ok(ExitCode::SUCCESS);
    }
    let measurements = networks.measure(Some(&file))?;
    println!("{}", measurements.circumstances());
    for line in measurements.lines().iter().chain(measurements.failures()) {
        println!("  {line}");
    }
    Ok(ExitCode::SUCCESS)
}
