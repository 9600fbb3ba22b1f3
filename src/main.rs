//! The binary `photofinish`: one program, three roles (`all`, `serve`, `work`) and the commands around them.

mod adapters;
mod allocators;
mod api_settings;
mod commands;
mod config;
mod devices;
mod events;
mod file_limit;
mod maintenance;
mod measuring;
mod memory;
mod models;
mod onnxruntime;
mod own_process;
mod probe_process;
mod role;
mod run;
mod schema;
mod secrets;
mod servers;
mod shutdown;
mod store;
mod supervision;
mod tasks;
mod telemetry;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    account, costs, credits, doctor, key, models as model_files, organization, secret, start_list, sweep,
    upload, usage,
};
use crate::config::settings::Settings;
use crate::config::{Config, ForeignVariables};
use crate::role::Role;

/// Buffers of many megabytes move between threads. The system's allocator keeps freed memory per thread (300 MB more at the
/// peak, measured); this one returns it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads every bib and every face in the photos of a race, and finds a runner's photos by bib or selfie.
#[derive(Parser)]
#[command(name = "photofinish", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the API and the pipeline in one process
    All,
    /// Runs the API alone
    Serve,
    /// Runs the pipeline alone
    Work,
    /// Creates, lists and revokes API keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Lets people into the console
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Grants credits to organizations and shows what they have
    #[command(subcommand)]
    Credits(credits::CreditsCommand),
    /// Sums up what an organization used
    Usage(usage::UsageArguments),
    /// Shows what processing the photos of an organization has cost
    Costs(costs::CostsArguments),
    /// Imports, checks, shows and deletes the start list of an album through the partner API
    #[command(subcommand)]
    StartList(start_list::StartListCommand),
    /// Uploads a folder of photos through the partner API; a second run uploads only what is missing
    Upload(upload::UploadArguments),
    /// Checks each component; exit code 1 when one of them cannot be used
    Doctor,
    /// Prints the settings in force, secrets redacted
    Config,
    /// Brings the database up to date
    Migrate,
    /// Removes stored bytes that no photo and no selfie needs
    Sweep(sweep::SweepArguments),
    /// Erases everything of an organization
    #[command(subcommand)]
    Organization(organization::OrganizationCommand),
    /// Changes the key that seals the secrets in the database
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Runs a tiny network and a tiny kernel on a device: the service starts itself so before it uses one
    #[command(name = devices::PROBE_COMMAND, hide = true)]
    ProbeDevice(devices::ProbeArguments),
    /// Measures the networks: the service starts itself so at its first start
    #[command(name = measuring::MEASURE_COMMAND, hide = true)]
    MeasureNetworks(measuring::MeasureArguments),
    /// Verifies the model files, measures the networks
    #[command(subcommand)]
    Models(model_files::ModelsCommand),
}

impl Command {
    /// Whether links to the service are made, or, by `doctor`, judged.
    fn makes_links(&self) -> bool {
        matches!(self, Self::All | Self::Serve | Self::Account(_) | Self::Doctor)
    }

    /// Whether it is a command that may change the database or the storage. Roles have a log of their own, with traces.
    fn writes(&self) -> bool {
        matches!(
            self,
            Self::Migrate
                | Self::Key(_)
                | Self::Account(_)
                | Self::Credits(_)
                | Self::Sweep(_)
                | Self::Organization(_)
                | Self::Secret(_)
        )
    }
}

fn main() -> ExitCode {
    match run_command() {
        Ok(code) => code,
        Err(error) => {
            shutdown::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run_command() -> anyhow::Result<ExitCode> {
    let matches = Settings::add_to(Arguments::command()).get_matches();
    let Arguments { command } = Arguments::from_arg_matches(&matches)?;
    if let Command::Upload(arguments) = &command {
        // Runs on a partner's machine, which has none of the service's settings.
        return upload::run(arguments);
    }
    if let Command::StartList(command) = &command {
        return start_list::run(command);
    }
    if let Command::ProbeDevice(arguments) = &command {
        return devices::probe(arguments);
    }
    if let Command::MeasureNetworks(arguments) = &command {
        return measuring::measure(arguments);
    }
    if matches!(command, Command::All | Command::Serve | Command::Work) {
        allocators::reexec_with_malloc_settings();
    }
    let makes_links = command.makes_links();
    let config = Config::new(Settings::given_texts(&matches), ForeignVariables::read(), makes_links)?;
    if command.writes() {
        telemetry::start_log(&config);
    }
    match command {
        Command::All => match run::run(config, Role::All)? {},
        Command::Serve => match run::run(config, Role::Serve)? {},
        Command::Work => match run::run(config, Role::Work)? {},
        Command::Key(command) => key::run(&config, command),
        Command::Account(command) => account::run(&config, command),
        Command::Credits(command) => credits::run(&config, command),
        Command::Usage(arguments) => usage::run(&config, &arguments),
        Command::Costs(arguments) => costs::run(&config, &arguments),
        Command::Upload(arguments) => upload::run(&arguments),
        Command::StartList(command) => start_list::run(&command),
        Command::ProbeDevice(arguments) => devices::probe(&arguments),
        Command::MeasureNetworks(arguments) => measuring::measure(&arguments),
        Command::Doctor => doctor::run(&config),
        Command::Config => Ok(print_config(&config)),
        Command::Migrate => run::migrate(&config),
        Command::Sweep(arguments) => sweep::run(&config, &arguments),
        Command::Organization(command) => organization::run(&config, &command),
        Command::Secret(command) => secret::run(&config, &command),
        Command::Models(model_files::ModelsCommand::Verify) => model_files::verify(&config),
        Command::Models(model_files::ModelsCommand::Tune) => model_files::tune(&config),
    }
}

fn print_config(config: &Config) -> ExitCode {
    let lines = config.lines().into_iter().chain(config.cloud_lines()).chain(config.trace_lines());
    for (name, value) in lines {
        println!("{name}={value}");
    }
    ExitCode::SUCCESS
}
