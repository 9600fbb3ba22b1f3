//! Chooses the devices of the models: all NVIDIA GPUs that work, or one of another kind. Each is tried in a process of its own: a
//! provider that cannot start may end its process, and a driver that hangs must not hang the service.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use photofinish_models::onnx::devices::{self, ChosenDevice, NetworkDevice};
use photofinish_models::onnx::runtime::{DeviceChoice, Runtime, RuntimeSettings};

/// How long a device may take: the first one compiles kernels, and a large GPU takes seconds to wake.
const PROBE_TIMEOUT: Duration = Duration::from_mins(1);

/// Pause between two looks at a process.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 400;

/// 1 for each device of the models, by its kind and name, with its number where there are several.
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
    /// Which of several NVIDIA GPUs
    #[arg(long, default_value_t = 0)]
    ordinal: usize,
    /// Take software in the place of a GPU
    #[arg(long)]
    allow_software: bool,
}

/// Runs a tiny network and a tiny kernel on a device in this process. Prints how many devices of its kind there are, before
/// anything can fail, and its name.
///
/// # Errors
/// When the device cannot be used: the message says why.
pub fn probe(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    let device = if arguments.device == "cuda" { NetworkDevice::Cuda } else { NetworkDevice::Wgpu };
    println!("{}", Runtime::count_devices(device));
    let name = Runtime::probe(&arguments.library, device, arguments.ordinal, arguments.allow_software)?;
    println!("{name}");
    Ok(ExitCode::SUCCESS)
}

/// Chooses the configured kind of device, or the best that works, and says so in the log, in metrics and to readiness.
///
/// # Errors
/// When the device that is demanded cannot be used.
pub fn choose(choice: DeviceChoice, library: &Path) -> anyhow::Result<ChosenDevice> {
    let chosen = devices::choose(choice, |device, allow_software| match device {
        NetworkDevice::Cpu => vec![Ok("the processor".to_owned())],
        _ => probe_all(|ordinal| probe_in_child(device, ordinal, library, allow_software)),
    })?;
    metrics::describe_gauge!(DEVICE_USED, "1 for each device of the models, by its name");
    metrics::describe_gauge!(
        DEVICE_REFUSED,
        "1 for each device that was tried and is not used, by the reason"
    );
    for name in chosen.names() {
        tracing::info!(device = %chosen.device, name, "chose the device of the models");
        metrics::gauge!(DEVICE_USED, "device" => chosen.device.to_string(), "name" => name).set(1.0);
    }
    for refusal in &chosen.refusals {
        let labels = [("device", refusal.device.to_string()), ("reason", refusal.reason.clone())];
        metrics::gauge!(DEVICE_REFUSED, &labels).set(1.0);
        tracing::info!(device = %refusal.device, reason = refusal.reason, "a device is not used");
    }
    Ok(CHOSEN.get_or_init(|| chosen).clone())
}

/// Describes the devices in use and those that are not used, once they are chosen.
pub fn describe() -> Option<String> {
    CHOSEN.get().map(ChosenDevice::to_string)
}

/// The settings that open the first of the chosen devices.
pub fn settings(chosen: &ChosenDevice, library: PathBuf) -> RuntimeSettings {
    let device = match chosen.device {
        NetworkDevice::Cpu => DeviceChoice::Cpu,
        NetworkDevice::Cuda => DeviceChoice::Cuda,
        NetworkDevice::Wgpu => DeviceChoice::Wgpu,
    };
    let ordinal = chosen.used.first().map_or(0, |first| first.ordinal);
    RuntimeSettings { library, device, ordinal }
}

/// What a process that tries a device found.
struct ProbeOutcome {
    /// How many devices of the kind there are.
    count: usize,
    /// The name of the device, or why it cannot be used.
    name: Result<String, String>,
}

/// Tries the first device of a kind, which says how many there are, and then the others.
fn probe_all(probe: impl Fn(usize) -> ProbeOutcome) -> Vec<Result<String, String>> {
    let first = probe(0);
    let others = (1..first.count).map(|ordinal| probe(ordinal).name);
    std::iter::once(first.name).chain(others).collect()
}

fn probe_in_child(
    device: NetworkDevice,
    ordinal: usize,
    library: &Path,
    allow_software: bool,
) -> ProbeOutcome {
    let mut said = String::new();
    let ended = run_child(device, ordinal, library, allow_software, &mut said);
    let (count, name) = said.split_once('\n').unwrap_or_default();
    let count = count.trim().parse().unwrap_or(1);
    ProbeOutcome { count, name: ended.map(|()| name.trim().to_owned()) }
}

/// Runs the command that tries a device, and puts what it prints into `said`.
fn run_child(
    device: NetworkDevice,
    ordinal: usize,
    library: &Path,
    allow_software: bool,
    said: &mut String,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the process that tries it does not start: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg(PROBE_COMMAND).arg(device.to_string()).arg(library);
    command.arg("--ordinal").arg(ordinal.to_string());
    if allow_software {
        command.arg("--allow-software");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take().and_then(read_in_background);
    let complaints = child.stderr.take().and_then(read_in_background);
    let status = wait(&mut child);
    let text =
        |thread: Option<JoinHandle<String>>| thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
    *said = text(output);
    let complained = text(complaints);
    let status = status?;
    if status.success() {
        return Ok(());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_of_which_the_first_process_tells_is_tried() {
        let outcomes = ["first", "second", "third"];
        let probe = |ordinal: usize| ProbeOutcome {
            // Only the first one is asked.
            count: if ordinal == 0 { 3 } else { 9 },
            name: if ordinal == 1 { Err("it is lost".to_owned()) } else { Ok(outcomes[ordinal].to_owned()) },
        };
        let expected = [Ok("first".to_owned()), Err("it is lost".to_owned()), Ok("third".to_owned())];
        assert_eq!(probe_all(probe), expected);
        let alone = |_| ProbeOutcome { count: 0, name: Err("no driver".to_owned()) };
        assert_eq!(probe_all(alone), [Err("no driver".to_owned())]);
    }
}
