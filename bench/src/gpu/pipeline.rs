//! The whole service on a device: what it finds in photos, how fast it is, how busy its stages are, and its memory over the
//! time of a run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_store::conformance::test_settings;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::{DetectedFace, DetectedText};
use photofinish_store::{Store, StoreSettings};

use super::machine::read_device_memory;
use crate::paths::InputPaths;
use crate::process;
use crate::prometheus::sum_metric_by_label;
use crate::report::Table;
use crate::report::goals::Goal;
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Stages whose load is reported: those that compute.
const STAGES: [&str; 6] = ["fetch", "decode", "resize", "detect", "embed", "read"];

/// Metrics of a stage.
const BUSY: &str = "photofinish_stage_busy_seconds_total";
const BATCH_SUM: &str = "photofinish_stage_batch_size_sum";
const BATCH_COUNT: &str = "photofinish_stage_batch_size_count";

/// Pause between two samples of the memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// Samples from which on the course of the memory is judged: two a quarter of the run.
const MIN_SAMPLES: usize = 8;

/// How much more memory the last quarter of a run may use than the second: the first one fills the pipeline.
const MAX_GROWTH: f64 = 1.1;

/// What the service found in a photo.
pub struct Found {
    /// Boxes are in parts of the photo.
    pub faces: Vec<DetectedFace>,
    /// With their standing for searches.
    pub texts: Vec<DetectedText>,
}

/// The speed of a run.
pub struct Speed {
    /// Photos per second, from the confirmation of the first to the end of the last.
    pub rate: f64,
    /// CPU of the service for each photo.
    pub cpu: Duration,
    /// Threads of each stage that were busy, on average.
    pub busy: Vec<(&'static str, f64)>,
    /// Photos of each batch of a stage, on average.
    pub batches: Vec<(&'static str, f64)>,
    memory: Vec<Sample>,
}

/// Memory at a moment, in bytes.
#[derive(Clone, Copy)]
struct Sample {
    resident: u64,
    /// `None` where nothing says it.
    device: Option<u64>,
}

fn start(paths: &InputPaths, device: &str) -> anyhow::Result<Service> {
    let settings = vec![("PHOTOFINISH_DEVICE".to_owned(), device.to_owned())];
    Service::start(paths, &Setup { settings, ..Setup::default() })
}

/// Processes the files once on a device, and returns what is then in the database, in the order of the files.
///
/// # Errors
/// When the service cannot use the device, or a photo fails.
pub fn find(paths: &InputPaths, device: &str, folder: &Path, files: &[String]) -> anyhow::Result<Vec<Found>> {
    let service = start(paths, device)?;
    let album = UploadedAlbum::ingest(service.client(), None, folder, files)?;
    let data = service.data();
    drop(service);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(read_detections(&data.path().join("data"), &album))
}

/// Reads faces with their vectors, which no response has, from the database of a service that has ended.
async fn read_detections(folder: &Path, album: &UploadedAlbum) -> anyhow::Result<Vec<Found>> {
    let database_url = format!("sqlite:{}", folder.join("photofinish.sqlite").display());
    let store = Store::open(StoreSettings { database_url, ..test_settings(folder) }).await?;
    let id = AlbumId(album.id.parse().context("the id of an album")?);
    let mut found = Vec::new();
    for photo in &album.photos {
        let photo = PhotoId(photo.id.parse().context("the id of a photo")?);
        let (faces, texts) = store.photos.get_detections(id, photo).await?;
        found.push(Found { faces, texts });
    }
    store.close().await;
    Ok(found)
}

/// Processes the files on a device and measures it.
///
/// # Errors
/// As [`find`].
pub fn measure(paths: &InputPaths, device: &str, folder: &Path, files: &[String]) -> anyhow::Result<Speed> {
    let service = start(paths, device)?;
    let client = service.client();
    // The first photos prepare networks for their shapes.
    UploadedAlbum::ingest(client, None, folder, &files[..files.len().min(4)])?;
    let album = UploadedAlbum::upload(client, None, folder, files)?;
    let page_before = service.read_metrics()?;
    let pid = service.pid();
    let (clock, cpu_before) = (Instant::now(), process::process_tree_cpu(pid)?);
    let has_ended = AtomicBool::new(false);
    let (progress, memory) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample_memory(pid, &has_ended));
        let progress = album.confirm_all(client).and_then(|()| album.wait_until_idle(client));
        has_ended.store(true, Ordering::Release);
        (progress, sampler.join())
    });
    let (progress, seconds) = (progress?, clock.elapsed().as_secs_f64());
    anyhow::ensure!(
        progress.failed == 0,
        "{} photos failed on {device}:\n{}",
        progress.failed,
        service.log_tail()
    );
    let cpu = process::process_tree_cpu(pid)? - cpu_before;
    let page = service.read_metrics()?;
    let gained = |metric: &str, stage: &str| {
        let of = |page: &str| sum_metric_by_label(page, metric, "stage").get(stage).copied().unwrap_or(0.0);
        of(&page) - of(&page_before)
    };
    Ok(Speed {
        rate: files.len() as f64 / seconds,
        cpu: cpu / u32::try_from(files.len()).unwrap_or(u32::MAX),
        busy: STAGES.map(|stage| (stage, gained(BUSY, stage) / seconds)).to_vec(),
        batches: STAGES.map(|stage| (stage, gained(BATCH_SUM, stage) / gained(BATCH_COUNT, stage))).to_vec(),
        memory: memory.unwrap_or_default(),
    })
}

