//! Load test: several clients upload many small photos into one album while others search. Measures latencies and the growth
//! of memory; with fake networks for the service without inference, with the real ones for everything.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_client::{Client, PhotoFile};
use photofinish_tests::harness::test_photo::TestPhoto;

use crate::paths::InputPaths;
use crate::photos::enlarge;
use crate::photos::labels;
use crate::process;
use crate::report::goals::Goal;
use crate::report::statistics::{median, percentile, to_milliseconds};
use crate::report::{OutputOptions, Report, Table};
use crate::service::{Service, Setup};

/// Distinct photos; the clients upload them repeatedly.
const DISTINCT_PHOTOS: usize = 200;

/// Pause between two searches of one thread, as a person or a page makes.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two samples of memory and progress.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// The run fails when no photo becomes ready or failed for so long.
const STALL_LIMIT: Duration = Duration::from_secs(120);

/// Largest growth of memory over half of the photos: embeddings and caches grow a little, a queue in memory would grow a
/// lot.
const MAX_GROWTH_MB: f64 = 40.0;

/// Options of the load test.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadOptions {
    /// Photos; 5000 marked ones, or 600 real ones, by default.
    #[arg(long)]
    pub photos: Option<usize>,
    /// Concurrent clients that upload and confirm.
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// The real networks on small versions of the labelled race photos.
    #[arg(long)]
    pub real: bool,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// The photos to upload and the texts and selfie to search for.
struct TestPhotos {
    jpegs: Vec<Vec<u8>>,
    bibs: Vec<String>,
    probe: Vec<u8>,
}

/// One sample of the service.
struct MemorySample {
    done: u64,
    resident_bytes: u64,
}

/// Measurements of a run.
struct LoadFindings {
    confirms: Vec<Duration>,
    texts: Vec<Duration>,
    faces: Vec<Duration>,
    samples: Vec<MemorySample>,
    confirmed_in: Duration,
    all_in: Duration,
    failed: u64,
    peak_bytes: u64,
}

/// Runs the load test.
///
/// # Errors
/// When the service or the photos are not available, or a call fails.
pub fn run(options: &LoadOptions) -> anyhow::Result<Report> {
    let count = options.photos.unwrap_or(if options.real { 600 } else { 5000 });
    let photos = if options.real { shrink_race_photos(&options.paths)? } else { draw_marked_photos() };
    let setup = Setup { fake_models: !options.real, ..Setup::default() };
    let service = Service::start(&options.paths, &setup)?;
    let findings = run_load(&service, &photos, count, options.clients)?;
    Ok(build_report(options, &findings, count))
}

/// Draws photos with painted marks that the fake networks read.
fn draw_marked_photos() -> TestPhotos {
    let person = |number: usize| (number % 100) as u16 + 1;
    let bib = |number: usize| (1000 + number * 37).to_string();
    let jpeg = |number: usize| {
        TestPhoto::new(640, 480)
            .with_face(person(number), [100, 60, 96])
            .with_bib(&bib(number), [300, 300])
            .to_jpeg()
    };
    TestPhotos {
        jpegs: (0..DISTINCT_PHOTOS).map(jpeg).collect(),
        bibs: (0..DISTINCT_PHOTOS).map(bib).collect(),
        probe: TestPhoto::selfie(person(7)).to_jpeg(),
    }
}

/// Shrinks the labelled race photos to a long side of at most 640 pixels.
fn shrink_race_photos(paths: &InputPaths) -> anyhow::Result<TestPhotos> {
    let labels = labels::load_photos(&paths.find_shared("photos/bibs.csv")?)?;
    let folder = paths.find_shared("photos/files")?;
    let portraits = labels::load_portraits(&paths.find_shared("photos/faces.csv")?)?;
    let portrait = portraits.first().context("no portraits")?;
    Ok(TestPhotos {
        jpegs: labels
            .iter()
            .map(|photo| shrink_photo(&folder.join(&photo.file)))
            .collect::<anyhow::Result<_>>()?,
        bibs: labels.iter().flat_map(|photo| photo.bibs.iter().cloned()).collect(),
        probe: std::fs::read(folder.join(&portrait.file))?,
    })
}

fn shrink_photo(path: &Path) -> anyhow::Result<Vec<u8>> {
    let photo = enlarge::load_picture(path)?;
    let scale = (640.0 / f64::from(photo.width().max(photo.height()))).min(1.0);
    let side = |length: u32| (f64::from(length) * scale).round().max(1.0) as u32;
    let photo = enlarge::resample(&photo, side(photo.width()), side(photo.height()))?;
    let mut bytes = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 88).encode_image(&photo)?;
    Ok(bytes)
}

