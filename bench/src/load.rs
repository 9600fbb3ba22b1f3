//! Many small photos into one album, from several partners' programs at once, while others search: latencies, and
//! whether memory stays flat. With the fake networks the machinery around them is measured; with the real ones, all.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_tests::harness::pictures::Picture;
use serde_json::Value;

use crate::client::Client;
use crate::enlarge;
use crate::goals::Goal;
use crate::places::Places;
use crate::process;
use crate::report::{Output, Report, Table};
use crate::service::{Service, Setup};
use crate::statistics::{median, milliseconds, percentile};
use crate::truth;

/// Different photos; the album's photos are these, over and over.
const KINDS: usize = 200;

/// Pause between two searches of a searcher: a person or a page asks, not a loop.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two looks at memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Memory is flat when half of the photos add less than this: rows of vectors and caches grow a little, a queue held in
/// memory would grow by a lot.
const FLAT_MB: f64 = 40.0;

/// How hard to load.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Photos; 5000 marked ones, or 600 real ones, by default.
    #[arg(long)]
    pub photos: Option<usize>,
    /// Partners' programs that upload and confirm at once.
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// The real networks on small versions of the labelled race photos.
    #[arg(long)]
    pub real: bool,
    /// Where things are.
    #[command(flatten)]
    pub places: Places,
    /// Where the report goes.
    #[command(flatten)]
    pub output: Output,
}

/// What is sent, and what is looked for.
struct Material {
    jpegs: Vec<Vec<u8>>,
    bibs: Vec<String>,
    probe: Vec<u8>,
}

/// One look at the service.
struct Sample {
    settled: u64,
    resident: u64,
}

/// What a run measured.
struct Findings {
    confirms: Vec<Duration>,
    texts: Vec<Duration>,
    faces: Vec<Duration>,
    samples: Vec<Sample>,
    confirmed_in: Duration,
    all_in: Duration,
    failed: u64,
    peak: u64,
}

/// Loads.
///
/// # Errors
/// When the service or the photos cannot be had, or a call fails.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let count = options.photos.unwrap_or(if options.real { 600 } else { 5000 });
    let material = if options.real { real(&options.places)? } else { marked() };
    let setup = Setup { fake_models: !options.real, ..Setup::default() };
    let service = Service::start(&options.places, &setup)?;
    let findings = load(&service, &material, count, options.clients)?;
    Ok(report(options, &findings, count))
}

/// Photos whose faces and bibs are marks that the fake networks read.
fn marked() -> Material {
    let person = |kind: usize| (kind % 100) as u16 + 1;
    let bib = |kind: usize| (1000 + kind * 37).to_string();
    let jpeg = |kind: usize| {
        Picture::new(640, 480).face(person(kind), [100, 60, 96]).bib(&bib(kind), [300, 300]).jpeg()
    };
    Material {
        jpegs: (0..KINDS).map(jpeg).collect(),
        bibs: (0..KINDS).map(bib).collect(),
        probe: Picture::selfie(person(7)).jpeg(),
    }
}

/// The labelled race photos, at most 640 x 480.
fn real(places: &Places) -> anyhow::Result<Material> {
    let labels = truth::photos(&places.shared("photos/bibs.csv")?)?;
    let folder = places.shared("photos/files")?;
    let portraits = truth::portraits(&places.shared("photos/faces.csv")?)?;
    let portrait = portraits.first().context("no portraits")?;
    Ok(Material {
        jpegs: labels.iter().map(|photo| small(&folder.join(&photo.file))).collect::<anyhow::Result<_>>()?,
        bibs: labels.iter().flat_map(|photo| photo.bibs.iter().cloned()).collect(),
        probe: std::fs::read(folder.join(&portrait.file))?,
    })
}

fn small(path: &Path) -> anyhow::Result<Vec<u8>> {
    let photo = enlarge::read(path)?;
    let scale = (640.0 / f64::from(photo.width().max(photo.height()))).min(1.0);
    let side = |length: u32| (f64::from(length) * scale).round().max(1.0) as u32;
    let photo = enlarge::resize(&photo, side(photo.width()), side(photo.height()))?;
    let mut bytes = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 88).encode_image(&photo)?;
    Ok(bytes)
}

fn load(service: &Service, material: &Material, count: usize, clients: usize) -> anyhow::Result<Findings> {
    let client = service.client();
    let album = client.create_album("load", &Value::Null)?;
    let next = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let samples = Mutex::new(Vec::new());
    let clock = Instant::now();
    std::thread::scope(|scope| {
        let confirmers: Vec<_> =
            (0..clients).map(|_| scope.spawn(|| send(client, &album, material, (&next, count)))).collect();
        let texts = scope.spawn(|| search_texts(client, &album, material, &over));
        let faces = scope.spawn(|| search_faces(client, &album, material, &over));
        let sampler = scope.spawn(|| watch(service, &album, &samples, &over));
        let sent = (|| -> anyhow::Result<_> {
            let mut confirms = Vec::new();
            for confirmer in confirmers {
                confirms.extend(confirmer.join().expect("no confirmer panics")?);
            }
            let confirmed_in = clock.elapsed();
            let failed = wait_until_settled(client, &album, count as u64)?;
            Ok((confirms, confirmed_in, failed))
        })();
        over.store(true, Ordering::Relaxed);
        let texts = texts.join().expect("no searcher panics");
        let faces = faces.join().expect("no searcher panics");
        sampler.join().expect("the sampler does not panic")?;
        let (confirms, confirmed_in, failed): (Vec<Duration>, Duration, u64) = sent?;
        Ok(Findings {
            confirms,
            texts: texts?,
            faces: faces?,
            samples: std::mem::take(&mut samples.lock().expect("the sampler has ended")),
            confirmed_in,
            all_in: clock.elapsed(),
            failed,
            peak: process::memory(service.pid())?.peak,
        })
    })
}

