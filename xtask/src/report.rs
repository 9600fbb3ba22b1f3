//! Output of set-up: one line per step, and a report when something is unavailable.

use std::fmt;
use std::time::{Duration, Instant};

/// The line of a step slower than this contains its duration.
const SLOW_STEP: Duration = Duration::from_millis(500);

/// Something that set-up could not fetch or build.
#[derive(Debug)]
pub struct Unavailable {
    /// The thing, to follow "cannot get".
    pub what: String,
    /// The reason, as far as it is known.
    pub why: String,
    /// What to do about it, as an instruction.
    pub remedy: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot get {}\n  why:        {}\n  what to do: {}", self.what, self.why, self.remedy)
    }
}

impl std::error::Error for Unavailable {}

/// How a step ended.
pub enum StepOutcome {
    /// There was nothing to do.
    Present,
    /// It was done; the text describes the result.
    Done(String),
}

/// Runs a step and prints its line.
pub fn run_step(name: &str, work: impl FnOnce() -> anyhow::Result<StepOutcome>) -> anyhow::Result<()> {
    let start = Instant::now();
    let outcome = work()?;
    let took = start.elapsed();
    let words = match outcome {
        StepOutcome::Present => "already here".to_owned(),
        StepOutcome::Done(words) => words,
    };
    if took > SLOW_STEP {
        println!("  {name}: {words} ({:.1} s)", took.as_secs_f64());
    } else {
        println!("  {name}: {words}");
    }
    Ok(())
}

/// Prints the progress of a step that takes long.
pub fn print_note(text: &str) {
    println!("    {text}");
}

/// Prints a warning that stands out.
pub fn print_warning(text: &str) {
    println!("\n  !! {}\n", text.replace('\n', "\n  !! "));
}

/// Prints the heading of a group of steps.
pub fn print_heading(text: &str) {
    println!("\n== {text}");
}
