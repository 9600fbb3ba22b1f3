//! One command for a machine with a GPU: compares kernels, networks and the whole pipeline on it with those on the CPU, and
//! measures its speed, its load and its memory. With Vulkan, software in the place of a GPU is taken too, which checks this
//! command. The report is kept in the state folder, also where a part fails.

mod compare;
mod copies;
mod kernel_inputs;
mod kernels;
mod machine;
mod memory;
mod nvjpeg;
pub mod observe;
mod options;
mod peer;
mod pipeline;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use photofinish_tests::scenes::event;

use self::compare::{Agreement, compare_found, compare_readings};
use self::memory::MemoryReport;
use self::observe::DeviceReadings;
pub use self::options::GpuCheckOptions;
use self::options::{CheckedDevice, DRAWN_PHOTOS};
use self::peer::{Compared, Pace};
use self::pipeline::{Speed, Watch};
use crate::paths::state_dir;
use crate::photos::enlarge::{enlarge, pick_evenly};
use crate::photos::labels;
use crate::report::goals::Goal;
use crate::report::{Report, Table};
use crate::service::album::list_jpegs;

/// Different photos of a measurement of speed; more would take longer to make than the measurement takes.
const ENLARGED_PHOTOS: usize = 8;

/// How long the memory of the device is watched at each size of photos, unless a number of photos is asked for.
const MEMORY_TIME: Duration = Duration::from_secs(60);

/// The longest time of the whole command.
const MAX_MINUTES: f64 = 10.0;

/// Name of the report in the state folder, without the ending.
const REPORT_NAME: &str = "gpu-check";

/// Runs the check and keeps its report in the state folder; returns `None` and prints a message when there is no GPU.
///
/// # Errors
/// When the GPU cannot be used, or the photos or networks are not available; what is known until then is kept.
pub fn run(options: &GpuCheckOptions) -> anyhow::Result<Option<Report>> {
    if options.device == CheckedDevice::Cuda && !machine::has_nvidia_gpu() {
        println!(
            "no GPU on this machine (no NVIDIA driver was found): nothing to check; Photofinish runs on the CPU"
        );
        return Ok(None);
    }
    let device = options.device.name();
    let mut report = Report::new(format!("gpu-{device}"), &format!("The device {device} beside the CPU"));
    let mut times = PartTimes::begin(options.began);
    let checked = check(options, &mut report, &mut times);
    if let Err(error) = &checked {
        report.notes.push(format!("The check ended early: {error:#}."));
    }
    times.report(&mut report);
    let file = keep(&report)?;
    eprintln!("The report is in {} and, as JSON, beside it.", file.display());
    checked?;
    Ok(Some(report))
}

fn check(options: &GpuCheckOptions, report: &mut Report, times: &mut PartTimes) -> anyhow::Result<()> {
    report.versions.extend(machine::describe_gpu());
    let scratch = tempfile::tempdir()?;
    let sources = find_photos(options, scratch.path())?;
    let folder = copy_photos(&sources, &scratch.path().join("compared"))?;
    // The device first, so that an unusable one fails at once.
    let gpu = kernels::open(options.device, &options.paths.find_runtime()?)?;
    report.versions.push(gpu.name());
    kernels::check(&gpu, report)?;
    drop(gpu);
    times.end_part("kernels");
    keep(report)?;
    compare_networks(options, &folder, scratch.path(), report)?;
    times.end_part("networks");
    keep(report)?;
    compare_pipelines(options, &folder, report)?;
    times.end_part("the whole pipeline, compared");
    measure_speeds(options, &sources, scratch.path(), report)?;
    times.end_part("speed, memory and the peer");
    report.notes.push(format!(
        "{} photos compared; {} a measurement of speed, {} of them different.",
        sources.len(),
        options.speed_photos,
        sources.len().min(ENLARGED_PHOTOS)
    ));
    report.notes.push("Photos are decoded by the cores: nvJPEG is not built in.".into());
    if options.peer_python.is_none() {
        report.notes.push("Not compared with a pipeline in Python: --peer-python names none.".into());
    }
    Ok(())
}

