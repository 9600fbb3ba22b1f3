//! Finds and runs the binary `photofinish`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a command left behind.
#[derive(Debug)]
pub struct Output {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Standard output of a success, trimmed.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    pub fn success(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim()
    }

    /// Both streams.
    pub fn everything(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// The binary of the same profile as this test.
///
/// # Panics
/// When it has not been built.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let profile = test.ancestors().nth(2).expect("tests run from target/<profile>/deps");
    let binary = profile.join("photofinish");
    assert!(
        binary.is_file(),
        "{} is missing: the integration tests run the real binary, which `cargo xtask test` builds first; \
         by hand, run `cargo build --workspace --bins --tests` before `cargo test`",
        binary.display()
    );
    binary
}

/// The binary with a clean slate: no setting of this shell reaches it, and its data lie in `data_dir`.
pub fn command(data_dir: &Path) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PHOTOFINISH_") {
            command.env_remove(name);
        }
    }
    command.env("PHOTOFINISH_DATA_DIR", data_dir).current_dir(data_dir).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
