//! The soak: rounds of one fault each until the time is over, in a random order, each fault once before any is repeated.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use photofinish_bench::report::{OutputOptions, read_published_rows};
use photofinish_soak::cluster::{Cluster, ClusterOptions, missing_server_error};
use photofinish_soak::event::Event;
use photofinish_soak::faults::{Extent, FAULTS, Fault};
use photofinish_soak::run::{RunOutcome, RunPlan, run as run_event};
use photofinish_soak::search_results::SearchResults;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::table::{FaultRow, SECTION, build_report, is_clean, keep_published};

/// Options of `soak`.
#[derive(clap::Args)]
pub struct Options {
    /// No round begins after so many minutes; all faults together take about fifteen
    #[arg(long, default_value_t = 15)]
    minutes: u64,
    /// Only this fault; may be given several times
    #[arg(long, value_name = "NAME", value_parser = fault_names())]
    fault: Vec<String>,
    /// Only faults without a row in the published table, each once; with `--write` their rows join those of it
    #[arg(long, conflicts_with = "fault")]
    unpublished: bool,
    /// Photos a round, at most 1000
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u16).range(24..=1000))]
    photos: u16,
    /// Decides the order of the faults and their moments; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputOptions,
}

/// What all rounds share.
struct Soak {
    event: Event,
    event_with_killer_photo: Event,
    undisturbed: SearchResults,
    seed: u64,
    /// The folder for the logs of failed rounds.
    logs: PathBuf,
    /// Reused while the options stay the same and nothing has failed in it.
    cluster: Option<Cluster>,
}

fn fault_names() -> clap::builder::PossibleValuesParser {
    FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>().into()
}

/// Runs the soak.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    println!("The seed is {seed}; {} photos a round.", options.photos);
    let published = if options.unpublished { read_clean_rows()? } else { Vec::new() };
    let is_published = |fault: &Fault| published.iter().any(|row| row[0] == fault.description);
    let selected = FAULTS.into_iter().filter(|fault| is_selected(options, fault) && !is_published(fault));
    let mut rows: Vec<FaultRow> = selected.map(FaultRow::new).collect();
    if rows.is_empty() {
        println!("every fault has a row in the published table");
        return Ok(ExitCode::SUCCESS);
    }
    let mut soak = Soak::start(usize::from(options.photos), seed)?;
    let mut rng = StdRng::seed_from_u64(seed);
    let limit = Duration::from_secs(options.minutes * 60);
    let (mut round, mut failures) = (0, 0);
    while begun.elapsed() < limit {
        rows.shuffle(&mut rng);
        for row in &mut rows {
            if begun.elapsed() >= limit {
                break;
            }
            round += 1;
            match soak.run_round(row.fault(), round) {
                Ok(outcome) => {
                    failures += usize::from(!outcome.audit.is_clean());
                    row.add_round(&outcome);
                }
                Err(error) => {
                    failures += 1;
                    println!("  FAILED: {error:#}");
                }
            }
        }
        if options.unpublished {
            break;
        }
    }
    rows.sort_by_key(|row| FAULTS.iter().position(|fault| fault.name == row.fault().name));
    let mut report = build_report(&rows, usize::from(options.photos), begun.elapsed(), failures);
    keep_published(&mut report, published);
    report.print();
    report.save(&options.output)?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{failures} rounds failed; the seed was {seed}; their logs are in {}", soak.logs.display());
    Ok(ExitCode::FAILURE)
}

/// The rows of the published table whose faults have lost nothing.
fn read_clean_rows() -> anyhow::Result<Vec<Vec<String>>> {
    let mut rows = read_published_rows(SECTION)?;
    rows.retain(|row| is_clean(row));
    Ok(rows)
}

fn is_selected(options: &Options, fault: &Fault) -> bool {
    options.fault.is_empty() || options.fault.iter().any(|name| name == fault.name)
}

fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Soak {
    /// Runs the event once without a fault.
    fn start(photos: usize, seed: u64) -> anyhow::Result<Self> {
        let event = Event::paint(photos);
        let event_with_killer_photo = event.with_killer_photo();
        let logs = std::env::temp_dir().join(format!("photofinish-soak-{seed}"));
        let cluster = Cluster::start(&ClusterOptions::default())?.ok_or_else(missing_server_error)?;
        let plan = RunPlan { fault: None, extent: Extent::Long, seed };
        let outcome = run_event(&cluster, &event, plan, None)?;
        anyhow::ensure!(outcome.audit.is_clean(), "the undisturbed run failed:\n{}", outcome.audit);
        println!("undisturbed: {} photos, everything once", outcome.audit.confirmed);
        Ok(Self {
            event,
            event_with_killer_photo,
            undisturbed: outcome.search_results,
            seed,
            logs,
            cluster: Some(cluster),
        })
    }

    /// Runs one round. A cluster in which something failed is not reused.
    fn run_round(&mut self, fault: &Fault, round: u64) -> anyhow::Result<RunOutcome> {
        println!("{round}: {}", fault.description);
        let cluster_options = (fault.cluster_options)();
        let cluster = match self.cluster.take().filter(|cluster| *cluster.options() == cluster_options) {
            Some(cluster) => cluster,
            None => Cluster::start(&cluster_options)?.ok_or_else(missing_server_error)?,
        };
        let event = if fault.has_killer_photo { &self.event_with_killer_photo } else { &self.event };
        let plan = RunPlan { fault: Some(fault), extent: Extent::Long, seed: self.seed.wrapping_add(round) };
        let outcome = run_event(&cluster, event, plan, Some(&self.undisturbed));
        match &outcome {
            Ok(outcome) if outcome.audit.is_clean() => {
                println!(
                    "  {} {}, {} photos audited, next after {:.1?}, all after {:.1?}, {} retries",
                    outcome.strikes,
                    fault.unit,
                    outcome.audit.confirmed,
                    outcome.time_to_next.unwrap_or_default(),
                    outcome.time_to_all,
                    outcome.retries
                );
                self.cluster = Some(cluster);
            }
            failed => {
                if let Ok(outcome) = failed {
                    println!("  FAILED:\n{}", outcome.audit);
                }
                self.save_logs(&cluster, fault, round)?;
            }
        }
        outcome
    }

    fn save_logs(&self, cluster: &Cluster, fault: &Fault, round: u64) -> anyhow::Result<()> {
        let folder = self.logs.join(format!("{round}-{}", fault.name));
        cluster.save_logs(&folder).context("saving the logs")?;
        println!("  logs are in {}", folder.display());
        for (name, process) in cluster.processes() {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("  the end of the log of {name}:");
            for line in &lines[lines.len().saturating_sub(8)..] {
                println!("    {line}");
            }
        }
        Ok(())
    }
}
