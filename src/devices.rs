//! Chooses the devices of the models: all NVIDIA GPUs that work, or one of another kind. Each is tried in a process of its own: a
//! provider that cannot start may end its process, and a driver that hangs must not hang the service.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::thread::ScopedJoinHandle;
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
/// may read for the first time. A third of what the chart gives the start of a worker with a GPU.
const DEMANDED_PROBE_TIMEOUT: Duration = Duration::from_mins(5);

/// 1 for each device of the models, by its kind and name, with its number where there are several.
const DEVICE_USED: &str = "photofinish_device_used";

/// 1 for each device that was tried and is not used, by its kind and the reason.
const DEVICE_REFUSED: &str = "photofinish_device_refused";

/// What the process that tries a device prints before the number of devices, so that it is found in what libraries print.
const COUNT_MARKER: &str = "devices of this kind: ";

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
    /// Folder of compiled kernels
    #[arg(long, value_name = "FOLDER")]
    kernel_cache: Option<PathBuf>,
}

/// Runs a tiny network and a tiny kernel on a device in this process. Prints how many devices of its kind there are, before
/// anything can fail, and its name.
///
/// # Errors
/// When the device cannot be used: the message says why.
pub fn probe(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    let device = if arguments.device == "cuda" { NetworkDevice::Cuda } else { NetworkDevice::Wgpu };
    println!("{COUNT_MARKER}{}", Runtime::count_devices(device));
    let probe = DeviceProbe {
        library: &arguments.library,
        device,
        ordinal: arguments.ordinal,
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

/// How the chosen devices are opened.
pub struct DeviceSettings {
    /// The first.
    pub first: RuntimeSettings,
    /// The numbers of the others, which have the same library.
    pub others: Vec<usize>,
}

/// Chooses the configured kind of device, or the best that works, with its library. Returns how to open all devices of it that
/// work. The CPU is only tried by opening it: [`publish`] is for afterwards.
///
/// # Errors
/// When the device that is demanded cannot be used, or there is no library.
pub fn choose(
    choice: DeviceChoice,
    configured_library: Option<&Path>,
    kernel_cache: &Path,
) -> anyhow::Result<DeviceSettings> {
    let find = |device| onnxruntime::find_library(configured_library, device);
    // A machine without any library has one thing to say, and not one for each device.
    choice.candidates().iter().map(|device| find(*device)).reduce(Result::or).transpose()?;
    let chosen = devices::choose(choice, |device, is_demanded| {
        if device == NetworkDevice::Cpu {
            // Opening it tries it as well: no provider or driver can end or hang the process.
            return vec![Ok("the processor".to_owned())];
        }
        let library = match find(device) {
            Ok(library) => library,
            Err(error) => return vec![Err(format!("{error:#}"))],
        };
        let candidate = Candidate { device, library: &library, kernel_cache, is_demanded };
        probe_all(|ordinal| candidate.probe(ordinal))
    })?;
    let library = find(chosen.device)?;
    let mut ordinals = chosen.used.iter().map(|used| used.ordinal);
    let (ordinal, others) = (ordinals.next().unwrap_or_default(), ordinals.collect());
    let device = chosen.device.into();
    // The first choice of a process is the one in use; there is no second.
    let _chosen = CHOSEN.set(chosen);
    let first = RuntimeSettings { library, device, ordinal, kernel_cache: Some(kernel_cache.to_owned()) };
    Ok(DeviceSettings { first, others })
}

/// Says in the log and in metrics which devices are used and which are not, once the first is open.
pub fn publish(settings: &DeviceSettings) {
    let Some(chosen) = CHOSEN.get() else { return };
    let library = &settings.first.library;
    metrics::describe_gauge!(DEVICE_USED, "1 for each device of the models, by its name");
    metrics::describe_gauge!(
        DEVICE_REFUSED,
        "1 for each device that was tried and is not used, by the reason"
    );
    for name in chosen.names() {
        tracing::info!(device = %chosen.device, name, library = %library.display(), "chose a device of the models");
        metrics::gauge!(DEVICE_USED, "device" => chosen.device.to_string(), "name" => name).set(1.0);
    }
    for refusal in &chosen.refusals {
        let labels = [("device", refusal.device.to_string()), ("reason", refusal.reason.clone())];
        metrics::gauge!(DEVICE_REFUSED, &labels).set(1.0);
        tracing::info!(device = %refusal.device, reason = refusal.reason, "a device is not used");
    }
}

/// Describes the devices in use and those that are not used, once they are chosen.
pub fn describe() -> Option<String> {
    CHOSEN.get().map(ChosenDevice::to_string)
}

/// A kind of device that may be chosen.
struct Candidate<'c> {
    device: NetworkDevice,
    library: &'c Path,
    kernel_cache: &'c Path,
    /// Whether no other can take its place.
    is_demanded: bool,
}

/// What a process that tries a device found.
struct ProbeOutcome {
    /// How many devices of the kind there are.
    count: usize,
    /// The name of the device, or why it cannot be used.
    name: Result<String, String>,
}

/// Tries the first device of a kind, which says how many there are, and then the others, all at once: what is wrong with one may
/// be wrong with each, and a service with eight must not wait for eight time limits.
fn probe_all(probe: impl Fn(usize) -> ProbeOutcome + Sync) -> Vec<Result<String, String>> {
    let first = probe(0);
    let probe = &probe;
    let others = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (1..first.count).map(|ordinal| scope.spawn(move || probe(ordinal).name)).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<String, String>>| {
            thread.join().unwrap_or_else(|_panic| Err("trying it panicked".to_owned()))
        };
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    std::iter::once(first.name).chain(others).collect()
}

impl Candidate<'_> {
    /// Tries one of several devices in a process of its own.
    fn probe(&self, ordinal: usize) -> ProbeOutcome {
        let command = self.command(ordinal);
        let marker = format!("device {}: ", self.device);
        let answer =
            command.map(|mut command| probe_process::run(&mut command, &marker, self.limit(ordinal)));
        answer.map_or_else(
            |error| ProbeOutcome { count: 1, name: Err(error) },
            |answer| ProbeOutcome { count: read_count(&answer.printed), name: answer.name },
        )
    }

    fn command(&self, ordinal: usize) -> Result<Command, String> {
        let program =
            std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
        let mut command = Command::new(program);
        command.arg(PROBE_COMMAND).arg(self.device.to_string()).arg(self.library);
        command.arg("--ordinal").arg(ordinal.to_string());
        command.arg("--kernel-cache").arg(self.kernel_cache);
        if self.is_demanded {
            // Software in the place of a GPU is what was asked for, if there is nothing else.
            command.arg("--allow-software");
        }
        Ok(command)
    }

    /// How long a device may take. The first one that is demanded has more time; it has read the libraries for the others.
    fn limit(&self, ordinal: usize) -> Duration {
        if self.is_demanded && ordinal == 0 { DEMANDED_PROBE_TIMEOUT } else { PROBE_TIMEOUT }
    }
}

