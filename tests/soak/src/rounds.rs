//! Faults in turn until the time is over, in a random order, each once before any comes again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use photofinish_bench::report::OutputOptions;
use photofinish_soak::cluster::{Cluster, ClusterOptions};
use photofinish_soak::event::Event;
use photofinish_soak::faults::{Extent, FAULTS, Fault};
use photofinish_soak::run::{RunOutcome, RunPlan, run as run_one};
use photofinish_soak::search_results::SearchResults;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::missing_server_error;
use crate::table::{FaultRow, build_report};

/// How long, and what.
#[derive(clap::Args)]
pub struct Options {
    /// No turn begins after so many minutes; every fault has one within about fifteen.
    #[arg(long, default_value_t = 15)]
    minutes: u64,
    /// Only this fault; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = fault_names())]
    fault: Vec<String>,
    /// Photos a turn, at most 1000.
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u16).range(24..=1000))]
    photos: u16,
    /// The order of the faults and their moments; another one each time when left out.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputOptions,
}

/// What stays the same over all turns.
struct Soak {
    event: Event,
    event_with_killer_photo: Event,
    undisturbed: SearchResults,
    seed: u64,
    /// Where logs of turns that went wrong are kept.
    logs: PathBuf,
    /// Used again as long as its shape serves.
    cluster: Option<Cluster>,
}

fn fault_names() -> clap::builder::PossibleValuesParser {
    FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>().into()
}

/// Soaks.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    println!("The seed is {seed}; painting {} photos.", options.photos);
    let mut soak = Soak::start(usize::from(options.photos), seed)?;
    let mut lines: Vec<FaultRow> =
        FAULTS.into_iter().filter(|fault| is_selected(options, fault)).map(FaultRow::new).collect();
    let mut dice = StdRng::seed_from_u64(seed);
    let limit = Duration::from_secs(options.minutes * 60);
    let (mut turn, mut failures) = (0, 0);
    while begun.elapsed() < limit {
        lines.shuffle(&mut dice);
        for line in &mut lines {
            if begun.elapsed() >= limit {
                break;
            }
            turn += 1;
            match soak.run_round(line.fault(), turn) {
                Ok(outcome) => {
                    failures += usize::from(!outcome.audit.is_clean());
                    line.add_round(&outcome);
                }
                Err(error) => {
                    failures += 1;
                    println!("  WENT WRONG: {error:#}");
                }
            }
        }
    }
    lines.sort_by_key(|line| FAULTS.iter().position(|fault| fault.name == line.fault().name));
    let report = build_report(&lines, usize::from(options.photos), (begun.elapsed(), failures));
    report.print();
    report.save(&options.output)?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{failures} turns went wrong; the seed was {seed}; their logs are in {}", soak.logs.display());
    Ok(ExitCode::FAILURE)
}

fn is_selected(options: &Options, fault: &Fault) -> bool {
    options.fault.is_empty() || options.fault.iter().any(|name| name == fault.name)
}

fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Soak {
    /// Runs the event undisturbed.
    fn start(photos: usize, seed: u64) -> anyhow::Result<Self> {
        let event = Event::paint(photos);
        let with_a_killer = event.with_killer_photo();
        let logs = std::env::temp_dir().join(format!("photofinish-soak-{seed}"));
        let cluster = Cluster::start(&ClusterOptions::default())?.ok_or_else(missing_server_error)?;
        let plan = RunPlan { fault: None, extent: Extent::Long, seed };
        let outcome = run_one(&cluster, &event, plan, None)?;
        anyhow::ensure!(outcome.audit.is_clean(), "the undisturbed run is wrong:\n{}", outcome.audit);
        println!("undisturbed: {} photos, everything once", outcome.audit.confirmed);
        Ok(Self {
            event,
            event_with_killer_photo: with_a_killer,
            undisturbed: outcome.search_results,
            seed,
            logs,
            cluster: Some(cluster),
        })
    }

    /// One fault. A cluster that something went wrong in is not used again.
    fn run_round(&mut self, fault: &Fault, turn: u64) -> anyhow::Result<RunOutcome> {
        println!("{turn}: {}", fault.description);
        let shape = (fault.cluster_options)();
        let cluster = match self.cluster.take().filter(|cluster| *cluster.options() == shape) {
            Some(cluster) => cluster,
            None => Cluster::start(&shape)?.ok_or_else(missing_server_error)?,
        };
        let event = if fault.has_killer_photo { &self.event_with_killer_photo } else { &self.event };
        let plan = RunPlan { fault: Some(fault), extent: Extent::Long, seed: self.seed.wrapping_add(turn) };
        let outcome = run_one(&cluster, event, plan, Some(&self.undisturbed));
        match &outcome {
            Ok(outcome) if outcome.audit.is_clean() => {
                println!(
                    "  {} {}, {} photos accounted for, next after {:.1?}, all after {:.1?}, {} tries again",
                    outcome.strikes,
                    fault.unit,
                    outcome.audit.confirmed,
                    outcome.time_to_next.unwrap_or_default(),
                    outcome.time_to_all,
                    outcome.retries
                );
                self.cluster = Some(cluster);
            }
            went_wrong => {
                if let Ok(outcome) = went_wrong {
                    println!("  WENT WRONG:\n{}", outcome.audit);
                }
                self.save_logs(&cluster, fault, turn)?;
            }
        }
        outcome
    }

    fn save_logs(&self, cluster: &Cluster, fault: &Fault, turn: u64) -> anyhow::Result<()> {
        let folder = self.logs.join(format!("{turn}-{}", fault.name));
        cluster.save_logs(&folder).context("keeping the logs")?;
        println!("  logs are in {}", folder.display());
        for (name, process) in cluster.processes() {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("  the end of {name}'s:");
            for line in &lines[lines.len().saturating_sub(8)..] {
                println!("    {line}");
            }
        }
        Ok(())
    }
}
