//! `soak`: one fault after the other against a cluster, for a given time, with an audit of every photo after each;
//! `soak scale`: how much faster two workers are than one; `soak cluster`: the cluster, to try it by hand.
//!
//! `cargo xtask soak` and `cargo xtask cluster` call it.

#![forbid(unsafe_code)]

mod interactive;
mod rounds;
mod scale;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "soak", about = "Injects faults into a cluster and audits every photo.")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    rounds: rounds::Options,
}

#[derive(Subcommand)]
enum Command {
    /// How much faster two workers are than one, on photos that each take 100 ms of sleep.
    Scale(scale::Options),
    /// Starts the cluster and leaves it running until Ctrl-C.
    Cluster(interactive::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    photofinish_bench::report::machine::note_load();
    match arguments.command {
        None => rounds::run(&arguments.rounds),
        Some(Command::Scale(options)) => scale::run(&options),
        Some(Command::Cluster(options)) => interactive::run(&options),
    }
}
