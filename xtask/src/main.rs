//! `cargo xtask`: sets the machine up, demonstrates the service and runs every check.
//!
//! Needs only cargo and a C linker, so that it runs on a fresh machine; it fetches everything else and prints what it
//! fetches. It uses the product only through its commands and its API.

mod advisories;
mod checks;
mod demo;
mod digest;
mod gpu;
mod layout;
mod process;
mod report;
mod sanitizers;
mod setup;
mod test_programs;

use clap::{Args, Parser};
use layout::Layout;
use setup::SetupArguments;
use setup::cuda::CudaVersion;

/// Set-up, demonstration and checks of Photofinish.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Command {
    /// Fetch what the service needs: system packages, ONNX Runtime, the networks
    Setup {
        /// Also fetch what the tests and the sample event need
        #[arg(long)]
        all: bool,
        /// Also fetch ONNX Runtime with CUDA: 13 for drivers from 580 on, 12 for older ones; without a version the one for
        /// the driver of this machine, or 13 where there is none
        #[arg(long, value_enum, value_name = "VERSION")]
        cuda: Option<Option<CudaVersion>>,
        /// Also fetch ONNX Runtime for GPUs with Vulkan, and Mesa's software Vulkan, on which GPU code is tested without one
        #[arg(long)]
        wgpu: bool,
        /// Also unpack NVIDIA's compilers, with which GPU code is checked without a GPU
        #[arg(long)]
        cuda_check: bool,
        #[command(flatten)]
        setup: SetupArguments,
    },
    /// Build the pages of the console whenever their sources change: for a service with PHOTOFINISH_CONSOLE_DIR=.photofinish/console/files
    Console,
    /// Set up, start the service and send it an event: your own photos, or generated ones
    Demo(demo::DemoArguments),
    /// Set up and run every check: formatting, lints, documentation, dependencies and all tests
    Test(checks::TestArguments),
    /// Compare CUDA, or Vulkan, with the CPU, and measure the pipeline on it
    GpuCheck(gpu::GpuCheckArguments),
    /// Measure how well bibs and faces are found (see `cargo xtask eval --help`)
    Eval(PassthroughArguments),
    /// Measure speed and memory (see `cargo xtask bench --help`)
    Bench(PassthroughArguments),
    /// Inject faults into the cluster profile and account for every photo (see `cargo xtask soak --help`)
    Soak(PassthroughArguments),
    /// Attack a release build with the real networks, with a normal client beside each attack (see `cargo xtask attack --help`)
    Attack(PassthroughArguments),
    /// Feed damaged input to the code that reads it first, for some minutes (see `cargo xtask fuzz --help`)
    Fuzz(FuzzArguments),
    /// Run the cluster profile here without containers, to try it: Postgres, S3, NATS, two APIs behind a proxy, two workers
    Cluster(PassthroughArguments),
}

/// What to feed with damaged input.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct FuzzArguments {
    /// Check every access to memory of the JPEG decoder instead, under Miri and the address sanitizer of a nightly toolchain
    #[arg(long)]
    sanitizers: bool,
    #[command(flatten)]
    passed: PassthroughArguments,
}

/// Arguments passed on to another program.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct PassthroughArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let layout = Layout::from_this_checkout()?;
    match Command::parse() {
        Command::Setup { all, cuda, wgpu, cuda_check, setup: arguments } => {
            setup::run(&layout, &arguments)?;
            if let Some(version) = cuda {
                setup::cuda::install(&layout, version.unwrap_or_else(gpu::choose_cuda))?;
            }
            if wgpu {
                setup::install_vulkan(&layout)?;
            }
            if cuda_check {
                setup::install_cuda_check(&layout)?;
            }
            if all { setup::install_test_tools(&layout) } else { Ok(()) }
        }
        Command::Console => setup::watch_console(&layout),
        Command::Demo(arguments) => demo::run(&layout, &arguments),
        Command::Test(arguments) => checks::run_checks(&layout, &arguments),
        Command::GpuCheck(arguments) => gpu::check(&layout, &arguments),
        Command::Eval(passed) => checks::run_bench(&layout, &["eval"], &passed.arguments),
        Command::Bench(passed) => checks::run_bench(&layout, &[], &passed.arguments),
        Command::Soak(passed) => checks::run_soak(&layout, &[], &passed.arguments),
        Command::Attack(passed) => checks::run_attack(&layout, &passed.arguments),
        Command::Fuzz(FuzzArguments { sanitizers: true, .. }) => sanitizers::run(&layout),
        Command::Fuzz(arguments) => checks::run_fuzzer(&layout, &arguments.passed.arguments),
        Command::Cluster(passed) => checks::run_soak(&layout, &["cluster"], &passed.arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_cuda(arguments: &[&str]) -> Option<Option<CudaVersion>> {
        let arguments = [&["cargo xtask", "setup"], arguments].concat();
        match Command::try_parse_from(arguments).unwrap() {
            Command::Setup { cuda, .. } => cuda,
            _ => panic!("the command is setup"),
        }
    }

    #[test]
    fn the_version_of_cuda_may_be_left_out() {
        assert_eq!(parse_cuda(&[]), None);
        assert_eq!(parse_cuda(&["--cuda"]), Some(None));
        assert_eq!(parse_cuda(&["--cuda", "--wgpu"]), Some(None));
        assert_eq!(parse_cuda(&["--cuda", "12"]), Some(Some(CudaVersion::Twelve)));
        assert_eq!(parse_cuda(&["--wgpu", "--cuda", "13"]), Some(Some(CudaVersion::Thirteen)));
        assert!(Command::try_parse_from(["cargo xtask", "setup", "--cuda", "11"]).is_err());
    }
}
