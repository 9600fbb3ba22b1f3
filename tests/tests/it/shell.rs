//! Runs commands of the binary in an empty data folder, with no settings of this machine.

use std::path::Path;

use photofinish_tests::harness::{CommandOutput, isolated_command, run_command};

/// An empty data folder.
pub(crate) struct Shell(tempfile::TempDir);

impl Shell {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn run(&self, arguments: &[&str], settings: &[(&str, &str)]) -> CommandOutput {
        run_command(isolated_command(self.path(), arguments).envs(settings.iter().copied()))
    }
}
