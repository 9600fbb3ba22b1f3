//! Programs for Node.js that use packages from npm, which `cargo xtask test` installs.

use std::path::PathBuf;
use std::process::Command;

use photofinish_servers::{read_variable, repository_root, skip_or_fail};

/// A folder with a program of `tests/orpc` and the packages beside it, where Node searches them; removed when dropped.
pub struct NpmProgram {
    folder: tempfile::TempDir,
    file: &'static str,
}

impl NpmProgram {
    /// Prepares the first of `files`, which uses the others and `package`; `None`, with a line that the test is skipped, where
    /// the package or Node.js 20 is missing.
    ///
    /// # Panics
    /// When one is missing and nothing may be skipped.
    pub fn prepare(test: &str, package: &str, files: &[&'static str]) -> Option<Self> {
        let modules = read_variable("PHOTOFINISH_TEST_NODE_MODULES")
            .map_or_else(|| repository_root().join(".photofinish/node/node_modules"), PathBuf::from);
        if !modules.join(package).join("package.json").is_file() {
            let why = format!("no {package} in {}: run `cargo xtask test`", modules.display());
            skip_or_fail(test, &why);
            return None;
        }
        if !has_node() {
            skip_or_fail(test, "no Node.js 20 or newer on this machine");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let program = repository_root().join("tests/orpc").join(file);
            std::fs::copy(program, folder.path().join(file)).expect("the program is in the repository");
        }
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
        Some(Self { folder, file: files.first()? })
    }

    /// Where the program is, for files that it reads.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The command that runs it.
    pub fn command(&self) -> Command {
        let mut command = Command::new("node");
        command.arg(self.folder.path().join(self.file));
        command
    }
}

fn has_node() -> bool {
    let check = "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)";
    Command::new("node").args(["-e", check]).status().is_ok_and(|status| status.success())
}
