//! Runs other programs; an error contains the last lines of their output.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::report::print_note;

/// Lines of a failed program's output in an error.
const ERROR_TAIL_LINES: usize = 12;

/// Pauses before the second and the third attempt of a program that fetches.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// Whether a program is on the search path.
pub fn has_program(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a program without showing its output, and returns its standard output, trimmed.
pub fn capture_output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| start_error(command))?;
    check_output(command, &output)
}

/// As [`capture_output`], with three attempts: for programs that fetch from a registry, which may fail for a moment.
pub fn capture_output_with_retries(command: &mut Command) -> anyhow::Result<String> {
    retry(command, &RETRY_PAUSES)
}

/// Runs a program, and once more after each of the pauses while it fails.
fn retry(command: &mut Command, pauses: &[Duration]) -> anyhow::Result<String> {
    for pause in pauses {
        match capture_output(command) {
            Ok(output) => return Ok(output),
            Err(error) => print_note(&format!("{error}\n    retrying in {} s", pause.as_secs())),
        }
        std::thread::sleep(*pause);
    }
    capture_output(command)
}

/// Runs a program with its output shown.
pub fn run_visibly(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| start_error(command))?;
    if !status.success() {
        bail!("`{}` failed: {status}", command_line(command));
    }
    Ok(())
}

/// Runs a program with what it says to people shown, and returns its standard output, which is for programs.
pub fn capture_messages(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| start_error(command))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", command_line(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` prints no text", program_name(command)))
}

/// `cargo` in the workspace, as from a shell. The variables that the outer `cargo run` sets for this package would change
/// the environment of build scripts that read them, `ring`'s for one, and rebuild everything above.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.current_dir(root).args(arguments);
    command
}

fn check_output(command: &Command, output: &Output) -> anyhow::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let mut words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.is_empty() {
        words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    bail!("`{}` failed: {}\n{}", program_name(command), output.status, last_lines(&words))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(ERROR_TAIL_LINES)..].join("\n")
}

fn start_error(command: &Command) -> String {
    format!("cannot start `{}`", program_name(command))
}

fn program_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn command_line(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    format!("{} {}", program_name(command), words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_contains_the_programs_error_output() {
        let error =
            capture_output(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
    }

    #[test]
    fn a_failing_program_is_run_three_times() {
        let folder = tempfile::tempdir().unwrap();
        // Each attempt writes a letter; the program succeeds once there are `count` letters.
        let succeed_at = |count: &str| {
            let script = "printf x >> tries; test \"$(wc -c < tries)\" -ge \"$0\"";
            let mut command = Command::new("sh");
            command.args(["-c", script, count]).current_dir(folder.path());
            retry(&mut command, &[Duration::ZERO; 2])
        };
        let tries = || std::fs::read_to_string(folder.path().join("tries")).unwrap().len();
        succeed_at("1").unwrap();
        assert_eq!(tries(), 1);
        succeed_at("4").unwrap();
        assert_eq!(tries(), 4);
        succeed_at("9").unwrap_err();
        assert_eq!(tries(), 7);
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        assert!(has_program("sh"));
        assert!(!has_program("no-such-program-anywhere"));
    }
}
