//! Finds and runs the binary `photofinish`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a command left behind.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Standard output of a success, trimmed.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    pub fn expect_success(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim()
    }

    /// Both streams.
    pub fn combined_output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// The binary of the same profile as this test or program.
///
/// # Panics
/// When it has not been built.
pub fn binary_path() -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    // Tests lie in target/<profile>/deps, programs in target/<profile>.
    let mut places = this.ancestors().skip(1).take(2).map(|folder| folder.join("photofinish"));
    places.find(|binary| binary.is_file()).unwrap_or_else(|| {
        panic!(
            "photofinish is not beside {}: the integration tests run the real binary, which `cargo xtask test` builds \
             first; by hand, run `cargo build --workspace --bins --tests` before `cargo test`",
            this.display()
        )
    })
}

/// The binary with a clean slate: no setting of this shell reaches it, and its data lie in `data_dir`.
pub fn isolated_command(data_dir: &Path) -> Command {
    let mut command = Command::new(binary_path());
    for (name, _) in std::env::vars_os() {
        if ["PHOTOFINISH_", "OTEL_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
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
pub fn run_command(command: &mut Command) -> CommandOutput {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
