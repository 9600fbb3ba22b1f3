//! CPU per photo and per stage, and peak memory, on a folder of camera-size photos. Photofinish and the peer, plain and
//! tuned, run alternately in one measurement, on the same photos with the same number of threads.
//!
//! Photofinish's CPU is the user and system time of its whole process from the first confirmation until the album is idle:
//! reading the photos from storage, all stages, writing previews, thumbnails and the database, and handling the
//! confirmations and progress requests. Receiving the uploads is measured separately; the peer reads files.

mod figures;
pub(crate) mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cpu::peer::{Peer, PeerMode, PeerRun};
use crate::paths::InputPaths;
use crate::photos::enlarge;
use crate::photos::labels;
use crate::process;
use crate::prometheus::sum_metric_by_label;
use crate::report::{OutputOptions, Report};
use crate::service::album::{UploadedAlbum, list_jpegs};
use crate::service::{Service, Setup};

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct CpuOptions {
    /// Camera-size photos with `truth.csv` beside them; made by `make-24mp` when absent.
    #[arg(long, value_name = "DIR")]
    pub photos: Option<PathBuf>,
    /// Decode workers of Photofinish, threads of the peer.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Runs of each of the three.
    #[arg(long, default_value_t = 2)]
    pub rounds: usize,
    /// Runs Photofinish only.
    #[arg(long)]
    pub alone: bool,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
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
}

/// Runs the measurement.
///
/// # Errors
/// When the service, the peer or the photos are not available.
pub fn run(options: &CpuOptions) -> anyhow::Result<Report> {
    let folder = prepare_photos(options)?;
    let files = list_jpegs(&folder)?;
    let labels = labels::load_photos(&folder.join("truth.csv"))?;
    let peer = if options.alone { None } else { Some(Peer::prepare(&options.paths)?) };
    let mut measurements = Measurements {
        ours: Vec::new(),
        peers: BTreeMap::new(),
        quarter_photo_count: files.len().div_ceil(4),
        quarter_run: measure_service(options, &folder, &files[..files.len().div_ceil(4)])?,
    };
    for round in 1..=options.rounds.max(1) {
        println!("round {round}: photofinish");
        measurements.ours.push(measure_service(options, &folder, &files)?);
        for mode in [PeerMode::Plain, PeerMode::Tuned] {
            let Some(peer) = &peer else { continue };
            println!("round {round}: {mode}");
            let run = peer.run(mode, &folder, options.threads)?;
            anyhow::ensure!(
                run.photos == files.len(),
                "the peer read {} of {} photos",
                run.photos,
                files.len()
            );
            measurements.peers.entry(mode).or_default().push(run);
        }
    }
    Ok(figures::build_report(options, &measurements, &labels, files.len()))
}

fn prepare_photos(options: &CpuOptions) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &options.photos {
        return Ok(folder.clone());
    }
    let make = enlarge::EnlargeOptions::with_defaults(options.paths.clone());
    if !make.output_dir().join("truth.csv").exists() {
        enlarge::run(&make)?;
    }
    Ok(make.output_dir())
}

/// Starts a fresh service, uploads the photos, then measures their processing.
fn measure_service(options: &CpuOptions, folder: &Path, files: &[String]) -> anyhow::Result<ServiceRun> {
    let setup = Setup { threads: Some(options.threads), ..Setup::default() };
    let service = Service::start(&options.paths, &setup)?;
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
        threads,
    })
}
