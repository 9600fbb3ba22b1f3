//! For machines with an NVIDIA GPU: compares the networks' results there with those on the CPU, and measures the throughput
//! of the whole pipeline. Without a GPU it only prints that there is none.

mod compare;
pub mod observe;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use photofinish_tests::scenes::event;

use self::compare::{Agreement, compare_readings};
use self::observe::DeviceReadings;
use crate::paths::{InputPaths, state_dir};
use crate::process;
use crate::report::goals::Goal;
use crate::report::{OutputOptions, Report, Table};
use crate::service::album::{UploadedAlbum, list_jpegs};
use crate::service::{Service, Setup};

/// Photos on which the devices are compared.
const COMPARED_PHOTOS: usize = 24;

/// Options of the check.
#[derive(Clone, Debug, clap::Args)]
pub struct GpuCheckOptions {
    /// A folder of JPEG files; a drawn event by default.
    #[arg(long, value_name = "DIR")]
    pub photos: Option<PathBuf>,
    /// Number of times the pipeline processes the folder.
    #[arg(long, default_value_t = 4)]
    pub repeat: usize,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Runs the check; returns `None` and prints a message when there is no GPU.
///
/// # Errors
/// When the GPU cannot be used, or the photos or networks are not available.
pub fn run(options: &GpuCheckOptions) -> anyhow::Result<Option<Report>> {
    if !has_nvidia_device() {
        println!(
            "no NVIDIA GPU on this machine (no /dev/nvidia0): nothing to check; Photofinish runs on the CPU"
        );
        return Ok(None);
    }
    let scratch = tempfile::tempdir()?;
    let folder = match &options.photos {
        Some(folder) => folder.clone(),
        None => draw_event(scratch.path())?,
    };
    let files = list_jpegs(&folder)?;
    // The GPU first, so that an unusable one fails at once.
    let gpu_readings = observe_device("cuda", options, &folder, scratch.path(), None)?;
    let cpu_readings = observe_device("cpu", options, &folder, scratch.path(), Some("cuda"))?;
    let agreement = compare_readings(&gpu_readings, &cpu_readings);

    let mut report = Report::new("gpu", "CUDA beside the CPU");
    report.versions.push(gpu_readings.runtime.clone());
    report.tables.push(agreement.to_table());
    report.goals = build_goals(&agreement);
    let mut speed =
        Table::new("The whole pipeline", &["device", "photos", "photos/s", "CPU ms/photo", "peak MB"]);
    for device in ["cuda", "cpu"] {
        speed.add_row(measure_pipeline(options, &folder, &files, device)?);
    }
    report.tables.push(speed);
    report.notes.push(format!("{} photos compared.", gpu_readings.faces.len()));
    Ok(Some(report))
}

/// Observes the networks on a device in a process of its own; `before` names the device observed before.
fn observe_device(
    device: &str,
    options: &GpuCheckOptions,
    photos: &Path,
    scratch: &Path,
    before: Option<&str>,
) -> anyhow::Result<DeviceReadings> {
    let file = |device: &str| scratch.join(format!("{device}.json"));
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("observe").arg("--device").arg(device).arg("--photos").arg(photos);
    command.arg("--limit").arg(COMPARED_PHOTOS.to_string()).arg("--out").arg(file(device));
    command.arg("--runtime").arg(options.paths.find_runtime()?);
    command.arg("--models-dir").arg(options.paths.find_models_dir()?);
    if let Some(before) = before {
        command.arg("--before").arg(file(before));
    }
    let status = command.status().context("starting this program for one device")?;
    anyhow::ensure!(status.success(), "cannot run the networks on {device}");
    observe::load_readings(&file(device))
}

/// Draws an event with the portraits that set-up fetched; returns the folder of its photos.
fn draw_event(folder: &Path) -> anyhow::Result<PathBuf> {
    let portraits = state_dir().join("portraits");
    event::write_event(folder, &portraits, COMPARED_PHOTOS)
        .context("drawing photos; --photos names another folder")?;
    Ok(folder.join(event::PHOTOS_FOLDER))
}

fn has_nvidia_device() -> bool {
    Path::new("/dev/nvidia0").exists() || Path::new("/proc/driver/nvidia/version").exists()
}

fn build_goals(agreement: &Agreement) -> Vec<Goal> {
    vec![
        Goal::at_least("faces found by both", agreement.faces_shared(), 1.0),
        Goal::at_least("least overlap of a face's boxes", agreement.least_overlap, 0.95),
        Goal::at_most("largest difference of a face's score", agreement.score_difference, 0.01),
        Goal::at_least("least cosine of a face's vectors", agreement.least_cosine, 0.999),
        Goal::at_least("accepted texts read by both", agreement.texts_shared(), 1.0),
    ]
}

/// Runs the service on a device over the repeated folder; returns its row of the speed table.
fn measure_pipeline(
    options: &GpuCheckOptions,
    folder: &Path,
    files: &[String],
    device: &str,
) -> anyhow::Result<[String; 5]> {
    let settings = vec![("PHOTOFINISH_DEVICE".to_owned(), device.to_owned())];
    let service = Service::start(&options.paths, &Setup { settings, ..Setup::default() })?;
    let client = service.client();
    let files: Vec<String> =
        files.iter().cycle().take(files.len() * options.repeat.max(1)).cloned().collect();
    let album = UploadedAlbum::upload(client, None, folder, &files)?;
    let (clock, before) = (Instant::now(), process::process_tree_cpu(service.pid())?);
    album.confirm_all(client)?;
    let progress = album.wait_until_idle(client)?;
    anyhow::ensure!(
        progress.failed == 0,
        "{} photos failed on {device}:\n{}",
        progress.failed,
        service.log_tail()
    );
    let seconds = clock.elapsed().as_secs_f64();
    let cpu = process::process_tree_cpu(service.pid())? - before;
    let count = files.len() as f64;
    Ok([
        device.to_owned(),
        files.len().to_string(),
        format!("{:.1}", count / seconds),
        format!("{:.1}", cpu.as_secs_f64() * 1e3 / count),
        format!("{:.0}", process::read_memory(service.pid())?.peak as f64 / 1e6),
    ])
}
