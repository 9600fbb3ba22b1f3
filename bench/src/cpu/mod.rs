//! CPU per photo and per stage, and peak memory, on a folder of camera-size photos: Photofinish beside the peer, plain
//! and tuned, taking turns in one run, on the same photos with the same number of threads.
//!
//! What counts as Photofinish's CPU is the user and system time of its whole process from the first confirmation until
//! the album is idle: reading the photos back from storage, all stages, writing previews, thumbnails and rows, and
//! answering the confirmations and the progress calls. Receiving the uploads is measured apart; the peer reads files.

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

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct CpuOptions {
    /// Camera-size photos with `truth.csv` beside them; made by `make-24mp` when absent.
    #[arg(long, value_name = "DIR")]
    pub photos: Option<PathBuf>,
    /// Decode workers of Photofinish, threads of the peer.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// How often each of the three takes its turn.
    #[arg(long, default_value_t = 2)]
    pub rounds: usize,
    /// Leaves the peer out.
    #[arg(long)]
    pub alone: bool,
    /// Where things are.
    #[command(flatten)]
    pub places: InputPaths,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// One turn of Photofinish.
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

/// What was seen in a photo.
#[derive(Clone, Default)]
struct PhotoContents {
    faces: usize,
    bibs: BTreeSet<String>,
}

/// All turns of all three.
struct Measurements {
    ours: Vec<ServiceRun>,
    peers: BTreeMap<PeerMode, Vec<PeerRun>>,
    quarter_run: ServiceRun,
    quarter_photo_count: usize,
}

/// Measures.
///
/// # Errors
/// When the service, the peer or the photos cannot be had.
pub fn run(options: &CpuOptions) -> anyhow::Result<Report> {
    let folder = prepare_photos(options)?;
    let files = list_jpegs(&folder)?;
    let labels = labels::load_photos(&folder.join("truth.csv"))?;
    let peer = if options.alone { None } else { Some(Peer::prepare(&options.places)?) };
    let mut turns = Measurements {
        ours: Vec::new(),
        peers: BTreeMap::new(),
        quarter_photo_count: files.len().div_ceil(4),
        quarter_run: measure_service(options, &folder, &files[..files.len().div_ceil(4)])?,
    };
    for round in 1..=options.rounds.max(1) {
        println!("round {round}: photofinish");
        turns.ours.push(measure_service(options, &folder, &files)?);
        for mode in [PeerMode::Plain, PeerMode::Tuned] {
            let Some(peer) = &peer else { continue };
            println!("round {round}: peer, {mode:?}");
            let run = peer.run(mode, &folder, options.threads)?;
            anyhow::ensure!(
                run.photos == files.len(),
                "the peer read {} of {} photos",
                run.photos,
                files.len()
            );
            turns.peers.entry(mode).or_default().push(run);
        }
    }
    Ok(figures::build_report(options, &turns, &labels, files.len()))
}

fn prepare_photos(options: &CpuOptions) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &options.photos {
        return Ok(folder.clone());
    }
    let make = enlarge::EnlargeOptions::with_defaults(options.places.clone());
    if !make.output_dir().join("truth.csv").exists() {
        enlarge::run(&make)?;
    }
    Ok(make.output_dir())
}

/// A fresh service, the photos uploaded, then confirmed and processed.
fn measure_service(options: &CpuOptions, folder: &Path, files: &[String]) -> anyhow::Result<ServiceRun> {
    let setup = Setup { threads: Some(options.threads), ..Setup::default() };
    let service = Service::start(&options.places, &setup)?;
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
