//! Chooses the device of the models. Each is tried in a process of its own: a provider that cannot start may end its
//! process, and a driver that hangs must not hang the service.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use photofinish_models::onnx::devices::{self, ChosenDevice, NetworkDevice};
use photofinish_models::onnx::runtime::{DeviceChoice, DeviceProbe, Runtime, RuntimeSettings};

/// How long a device may take: the first one compiles kernels, and a large GPU takes seconds to wake.
const PROBE_TIMEOUT: Duration = Duration::from_mins(1);

/// Pause between two looks at a process.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 400;

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
    /// cuda or wgpu
    #[arg(value_parser = ["cuda", "wgpu"])]
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

/// What a device is opened with.
#[derive(Clone, Debug)]
pub struct DeviceFiles {
    /// The ONNX Runtime library.
    pub library: PathBuf,
    /// Where compiled kernels are kept.
    pub kernel_cache: PathBuf,
}

/// Runs a tiny network and a tiny kernel on a device in this process, and prints its name.
///
/// # Errors
/// When the device cannot be used: the message says why.
pub fn probe(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    let device = if arguments.device == "cuda" { NetworkDevice::Cuda } else { NetworkDevice::Wgpu };
    let name = Runtime::probe(&DeviceProbe {
        library: &arguments.library,
        device,
        allow_software: arguments.allow_software,
        kernel_cache: arguments.kernel_cache.as_deref(),
    })?;
    println!("{name}");
    Ok(ExitCode::SUCCESS)
}

/// Chooses the configured device, or the best that works, and says so in the log, in metrics and to readiness.
///
/// # Errors
/// When the device that is demanded cannot be used.
pub fn choose(choice: DeviceChoice, files: &DeviceFiles) -> anyhow::Result<ChosenDevice> {
    let chosen = devices::choose(choice, |device, allow_software| match device {
        NetworkDevice::Cpu => Ok("the processor".to_owned()),
        _ => probe_in_child(device, files, allow_software),
    })?;
    tracing::info!(device = %chosen.device, name = chosen.name, "chose the device of the models");
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
    Ok(CHOSEN.get_or_init(|| chosen).clone())
}

/// Describes the device in use and those that are not used, once it is chosen.
pub fn describe() -> Option<String> {
    CHOSEN.get().map(ChosenDevice::to_string)
}

/// The settings that open the chosen device.
pub fn settings(chosen: &ChosenDevice, files: DeviceFiles) -> RuntimeSettings {
    let device = match chosen.device {
        NetworkDevice::Cpu => DeviceChoice::Cpu,
        NetworkDevice::Cuda => DeviceChoice::Cuda,
        NetworkDevice::Wgpu => DeviceChoice::Wgpu,
    };
    RuntimeSettings { library: files.library, device, kernel_cache: Some(files.kernel_cache) }
}

fn probe_in_child(
    device: NetworkDevice,
    files: &DeviceFiles,
    allow_software: bool,
) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the process that tries it does not start: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg(PROBE_COMMAND).arg(device.to_string()).arg(&files.library);
    command.arg("--kernel-cache").arg(&files.kernel_cache);
    if allow_software {
        command.arg("--allow-software");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let said = child.stdout.take().and_then(read_in_background);
    let complained = child.stderr.take().and_then(read_in_background);
    let status = wait(&mut child)?;
    let text =
        |thread: Option<JoinHandle<String>>| thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let (said, complained) = (text(said), text(complained));
    if status.success() {
        return Ok(said.trim().to_owned());
    }
    let sentence = complained.rsplit(&format!("device {device}: ")).next().unwrap_or_default();
    let reason: String = sentence.trim().chars().take(MAX_REASON).collect();
    if status.code().is_some() && !reason.is_empty() {
        return Err(reason.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Err(format!("the process that tries it ended by {status}: {reason}"))
}

/// Reads to the end, so that a process that says much does not wait for its pipe.
fn read_in_background(mut pipe: impl Read + Send + 'static) -> Option<JoinHandle<String>> {
    let read = move || {
        let mut bytes = Vec::new();
        // What was read before an error is the message.
        let _read = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    std::thread::Builder::new().name("probe-output".into()).spawn(read).ok()
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if start.elapsed() < PROBE_TIMEOUT => std::thread::sleep(POLL_PAUSE),
            Ok(None) => {
                let _killed = child.kill();
                let _reaped = child.wait();
                return Err(format!("no answer within {} s", PROBE_TIMEOUT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
