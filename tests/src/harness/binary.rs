//! Finds and runs the binary `photofinish`.

use std::path::{Path, PathBuf};
use std::process::Command;

use photofinish_launcher::{CommandOutput, Installation};

/// The binary of the same profile as this test or program.
///
/// # Panics
/// When it has not been built.
pub fn binary_path() -> PathBuf {
    let this = std::env::current_exe().expect("a running program has a path");
    // Tests are in target/<profile>/deps, programs in target/<profile>.
    let mut candidates = this.ancestors().skip(1).take(2).map(|folder| folder.join("photofinish"));
    candidates.find(|binary| binary.is_file()).unwrap_or_else(|| {
        panic!(
            "photofinish is not beside {}: the integration tests run the real binary, which `cargo xtask test` builds \
             first; by hand, run `cargo build --workspace --bins --tests` before `cargo test`",
            this.display()
        )
    })
}

/// A command of the binary with its data in `data_dir`. No setting of this process's environment reaches it.
pub fn isolated_command(data_dir: &Path, arguments: &[&str]) -> Command {
    Installation::new(binary_path(), data_dir).isolated().command(arguments)
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run_command(command: &mut Command) -> CommandOutput {
    CommandOutput::of(command).expect("a command starts")
}
