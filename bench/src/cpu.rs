//! CPU per photo and per stage, and peak memory, on a folder of camera-size photos: Photofinish beside the peer, plain
//! and tuned, taking turns in one run, on the same photos with the same number of threads.
//!
//! What counts as Photofinish's CPU is the user and system time of its whole process from the first confirmation until
//! the album is idle: reading the photos back from storage, all stages, writing previews, thumbnails and rows, and
//! answering the confirmations and the progress calls. Receiving the uploads is measured apart; the peer reads files.

mod figures;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::album::{Album, jpegs};
use crate::client::metric_by_label;
use crate::enlarge;
use crate::peer::{Mode, Peer, PeerRun};
use crate::places::Places;
use crate::process;
use crate::report::{Output, Report};
use crate::service::{Service, Setup};
use crate::truth;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
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
    pub places: Places,
    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// One turn of Photofinish.
struct Turn {
    cpu: Duration,
    cpu_of_uploads: Duration,
    wall: Duration,
    ready_bytes: u64,
    peak_bytes: u64,
    faces_indexed: usize,
    seen: BTreeMap<String, Seen>,
    stages: BTreeMap<String, f64>,
    threads: BTreeMap<String, Duration>,
}

/// What was seen in a photo.
#[derive(Clone, Default)]
struct Seen {
    faces: usize,
    bibs: BTreeSet<String>,
}

/// All turns of all three.
struct Turns {
    ours: Vec<Turn>,
    peers: BTreeMap<Mode, Vec<PeerRun>>,
    few: Turn,
    few_count: usize,
}

/// Measures.
///
/// # Errors
/// When the service, the peer or the photos cannot be had.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let folder = photos(options)?;
    let files = jpegs(&folder)?;
    let labels = truth::photos(&folder.join("truth.csv"))?;
    let peer = if options.alone { None } else { Some(Peer::prepare(&options.places)?) };
    let mut turns = Turns {
        ours: Vec::new(),
        peers: BTreeMap::new(),
        few_count: files.len().div_ceil(4),
        few: turn(options, &folder, &files[..files.len().div_ceil(4)])?,
    };
    for round in 1..=options.rounds.max(1) {
        println!("round {round}: photofinish");
        turns.ours.push(turn(options, &folder, &files)?);
        for mode in [Mode::Plain, Mode::Tuned] {
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
    Ok(figures::report(options, &turns, &labels, files.len()))
}

fn photos(options: &Options) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &options.photos {
        return Ok(folder.clone());
    }
    let make = enlarge::Options::standard(options.places.clone());
    if !make.folder().join("truth.csv").exists() {
        enlarge::run(&make)?;
    }
    Ok(make.folder())
}

/// A fresh service, the photos uploaded, then confirmed and processed.
fn turn(options: &Options, folder: &Path, files: &[String]) -> anyhow::Result<Turn> {
    let setup = Setup { threads: Some(options.threads), ..Setup::default() };
    let service = Service::start(&options.places, &setup)?;
    let client = service.client();
    let at_start = process::cpu_of_tree(service.pid())?;
    let ready_bytes = process::memory(service.pid())?.resident;
    let album = Album::upload(client, &Value::Null, folder, files)?;

    let uploaded = process::cpu_of_tree(service.pid())?;
    let threads_before = process::cpu_of_threads(service.pid())?;
    let clock = Instant::now();
    album.confirm(client)?;
    let progress = album.wait_until_idle(client)?;
    let wall = clock.elapsed();
    let done = process::cpu_of_tree(service.pid())?;
    anyhow::ensure!(progress.failed == 0, "{} photos failed:\n{}", progress.failed, service.log_tail());

    let mut threads = process::cpu_of_threads(service.pid())?;
    for (name, time) in &mut threads {
        *time = time.saturating_sub(threads_before.get(name).copied().unwrap_or_default());
    }
    let peak_bytes = process::memory(service.pid())?.peak;
    let stages = metric_by_label(&client.metrics()?, "photofinish_stage_cpu_seconds_total", "stage");
    let (mut faces_indexed, mut seen) = (0, BTreeMap::new());
    for photo in &album.photos {
        let detail = client.photo(&album.id, &photo.id)?;
        faces_indexed += detail.faces.iter().filter(|face| face.indexed).count();
        let bibs = detail.texts.into_iter().filter(|text| text.indexed).map(|text| text.text).collect();
        seen.insert(photo.file.clone(), Seen { faces: detail.faces.len(), bibs });
    }
    Ok(Turn {
        cpu: done - uploaded,
        cpu_of_uploads: uploaded - at_start,
        wall,
        ready_bytes,
        peak_bytes,
        faces_indexed,
        seen,
        stages,
        threads,
    })
}