/// Reads how many devices there are; 1 where the process did not get so far.
fn read_count(printed: &str) -> usize {
    let count = |line: &str| line.split_once(COUNT_MARKER)?.1.trim().parse().ok();
    printed.lines().find_map(count).unwrap_or(1)
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

    #[test]
    fn the_number_of_devices_is_found_in_what_libraries_print() {
        assert_eq!(read_count(&format!("a library says 7{COUNT_MARKER}3\nanother 9\nH100\n")), 3);
        assert_eq!(read_count("the driver says 4\nH100\n"), 1, "it did not get so far");
        assert_eq!(read_count(""), 1);
    }

    #[test]
    fn the_first_device_that_is_demanded_has_more_time_and_all_have_their_numbers() {
        let path = Path::new("/nowhere");
        let candidate = |is_demanded| Candidate {
            device: NetworkDevice::Cuda,
            library: path,
            kernel_cache: path,
            is_demanded,
        };
        assert_eq!(
            [0, 1].map(|ordinal| candidate(true).limit(ordinal)),
            [DEMANDED_PROBE_TIMEOUT, PROBE_TIMEOUT]
        );
        assert_eq!([0, 1].map(|ordinal| candidate(false).limit(ordinal)), [PROBE_TIMEOUT; 2]);
        let command = candidate(true).command(3).unwrap();
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        let expected =
            ["cuda", "/nowhere", "--ordinal", "3", "--kernel-cache", "/nowhere", "--allow-software"];
        assert_eq!(arguments[1..], expected);
    }
}
