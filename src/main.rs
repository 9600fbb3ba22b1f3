//! The binary `photofinish`: one program, three roles (`all`, `serve`, `work`) and the commands around them.

mod adapters;
mod allocators;
mod commands;
mod config;
mod maintenance;
mod models;
mod onnxruntime;
mod run;
mod secrets;
mod telemetry;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{doctor, key, models as model_files, sweep};
use crate::config::Config;
use crate::config::settings::Settings;

/// Pixel buffers of many megabytes wander between threads: the system's allocator keeps what each thread has freed to
/// itself (300 MB more at the peak, measured), this one gives it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads every bib and every face in the photos of a race and answers a runner with that runner's photos.
#[derive(Parser)]
#[command(name = "photofinish", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the API and the pipeline in one process
    All,
    /// Runs the API alone
    Serve,
    /// Runs the pipeline alone
    Work,
    /// Makes, lists and revokes API keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Sends a folder of photos through the partner API; a second run sends only what is missing
    Upload(commands::upload::UploadArguments),
    /// Says what is ready and what is not; exit code 1 when the profile cannot run
    Doctor,
    /// Prints the settings in force, secrets masked
    Config,
    /// Brings the database up to date
    Migrate,
    /// Removes bytes that no photo and no selfie needs any more
    Sweep(sweep::SweepArguments),
    /// Looks after the model files
    #[command(subcommand)]
    Models(model_files::ModelsCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match dispatch(arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("photofinish: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(Arguments { command, mut settings }: Arguments) -> anyhow::Result<ExitCode> {
    if let Command::Upload(arguments) = command {
        return commands::upload::run(&arguments);
    }
    if matches!(command, Command::All | Command::Serve | Command::Work) {
        allocators::reexec_with_malloc_settings();
    }
    settings.cloud_variables = config::cloud_variables();
    settings.trace_variables = config::trace_variables();
    let config = Config::from_settings(&settings)?;
    match command {
        Command::All => run::run(config, run::Role::All),
        Command::Serve => run::run(config, run::Role::Serve),
        Command::Work => run::run(config, run::Role::Work),
        Command::Key(command) => key::run(&config, command),
        Command::Doctor => doctor::run(&config),
        Command::Sweep(arguments) => sweep::run(&config, &arguments),
        Command::Models(model_files::ModelsCommand::Verify) => model_files::verify(&config),
        Command::Migrate => {
            run::migrate(&config)?;
            println!("the database is up to date");
            Ok(ExitCode::SUCCESS)
        }
        Command::Config => {
            for (name, value) in config.lines() {
                println!("{name}={value}");
            }
            for (name, value) in config.cloud_lines().into_iter().chain(config.trace_lines()) {
                println!("{name}={value}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Upload(_) => Ok(ExitCode::FAILURE),
    }
}
