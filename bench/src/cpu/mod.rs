//! CPU per photo and per stage, and peak memory, on a folder of camera-size photos or on crowds composed of labelled ones.
//! Photofinish and the peer, plain and tuned, run alternately in one measurement, on the same photos with the same number
//! of threads.
//!
//! Photofinish's CPU is the user and system time of its whole process from the first confirmation until the album is idle:
//! reading the photos from storage, all stages, writing previews, thumbnails and the database, and handling the
//! confirmations and progress requests. A worker by itself says how much of that photos are charged. Receiving the uploads is measured separately; the peer reads files.

mod figures;
mod ledger;
mod options;
pub(crate) mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::cpu::ledger::LedgerRuns;
pub use crate::cpu::options::{Cpu, CpuOptions};
use crate::cpu::options::{read_charged, service_setup};
use crate::cpu::peer::{Peer, PeerMode, PeerRun};
use crate::photos::crowd;
use crate::photos::enlarge::{self, TRUTH_FILE};
use crate::photos::labels::{self, LabelledPhoto};
use crate::process;
use crate::prometheus::sum_metric_by_label;
use crate::report::Report;
use crate::report::statistics::median;
use crate::service::Service;
use crate::service::album::{UploadedAlbum, list_jpegs};

/// Decides how photos are composed into frames.
const CROWD_SEED: u64 = 1;

/// What is read.
struct Material {
    /// What it is, for the title.
    name: String,
    folder: PathBuf,
    files: Vec<String>,
    labels: Vec<LabelledPhoto>,
    /// Where composed frames are, until the end.
    _scratch: Option<tempfile::TempDir>,
}

/// One run of Photofinish.
struct ServiceRun {
    cpu: Duration,
    upload_cpu: Duration,
    wall: Duration,
    ready_bytes: u64,
    peak_bytes: u64,
    faces_indexed: usize,
    contents: BTreeMap<String, PhotoContents>,
    stages: BTreeMap<String, f64>,
    /// CPU seconds that photos were charged, by stage.
    charged: BTreeMap<String, f64>,
    threads: BTreeMap<String, Duration>,
}

/// Faces and bibs found in a photo.
#[derive(Clone, Default)]
struct PhotoContents {
    faces: usize,
    bibs: BTreeSet<String>,
}

/// All runs of all three.
struct Measurements {
    ours: Vec<ServiceRun>,
    peers: BTreeMap<PeerMode, Vec<PeerRun>>,
    quarter_run: ServiceRun,
    quarter_photo_count: usize,
    ledger: LedgerRuns,
}

/// Runs the measurement.
///
/// # Errors
/// When the service, the peer or the photos are not available.
pub fn run(options: &CpuOptions) -> anyhow::Result<Report> {
    let material = match &options.crowds {
        Some(photos) => compose_crowds(options, photos)?,
        None => prepare_photos(options)?,
    };
    let Material { folder, files, .. } = &material;
    let peer = if options.alone { None } else { Some(Peer::prepare(&options.paths)?) };
    let ledger = ledger::measure(options, folder, files)?;
    let mut measurements = Measurements {
        ledger,
        ours: Vec::new(),
        peers: BTreeMap::new(),
        quarter_photo_count: files.len().div_ceil(4),
        quarter_run: measure_service(options, folder, &files[..files.len().div_ceil(4)])?,
    };
    for round in 1..=options.rounds.max(1) {
        println!("round {round}: photofinish");
        measurements.ours.push(measure_service(options, folder, files)?);
        for mode in [PeerMode::Plain, PeerMode::Tuned] {
            let Some(peer) = &peer else { continue };
            println!("round {round}: {mode}");
            let run = peer.run(mode, folder, options.threads)?;
            anyhow::ensure!(
                run.photos == files.len(),
                "the peer read {} of {} photos",
                run.photos,
                files.len()
            );
            measurements.peers.entry(mode).or_default().push(run);
        }
    }
    Ok(figures::build_report(options, &measurements, &material))
}

fn prepare_photos(options: &CpuOptions) -> anyhow::Result<Material> {
    let folder = if let Some(folder) = &options.photos {
        folder.clone()
    } else {
        let make = enlarge::EnlargeOptions::with_defaults(options.paths.clone());
        if !make.output_dir().join(TRUTH_FILE).exists() {
            enlarge::run(&make)?;
        }
        make.output_dir()
    };
    let (files, labels) = (list_jpegs(&folder)?, labels::load_photos(&folder.join(TRUTH_FILE))?);
    check_labels(&folder, &files, &labels)?;
    let name = format!("{} megapixel photos", median_megapixels(&folder, &files)?);
    Ok(Material { name, folder, files, labels, _scratch: None })
}

/// Fails unless each photo has labels and each label its photo: all are read, and only what has labels is scored.
fn check_labels(folder: &Path, files: &[String], labels: &[LabelledPhoto]) -> anyhow::Result<()> {
    let files: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let labelled: BTreeSet<&str> = labels.iter().map(|photo| photo.file.as_str()).collect();
    if let Some(first) = files.symmetric_difference(&labelled).next() {
        anyhow::bail!(
            "{} has other photos than its {TRUTH_FILE}, {first} for one: make them again with `cargo xtask bench make-24mp`",
            folder.display()
        );
    }
    Ok(())
}

