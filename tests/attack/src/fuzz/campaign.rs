//! A fuzzing campaign: every target in turn, in child processes, until the time is over. What ends a child or keeps it
//! for too long is saved, and the next child begins behind it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_bench::report::Table;
use photofinish_tests::harness::repository_root;

use super::TARGET_NAMES;
use super::child::{Progress, read_progress};

/// Longer than reading any input takes, also where memory is short.
const HANG_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at a child.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A target that fails this often says nothing new.
const MAX_CRASHES: usize = 20;

/// Options of `attack fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub struct FuzzOptions {
    /// How long in all; targets share it
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Only this target; may be given several times
    #[arg(long, value_name = "NAME", value_parser = target_names())]
    target: Vec<String>,
    /// Decides the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The result of one target.
struct TargetOutcome {
    name: &'static str,
    inputs: u64,
    crashes: Vec<Crash>,
}

/// An input that ended or held its process.
struct Crash {
    reason: String,
    saved: PathBuf,
}

fn target_names() -> clap::builder::PossibleValuesParser {
    TARGET_NAMES.to_vec().into()
}

/// Runs the campaign, and prints how many inputs were read and what they crashed.
///
/// # Errors
/// When children cannot be started, or inputs not saved.
pub fn run(options: &FuzzOptions) -> anyhow::Result<ExitCode> {
    let is_selected =
        |name: &&str| options.target.is_empty() || options.target.iter().any(|known| known == name);
    let names: Vec<&'static str> = TARGET_NAMES.iter().copied().filter(|name| is_selected(name)).collect();
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).min(names.len());
    let time = Duration::from_secs(options.minutes * 60) * jobs as u32 / names.len() as u32;
    println!("{} targets, {} s each, {jobs} at once, seed {}", names.len(), time.as_secs(), options.seed);
    let (waiting, outcomes) = (Mutex::new(VecDeque::from(names)), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        loop {
            // A statement of its own, so that the list is not locked while a target runs.
            let next = lock(&waiting).pop_front();
            let Some(name) = next else { return Ok(()) };
            let outcome = fuzz_target(name, options.seed, time)?;
            println!("{name}: {} inputs, {} crashes", outcome.inputs, outcome.crashes.len());
            lock(&outcomes).push(outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    print_table(&outcomes, time);
    let inputs: u64 = outcomes.iter().map(|outcome| outcome.inputs).sum();
    let crashes: usize = outcomes.iter().map(|outcome| outcome.crashes.len()).sum();
    for outcome in &outcomes {
        for crash in &outcome.crashes {
            println!("{}: {}, {}", outcome.name, crash.reason, crash.saved.display());
        }
    }
    println!("{inputs} inputs in {} minutes, {crashes} crashes", options.minutes);
    Ok(if crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a row for each target, as a page of results has it.
fn print_table(outcomes: &[TargetOutcome], time: Duration) {
    let mut table = Table::new("", &["target", "time, s", "cases", "crashes"]);
    for outcome in outcomes {
        let numbers = [time.as_secs(), outcome.inputs, outcome.crashes.len() as u64];
        let numbers = numbers.map(|number| number.to_string());
        table.add_row(std::iter::once(outcome.name.to_owned()).chain(numbers));
    }
    print!("{}", table.to_markdown());
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fuzz_target(name: &'static str, seed: u64, time: Duration) -> anyhow::Result<TargetOutcome> {
    let scratch = tempfile::tempdir()?;
    let progress = scratch.path().join("progress");
    let (begun, mut crashes, mut number) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < time && crashes.len() < MAX_CRASHES {
        let left = (time - begun.elapsed()).as_secs().max(1);
        let mut child = start_child(name, seed, number, left, &progress)?;
        let ended = wait_for_child(&mut child, &progress)?;
        let reached = read_progress(&progress).with_context(|| format!("{name}: no input was read"))?;
        let Some(reason) = ended else {
            number = reached.number;
            break;
        };
        crashes.push(Crash { reason, saved: save_input(name, seed, &reached)? });
        number = reached.number + 1;
    }
    Ok(TargetOutcome { name, inputs: number, crashes })
}

fn start_child(name: &str, seed: u64, first: u64, seconds: u64, progress: &Path) -> anyhow::Result<Child> {
    let this = std::env::current_exe().context("a running program has a path")?;
    let mut command = Command::new(this);
    command.args(["fuzz-child", "--target", name, "--seed", &seed.to_string()]);
    command.args(["--first", &first.to_string(), "--seconds", &seconds.to_string()]);
    command.arg("--progress").arg(progress).stdin(Stdio::null());
    command.spawn().context("starting a child")
}

/// Waits for the end of a child; returns how it ended if not well. One that stays at an input is killed.
fn wait_for_child(child: &mut Child, progress: &Path) -> anyhow::Result<Option<String>> {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| status.to_string()));
        }
        let now = read_progress(progress).map(|progress| progress.number);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > HANG_LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(Some(format!("no end within {} s", HANG_LIMIT.as_secs())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn save_input(name: &str, seed: u64, reached: &Progress) -> anyhow::Result<PathBuf> {
    let folder = repository_root().join(".photofinish").join("fuzz");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let path = folder.join(format!("{name}-{seed}-{}", reached.number));
    std::fs::write(&path, &reached.input).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
