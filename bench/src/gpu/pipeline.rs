//! The whole service on a device: what it finds in photos, how fast it is, how busy its stages are, and its memory while it
//! works.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_store::conformance::test_settings;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::{DetectedFace, DetectedText};
use photofinish_store::{Store, StoreSettings};

use super::memory::{self, MemoryCourse};
use crate::paths::InputPaths;
use crate::process;
use crate::prometheus::sum_metric_by_label;
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Stages whose load is reported: those that compute.
const STAGES: [&str; 6] = ["fetch", "decode", "resize", "detect", "embed", "read"];

/// Photos before a measurement. A device prepares its networks for batches of few sizes, for seconds each.
const WARM_UP_PHOTOS: usize = 128;

/// Metrics of a stage.
const BUSY: &str = "photofinish_stage_busy_seconds_total";
const BATCH_SUM: &str = "photofinish_stage_batch_size_sum";
const BATCH_COUNT: &str = "photofinish_stage_batch_size_count";

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
    /// Memory over the run and the rounds after it, together so many photos.
    pub memory: MemoryCourse,
    /// See [`Self::memory`].
    pub watched_photos: usize,
}

/// How long the memory is watched: the photos of a run are processed again until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// For the run alone.
    Run,
    /// For so long at least.
    Time(Duration),
    /// For so many photos at least.
    Photos(usize),
}

impl Watch {
    fn is_over(self, elapsed: Duration, photos: usize) -> bool {
        match self {
            Self::Run => true,
            Self::Time(least) => elapsed >= least,
            Self::Photos(least) => photos >= least,
        }
    }
}

/// `precision` is that of the networks: f32 where devices are compared, what is fastest on each where their speed is.
fn start(paths: &InputPaths, device: &str, precision: &str) -> anyhow::Result<Service> {
    // The light text detector is of the CPU alone, and finds other texts in a few cases: what is compared does without it.
    let settings = [
        ("PHOTOFINISH_DEVICE", device),
        ("PHOTOFINISH_TEXT_PRECISION", precision),
        ("PHOTOFINISH_LIGHT_TEXT_DETECTOR", "off"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Service::start(paths, &Setup { settings, ..Setup::default() })
}

/// Processes the files once on a device, and returns what is then in the database, in the order of the files.
///
/// # Errors
/// When the service cannot use the device, or a photo fails.
pub fn find(paths: &InputPaths, device: &str, folder: &Path, files: &[String]) -> anyhow::Result<Vec<Found>> {
    let service = start(paths, device, "f32")?;
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

/// Processes the files on a device and measures it, and then again and again until the memory was watched for long enough.
///
/// # Errors
/// As [`find`].
pub fn measure(
    paths: &InputPaths,
    device: &str,
    folder: &Path,
    files: &[String],
    watch: Watch,
) -> anyhow::Result<Speed> {
    let service = start(paths, device, "auto")?;
    let client = service.client();
    // The first photos prepare networks for their shapes, with batches of each size.
    UploadedAlbum::ingest(client, None, folder, &files[..files.len().min(WARM_UP_PHOTOS)])?;
    let album = UploadedAlbum::upload(client, None, folder, files)?;
    let start = Instant::now();
    let work = || {
        let mut speed = process_once(&service, &album)?;
        while !watch.is_over(start.elapsed(), speed.watched_photos) {
            album.reprocess(client)?;
            check_progress(&service, &album)?;
            speed.watched_photos += files.len();
        }
        anyhow::Ok(speed)
    };
    let (speed, memory) = memory::watch(service.pid(), work);
    let context = || format!("on {device}; the end of its log:\n{}", service.log_tail());
    Ok(Speed { memory, ..speed.with_context(context)? })
}

/// Processes the photos of an album that are uploaded; without its memory.
fn process_once(service: &Service, album: &UploadedAlbum) -> anyhow::Result<Speed> {
    let page_before = service.read_metrics()?;
    let pid = service.pid();
    let (clock, cpu_before) = (Instant::now(), process::process_tree_cpu(pid)?);
    album.confirm_all(service.client())?;
    check_progress(service, album)?;
    let seconds = clock.elapsed().as_secs_f64();
    let cpu = process::process_tree_cpu(pid)? - cpu_before;
    let page = service.read_metrics()?;
    let gained = |metric: &str, stage: &str| {
        let of = |page: &str| sum_metric_by_label(page, metric, "stage").get(stage).copied().unwrap_or(0.0);
        of(&page) - of(&page_before)
    };
    let photos = album.photos.len();
    Ok(Speed {
        rate: photos as f64 / seconds,
        cpu: cpu / u32::try_from(photos).unwrap_or(u32::MAX).max(1),
        busy: STAGES.map(|stage| (stage, gained(BUSY, stage) / seconds)).to_vec(),
        batches: STAGES.map(|stage| (stage, gained(BATCH_SUM, stage) / gained(BATCH_COUNT, stage))).to_vec(),
        memory: MemoryCourse::default(),
        watched_photos: photos,
    })
}

/// Waits until all photos of the album are processed.
fn check_progress(service: &Service, album: &UploadedAlbum) -> anyhow::Result<()> {
    let progress = album.wait_until_idle(service.client())?;
    anyhow::ensure!(progress.failed == 0, "{} photos failed", progress.failed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_are_repeated_until_the_time_or_their_number_is_reached() {
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(61));
        assert!(Watch::Run.is_over(short, 1));
        let least = Watch::Time(Duration::from_secs(60));
        assert!(!least.is_over(short, 1_000_000) && least.is_over(long, 1));
        let least = Watch::Photos(1000);
        assert!(!least.is_over(long, 999) && least.is_over(short, 1000));
    }
}
