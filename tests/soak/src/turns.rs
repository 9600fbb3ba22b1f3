//! Faults in turn until the time is over, in a random order, each once before any comes again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use photofinish_bench::report::Output;
use photofinish_soak::answers::Answers;
use photofinish_soak::cluster::{Cluster, Shape};
use photofinish_soak::event::Event;
use photofinish_soak::faults::{Extent, FAULTS, Fault};
use photofinish_soak::run::{Outcome, Plan, run as run_one};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::no_servers;
use crate::table::{Line, report};

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
    output: Output,
}

/// What stays the same over all turns.
struct Soak {
    event: Event,
    with_a_killer: Event,
    undisturbed: Answers,
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
    let seed = options.seed.unwrap_or_else(clock);
    println!("The seed is {seed}; painting {} photos.", options.photos);
    let mut soak = Soak::begin(usize::from(options.photos), seed)?;
    let mut lines: Vec<Line> =
        FAULTS.into_iter().filter(|fault| is_wanted(options, fault)).map(Line::new).collect();
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
            match soak.turn(line.fault(), turn) {
                Ok(outcome) => {
                    failures += usize::from(!outcome.account.is_clean());
                    line.add(&outcome);
                }
                Err(error) => {
                    failures += 1;
                    println!("  WENT WRONG: {error:#}");
                }
            }
        }
    }
    lines.sort_by_key(|line| FAULTS.iter().position(|fault| fault.name == line.fault().name));
    let report = report(&lines, usize::from(options.photos), (begun.elapsed(), failures));
    report.print();
    report.keep(&options.output)?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{failures} turns went wrong; the seed was {seed}; their logs are in {}", soak.logs.display());
    Ok(ExitCode::FAILURE)
}

fn is_wanted(options: &Options, fault: &Fault) -> bool {
    options.fault.is_empty() || options.fault.iter().any(|name| name == fault.name)
}

fn clock() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Soak {
    /// Runs the event undisturbed.
    fn begin(photos: usize, seed: u64) -> anyhow::Result<Self> {
        let event = Event::paint(photos);
        let with_a_killer = event.with_a_killer();
        let logs = std::env::temp_dir().join(format!("photofinish-soak-{seed}"));
        let cluster = Cluster::start(&Shape::default())?.ok_or_else(no_servers)?;
        let plan = Plan { fault: None, extent: Extent::Long, seed };
        let outcome = run_one(&cluster, &event, plan, None)?;
        anyhow::ensure!(outcome.account.is_clean(), "the undisturbed run is wrong:\n{}", outcome.account);
        println!("undisturbed: {} photos, everything once", outcome.account.photos);
        Ok(Self { event, with_a_killer, undisturbed: outcome.answers, seed, logs, cluster: Some(cluster) })
    }

    /// One fault. A cluster that something went wrong in is not used again.
    fn turn(&mut self, fault: &Fault, turn: u64) -> anyhow::Result<Outcome> {
        println!("{turn}: {}", fault.what);
        let shape = (fault.shape)();
        let cluster = match self.cluster.take().filter(|cluster| *cluster.shape() == shape) {
            Some(cluster) => cluster,
            None => Cluster::start(&shape)?.ok_or_else(no_servers)?,
        };
        let event = if fault.has_a_killer { &self.with_a_killer } else { &self.event };
        let plan = Plan { fault: Some(fault), extent: Extent::Long, seed: self.seed.wrapping_add(turn) };
        let outcome = run_one(&cluster, event, plan, Some(&self.undisturbed));
        match &outcome {
            Ok(outcome) if outcome.account.is_clean() => {
                println!(
                    "  {} {}, {} photos accounted for, next after {:.1?}, all after {:.1?}, {} tries again",
                    outcome.struck,
                    fault.unit,
                    outcome.account.photos,
                    outcome.next.unwrap_or_default(),
                    outcome.all,
                    outcome.tried_again
                );
                self.cluster = Some(cluster);
            }
            went_wrong => {
                if let Ok(outcome) = went_wrong {
                    println!("  WENT WRONG:\n{}", outcome.account);
                }
                self.keep_logs(&cluster, fault, turn)?;
            }
        }
        outcome
    }

    fn keep_logs(&self, cluster: &Cluster, fault: &Fault, turn: u64) -> anyhow::Result<()> {
        let folder = self.logs.join(format!("{turn}-{}", fault.name));
        cluster.keep_logs(&folder).context("keeping the logs")?;
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