/// Keeps what is known: a machine with a GPU may be lent for a time that ends before the check does.
fn keep(report: &Report) -> anyhow::Result<PathBuf> {
    report.keep(&state_dir().join(REPORT_NAME))
}

/// How long each part of the command took.
struct PartTimes {
    /// Set-up and builds, where this is the check of `cargo xtask`.
    before: Option<Duration>,
    began_at: Instant,
    part_began_at: Instant,
    parts: Vec<PartTime>,
}

struct PartTime {
    part: &'static str,
    time: Duration,
}

impl PartTimes {
    /// Begins the first part; `began` is when the whole command did, in seconds since 1970.
    fn begin(began: Option<u64>) -> Self {
        let before = began.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let before = before.and_then(|began| SystemTime::now().duration_since(began).ok());
        let now = Instant::now();
        Self { before, began_at: now, part_began_at: now, parts: Vec::new() }
    }

    /// Ends a part and begins the next.
    fn end_part(&mut self, part: &'static str) {
        let now = Instant::now();
        self.parts.push(PartTime { part, time: now - self.part_began_at });
        self.part_began_at = now;
    }

    /// Adds the table and the goal.
    fn report(&self, report: &mut Report) {
        let mut table = Table::new("How long the check took", &["part", "s"]);
        let before = self.before.map(|time| PartTime { part: "set-up and builds", time });
        for PartTime { part, time } in before.iter().chain(&self.parts) {
            table.add_row([(*part).to_owned(), format!("{:.0}", time.as_secs_f64())]);
        }
        report.tables.push(table);
        let all = self.before.unwrap_or_default() + self.began_at.elapsed();
        report.goals.push(Goal::at_most(
            "minutes of the whole command",
            all.as_secs_f64() / 60.0,
            MAX_MINUTES,
        ));
    }
}

/// The photos of the options, else labelled ones, else drawn ones.
fn find_photos(options: &GpuCheckOptions, scratch: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let files = list_jpegs(folder)?;
        Ok(files.iter().take(options.limit.max(1)).map(|file| folder.join(file)).collect())
    };
    if let Some(folder) = &options.photos {
        return list(folder);
    }
    let Ok(file) = options.paths.find_shared("photos/bibs.csv") else {
        let portraits = state_dir().join("portraits");
        event::write_event(scratch, &portraits, DRAWN_PHOTOS)
            .context("drawing photos; --photos names another folder")?;
        return list(&scratch.join(event::PHOTOS_FOLDER));
    };
    let folder = options.paths.find_shared("photos/files")?;
    let photos = labels::load_photos(&file)?;
    Ok(pick_evenly(&photos, options.limit.max(1)).iter().map(|photo| folder.join(&photo.file)).collect())
}

/// Copies photos into one folder, under numbers.
fn copy_photos(sources: &[PathBuf], folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    for (number, source) in sources.iter().enumerate() {
        std::fs::copy(source, folder.join(format!("{number:04}.jpg")))
            .with_context(|| format!("copying {}", source.display()))?;
    }
    Ok(folder.to_owned())
}

/// Runs each network on both devices, on the same faces.
fn compare_networks(
    options: &GpuCheckOptions,
    folder: &Path,
    scratch: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let device = options.device.name();
    let of_device = observe_device(device, options, folder, scratch, None)?;
    let of_cpu = observe_device("cpu", options, folder, scratch, Some(device))?;
    report.versions.push(of_device.runtime.clone());
    report.notes.extend(of_device.precisions.iter().map(|line| format!("Precision of {line}.")));
    let agreement = compare_readings(&of_device, &of_cpu);
    report.tables.push(agreement.to_table("Each network, on the faces that the device found"));
    report.goals.extend(build_goals("networks", &agreement));
    let columns = ["network", "device, one by one", "device, in batches", "CPU"];
    let mut table = Table::new("Photos a second of a network by itself, on one thread", &columns);
    for (found, on_cpu) in of_device.speeds.iter().zip(&of_cpu.speeds) {
        let rates = [found.one_by_one, found.in_batches, on_cpu.one_by_one].map(|rate| format!("{rate:.1}"));
        table.add_row([found.network.clone()].into_iter().chain(rates));
    }
    report.tables.push(table);
    Ok(())
}