fn sample_memory(pid: u32, has_ended: &AtomicBool) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !has_ended.load(Ordering::Acquire) {
        if let Ok(memory) = process::read_memory(pid) {
            samples.push(Sample { resident: memory.resident, device: read_device_memory() });
        }
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    samples
}

impl Speed {
    /// The means of the quarters of the run, in megabytes: of the process, and of the device where it is known.
    fn quarters(&self) -> Option<[(f64, Option<f64>); 4]> {
        if self.memory.len() < MIN_SAMPLES {
            return None;
        }
        let mean = |values: Vec<u64>| values.iter().sum::<u64>() as f64 / values.len() as f64 / 1e6;
        Some([0, 1, 2, 3].map(|quarter| {
            let length = self.memory.len();
            let part = &self.memory[quarter * length / 4..(quarter + 1) * length / 4];
            let device: Option<Vec<u64>> = part.iter().map(|sample| sample.device).collect();
            (mean(part.iter().map(|sample| sample.resident).collect()), device.map(mean))
        }))
    }

    /// Adds what is known of the memory over time; nothing where the run was too short.
    pub fn report_memory(&self, name: &str, table: &mut Table, goals: &mut Vec<Goal>) {
        let Some(quarters) = self.quarters() else { return };
        let megabytes =
            |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.0}"));
        let process = quarters.map(|(process, _)| Some(process));
        let device = quarters.map(|(_, device)| device);
        for (what, course) in [("process", process), ("device", device)] {
            table.add_row([name.to_owned(), what.to_owned()].into_iter().chain(course.map(megabytes)));
        }
        if let (Some(second), Some(last)) = (device[1], device[3]) {
            let what = format!("{name}: memory of the device, last quarter over second");
            goals.push(Goal::at_most(&what, last / second, MAX_GROWTH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(resident: impl Iterator<Item = u64>, device: Option<u64>) -> Speed {
        let memory = resident.map(|resident| Sample { resident, device }).collect();
        Speed { rate: 1.0, cpu: Duration::ZERO, busy: Vec::new(), batches: Vec::new(), memory }
    }

    #[test]
    fn the_course_of_the_memory_is_the_means_of_quarters() {
        let speed = speed((1..=8).map(|number| number * 1_000_000), Some(5_000_000));
        let quarters = speed.quarters().unwrap();
        assert_eq!(quarters.map(|(process, _)| process), [1.5, 3.5, 5.5, 7.5]);
        let (mut table, mut goals) = (Table::default(), Vec::new());
        speed.report_memory("cuda", &mut table, &mut goals);
        assert_eq!(table.rows.len(), 2);
        assert!(goals.iter().all(Goal::is_met) && goals.len() == 1);
    }

    #[test]
    fn a_short_run_and_a_device_that_says_nothing_are_not_judged() {
        assert!(speed(1..=3, None).quarters().is_none());
        let (mut table, mut goals) = (Table::default(), Vec::new());
        speed(std::iter::repeat_n(9, 20), None).report_memory("wgpu", &mut table, &mut goals);
        assert!(goals.is_empty());
        assert_eq!(table.rows[1][2], "unknown");
    }
}
