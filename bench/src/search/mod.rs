//! The kernel of face search over vectors in memory: how long a search takes with one probe and with 32 in one pass, beside
//! what the memory of this machine gives and beside faiss, the usual library, on the same vectors and the same number of
//! threads. Every answer is compared with that of comparing all vectors in `f32`.
//!
//! Vectors are in random directions, the hardest case: nothing separates the answers from the rest.

mod contender;
mod faiss;
mod memory;
mod ours;

use photofinish_kernels::quantised::Scanner;

use self::contender::{DIMENSION, HITS, MANY_PROBES, SearchTimes};
use self::faiss::Faiss;
use self::ours::QuantisedAlbum;
use crate::report::goals::Goal;
use crate::report::statistics::median;
use crate::report::{OutputOptions, Report, Table};

/// Least part of the measured bandwidth that a search with one probe uses.
const TARGET_BANDWIDTH: f64 = 0.75;

/// How many times cheaper each of [`MANY_PROBES`] probes of one pass is than a pass of its own.
const TARGET_SHARING: f64 = 5.0;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct SearchOptions {
    /// Vectors to search.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// How often all contenders take turns.
    #[arg(long, default_value_t = 2)]
    pub rounds: usize,
    /// Leaves out faiss.
    #[arg(long)]
    pub alone: bool,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// A contender, the threads it may use, and its times.
type Line = (String, usize, SearchTimes);

/// Runs the measurement.
///
/// # Errors
/// When faiss cannot be installed or a program fails.
pub fn run(options: &SearchOptions) -> anyhow::Result<Report> {
    let vectors = make_vectors(options.rows + MANY_PROBES);
    let (probes, rows) = vectors.split_at(MANY_PROBES * DIMENSION);
    let probes: Vec<&[f32]> = probes.chunks_exact(DIMENSION).collect();
    let expected = ours::search_in_full(&probes, rows);
    let album = QuantisedAlbum::new(rows);
    let faiss = if options.alone { None } else { Some(Faiss::prepare(rows, &probes)?) };
    let cores = std::thread::available_parallelism()?.get();
    let thread_counts = if cores > 1 { vec![1, cores] } else { vec![1] };
    let mut lines: Vec<Line> = Vec::new();
    let mut bandwidths = vec![Vec::new(); thread_counts.len()];
    for _ in 0..options.rounds.max(1) {
        for (&threads, bandwidth) in thread_counts.iter().zip(&mut bandwidths) {
            bandwidth.push(memory::measure_bandwidth(album.vector_bytes(), threads));
            for scanner in Scanner::list_supported() {
                let name = format!("ours, {}", scanner.name());
                record(&mut lines, &name, threads, album.measure(scanner, threads, &probes, &expected));
            }
            if let Some(faiss) = &faiss {
                for (name, times) in faiss.measure(threads, &expected)? {
                    record(&mut lines, &name, threads, times);
                }
            }
        }
    }
    let bandwidths: Vec<(usize, f64)> =
        thread_counts.into_iter().zip(bandwidths.iter().map(|each| median(each))).collect();
    Ok(make_report(options, &album, &lines, &bandwidths))
}

fn record(lines: &mut Vec<Line>, name: &str, threads: usize, times: SearchTimes) {
    match lines.iter_mut().find(|line| line.0 == name && line.1 == threads) {
        Some((_, _, known)) => {
            known.one.extend(times.one);
            known.each_of_many.extend(times.each_of_many);
            known.right += times.right;
            known.checked += times.checked;
            known.recall = known.recall.min(times.recall);
        }
        None => lines.push((name.to_owned(), threads, times)),
    }
}

fn make_report(
    options: &SearchOptions,
    album: &QuantisedAlbum<'_>,
    lines: &[Line],
    bandwidths: &[(usize, f64)],
) -> Report {
    let title = format!("Face search in memory, {} vectors of {DIMENSION}", options.rows);
    let mut report = Report::new("search", &title);
    if !options.alone {
        report.versions.push(faiss::PACKAGE.replace("==", " "));
    }
    let mut table = Table::new(
        &format!("The best {HITS}, medians"),
        &[
            "search",
            "threads",
            "ms, one probe",
            "GB/s",
            "of read bandwidth",
            "ms each of 32 probes",
            "exact answers",
            "recall",
        ],
    );
    for (name, threads, times) in lines {
        let one = median(&times.one);
        let read = bandwidths.iter().find(|(count, _)| count == threads).map_or(f64::NAN, |(_, read)| *read);
        let rate = album.vector_bytes() as f64 / one / 1e6;
        let is_ours = name.starts_with("ours");
        let of_ours = |text: String| if is_ours { text } else { "-".to_owned() };
        table.add_row([
            name.clone(),
            threads.to_string(),
            format!("{one:.1}"),
            of_ours(format!("{rate:.1}")),
            of_ours(format!("{:.2}", rate / read)),
            format!("{:.2}", median(&times.each_of_many)),
            format!("{} of {}", times.right, times.checked),
            format!("{:.3}", times.recall),
        ]);
    }
    report.tables.push(table);
    add_goals(&mut report, album, lines, bandwidths);
    for (threads, read) in bandwidths {
        report.notes.push(format!(
            "Read bandwidth on {threads} threads: {read:.1} GB/s, a sum over as many bytes in the same kind of pages, \
             which leaves fetching ahead to the processor."
        ));
    }
    report.notes.push(format!(
        "Ours: {:.0} bytes per vector in memory. Times include reading the candidates' vectors in full from memory and \
         scoring them; {:.0} vectors per search. The service reads them from the database: see `bench store`.",
        album.bytes() as f64 / options.rows as f64,
        album.candidates_per_search(),
    ));
    report
}

fn add_goals(report: &mut Report, album: &QuantisedAlbum<'_>, lines: &[Line], bandwidths: &[(usize, f64)]) {
    let best = Scanner::list_supported().last().map_or("", Scanner::name);
    let find = |name: &str, threads: usize| {
        lines.iter().find(|line| line.0 == name && line.1 == threads).map(|line| &line.2)
    };
    let ours = format!("ours, {best}");
    for (threads, read) in bandwidths {
        let Some(times) = find(&ours, *threads) else { continue };
        let one = median(&times.one);
        let part = album.vector_bytes() as f64 / one / 1e6 / read;
        let on = format!("{threads} threads");
        report.goals.push(Goal::at_least(&format!("of the read bandwidth, {on}"), part, TARGET_BANDWIDTH));
        let sharing = one / median(&times.each_of_many);
        report.goals.push(Goal::at_least(
            &format!("times cheaper by 32 a pass, {on}"),
            sharing,
            TARGET_SHARING,
        ));
        for name in faiss::INDEXES {
            if let Some(theirs) = find(name, *threads) {
                let what = format!("times faster than {name}, {on}");
                report.goals.push(Goal::at_least(&what, median(&theirs.one) / one, 1.0));
                let what = format!("times faster than {name} each of 32, {on}");
                let ratio = median(&theirs.each_of_many) / median(&times.each_of_many);
                report.goals.push(Goal::at_least(&what, ratio, 1.0));
            }
        }
    }
    let checked: usize =
        lines.iter().filter(|line| line.0.starts_with("ours")).map(|line| line.2.checked).sum();
    let right: usize = lines.iter().filter(|line| line.0.starts_with("ours")).map(|line| line.2.right).sum();
    report.goals.push(Goal::at_least(
        "part of our answers that is exact",
        right as f64 / checked as f64,
        1.0,
    ));
}

/// Makes unit vectors in random directions, one after another.
fn make_vectors(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut vectors = Vec::with_capacity(count * DIMENSION);
    for _ in 0..count {
        let start = vectors.len();
        for _ in 0..DIMENSION {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            vectors.push((state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0);
        }
        let vector = &mut vectors[start..];
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vectors
}
