//! The peer on the same device: `bench/peers/gpu_peer.py`, a pipeline of ONNX Runtime, OpenCV and numpy in Python, on the photos
//! of the service's measurement. It makes no previews and keeps nothing, so it does less for each photo.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use super::options::{CheckedDevice, GpuCheckOptions};
use crate::paths;
use crate::python::run_command;
use crate::report::Table;

/// The peer, in the checkout.
const SCRIPT: &str = "bench/peers/gpu_peer.py";

/// Photos before the measurement, so that each of the different ones was seen: ONNX Runtime prepares networks for each shape.
const WARM_UP_PHOTOS: usize = 16;

/// Most photos that are processed one by one, which is slow and steady.
const ONE_BY_ONE_PHOTOS: usize = 60;

/// The longest time of a run in seconds: the whole check has ten minutes.
const MAX_SECONDS: u32 = 150;

/// What is said of a pipeline's speed.
pub struct Pace {
    /// Photos per second.
    pub rate: f64,
    /// CPU time of all its processes for each photo, in milliseconds.
    pub cpu_ms: f64,
}

/// The service on the device, with which the peer is compared.
pub struct Compared<'a> {
    /// Photos per second.
    pub rate: f64,
    /// Size of the photos, as in the table.
    pub size: &'a str,
}

/// How the peer runs networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Processes decode, networks get batches.
    Batched,
    /// One process, one photo at a time.
    OneByOne,
}

/// What the peer prints.
#[derive(Debug, Deserialize)]
struct PeerRun {
    photos: usize,
    faces: usize,
    texts: usize,
    photos_per_s: f64,
    cpu_ms_per_photo: f64,
    /// What ONNX Runtime computed with.
    provider: String,
    /// Version of ONNX Runtime.
    onnxruntime: String,
}

impl Pace {
    /// Formats it for the table of rates, with how many times as fast the service on the device is.
    pub fn to_cells(&self, device_rate: f64) -> [String; 3] {
        [
            format!("{:.1}", self.rate),
            format!("{:.1}", self.cpu_ms),
            format!("{:.2}", device_rate / self.rate),
        ]
    }
}

impl Mode {
    fn argument(self) -> &'static str {
        match self {
            Self::Batched => "batched",
            Self::OneByOne => "one-by-one",
        }
    }

    fn count(self, photos: usize) -> usize {
        let most = match self {
            Self::Batched => photos,
            Self::OneByOne => ONE_BY_ONE_PHOTOS,
        };
        photos.clamp(1, most.max(1))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batched => "peer, batched Python",
            Self::OneByOne => "peer, ONNX Runtime one by one",
        })
    }
}

/// Runs the peer on the photos of a folder in both modes, if there is a Python for it, and adds a row for each. Why a run failed
/// goes into the notes: the check goes on without it.
pub fn add_rows(
    options: &GpuCheckOptions,
    folder: &Path,
    compared: &Compared<'_>,
    table: &mut Table,
    notes: &mut Vec<String>,
) {
    let Some(python) = &options.peer_python else { return };
    for mode in [Mode::Batched, Mode::OneByOne] {
        let size = compared.size;
        match run(options, python, folder, mode) {
            Ok(run) => {
                let pace = Pace { rate: run.photos_per_s, cpu_ms: run.cpu_ms_per_photo };
                let names = [mode.to_string(), size.to_owned()];
                table.add_row(names.into_iter().chain(pace.to_cells(compared.rate)));
                let PeerRun { photos, faces, texts, provider, onnxruntime, .. } = run;
                notes.push(format!(
                    "{mode}, {size}: {photos} photos, {faces} faces, {texts} texts; {provider} of \
                     ONNX Runtime {onnxruntime}."
                ));
            }
            Err(error) => {
                eprintln!("{mode}: {error:#}");
                notes.push(format!("{mode}, {size}: failed: {}.", find_reason(&error)));
            }
        }
    }
}

/// Runs the peer once.
fn run(options: &GpuCheckOptions, python: &Path, folder: &Path, mode: Mode) -> anyhow::Result<PeerRun> {
    let count = mode.count(options.speed_photos);
    // Ends its processes too, if one of them waits for ever.
    let mut command = Command::new("timeout");
    command.arg(MAX_SECONDS.to_string()).arg(python).arg("-B").arg(paths::root().join(SCRIPT));
    command.arg("--mode").arg(mode.argument()).arg("--photos").arg(folder);
    command.arg("--models").arg(options.paths.find_models_dir()?);
    command.arg("--count").arg(count.to_string()).arg("--warm-up").arg(WARM_UP_PHOTOS.to_string());
    match options.device {
        CheckedDevice::Cuda => {
            // Its own ONNX Runtime finds CUDA's libraries where the service's does.
            let runtime = options.paths.find_runtime()?;
            let libraries = runtime.parent().context("a library is in a folder")?;
            command.arg("--device").arg("cuda").env("LD_LIBRARY_PATH", libraries);
        }
        // The packages for Python have no WebGPU: this checks the comparison, and shows no speed.
        CheckedDevice::Wgpu => {
            command.arg("--device").arg("cpu");
        }
    }
    let run = parse(&run_command(&mut command)?)?;
    anyhow::ensure!(run.photos == count, "the peer processed {} of {count} photos", run.photos);
    Ok(run)
}

/// Parses the last line that it printed.
fn parse(printed: &str) -> anyhow::Result<PeerRun> {
    let line = printed.lines().rfind(|line| line.starts_with('{')).context("the peer printed no figures")?;
    serde_json::from_str(line).with_context(|| format!("cannot parse the output of the peer: {line}"))
}

/// The last line of an error: Python prints where it happened first.
pub fn find_reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let reason = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    reason.unwrap_or_default().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_in_the_last_line() {
        let printed = "a library says something\n\
             {\"mode\": \"batched\", \"photos\": 24, \"faces\": 52, \"texts\": 68, \"photos_per_s\": 7.38, \
             \"cpu_ms_per_photo\": 262.44, \"provider\": \"CPUExecutionProvider\", \"onnxruntime\": \"1.31.1\"}\n";
        let run = parse(printed).unwrap();
        assert_eq!((run.photos, run.faces, run.texts), (24, 52, 68));
        assert_eq!((run.photos_per_s, run.cpu_ms_per_photo), (7.38, 262.44));
        assert_eq!((run.provider.as_str(), run.onnxruntime.as_str()), ("CPUExecutionProvider", "1.31.1"));
        let nothing = parse("a library says something\n").unwrap_err();
        assert_eq!(nothing.to_string(), "the peer printed no figures");
        assert!(parse("{\"photos\": 24}").unwrap_err().to_string().contains("cannot parse"));
    }

    #[test]
    fn the_reason_of_a_failure_is_what_python_says_last() {
        let error =
            anyhow::anyhow!("timeout failed (exit status: 1): Traceback\n  line 3\nValueError: no photo\n");
        assert_eq!(find_reason(&error), "ValueError: no photo");
        let short = anyhow::anyhow!("the peer printed no figures");
        assert_eq!(find_reason(&short), "the peer printed no figures");
    }

    #[test]
    fn a_row_says_how_many_times_as_fast_the_device_is() {
        let cells = Pace { rate: 20.0, cpu_ms: 31.3 }.to_cells(50.0);
        assert_eq!(cells, ["20.0", "31.3", "2.50"]);
        assert_eq!(
            (Mode::Batched.count(400), Mode::OneByOne.count(400), Mode::OneByOne.count(8)),
            (400, 60, 8)
        );
    }
}