/// The median size of photos, to a tenth.
fn median_megapixels(folder: &Path, files: &[String]) -> anyhow::Result<f64> {
    let megapixels = |file: &String| -> anyhow::Result<f64> {
        let (width, height) = image::image_dimensions(folder.join(file)).with_context(|| file.clone())?;
        Ok(f64::from(width) * f64::from(height) / 1e6)
    };
    let sizes = files.iter().map(megapixels).collect::<anyhow::Result<Vec<f64>>>()?;
    Ok((median(&sizes) * 10.0).round() / 10.0)
}

/// Composes the labelled photos into frames, as `eval bibs --crowds` does.
fn compose_crowds(options: &CpuOptions, photos: &str) -> anyhow::Result<Material> {
    let side = photos.parse::<u32>()?.isqrt();
    let labelled = labels::load_photos(&options.paths.find_shared("photos/bibs.csv")?)?;
    let frames = crowd::compose(&labelled, &options.paths.find_shared("photos/files")?, side, CROWD_SEED)?;
    let scratch = tempfile::tempdir()?;
    let mut labels = Vec::with_capacity(frames.len());
    for (number, frame) in frames.into_iter().enumerate() {
        let file = format!("{number:04}.jpg");
        std::fs::write(scratch.path().join(&file), &frame.crowd.jpeg)?;
        labels.push(LabelledPhoto { file, bibs: frame.crowd.bibs, optional: frame.crowd.optional });
    }
    let files = labels.iter().map(|photo| photo.file.clone()).collect();
    let name = format!("crowds of {photos} labelled photos in frames of 2048 x 1536");
    Ok(Material { name, folder: scratch.path().to_owned(), files, labels, _scratch: Some(scratch) })
}

/// Starts a fresh service, uploads the photos, then measures their processing.
fn measure_service(options: &CpuOptions, folder: &Path, files: &[String]) -> anyhow::Result<ServiceRun> {
    let service = Service::start(&options.paths, &service_setup(options))?;
    let client = service.client();
    let at_start = process::process_tree_cpu(service.pid())?;
    let ready_bytes = process::read_memory(service.pid())?.resident;
    let album = UploadedAlbum::upload(client, None, folder, files)?;

    let uploaded = process::process_tree_cpu(service.pid())?;
    let threads_before = process::thread_cpu_by_name(service.pid())?;
    let clock = Instant::now();
    album.confirm_all(client)?;
    let progress = album.wait_until_idle(client)?;
    let wall = clock.elapsed();
    let done = process::process_tree_cpu(service.pid())?;
    anyhow::ensure!(progress.failed == 0, "{} photos failed:\n{}", progress.failed, service.log_tail());

    let mut threads = process::thread_cpu_by_name(service.pid())?;
    for (name, time) in &mut threads {
        *time = time.saturating_sub(threads_before.get(name).copied().unwrap_or_default());
    }
    let peak_bytes = process::read_memory(service.pid())?.peak;
    let stages =
        sum_metric_by_label(&service.read_metrics()?, "photofinish_stage_cpu_seconds_total", "stage");
    let charged = read_charged(client, &album.id)?;
    let (mut faces_indexed, mut seen) = (0, BTreeMap::new());
    for photo in &album.photos {
        let detail = client.get_photo(&album.id, &photo.id)?;
        faces_indexed += detail.faces.iter().filter(|face| face.indexed).count();
        let bibs = detail.texts.into_iter().filter(|text| text.indexed).map(|text| text.text).collect();
        seen.insert(photo.file.clone(), PhotoContents { faces: detail.faces.len(), bibs });
    }
    Ok(ServiceRun {
        cpu: done - uploaded,
        upload_cpu: uploaded - at_start,
        wall,
        ready_bytes,
        peak_bytes,
        faces_indexed,
        contents: seen,
        stages,
        charged,
        threads,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_without_labels_and_labels_without_photos_are_refused() {
        let labels: Vec<LabelledPhoto> = ["0001.jpg", "0002.jpg"]
            .map(|file| LabelledPhoto { file: file.into(), bibs: BTreeSet::new(), optional: BTreeSet::new() })
            .into();
        let check = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            check_labels(Path::new("photos"), &files, &labels)
        };
        check(&["0001.jpg", "0002.jpg"]).unwrap();
        let left_over = check(&["0001.jpg", "0002.jpg", "0003.jpg"]).unwrap_err().to_string();
        assert!(left_over.contains("0003.jpg") && left_over.contains("make-24mp"), "{left_over}");
        assert!(check(&["0001.jpg"]).unwrap_err().to_string().contains("0002.jpg"));
    }

    #[test]
    fn the_size_of_photos_is_that_of_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.jpg", "b.jpg", "c.jpg"].map(str::to_owned);
        for (file, side) in files.iter().zip([1200, 1005, 100]) {
            image::RgbImage::new(1000, side).save(folder.path().join(file)).unwrap();
        }
        assert_eq!(median_megapixels(folder.path(), &files).unwrap(), 1.0);
        std::fs::write(folder.path().join("a.jpg"), "").unwrap();
        assert!(median_megapixels(folder.path(), &files).is_err());
    }
}