/// Runs the service on both devices.
fn compare_pipelines(options: &GpuCheckOptions, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
    let files = list_jpegs(folder)?;
    let find = |device: &str| pipeline::find(&options.paths, device, folder, &files);
    let agreement = compare_found(&find(options.device.name())?, &find("cpu")?);
    report.tables.push(agreement.to_table("The whole pipeline, from upload to database"));
    report.goals.extend(build_goals("pipeline", &agreement));
    Ok(())
}

/// What measurements of speed fill.
struct SpeedTables {
    rates: Table,
    stages: Table,
    memory: Table,
    nvjpeg: Table,
}

impl SpeedTables {
    fn new() -> Self {
        let columns = ["device", "photos", "what", "fetch", "decode", "resize", "detect", "embed", "read"];
        let caption = "Stages: threads that were busy, and photos of a batch, on average";
        let stages = Table::new(caption, &columns);
        let columns = ["device and photos", "memory of", "1st quarter, MB", "2nd", "3rd", "4th"];
        let memory = Table::new("Memory over the time of a run, whose photos are repeated", &columns);
        let columns = ["device", "photos", "photos/s", "CPU ms/photo", "device, times as fast"];
        let rates = Table::new("The whole service", &columns);
        Self { rates, stages, memory, nvjpeg: nvjpeg::new_table() }
    }

    fn add_to(&self, report: &mut Report) {
        let Self { rates, stages, memory, nvjpeg } = self;
        let measured = [rates, stages, memory, nvjpeg].into_iter().filter(|table| !table.rows.is_empty());
        report.tables.extend(measured.cloned());
        if memory.rows.is_empty() {
            report.notes.push("The runs were too short to show memory over time.".into());
        }
    }

    fn keep(&self, report: &Report) -> anyhow::Result<()> {
        let mut so_far = report.clone();
        self.add_to(&mut so_far);
        keep(&so_far)?;
        Ok(())
    }
}

/// Measures the service on both devices at each size of photos, and reports what was measured if one fails.
fn measure_speeds(
    options: &GpuCheckOptions,
    sources: &[PathBuf],
    scratch: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut tables = SpeedTables::new();
    let measured = options.megapixels.iter().try_for_each(|megapixels| {
        let folder = enlarge_photos(sources, *megapixels, &scratch.join(format!("{megapixels}")))?;
        measure_size(options, *megapixels, &folder, &mut tables, report)
    });
    tables.add_to(report);
    measured
}

fn measure_size(
    options: &GpuCheckOptions,
    megapixels: f64,
    folder: &Path,
    tables: &mut SpeedTables,
    report: &mut Report,
) -> anyhow::Result<()> {
    let size = format!("{megapixels} MP");
    let mut device_rate = None;
    let least = options.photos_for_memory.map_or(Watch::Time(MEMORY_TIME), Watch::Photos);
    let files = list_jpegs(folder)?;
    let files: Vec<String> = files.iter().cycle().take(options.speed_photos.max(1)).cloned().collect();
    for (device, watch) in [(options.device.name(), least), ("cpu", Watch::Run)] {
        let speed = pipeline::measure(&options.paths, device, folder, &files, watch)?;
        let names = [device.to_owned(), size.clone()];
        let pace = Pace { rate: speed.rate, cpu_ms: speed.cpu.as_secs_f64() * 1e3 };
        let cells = pace.to_cells(*device_rate.get_or_insert(speed.rate));
        tables.rates.add_row(names.iter().cloned().chain(cells));
        add_stages(&names, &speed, &mut tables.stages);
        if watch != Watch::Run {
            let name = format!("{}, {} photos", names.join(", "), speed.watched_photos);
            speed.memory.report(&name, MemoryReport { table: &mut tables.memory, goals: &mut report.goals });
        }
        tables.keep(report)?;
    }
    let compared = Compared { rate: device_rate.unwrap_or_default(), size: &size };
    peer::add_rows(options, folder, &compared, &mut tables.rates, &mut report.notes);
    if let (CheckedDevice::Cuda, Some(python)) = (options.device, &options.peer_python) {
        nvjpeg::add_rows(python, folder, &size, &mut tables.nvjpeg, &mut report.notes);
    }
    tables.keep(report)
}

