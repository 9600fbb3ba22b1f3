//! Measures the networks in a process of its own: two dozen sessions of a library leave 60 MB behind (by hand) in the one that
//! opened them, for as long as it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use photofinish_models::factory::{BibGateChoice, ZooModels};
use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};
use photofinish_models::tuning::{self, PrecisionChoice};

use crate::config::{BIB_GATES, Config, DEVICES};
use crate::probe_process;

/// How long it may take: five seconds on two cores that nothing else uses, but many pods of a node may start at once. Half of
/// what the chart gives a start.
const LIMIT: Duration = Duration::from_secs(150);

/// The same on a GPU, whose driver compiles what it has not seen yet. A third of what the chart gives the start of a worker with
/// a GPU.
const GPU_LIMIT: Duration = Duration::from_mins(5);

/// The name of the command that measures.
pub const MEASURE_COMMAND: &str = "measure-networks";

/// Before the reason in what the process prints.
const REASON_MARKER: &str = "photofinish: ";

/// Arguments of the command that measures.
#[derive(Args)]
pub struct MeasureArguments {
    /// The ONNX Runtime library
    library: PathBuf,
    /// Folder of the model files
    models_dir: PathBuf,
    /// Where the measurements are kept
    file: PathBuf,
    /// The device to measure on
    #[arg(long, value_name = "NAME", default_value = "cpu", value_parser = DEVICES)]
    device: DeviceChoice,
    /// Which of several NVIDIA GPUs
    #[arg(long, default_value_t = 0)]
    ordinal: usize,
    /// Folder of compiled kernels
    #[arg(long, value_name = "FOLDER")]
    kernel_cache: Option<PathBuf>,
    /// Which runners are read only where the bib gate sees a number
    #[arg(long, value_name = "NAME", default_value = "small", value_parser = BIB_GATES)]
    bib_gate: BibGateChoice,
    /// Leave the light text detector out
    #[arg(long)]
    without_light_pass: bool,
}

/// Measures the networks in this process, unless the file has what is to be known.
///
/// # Errors
/// When a network cannot be loaded or run.
pub fn measure(arguments: &MeasureArguments) -> anyhow::Result<ExitCode> {
    let MeasureArguments { models_dir, file, bib_gate, without_light_pass, .. } = arguments;
    let settings = RuntimeSettings {
        library: arguments.library.clone(),
        device: arguments.device,
        ordinal: arguments.ordinal,
        kernel_cache: arguments.kernel_cache.clone(),
    };
    let runtime = Arc::new(Runtime::open(&settings)?);
    let networks = ZooModels::open(runtime, models_dir.clone())?
        .with_bib_gate(*bib_gate)
        .with_light_pass(!without_light_pass);
    println!("{}", networks.measure(Some(file))?.circumstances());
    Ok(ExitCode::SUCCESS)
}

/// Has the networks measured by a process of its own where there is a choice that the file does not know yet. Where that fails,
/// the service measures itself; on a GPU, where what ended the process would end the service too, it computes in f32. Returns
/// the precision to use.
///
/// # Errors
/// When the model set lacks a network.
pub fn measure_apart(config: &Config, networks: &ZooModels, file: &Path) -> anyhow::Result<PrecisionChoice> {
    let configured = config.settings.models.text_precision;
    let has_choice = configured == PrecisionChoice::Auto && networks.has_choice();
    if !has_choice || networks.measured(file)?.is_some() {
        return Ok(configured);
    }
    let is_gpu = networks.runtime().is_gpu();
    let answer = match command(config, networks, file) {
        Ok(mut command) => {
            probe_process::run(&mut command, REASON_MARKER, if is_gpu { GPU_LIMIT } else { LIMIT }).name
        }
        Err(error) => Err(error.to_string()),
    };
    match (answer, networks.measured(file)?) {
        (_, Some(measurements)) => tuning::log(&measurements),
        (Err(reason), None) if is_gpu => {
            tracing::warn!(reason, "failed to measure the networks on the device, they compute in f32");
            return Ok(PrecisionChoice::Always(Precision::F32));
        }
        (Err(reason), None) => {
            tracing::warn!(
                reason,
                "failed to measure the networks in a process of its own, measuring in this one"
            );
        }
        (Ok(measured), None) => {
            tracing::warn!(measured, file = %file.display(), "failed to keep what was measured, measuring again");
        }
    }
    Ok(configured)
}

fn command(config: &Config, networks: &ZooModels, file: &Path) -> std::io::Result<Command> {
    let (models, runtime) = (&config.settings.models, networks.runtime());
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(MEASURE_COMMAND).arg(runtime.library()).arg(&models.models_dir).arg(file);
    command.arg("--device").arg(runtime.device().to_string());
    command.arg("--ordinal").arg(runtime.ordinal().to_string());
    command.arg("--kernel-cache").arg(&config.kernel_cache_dir);
    let bib_gate = BIB_GATES.0.iter().find(|(_, choice)| *choice == models.bib_gate);
    command.args(bib_gate.map(|(name, _)| format!("--bib-gate={name}")));
    command.args((!models.light_text_detector).then_some("--without-light-pass"));
    Ok(command)
}
