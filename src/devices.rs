//! Chooses the device of the models. Each is tried in a process of its own: a provider that cannot start may end its
//! process, and a driver that hangs must not hang the service.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use photofinish_models::onnx::devices::{self, ChosenDevice, NetworkDevice};
use photofinish_models::onnx::runtime::{DeviceChoice, DeviceProbe, Runtime, RuntimeSettings};
use photofinish_models::traits::ModelError;

use crate::{onnxruntime, probe_process};

/// How long a device may take where another can take its place: the first one compiles kernels, and a large GPU takes
/// seconds to wake.
const PROBE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long one that is demanded may take: there is nothing else to do, and the libraries of CUDA are gigabytes that a node
/// may read for the first time. A third of what the chart gives a start.
const DEMANDED_PROBE_TIMEOUT: Duration = Duration::from_mins(5);

/// 1 for the device of the models, by its kind and name.
const DEVICE_USED: &str = "photofinish_device_used";

/// 1 for each device that was tried and is not used, by its kind and the reason.
const DEVICE_REFUSED: &str = "photofinish_device_refused";

/// The name of the command that tries a device.
pub const PROBE_COMMAND: &str = "probe-device";

/// What the process chose, for readiness.
static CHOSEN: OnceLock<ChosenDevice> = OnceLock::new();

/// Arguments of the command that tries a device.
#[derive(Args)]
pub struct ProbeArguments {
    /// cpu, cuda or wgpu
    #[arg(value_parser = ["cpu", "cuda", "wgpu"])]
    device: String,
    /// The ONNX Runtime library
    library: PathBuf,
    /// Take software in the place of a GPU
    #[arg(long)]
    allow_software: bool,
    /// Folder of compiled kernels
    #[arg(long, value_name = "FOLDER")]
    kernel_cache: Option<PathBuf>,
}

/// Runs a tiny network and a tiny kernel on a device in this process, and prints its name.
///
/// # Errors
/// When the device cannot be used: the message says why.
pub fn probe(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    let device = match arguments.device.as_str() {
        "cpu" => NetworkDevice::Cpu,
        "cuda" => NetworkDevice::Cuda,
        _ => NetworkDevice::Wgpu,
    };
    let probe = DeviceProbe {
        library: &arguments.library,
        device,
        allow_software: arguments.allow_software,
        kernel_cache: arguments.kernel_cache.as_deref(),
    };
    let name = Runtime::probe(&probe).map_err(|error| {
        match error {
            ModelError::Device { .. } => error,
            // By the device's name the reason is found in what libraries print.
            other => ModelError::Device { device: device.to_string(), detail: other.to_string() },
        }
    })?;
    println!("{name}");
    Ok(ExitCode::SUCCESS)
}

/// Chooses the configured device, or the best that works, with its library, and says so in the log, in metrics and to
/// readiness. Returns how to open it.
///
/// # Errors
/// When the device that is demanded cannot be used, or there is no library.
pub fn choose(
    choice: DeviceChoice,
    configured_library: Option<&Path>,
    kernel_cache: &Path,
) -> anyhow::Result<RuntimeSettings> {
    let find = |device| onnxruntime::find_library(configured_library, device);
    // A machine without any library has one thing to say, and not one for each device.
    choice.candidates().iter().map(|device| find(*device)).reduce(Result::or).transpose()?;
    let chosen = devices::choose(choice, |device, is_demanded| {
        let library = find(device).map_err(|error| format!("{error:#}"))?;
        let mut command = probe_command(device, &library)?;
        command.arg("--kernel-cache").arg(kernel_cache);
        probe_in_child(command, device, is_demanded)
    })?;
    let library = find(chosen.device)?;
    publish(&chosen, &library);
    let device = chosen.device.into();
    // The first choice of a process is the one in use; there is no second.
    let _chosen = CHOSEN.set(chosen);
    Ok(RuntimeSettings { library, device, kernel_cache: Some(kernel_cache.to_owned()) })
}

fn publish(chosen: &ChosenDevice, library: &Path) {
    let library = library.display();
    tracing::info!(device = %chosen.device, name = chosen.name, %library, "chose the device of the models");
    metrics::describe_gauge!(DEVICE_USED, "1 for the device of the models, by its name");
    metrics::describe_gauge!(
        DEVICE_REFUSED,
        "1 for each device that was tried and is not used, by the reason"
    );
    metrics::gauge!(DEVICE_USED, "device" => chosen.device.to_string(), "name" => chosen.name.clone())
        .set(1.0);
    for refusal in &chosen.refusals {
        let labels = [("device", refusal.device.to_string()), ("reason", refusal.reason.clone())];
        metrics::gauge!(DEVICE_REFUSED, &labels).set(1.0);
        tracing::info!(device = %refusal.device, reason = refusal.reason, "a device is not used");
    }
}

/// Describes the device in use and those that are not used, once it is chosen.
pub fn describe() -> Option<String> {
    CHOSEN.get().map(ChosenDevice::to_string)
}

/// The command that tries a device with a library.
fn probe_command(device: NetworkDevice, library: &Path) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let mut command = Command::new(program);
    command.arg(PROBE_COMMAND).arg(device.to_string()).arg(library);
    Ok(command)
}

/// Tries a device; one that is demanded has more time, and may be software in the place of a GPU.
fn probe_in_child(mut command: Command, device: NetworkDevice, is_demanded: bool) -> Result<String, String> {
    if is_demanded {
        command.arg("--allow-software");
    }
    let limit = if is_demanded { DEMANDED_PROBE_TIMEOUT } else { PROBE_TIMEOUT };
    probe_process::run(&mut command, &format!("device {device}: "), limit)
}
