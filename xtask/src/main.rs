//! `cargo xtask`: sets the machine up, shows the service at work and runs every check.
//!
//! Needs nothing but cargo and a C linker, so that it runs on a fresh machine; everything else it fetches and says so.
//! It knows the product only by its commands and its API.

mod checks;
mod demo;
mod digest;
mod gpu;
mod layout;
mod process;
mod report;
mod setup;

use clap::{Args, Parser};
use layout::Layout;
use setup::SetupArguments;
use setup::cuda::Cuda;

/// Set-up, demonstration and checks of Photofinish.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Command {
    /// Fetch what the service needs: system packages, ONNX Runtime, the networks
    Setup {
        /// Also what the tests and the sample event need
        #[arg(long)]
        all: bool,
        /// Also ONNX Runtime with CUDA, as an image for GPUs has it: 13 for drivers from 580 on, 12 for older ones
        #[arg(long, value_enum, value_name = "VERSION")]
        cuda: Option<Cuda>,
        #[command(flatten)]
        setup: SetupArguments,
    },
    /// Set up, start the service and send it an event: your own photos, or one made on the spot
    Demo(demo::DemoArguments),
    /// Set up and run formatting, lints and all tests
    Test(checks::TestArguments),
    /// `test`, then the documentation and the licences of all dependencies
    Ci(checks::TestArguments),
    /// Compare CUDA with the CPU on a machine that has a GPU, and say how fast the pipeline is on it
    GpuCheck(SetupArguments),
    /// Measure how well bibs and faces are found (see `cargo xtask eval --help`)
    Eval(PassedOn),
    /// Measure speed and memory (see `cargo xtask bench --help`)
    Bench(PassedOn),
    /// Break the cluster profile in every way we know and account for every photo (see `cargo xtask soak --help`)
    Soak(PassedOn),
    /// Run the cluster profile here without containers, to try it: Postgres, S3, NATS, two APIs behind a proxy, two workers
    Cluster(PassedOn),
}

/// Arguments for another program.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let layout = Layout::of_this_checkout()?;
    match Command::parse() {
        Command::Setup { all, cuda, setup: arguments } => {
            setup::run(&layout, &arguments)?;
            if let Some(cuda) = cuda {
                setup::for_gpu_image(&layout, cuda)?;
            }
            if all { setup::for_tests(&layout) } else { Ok(()) }
        }
        Command::Demo(arguments) => demo::run(&layout, &arguments),
        Command::Test(arguments) => checks::test(&layout, &arguments),
        Command::Ci(arguments) => checks::ci(&layout, &arguments),
        Command::GpuCheck(arguments) => gpu::check(&layout, &arguments),
        Command::Eval(passed) => checks::measure(&layout, &["eval"], &passed.arguments),
        Command::Bench(passed) => checks::measure(&layout, &[], &passed.arguments),
        Command::Soak(passed) => checks::soak(&layout, &[], &passed.arguments),
        Command::Cluster(passed) => checks::soak(&layout, &["cluster"], &passed.arguments),
    }
}
