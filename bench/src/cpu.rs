//! CPU per photo and per stage, and peak memory, on a folder of camera-size photos: Photofinish beside the peer, plain
//! and tuned, taking turns in one run, on the same photos with the same number of threads.
//!
//! What counts as Photofinish's CPU is the user and system time of its whole process from the first confirmation until
//! the album is idle: reading the photos back from storage, all stages, writing previews, thumbnails and rows, and
//! answering the confirmations and the progress calls. Receiving the uploads is measured apart; the peer reads files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::album::{Album, jpegs};
use crate::client::metric_by_label;
use crate::enlarge;
use crate::goals::{Goal, short};
use crate::peer::{Mode, Peer, PeerPhoto, PeerRun};
use crate::places::Places;
use crate::process;
use crate::report::{Output, Report, Table};
use crate::score::{BibScore, as_bib};
use crate::service::{Service, Setup};
use crate::statistics::{median, milliseconds};
use crate::truth::{self, LabelledPhoto};

/// The recogniser's confidence at which a reading is an answer: Photofinish's own (READING, step 15), and the peer's.
const ACCEPT: f64 = 0.9;

/// The least confidence that the peer's reader gives out at all.
const PEER_LEAST: f64 = 0.5;

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
    faces: usize,
    faces_indexed: usize,
    texts: BTreeMap<String, BTreeSet<String>>,
    stages: BTreeMap<String, f64>,
    threads: BTreeMap<String, Duration>,
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
    Ok(report(options, &turns, &labels, files.len()))
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
    let (mut faces, mut faces_indexed, mut texts) = (0, 0, BTreeMap::new());
    for photo in &album.photos {
        let seen = client.photo(&album.id, &photo.id)?;
        faces += seen.faces.len();
        faces_indexed += seen.faces.iter().filter(|face| face.indexed).count();
        let indexed = seen.texts.into_iter().filter(|text| text.indexed).map(|text| text.text).collect();
        texts.insert(photo.file.clone(), indexed);
    }
    Ok(Turn {
        cpu: done - uploaded,
        cpu_of_uploads: uploaded - at_start,
        wall,
        ready_bytes,
        peak_bytes,
        faces,
        faces_indexed,
        texts,
        stages,
        threads,
    })
}