fn add_stages(names: &[String; 2], speed: &Speed, table: &mut Table) {
    for (what, figures) in [("threads", &speed.busy), ("photos", &speed.batches)] {
        let figures = figures.iter().map(|(_, figure)| format!("{figure:.1}"));
        table.add_row(names.iter().cloned().chain([what.to_owned()]).chain(figures));
    }
}

/// Makes photos of this size from a few of the sources.
fn enlarge_photos(sources: &[PathBuf], megapixels: f64, folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    for (number, source) in sources.iter().take(ENLARGED_PHOTOS).enumerate() {
        let jpeg = enlarge(source, megapixels, number as u64)?;
        std::fs::write(folder.join(format!("{number:04}.jpg")), jpeg)?;
    }
    Ok(folder.to_owned())
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
    command.arg("--limit").arg(options.limit.to_string()).arg("--out").arg(file(device));
    command.arg("--runtime").arg(options.paths.find_runtime()?);
    command.arg("--models-dir").arg(options.paths.find_models_dir()?);
    if let Some(before) = before {
        command.arg("--before").arg(file(before));
    }
    let status = command.status().context("starting this program for one device")?;
    anyhow::ensure!(status.success(), "cannot run the networks on {device}");
    observe::load_readings(&file(device))
}

fn build_goals(what: &str, agreement: &Agreement) -> [Goal; 5] {
    let name = |figure: &str| format!("{what}: {figure}");
    [
        Goal::at_least(&name("faces found by both"), agreement.faces_shared(), 1.0),
        Goal::at_least(&name("least overlap of a face's boxes"), agreement.least_overlap, 0.9),
        Goal::at_most(&name("largest difference of a face's score"), agreement.score_difference, 0.01),
        Goal::at_least(&name("least cosine of a face's vectors"), agreement.least_cosine, 0.999),
        Goal::at_least(&name("accepted texts read by both"), agreement.texts_shared(), 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_whole_command_has_what_was_before_it() {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - Duration::from_secs(660);
        let mut times = PartTimes::begin(Some(began.as_secs()));
        times.end_part("kernels");
        let mut report = Report::new("gpu-test", "Test");
        times.report(&mut report);
        let parts: Vec<&str> = report.tables[0].rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(parts, ["set-up and builds", "kernels"]);
        assert!(report.goals[0].figure >= 11.0 && !report.goals[0].is_met(), "{:?}", report.goals);
        let mut alone = Report::new("gpu-test", "Test");
        PartTimes::begin(None).report(&mut alone);
        assert!(alone.goals[0].is_met() && alone.tables[0].rows.is_empty());
    }

    #[test]
    fn photos_for_the_speed_have_the_size_that_is_asked_for() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("source.jpg");
        image::RgbImage::from_fn(60, 40, |x, y| image::Rgb([x as u8 * 4, y as u8 * 6, 90]))
            .save(&source)
            .unwrap();
        let folder = enlarge_photos(&[source], 0.06, &scratch.path().join("large")).unwrap();
        let file = folder.join(&list_jpegs(&folder).unwrap()[0]);
        assert_eq!(image::image_dimensions(file).unwrap(), (300, 200));
    }
}
