//! A shell for the command line: an empty data folder and a binary that nothing of this machine reaches.

use std::path::Path;

use photofinish_tests::harness::{CommandOutput, isolated_command, run_command};

/// An empty data folder with a binary that knows nothing of this shell.
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
