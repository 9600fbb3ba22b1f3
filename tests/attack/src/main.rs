//! `attack`: every class of attacks against a release build with the real models, a normal client beside each, and a
//! table of what was found; `attack fuzz`: damaged input for the code that reads it first.
//!
//! `cargo xtask attack` and `cargo xtask fuzz` call it.

#![forbid(unsafe_code)]

mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use photofinish_attack::classes::{CLASSES, Class, all_classes};
use photofinish_attack::fuzz::campaign::{self, FuzzOptions};
use photofinish_attack::fuzz::child::{self, ChildOptions};
use photofinish_attack::run::{ClassOutcome, Plan, run_long};
use photofinish_attack::site::Material;
use photofinish_bench::report::OutputOptions;
use photofinish_bench::report::goals::Goal;
use photofinish_tests::harness::ServiceOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[derive(Parser)]
#[command(name = "attack", about = "Attacks the service, and measures what that costs everybody else.")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    attack: AttackOptions,
}

#[derive(Subcommand)]
enum Command {
    /// Feeds damaged photos, metadata, JSON, cursors and signed URLs to the code that reads them, in child processes.
    Fuzz(FuzzOptions),
    /// Reads the inputs of one target: a part of `fuzz`.
    #[command(hide = true)]
    FuzzChild(ChildOptions),
}

#[derive(clap::Args)]
struct AttackOptions {
    /// Only this class; may be given several times
    #[arg(long, value_name = "NAME", value_parser = class_names())]
    class: Vec<String>,
    /// Also the classes with large albums, which take minutes to prepare
    #[arg(long)]
    large: bool,
    /// Decides everything random
    #[arg(long, default_value_t = 9)]
    seed: u64,
    /// Fake models and painted photos, to try an attack without the real models
    #[arg(long)]
    fake: bool,
    #[command(flatten)]
    output: OutputOptions,
}

fn class_names() -> clap::builder::PossibleValuesParser {
    all_classes().map(|class| class.name).collect::<Vec<_>>().into()
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    photofinish_bench::report::machine::note_load();
    match arguments.command {
        None => attack(&arguments.attack),
        Some(Command::Fuzz(options)) => campaign::run(&options),
        Some(Command::FuzzChild(options)) => child::run(&options).map(|()| ExitCode::SUCCESS),
    }
}

/// Runs the classes; fails when one found what may never happen.
fn attack(options: &AttackOptions) -> anyhow::Result<ExitCode> {
    raise_file_limit()?;
    let plan = make_plan(options)?;
    let begun = Instant::now();
    let mut outcomes = Vec::new();
    for class in all_classes().filter(|class| is_selected(options, class)) {
        println!("{}: {}", class.name, class.description);
        let outcome = run_long(class, &plan).with_context(|| format!("the class {}", class.name))?;
        print_findings(&outcome);
        outcomes.push(outcome);
    }
    let report = table::build_report(&outcomes, begun.elapsed(), options.seed);
    report.print();
    report.save(&options.output)?;
    let is_passed = is_passed(&outcomes, &report.goals, options.output.strict);
    Ok(if is_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether nothing was found that may never happen, and the goals are met where they must be.
fn is_passed(outcomes: &[ClassOutcome], goals: &[Goal], must_meet_goals: bool) -> bool {
    let is_clean = outcomes.iter().all(ClassOutcome::is_clean);
    is_clean && (!must_meet_goals || goals.iter().all(Goal::is_met))
}

fn is_selected(options: &AttackOptions, class: &Class) -> bool {
    let is_of_every_run = CLASSES.iter().any(|of_every_run| of_every_run.name == class.name);
    let is_named = options.class.iter().any(|name| name == class.name);
    is_named || (options.class.is_empty() && (is_of_every_run || options.large))
}

fn make_plan(options: &AttackOptions) -> anyhow::Result<Plan> {
    let (service, material) = if options.fake {
        let service = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_LOG", "info");
        (service, Material::paint())
    } else {
        (ServiceOptions::with_real_models().map_err(anyhow::Error::msg)?, Material::draw()?)
    };
    Ok(Plan { options: service, material: Arc::new(material), seed: options.seed })
}

/// Thousands of connections are files of this process too.
fn raise_file_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("raising the limit of open files")
}

fn print_findings(outcome: &ClassOutcome) {
    let counts = &outcome.counts;
    println!(
        "  {} tried in {:.0} s, {} wrong, {} 5xx ({} unexpected), {} envelope breaks, {} panics; statuses {:?}",
        counts.tried,
        outcome.took.as_secs_f64(),
        counts.wrong.count,
        counts.server_errors,
        counts.unexpected_errors.count,
        counts.envelope_breaks.count,
        outcome.panics,
        counts.statuses
    );
    for wrong in &counts.wrong.first {
        println!("  WRONG {wrong}");
    }
    for failed in &counts.unexpected_errors.first {
        println!("  5XX {failed}");
    }
    for broken in &counts.envelope_breaks.first {
        println!("  ENVELOPE {broken}");
    }
    for note in &counts.notes {
        println!("  {note}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use photofinish_attack::findings::Counts;

    use super::*;

    #[test]
    fn what_may_never_happen_fails_the_run_and_a_missed_goal_only_a_strict_one() {
        let outcome = |panics| ClassOutcome {
            name: "urls",
            counts: Counts::default(),
            panics,
            memory: None,
            cpu: None,
            isolation: None,
            took: Duration::ZERO,
        };
        let [met, missed] = [1.0, 2.0].map(|measured| Goal::at_most("a goal", measured, 1.0));
        assert!(is_passed(&[outcome(0)], &[met], true));
        assert!(!is_passed(&[outcome(0), outcome(1)], &[], false));
        let missed = [missed];
        assert!(is_passed(&[outcome(0)], &missed, false) && !is_passed(&[outcome(0)], &missed, true));
    }
}
