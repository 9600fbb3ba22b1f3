//! Runs the test programs of the workspace two at a time. `cargo test` runs one after the other, and they wait for services,
//! servers and clocks for more than half of their time. Not a process for each test, as cargo-nextest has: many tests of a
//! program share its servers and networks, which take longer to start than the tests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::vec;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::digest;

/// How many run at once. What they assert about time has room for one beside them.
const AT_ONCE: usize = 2;

/// Targets whose programs take minutes: started first, so that none of them runs alone at the end.
const LONGEST: [&str; 4] = ["integration", "faults", "it", "postgres"];

/// The most lines that are repeated of one failure.
const EXCERPT_LINES: usize = 30;

/// A program whose end with 0 is a success.
pub struct TestProgram {
    name: String,
    command: Command,
}

/// What a test prints at the beginning of a line, with the reason, when it cannot test what it is for.
const SKIPPED: &str = "SKIPPED";

/// One that has ended.
struct Outcome {
    name: String,
    /// Without what tests printed that succeeded.
    output: String,
    /// The lines of tests that were skipped, whole or in part.
    skipped: Vec<String>,
    duration: Duration,
    status: io::Result<ExitStatus>,
}

impl TestProgram {
    /// A program with the name under which its output is shown.
    pub fn new(name: impl Into<String>, command: Command) -> Self {
        Self { name: name.into(), command }
    }

    /// The program, to give it variables.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }
}

/// The test programs that cargo has built, the longest first, by its messages in JSON, one a line. Each runs in the folder
/// of its package, as `cargo test` does.
///
/// # Errors
/// When a line is no message of cargo, or none is about a test program: a run without tests is no success.
pub fn from_messages(root: &Path, messages: &str) -> anyhow::Result<Vec<TestProgram>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("cargo printed {line}"))?;
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let rank = LONGEST.iter().position(|long| *long == target).unwrap_or(LONGEST.len());
        if let Some(program) = from_message(root, &message) {
            found.push((rank, program));
        }
    }
    ensure!(!found.is_empty(), "cargo names no test program that it has built");
    found.sort_by_key(|(rank, _)| *rank);
    Ok(found.into_iter().map(|(_, program)| program).collect())
}

/// The program of a message, where it is about a test program.
fn from_message(root: &Path, message: &Value) -> Option<TestProgram> {
    if message["profile"]["test"] != true {
        return None;
    }
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let mut command = Command::new(message["executable"].as_str()?);
    // Tests that were skipped have succeeded, and say why.
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package).arg("--show-output");
    let target = &message["target"];
    let unit = if target["kind"][0] == "test" { "" } else { "unit tests of " };
    let folder = package.strip_prefix(root).unwrap_or(package);
    let name = format!("{}: {unit}{}", folder.display(), target["name"].as_str()?);
    Some(TestProgram::new(name.trim_start_matches(": "), command))
}

/// Runs all of them, also when some fail. The output of each is printed whole when it has ended; until then it is in a file
/// in `folder`. At the end, what tests have skipped and why programs failed is printed once more: the lines above it are
/// thousands.
///
/// # Errors
/// When one cannot be started or fails; the error names each.
pub fn run(programs: Vec<TestProgram>, folder: &Path) -> anyhow::Result<()> {
    digest::recreate_folder(folder)?;
    let total = programs.len();
    let waiting = Mutex::new(programs.into_iter());
    // Held while an output is printed, so that no two mix.
    let ended = Mutex::new((Vec::new(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = take(&waiting) {
                    let outcome = program.run(folder);
                    let mut ended = lock(&ended);
                    let (succeeded, failed) = &mut *ended;
                    if outcome.print() { succeeded.push(outcome) } else { failed.push(outcome) }
                }
            });
        }
    });
    let (succeeded, failed) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let skips = list_skips(succeeded.iter().chain(&failed));
    if !skips.is_empty() {
        println!("\n!! Not everything was tested:\n  {}", skips.join("\n  "));
    }
    if !failed.is_empty() {
        for outcome in &failed {
            println!("\n-- {} {}\n{}", outcome.name, outcome.ended(), failure_excerpts(&outcome.output));
        }
        let names: Vec<_> = failed.iter().map(|outcome| outcome.name.as_str()).collect();
        bail!("{} of {total} test programs failed:\n  {}", failed.len(), names.join("\n  "));
    }
    println!("\nAll {total} test programs succeeded.");
    Ok(())
}