fn report(options: &Options, turns: &Turns, labels: &[LabelledPhoto], photos: usize) -> Report {
    let mut report = Report::new("cpu", "CPU and memory on 24 megapixel photos, beside the peer");
    if let Ok(runtime) = options.places.runtime() {
        report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    if !options.alone {
        report.versions.extend(Peer::versions());
    }
    let ours = Summary::of_ours(turns, labels, photos);
    let peers: Vec<(Mode, Summary)> =
        turns.peers.iter().map(|(&mode, runs)| (mode, Summary::of_peer(mode, runs, labels))).collect();
    report.tables.push(summary_table(&ours, &peers, turns));
    report.tables.push(stage_table(turns, photos));
    report.tables.push(thread_table(turns, photos));
    report.goals = goals(&ours, &peers, turns);
    report.notes = notes(options, turns, photos);
    report
}

/// What the first table says of one of the three.
struct Summary {
    name: String,
    cpu_ms: Vec<f64>,
    photos_per_s: f64,
    peak_mb: f64,
    faces: usize,
    bibs: BibScore,
    /// With every reading that the peer's reader gives out.
    bibs_generous: Option<BibScore>,
}

impl Summary {
    fn of_ours(turns: &Turns, labels: &[LabelledPhoto], photos: usize) -> Self {
        let per_photo = |time: Duration| milliseconds(time) / photos as f64;
        let rate: Vec<f64> = turns.ours.iter().map(|turn| photos as f64 / turn.wall.as_secs_f64()).collect();
        let peak = turns.ours.iter().map(|turn| turn.peak_bytes).max().unwrap_or_default();
        Self {
            name: "Photofinish".to_owned(),
            cpu_ms: turns.ours.iter().map(|turn| per_photo(turn.cpu)).collect(),
            photos_per_s: median(&rate),
            peak_mb: peak as f64 / 1e6,
            faces: turns.ours[0].faces,
            bibs: score(labels, |file| turns.ours[0].texts.get(file).cloned().unwrap_or_default()),
            bibs_generous: None,
        }
    }

    fn of_peer(mode: Mode, runs: &[PeerRun], labels: &[LabelledPhoto]) -> Self {
        let seen = &runs[0].seen;
        let rates: Vec<f64> = runs.iter().map(|run| run.photos_per_s).collect();
        let at_least =
            |least| score(labels, |file| seen.get(file).map(|p| bibs_of(p, least)).unwrap_or_default());
        Self {
            name: format!("peer, {}", if mode == Mode::Plain { "plain" } else { "tuned" }),
            cpu_ms: runs.iter().map(|run| run.cpu_ms_per_photo).collect(),
            photos_per_s: median(&rates),
            // The peer counts in units of 1,048,576.
            peak_mb: runs.iter().map(|run| run.peak_rss_mb * 1.048_576).fold(0.0, f64::max),
            faces: runs[0].faces,
            bibs: at_least(ACCEPT),
            bibs_generous: Some(at_least(PEER_LEAST)),
        }
    }
}

fn bibs_of(photo: &PeerPhoto, least: f64) -> BTreeSet<String> {
    photo
        .texts
        .iter()
        .filter(|(_, confidence)| *confidence >= least)
        .filter_map(|(text, _)| as_bib(text))
        .collect()
}

fn score(labels: &[LabelledPhoto], accepted: impl Fn(&str) -> BTreeSet<String>) -> BibScore {
    let mut score = BibScore::default();
    for photo in labels {
        score.add(&accepted(&photo.file), &photo.bibs, &photo.optional);
    }
    score
}

fn summary_table(ours: &Summary, peers: &[(Mode, Summary)], turns: &Turns) -> Table {
    let columns = [
        "",
        "CPU ms/photo (each turn)",
        "median",
        "times ours",
        "photos/s",
        "peak MB",
        "faces",
        "bibs",
        "recall",
        "unlabelled",
        "recall at >= .5",
    ];
    let mut table = Table::new("", &columns);
    let base = median(&ours.cpu_ms);
    for summary in [ours].into_iter().chain(peers.iter().map(|(_, summary)| summary)) {
        let each: Vec<String> = summary.cpu_ms.iter().map(|ms| format!("{ms:.0}")).collect();
        let found = format!("{}/{}", summary.bibs.right, summary.bibs.right + summary.bibs.missed);
        table.row([
            summary.name.clone(),
            each.join(", "),
            short(median(&summary.cpu_ms)),
            format!("{:.2}", median(&summary.cpu_ms) / base),
            format!("{:.2}", summary.photos_per_s),
            format!("{:.0}", summary.peak_mb),
            summary.faces.to_string(),
            found,
            format!("{:.3}", summary.bibs.recall()),
            summary.bibs.unlabelled.to_string(),
            summary.bibs_generous.map_or_else(|| "-".to_owned(), |bibs| format!("{:.3}", bibs.recall())),
        ]);
    }
    let megabytes = |turn: &Turn| turn.peak_bytes as f64 / 1e6;
    table.caption = format!(
        "Peak of Photofinish with {} photos in the queue: {:.0} MB, with all of them {:.0} MB; ready and idle it takes \
         {:.0} MB.",
        turns.few_count,
        megabytes(&turns.few),
        ours.peak_mb,
        turns.few.ready_bytes as f64 / 1e6
    );
    table
}

/// CPU ms a photo by stage; the names of the two sides differ and are kept.
fn stage_table(turns: &Turns, photos: usize) -> Table {
    let mut table = Table::new("CPU ms a photo by stage (medians)", &["who", "stages"]);
    let stages = turns.ours.iter().flat_map(|turn| turn.stages.keys()).collect::<BTreeSet<_>>();
    let of_stage = |stage: &String| {
        let turns = turns.ours.iter().map(|turn| turn.stages.get(stage).copied().unwrap_or(0.0));
        median(&turns.map(|seconds| seconds * 1e3 / photos as f64).collect::<Vec<_>>())
    };
    let ours = stages.into_iter().map(|stage| format!("{stage} {:.1}", of_stage(stage)));
    table.row(["Photofinish".to_owned(), ours.collect::<Vec<_>>().join(", ")]);
    for (mode, runs) in &turns.peers {
        let of_stage = |stage: &String| {
            median(
                &runs.iter().map(|run| run.stages_ms.get(stage).copied().unwrap_or(0.0)).collect::<Vec<_>>(),
            )
        };
        let stages = runs[0].stages_ms.keys().map(|stage| format!("{stage} {:.1}", of_stage(stage)));
        table.row([format!("peer, {mode:?}").to_lowercase(), stages.collect::<Vec<_>>().join(", ")]);
    }
    table
}

/// CPU ms a photo of Photofinish's threads by name, the kernel's count: a check on the stages' own.
fn thread_table(turns: &Turns, photos: usize) -> Table {
    let mut table = Table::new(
        "CPU ms a photo of Photofinish's threads by name (kernel's count, last turn)",
        &["thread", "ms"],
    );
    let Some(last) = turns.ours.last() else {
        return table;
    };
    let mut threads: Vec<_> = last.threads.iter().filter(|(_, time)| !time.is_zero()).collect();
    threads.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    for (name, time) in threads {
        table.row([name.clone(), format!("{:.1}", milliseconds(*time) / photos as f64)]);
    }
    table
}

fn goals(ours: &Summary, peers: &[(Mode, Summary)], turns: &Turns) -> Vec<Goal> {
    let few_mb = turns.few.peak_bytes as f64 / 1e6;
    let mut goals = vec![
        Goal::at_most("peak memory of Photofinish, MB", ours.peak_mb, 800.0),
        Goal::at_most("peak memory, all photos to a quarter of them", ours.peak_mb / few_mb, 1.2),
    ];
    for (mode, peer) in peers {
        let ratio = median(&peer.cpu_ms) / median(&ours.cpu_ms);
        let (name, target) = if *mode == Mode::Plain { ("plain", 7.0) } else { ("tuned", 3.0) };
        goals.push(Goal::at_least(&format!("CPU of the {name} peer to ours"), ratio, target));
        let what = format!("bib recall, the {name} peer's as the target");
        goals.push(Goal::at_least(&what, ours.bibs.recall(), peer.bibs.recall()));
        if *mode == Mode::Tuned {
            goals.push(Goal::at_least(
                "faces, the tuned peer's as the target",
                ours.faces as f64,
                peer.faces as f64,
            ));
        }
    }
    goals
}

fn notes(options: &Options, turns: &Turns, photos: usize) -> Vec<String> {
    let uploads: Vec<f64> =
        turns.ours.iter().map(|turn| milliseconds(turn.cpu_of_uploads) / photos as f64).collect();
    let stages: Vec<f64> =
        turns.ours.iter().map(|turn| turn.stages.values().sum::<f64>() * 1e3 / photos as f64).collect();
    vec![
        format!(
            "{photos} photos, {} turns each, {} threads; Photofinish is a fresh service with an empty album each turn.",
            turns.ours.len(),
            options.threads
        ),
        "CPU of Photofinish: user and system time of the whole process between the first confirmation and idle; all \
         photos were uploaded before. The peer's: of its process after its models are loaded."
            .to_owned(),
        format!("Of our faces {} are good enough to be searched.", turns.ours[0].faces_indexed),
        format!("Receiving the uploads cost the service {:.1} ms a photo more.", median(&uploads)),
        format!("The stages' own meters add up to {:.1} ms a photo.", median(&stages)),
        "Bibs: sets a photo, leading zeros ignored; accepted at confidence .9 and the default pattern on both sides. \
         The last column takes all that the peer's reader gives out."
            .to_owned(),
    ]
}
