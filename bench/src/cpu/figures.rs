//! Builds the report of `bench cpu` from the measurements: tables, goals and notes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Cpu, CpuOptions, Material, Measurements, PhotoContents, ServiceRun};
use crate::cpu::peer::{Peer, PeerMode, PeerPhoto, PeerRun};
use crate::photos::labels::LabelledPhoto;
use crate::photos::score::{BibScore, to_bib};
use crate::report::goals::{Goal, format_number};
use crate::report::statistics::{median, to_milliseconds};
use crate::report::{Report, Table};

/// Least confidence of an accepted reading: Photofinish's (`docs/READING.md`, step 16), used for the peer too.
const ACCEPT_CONFIDENCE: f64 = 0.9;

/// Least confidence of any reading that the peer's reader returns.
const PEER_MIN_CONFIDENCE: f64 = 0.5;

/// Builds the report.
pub fn build_report(options: &CpuOptions, measurements: &Measurements, material: &Material) -> Report {
    let (labels, photos) = (&material.labels[..], material.files.len());
    let (mut section, threads) = match options.threads {
        1 => ("cpu on one thread".to_owned(), "1 thread each".to_owned()),
        many => ("cpu".to_owned(), format!("{many} threads each")),
    };
    let mut what = material.name.clone();
    if let Some(composed) = &options.crowds {
        section = format!("{section} in crowds of {composed}");
    }
    if options.cpu == Cpu::Avx512 {
        section += " without bf16";
        what += ", all networks in f32";
    }
    let title = format!("CPU and memory on {what}, beside the peer, {threads}");
    let mut report = Report::new(&section, &title);
    if let Ok(runtime) = options.paths.find_runtime() {
        report.versions.extend(runtime.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    if !options.alone {
        report.versions.extend(Peer::versions());
    }
    let ours = ContenderSummary::from_service(measurements, labels, photos);
    let peers: Vec<(PeerMode, ContenderSummary)> = measurements
        .peers
        .iter()
        .map(|(&mode, runs)| (mode, ContenderSummary::from_peer(mode, runs, labels)))
        .collect();
    report.tables.push(summary_table(&ours, &peers, measurements));
    report.tables.push(stage_table(measurements, photos));
    report.tables.push(thread_table(measurements, photos));
    report.goals = build_goals(options, &ours, &peers, measurements);
    report.notes = build_notes(options, measurements, photos);
    measurements.ledger.report(&mut report, median(&ours.cpu_ms));
    report.details = list_differences(measurements, labels);
    report
}

/// One row of the first table.
struct ContenderSummary {
    name: String,
    cpu_ms: Vec<f64>,
    photos_per_s: f64,
    peak_mb: f64,
    faces: usize,
    bibs: BibScore,
    /// Score with every reading that the peer's reader returns.
    bibs_at_peer_minimum: Option<BibScore>,
}

impl ContenderSummary {
    fn from_service(measurements: &Measurements, labels: &[LabelledPhoto], photos: usize) -> Self {
        let per_photo = |time: Duration| to_milliseconds(time) / photos as f64;
        let rate: Vec<f64> =
            measurements.ours.iter().map(|run| photos as f64 / run.wall.as_secs_f64()).collect();
        let peak = measurements.ours.iter().map(|run| run.peak_bytes).max().unwrap_or_default();
        Self {
            name: "Photofinish".to_owned(),
            cpu_ms: measurements.ours.iter().map(|run| per_photo(run.cpu)).collect(),
            photos_per_s: median(&rate),
            peak_mb: peak as f64 / 1e6,
            faces: measurements.ours[0].contents.values().map(|contents| contents.faces).sum(),
            bibs: score_photos(labels, |file| {
                measurements.ours[0].contents.get(file).map(|seen| seen.bibs.clone()).unwrap_or_default()
            }),
            bibs_at_peer_minimum: None,
        }
    }

    fn from_peer(mode: PeerMode, runs: &[PeerRun], labels: &[LabelledPhoto]) -> Self {
        let seen = &runs[0].seen;
        let rates: Vec<f64> = runs.iter().map(|run| run.photos_per_s).collect();
        let at_least = |least| {
            score_photos(labels, |file| seen.get(file).map(|p| accepted_bibs(p, least)).unwrap_or_default())
        };
        Self {
            name: mode.to_string(),
            cpu_ms: runs.iter().map(|run| run.cpu_ms_per_photo).collect(),
            photos_per_s: median(&rates),
            // The peer reports MiB.
            peak_mb: runs.iter().map(|run| run.peak_rss_mb * 1.048_576).fold(0.0, f64::max),
            faces: runs[0].faces,
            bibs: at_least(ACCEPT_CONFIDENCE),
            bibs_at_peer_minimum: Some(at_least(PEER_MIN_CONFIDENCE)),
        }
    }
}

fn accepted_bibs(photo: &PeerPhoto, least: f64) -> BTreeSet<String> {
    photo
        .texts
        .iter()
        .filter(|(_, confidence)| *confidence >= least)
        .filter_map(|(text, _)| to_bib(text))
        .collect()
}

fn score_photos(labels: &[LabelledPhoto], accepted: impl Fn(&str) -> BTreeSet<String>) -> BibScore {
    let mut score = BibScore::default();
    for photo in labels {
        score.add_photo(&accepted(&photo.file), &photo.bibs, &photo.optional);
    }
    score
}

fn summary_table(
    ours: &ContenderSummary,
    peers: &[(PeerMode, ContenderSummary)],
    measurements: &Measurements,
) -> Table {
    let columns = [
        "",
        "CPU ms/photo (each run)",
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
        table.add_row([
            summary.name.clone(),
            each.join(", "),
            format_number(median(&summary.cpu_ms)),
            format!("{:.2}", median(&summary.cpu_ms) / base),
            format!("{:.2}", summary.photos_per_s),
            format!("{:.0}", summary.peak_mb),
            summary.faces.to_string(),
            found,
            format!("{:.3}", summary.bibs.recall()),
            summary.bibs.unlabelled.to_string(),
            summary
                .bibs_at_peer_minimum
                .map_or_else(|| "-".to_owned(), |bibs| format!("{:.3}", bibs.recall())),
        ]);
    }
    let megabytes = |run: &ServiceRun| run.peak_bytes as f64 / 1e6;
    table.caption = format!(
        "Peak of Photofinish with {} photos in the queue: {:.0} MB, with all of them {:.0} MB; ready and idle it takes \
         {:.0} MB.",
        measurements.quarter_photo_count,
        megabytes(&measurements.quarter_run),
        ours.peak_mb,
        measurements.quarter_run.ready_bytes as f64 / 1e6
    );
    table
}

/// Tabulates CPU ms per photo by stage, with the stage names of each program.
fn stage_table(measurements: &Measurements, photos: usize) -> Table {
    let mut table = Table::new("CPU ms per photo by stage (medians)", &["program", "stages"]);
    let mut add_ours = |name: &str, stages_of: fn(&ServiceRun) -> &BTreeMap<String, f64>| {
        let runs = || measurements.ours.iter().map(stages_of);
        let of_stage = |stage: &String| {
            let seconds = runs().map(|stages| stages.get(stage).copied().unwrap_or(0.0));
            median(&seconds.map(|seconds| seconds * 1e3 / photos as f64).collect::<Vec<_>>())
        };
        let stages = runs().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
        let cells = stages.into_iter().map(|stage| format!("{stage} {:.1}", of_stage(stage)));
        table.add_row([name.to_owned(), cells.collect::<Vec<_>>().join(", ")]);
    };
    add_ours("Photofinish, meters of the stages", |run| &run.stages);
    add_ours("Photofinish, charged to photos", |run| &run.charged);
    for (mode, runs) in &measurements.peers {
        let of_stage = |stage: &String| {
            median(
                &runs.iter().map(|run| run.stages_ms.get(stage).copied().unwrap_or(0.0)).collect::<Vec<_>>(),
            )
        };
        let stages = runs[0].stages_ms.keys().map(|stage| format!("{stage} {:.1}", of_stage(stage)));
        table.add_row([mode.to_string(), stages.collect::<Vec<_>>().join(", ")]);
    }
    table
}

/// Tabulates CPU ms per photo by thread name, as the kernel counts it: a check on the stages' own metrics.
fn thread_table(measurements: &Measurements, photos: usize) -> Table {
    let mut table = Table::new(
        "CPU ms per photo of Photofinish's threads by name (kernel's count, last run)",
        &["thread", "ms"],
    );
    let Some(last) = measurements.ours.last() else {
        return table;
    };
    let mut threads: Vec<_> = last.threads.iter().filter(|(_, time)| !time.is_zero()).collect();
    threads.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    for (name, time) in threads {
        table.add_row([name.clone(), format!("{:.1}", to_milliseconds(*time) / photos as f64)]);
    }
    table
}

fn build_goals(
    options: &CpuOptions,
    ours: &ContenderSummary,
    peers: &[(PeerMode, ContenderSummary)],
    measurements: &Measurements,
) -> Vec<Goal> {
    let quarter_mb = measurements.quarter_run.peak_bytes as f64 / 1e6;
    let mut goals = vec![
        Goal::at_most("peak memory of Photofinish, MB", ours.peak_mb, 600.0),
        Goal::at_most("peak memory, all photos to a quarter of them", ours.peak_mb / quarter_mb, 1.2),
    ];
    for (mode, peer) in peers {
        let ratio = median(&peer.cpu_ms) / median(&ours.cpu_ms);
        let (plain, tuned) = match (options.crowds.is_some(), options.cpu) {
            (true, _) => (10.0, 5.0),
            (false, Cpu::Native) => (16.0, 7.0),
            (false, Cpu::Avx512) => (14.0, 5.5),
        };
        let (name, target) = if *mode == PeerMode::Plain { ("plain", plain) } else { ("tuned", tuned) };
        goals.push(Goal::at_least(&format!("CPU of the {name} peer to ours"), ratio, target));
        let what = format!("bib recall, the {name} peer's as the target");
        goals.push(Goal::at_least(&what, ours.bibs.recall(), peer.bibs.recall()));
        if *mode == PeerMode::Tuned {
            goals.push(Goal::at_least(
                "faces, the tuned peer's as the target",
                ours.faces as f64,
                peer.faces as f64,
            ));
        }
    }
    goals
}

fn build_notes(options: &CpuOptions, measurements: &Measurements, photos: usize) -> Vec<String> {
    let uploads: Vec<f64> =
        measurements.ours.iter().map(|run| to_milliseconds(run.upload_cpu) / photos as f64).collect();
    let stages: Vec<f64> =
        measurements.ours.iter().map(|run| run.stages.values().sum::<f64>() * 1e3 / photos as f64).collect();
    let charged: Vec<f64> = measurements
        .ours
        .iter()
        .map(|run| run.charged.values().sum::<f64>() / run.cpu.as_secs_f64() * 100.0)
        .collect();
    vec![
        format!(
            "{photos} photos, {} runs each, {} threads; Photofinish is a fresh service with an empty album each run.",
            measurements.ours.len(),
            options.threads
        ),
        "CPU of Photofinish: user and system time of the whole process between the first confirmation and idle; all \
         photos were uploaded before. The peer's: of its process after its models are loaded."
            .to_owned(),
        format!("{} of our faces are good enough to be searched.", measurements.ours[0].faces_indexed),
        format!("Receiving the uploads cost the service {:.1} ms per photo more.", median(&uploads)),
        format!("The stages' own metrics add up to {:.1} ms per photo.", median(&stages)),
        format!(
            "Photos were charged {} % of the process's CPU (`usage/costs`); the rest is the API's, the database's \
             and the runtime's.",
            charged.iter().map(|share| format!("{share:.1}")).collect::<Vec<_>>().join(", ")
        ),
        "Bibs: sets per photo, leading zeros ignored; accepted at confidence .9 and the default pattern on both sides. \
         The last column accepts every reading of the peer."
            .to_owned(),
    ]
}

/// Lists the photos with different results of the three.
fn list_differences(measurements: &Measurements, labels: &[LabelledPhoto]) -> Vec<String> {
    let mut lines = Vec::new();
    for photo in labels {
        let Some(ours) = measurements.ours[0].contents.get(&photo.file) else { continue };
        let mut sides = vec![("ours".to_owned(), ours.clone())];
        for (mode, runs) in &measurements.peers {
            let Some(seen) = runs[0].seen.get(&photo.file) else { continue };
            let seen = PhotoContents { faces: seen.faces, bibs: accepted_bibs(seen, ACCEPT_CONFIDENCE) };
            sides.push((mode.to_string(), seen));
        }
        let is_equal =
            |(_, seen): &(String, PhotoContents)| seen.faces == ours.faces && seen.bibs == ours.bibs;
        if !sides.iter().all(is_equal) || !photo.bibs.is_subset(&ours.bibs) {
            let results =
                sides.iter().map(|(name, seen)| format!("{name} {} faces {:?}", seen.faces, seen.bibs));
            let results = results.collect::<Vec<_>>().join(", ");
            lines.push(format!("{}: labels {:?}, {results}", photo.file, photo.bibs));
        }
    }
    lines
}