/// Why tests were skipped, whole or in part, each reason once, with the programs of these tests.
fn list_skips<'o>(outcomes: impl Iterator<Item = &'o Outcome>) -> Vec<String> {
    let mut programs_by_reason: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for outcome in outcomes {
        for reason in &outcome.skipped {
            *programs_by_reason.entry(reason).or_default().entry(&outcome.name).or_default() += 1;
        }
    }
    let line = |(reason, programs): (&str, BTreeMap<&str, usize>)| {
        let counts = programs.into_iter().map(|(program, count)| format!("{program} {count}"));
        format!("{reason} ({})", counts.collect::<Vec<_>>().join(", "))
    };
    programs_by_reason.into_iter().map(line).collect()
}

/// The output of a program without what tests printed that succeeded, and the lines among that by which tests say that they
/// were skipped.
fn split_output(output: &str) -> (String, Vec<String>) {
    let start = output.find("\nsuccesses:\n").unwrap_or(output.len());
    let (before, rest) = output.split_at(start);
    let ends = ["\nfailures:\n", "\ntest result: "].into_iter().filter_map(|mark| rest.find(mark));
    let (of_successes, after) = rest.split_at(ends.min().unwrap_or(rest.len()));
    let skipped = of_successes.lines().filter(|line| line.starts_with(SKIPPED)).map(str::to_owned);
    (format!("{before}{after}"), skipped.collect())
}

/// The panics of a test program, each without its backtrace and shortened; the end of the output where there is none.
fn failure_excerpts(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let mut excerpts = Vec::new();
    let mut rest = lines.as_slice();
    while let Some(at) = rest.iter().position(|line| line.contains("panicked at ")) {
        let panic = &rest[at..];
        let is_trace =
            |line: &&str| line.starts_with("stack backtrace") || line.starts_with("note: run with");
        let end = panic.iter().position(is_trace).unwrap_or(panic.len()).min(EXCERPT_LINES);
        excerpts.extend_from_slice(&panic[..end]);
        rest = &panic[end.max(1)..];
    }
    if excerpts.is_empty() {
        excerpts.extend_from_slice(&lines[lines.len().saturating_sub(EXCERPT_LINES)..]);
    }
    excerpts.join("\n")
}

/// The next program. The lock is not held while it runs.
fn take(waiting: &Mutex<vec::IntoIter<TestProgram>>) -> Option<TestProgram> {
    lock(waiting).next()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestProgram {
    fn run(mut self, folder: &Path) -> Outcome {
        let start = Instant::now();
        let path = folder.join(format!("{}.txt", self.name.replace(": ", ".").replace(['/', ' '], "-")));
        let status = self.run_into(&path);
        let duration = start.elapsed();
        let output = fs::read(&path).unwrap_or_default();
        let (output, skipped) = split_output(String::from_utf8_lossy(&output).trim());
        Outcome { name: self.name, output, skipped, duration, status }
    }

    /// Runs with both outputs in one file, in the order of their writes.
    fn run_into(&mut self, path: &Path) -> io::Result<ExitStatus> {
        let output = File::create(path)?;
        self.command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).status()
    }
}

impl Outcome {
    /// Prints the output and how it ended; returns whether all tests succeeded.
    fn print(&self) -> bool {
        println!("\n-- {}\n{}", self.name, self.output);
        println!("-- {} {} in {:.1} s", self.name, self.ended(), self.duration.as_secs_f64());
        self.status.as_ref().is_ok_and(ExitStatus::success)
    }