fn run_load(
    service: &Service,
    photos: &TestPhotos,
    count: usize,
    clients: usize,
) -> anyhow::Result<LoadFindings> {
    let client = service.client();
    let album = client.create_album("load", None)?.id;
    let next = AtomicUsize::new(0);
    let is_finished = AtomicBool::new(false);
    let samples = Mutex::new(Vec::new());
    let start = Instant::now();
    std::thread::scope(|scope| {
        let confirmers: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| upload_and_confirm(client, &album, photos, &next, count)))
            .collect();
        let texts = scope.spawn(|| search_texts(client, &album, photos, &is_finished));
        let faces = scope.spawn(|| search_faces(client, &album, photos, &is_finished));
        let sampler = scope.spawn(|| sample_memory(service, &album, &samples, &is_finished));
        let sent = (|| -> anyhow::Result<_> {
            let mut confirms = Vec::new();
            for confirmer in confirmers {
                confirms.extend(confirmer.join().expect("no confirmer panics")?);
            }
            let confirmed_in = start.elapsed();
            let failed = client.wait_until_idle(&album, SAMPLE_INTERVAL, STALL_LIMIT, |_| ())?.failed;
            Ok((confirms, confirmed_in, failed))
        })();
        is_finished.store(true, Ordering::Relaxed);
        let texts = texts.join().expect("no searcher panics");
        let faces = faces.join().expect("no searcher panics");
        sampler.join().expect("the sampler does not panic")?;
        let (confirms, confirmed_in, failed): (Vec<Duration>, Duration, u64) = sent?;
        Ok(LoadFindings {
            confirms,
            texts: texts?,
            faces: faces?,
            samples: std::mem::take(&mut samples.lock().expect("the sampler has ended")),
            confirmed_in,
            all_in: start.elapsed(),
            failed,
            peak_bytes: process::read_memory(service.pid())?.peak,
        })
    })
}

/// Uploads and confirms photos until `count` numbers are used up; returns the duration of each confirmation.
fn upload_and_confirm(
    client: &Client,
    album: &str,
    photos: &TestPhotos,
    next: &AtomicUsize,
    count: usize,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return Ok(times);
        }
        let file = PhotoFile { filename: format!("{number:05}.jpg"), content_type: "image/jpeg".to_owned() };
        let ticket = client.sign_photo(album, &file)?;
        let jpeg = &photos.jpegs[number % photos.jpegs.len()];
        client.upload_bytes(&ticket.upload_url, &file.content_type, jpeg)?;
        let start = Instant::now();
        client.confirm_photo(album, &ticket.photo_id)?;
        times.push(start.elapsed());
    }
}

fn search_texts(
    client: &Client,
    album: &str,
    photos: &TestPhotos,
    is_finished: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for bib in photos.bibs.iter().cycle() {
        if is_finished.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        client.search_text(album, bib, false)?;
        times.push(start.elapsed());
        std::thread::sleep(SEARCH_PAUSE);
    }
    Ok(times)
}

/// Searches by face repeatedly. The first search, which embeds the selfie, is not counted.
fn search_faces(
    client: &Client,
    album: &str,
    photos: &TestPhotos,
    is_finished: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let image = client.upload_selfie(album, "image/jpeg", &photos.probe)?;
    client.search_face(album, &image)?;
    let mut times = Vec::new();
    while !is_finished.load(Ordering::Relaxed) {
        let start = Instant::now();
        client.search_face(album, &image)?;
        times.push(start.elapsed());
        std::thread::sleep(SEARCH_PAUSE);
    }
    Ok(times)
}

fn sample_memory(
    service: &Service,
    album: &str,
    samples: &Mutex<Vec<MemorySample>>,
    is_finished: &AtomicBool,
) -> anyhow::Result<()> {
    while !is_finished.load(Ordering::Relaxed) {
        let progress = service.client().album_progress(album)?;
        let resident = process::read_memory(service.pid())?.resident;
        let sample = MemorySample { done: progress.ready + progress.failed, resident_bytes: resident };
        samples.lock().expect("only this thread writes").push(sample);
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    Ok(())
}

fn build_report(options: &LoadOptions, findings: &LoadFindings, count: usize) -> Report {
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
        let percentile_ms = |fraction| format!("{:.1}", to_milliseconds(percentile(times, fraction)));
        table.add_row([
            name.to_owned(),
            times.len().to_string(),
            percentile_ms(0.5),
            percentile_ms(0.99),
            percentile_ms(1.0),
        ]);
    }
    let quarters = split_into_quarters(&findings.samples, count as u64);
    let mut memory = Table::new("Resident memory by photos done, MB", &["of the photos", "median", "most"]);
    for (name, quarter) in ["first quarter", "second", "third", "last"].iter().zip(&quarters) {
        let most = quarter.iter().copied().fold(f64::NAN, f64::max);
        memory.add_row([(*name).to_owned(), format!("{:.0}", median(quarter)), format!("{most:.0}")]);
    }
    let growth_mb = median(&quarters[3]) - median(&quarters[1]);
    report.tables = vec![table, memory];
    report.goals = vec![
        Goal::at_most("memory growth from the second quarter to the last, MB", growth_mb, MAX_GROWTH_MB),
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
            findings.peak_bytes as f64 / 1e6,
            growth_mb * 1e3 / (count as f64 / 2.0)
        ),
        "The clients, the searchers and the service share the machine's cores.".to_owned(),
    ];
    report
}

/// Splits the samples, in MB, by the quarter of the photos that were done.
fn split_into_quarters(samples: &[MemorySample], count: u64) -> [Vec<f64>; 4] {
    let mut quarters: [Vec<f64>; 4] = Default::default();
    for sample in samples {
        let quarter = (sample.done * 4 / count.max(1)).min(3) as usize;
        quarters[quarter].push(sample.resident_bytes as f64 / 1e6);
    }
    quarters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fall_into_the_quarter_of_the_photos_done() {
        let sample = |settled| MemorySample { done: settled, resident_bytes: settled * 1_000_000 };
        let samples = [0, 24, 25, 50, 99, 100].map(sample);
        assert_eq!(
            split_into_quarters(&samples, 100),
            [vec![0.0, 24.0], vec![25.0], vec![50.0], vec![99.0, 100.0]]
        );
    }
}
