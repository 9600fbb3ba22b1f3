//! Runs commands of the binary in an empty data folder, with no settings of this machine.

use std::ffi::OsStr;
use std::path::Path;

use photofinish_launcher::Installation;
use photofinish_tests::harness::{CommandOutput, binary_path, isolated_command, run_command};

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

    /// Runs a command after `limits`, commands of a shell, in the process of that shell.
    pub(crate) fn run_after(&self, limits: &str, arguments: &[&str]) -> CommandOutput {
        let script = format!(r#"{limits}; exec "$0" "$@""#);
        let binary = binary_path();
        let words = [OsStr::new("-c"), script.as_ref(), binary.as_os_str()];
        let words = words.into_iter().chain(arguments.iter().map(OsStr::new));
        run_command(&mut Installation::new("/bin/sh".into(), self.path()).isolated().command(words))
    }
}