    /// How it ended, in words.
    fn ended(&self) -> String {
        match &self.status {
            Ok(status) if status.success() => "succeeded".to_owned(),
            Ok(status) => format!("FAILED: {status}"),
            Err(error) => format!("FAILED: cannot run it: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> TestProgram {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TestProgram::new(name, command)
    }

    #[test]
    fn every_program_runs_and_those_that_fail_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let done = folder.path().join("done");
        let programs = vec![
            shell("a", "echo first >&2; exit 1"),
            TestProgram::new("b", Command::new("no-such-program-anywhere")),
            shell("c", &format!("touch {}", done.display())),
        ];
        let outputs = folder.path().join("outputs");
        let error = run(programs, &outputs).unwrap_err().to_string();
        assert!(error.starts_with("2 of 3 test programs failed:"), "{error}");
        let mut named: Vec<_> = error.lines().skip(1).map(str::trim).collect();
        named.sort_unstable();
        assert_eq!(named, ["a", "b"]);
        assert!(done.exists());
        assert_eq!(fs::read_to_string(outputs.join("a.txt")).unwrap(), "first\n");
    }

    #[test]
    fn tests_that_were_skipped_are_named_with_their_reason() {
        let output = "running 3 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nlog\nSKIPPED: no photos\n\n\
                      ---- b stdout ----\nSKIPPED: no photos\n\nsuccesses:\n    a\n    b\n\ntest result: ok. 3 passed";
        let (shown, skipped) = split_output(output);
        assert_eq!(shown, "running 3 tests\ntest a ... ok\n\ntest result: ok. 3 passed");
        assert_eq!(skipped, ["SKIPPED: no photos"; 2]);
        let failed = "test a ... FAILED\n\nsuccesses:\n\n---- b stdout ----\nlog\n\nsuccesses:\n    b\n\nfailures:\n\n\
                      ---- a stdout ----\npanicked at here\n\ntest result: FAILED";
        let (shown, skipped) = split_output(failed);
        let expected =
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\npanicked at here\n\ntest result: FAILED";
        assert_eq!((shown.as_str(), skipped.len()), (expected, 0));
        assert_eq!(split_output("no tests"), ("no tests".to_owned(), Vec::new()));
        let outcome = |name: &str, skipped: &[&str]| Outcome {
            name: name.to_owned(),
            output: String::new(),
            skipped: skipped.iter().map(|reason| (*reason).to_owned()).collect(),
            duration: Duration::ZERO,
            status: Ok(ExitStatus::default()),
        };
        let outcomes = [
            outcome("a", &["SKIPPED: no photos", "SKIPPED: no photos"]),
            outcome("b", &["SKIPPED: no GPU", "SKIPPED: no photos"]),
            outcome("c", &[]),
        ];
        assert_eq!(list_skips(outcomes.iter()), ["SKIPPED: no GPU (b 1)", "SKIPPED: no photos (a 2, b 1)"]);
    }

    #[test]
    fn why_a_program_failed_is_repeated_without_its_log_and_backtrace() {
        let output = "log\nthread 'a' panicked at src/a.rs:1:2:\nleft: 1\nright: 2\nnote: run with `RUST_BACKTRACE=1`\nlog\n\
                      thread 'b' panicked at src/b.rs:3:4:\nwhy\nstack backtrace:\n 0: x";
        let why = failure_excerpts(output);
        assert_eq!(
            why,
            "thread 'a' panicked at src/a.rs:1:2:\nleft: 1\nright: 2\nthread 'b' panicked at src/b.rs:3:4:\nwhy"
        );
        let long = format!("panicked at here\n{}", "more\n".repeat(1000));
        assert_eq!(failure_excerpts(&long).lines().count(), EXCERPT_LINES);
        let no_panic: String = (0..100).map(|line| format!("line {line}\n")).collect();
        assert!(failure_excerpts(&no_panic).ends_with("line 98\nline 99"));
        assert_eq!(failure_excerpts(""), "");
    }

    #[test]
    fn two_programs_run_at_once() {
        let folder = tempfile::tempdir().unwrap();
        // Each waits for the other one's file.
        let meet = |mine: &str, other: &str| {
            let script = format!(
                "touch {mine}; for i in $(seq 200); do test -e {other} && exit 0; sleep .05; done; exit 1"
            );
            let mut program = shell(mine, &script);
            program.command.current_dir(folder.path());
            program
        };
        run(vec![meet("a", "b"), meet("b", "a")], &folder.path().join("outputs")).unwrap();
    }

    #[test]
    fn test_programs_are_found_in_what_cargo_prints_the_longest_first() {
        let messages = r#"{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","manifest_path":"/w/api/Cargo.toml","target":{"kind":["lib"],"name":"api"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/Cargo.toml","target":{"kind":["bin"],"name":"photofinish"},"profile":{"test":false},"executable":"/w/target/debug/photofinish"}
{"reason":"compiler-artifact","manifest_path":"/w/api/Cargo.toml","target":{"kind":["lib"],"name":"api"},"profile":{"test":true},"executable":"/w/target/debug/deps/api-1"}
{"reason":"compiler-artifact","manifest_path":"/w/tests/soak/Cargo.toml","target":{"kind":["test"],"name":"faults"},"profile":{"test":true},"executable":"/w/target/debug/deps/faults-1"}
{"reason":"build-finished","success":true}"#;
        let programs = from_messages(Path::new("/w"), messages).unwrap();
        let names: Vec<_> = programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["tests/soak: faults", "api: unit tests of api"]);
        let folder = programs[0].command.get_current_dir();
        assert_eq!(folder, Some(Path::new("/w/tests/soak")));
        assert!(from_messages(Path::new("/w"), "error: no").is_err());
        assert!(from_messages(Path::new("/w"), "").is_err());
    }
}
