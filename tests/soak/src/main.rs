//! `soak`: faults in turn against a cluster, for as long as asked, with every photo accounted for at the end of each;
//! `soak scale`: how much faster two workers are than one; `soak cluster`: the cluster, to try it by hand.
//!
//! `cargo xtask soak` and `cargo xtask cluster` pass through to it.

#![forbid(unsafe_code)]

mod interactive;
mod rounds;
mod scale;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "soak", about = "Breaks a cluster in every way we know and accounts for every photo.")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    rounds: rounds::Options,
}

#[derive(Subcommand)]
enum Command {
    /// How much faster two workers are than one, on photos that each take 100 ms and no work.
    Scale(scale::Options),
    /// Starts the cluster and leaves it running until Ctrl-C.
    Cluster(interactive::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        None => rounds::run(&arguments.rounds),
        Some(Command::Scale(options)) => scale::run(&options),
        Some(Command::Cluster(options)) => interactive::run(&options),
    }
}

/// There is no soak without the servers: what is missing was said.
fn missing_server_error() -> anyhow::Error {
    anyhow::anyhow!("a server of the cluster is missing, see above; `cargo xtask setup --all` sets them up")
}