/// Uploads and confirms photo after photo; answers how long each confirmation took.
fn send(
    client: &Client,
    album: &str,
    material: &Material,
    (next, count): (&AtomicUsize, usize),
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(times);
        }
        let ticket = client.sign(album, &[format!("{number:05}.jpg")])?.pop().context("no upload ticket")?;
        client.put(&ticket.upload_url, "image/jpeg", &material.jpegs[number % material.jpegs.len()])?;
        let clock = Instant::now();
        client.confirm(album, &ticket.photo_id)?;
        times.push(clock.elapsed());
    }
}

fn search_texts(
    client: &Client,
    album: &str,
    material: &Material,
    over: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for bib in material.bibs.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let clock = Instant::now();
        client.search_text(album, bib, false)?;
        times.push(clock.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(times)
}

/// The first search makes the probe's vector; it is not counted, the searches after it are.
fn search_faces(
    client: &Client,
    album: &str,
    material: &Material,
    over: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let image = client.upload_probe(album, "image/jpeg", &material.probe)?;
    client.search_face(album, &image)?;
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let clock = Instant::now();
        client.search_face(album, &image)?;
        times.push(clock.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(times)
}

fn watch(
    service: &Service,
    album: &str,
    samples: &Mutex<Vec<Sample>>,
    over: &AtomicBool,
) -> anyhow::Result<()> {
    while !over.load(Ordering::Relaxed) {
        let progress = service.client().progress(album)?;
        let resident = process::memory(service.pid())?.resident;
        let sample = Sample { settled: progress.ready + progress.failed, resident };
        samples.lock().expect("only this thread writes").push(sample);
        std::thread::sleep(SAMPLE_EVERY);
    }
    Ok(())
}

/// Waits until all photos are ready or failed; answers how many failed.
fn wait_until_settled(client: &Client, album: &str, count: u64) -> anyhow::Result<u64> {
    let mut last = (0, Instant::now());
    loop {
        let progress = client.progress(album)?;
        let settled = progress.ready + progress.failed;
        if settled == count {
            return Ok(progress.failed);
        }
        if settled != last.0 {
            last = (settled, Instant::now());
        }
        anyhow::ensure!(last.1.elapsed() < Duration::from_secs(120), "nothing gets done: {progress:?}");
        std::thread::sleep(SAMPLE_EVERY);
    }
}

fn report(options: &Options, findings: &Findings, count: usize) -> Report {
    let (section, title) = if options.real {
        ("load-real", format!("Load: {count} small race photos into one album, real networks"))
    } else {
        ("load", format!("Load: {count} small photos into one album, fake networks"))
    };
    let mut report = Report::new(section, &title);
    let mut table = Table::new("Latency while photos come in, ms", &["call", "calls", "p50", "p99", "max"]);
    let calls =
        [("confirm", &findings.confirms), ("text search", &findings.texts), ("face search", &findings.faces)];
    for (name, times) in calls {
        let at = |fraction| format!("{:.1}", milliseconds(percentile(times, fraction)));
        table.row([name.to_owned(), times.len().to_string(), at(0.5), at(0.99), at(1.0)]);
    }
    let quarters = quarters(&findings.samples, count as u64);
    let mut memory = Table::new("Resident memory by photos done, MB", &["of the photos", "median", "most"]);
    for (name, quarter) in ["first quarter", "second", "third", "last"].iter().zip(&quarters) {
        let most = quarter.iter().copied().fold(f64::NAN, f64::max);
        memory.row([(*name).to_owned(), format!("{:.0}", median(quarter)), format!("{most:.0}")]);
    }
    let growth_mb = median(&quarters[3]) - median(&quarters[1]);
    report.tables = vec![table, memory];
    report.goals = vec![
        Goal::at_most("memory growth from the second quarter to the last, MB", growth_mb, FLAT_MB),
        Goal::at_most("photos failed", findings.failed as f64, 0.0),
    ];
    report.notes = vec![
        format!(
            "{count} photos, {} clients; all confirmed after {:.1} s, all done after {:.1} s: {:.1} photos/s.",
            options.clients,
            findings.confirmed_in.as_secs_f64(),
            findings.all_in.as_secs_f64(),
            count as f64 / findings.all_in.as_secs_f64()
        ),
        format!(
            "Peak memory {:.0} MB; half of the photos added {:.1} KB each.",
            findings.peak as f64 / 1e6,
            growth_mb * 1e3 / (count as f64 / 2.0)
        ),
        "The clients, the searchers and the service share the machine's cores.".to_owned(),
    ];
    report
}

/// Resident megabytes by the quarter of the photos that were done.
fn quarters(samples: &[Sample], count: u64) -> [Vec<f64>; 4] {
    let mut quarters: [Vec<f64>; 4] = Default::default();
    for sample in samples {
        let quarter = (sample.settled * 4 / count.max(1)).min(3) as usize;
        quarters[quarter].push(sample.resident as f64 / 1e6);
    }
    quarters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fall_into_the_quarter_of_the_photos_done() {
        let sample = |settled| Sample { settled, resident: settled * 1_000_000 };
        let samples = [0, 24, 25, 50, 99, 100].map(sample);
        assert_eq!(quarters(&samples, 100), [vec![0.0, 24.0], vec![25.0], vec![50.0], vec![99.0, 100.0]]);
    }
}
