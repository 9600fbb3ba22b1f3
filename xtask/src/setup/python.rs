//! Python for set-up: the system's for what its own library can do, private environments for the rest. Nothing is
//! installed outside `.photofinish`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::digest;
use crate::layout::Layout;
use crate::process::quiet;

/// Runs one of set-up's programs with the system's Python.
pub fn run_script(layout: &Layout, name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    quiet(Command::new("python3").arg("-B").arg(layout.script(name)).args(arguments))
}

/// Runs one of set-up's programs with the packages of `convert/requirements.txt`.
pub fn run_conversion(layout: &Layout, name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    let requirements = std::fs::read_to_string(layout.script("requirements.txt"))?;
    let packages: Vec<&str> =
        requirements.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let python = Environment::new(layout, "venv")?.with(&packages)?;
    quiet(python.program("python").arg("-B").arg(layout.script(name)).args(arguments))
}

/// A private environment.
pub struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// The environment of that name, made when it is not there or does not start any more.
    pub fn new(layout: &Layout, name: &str) -> anyhow::Result<Self> {
        let environment = Self { folder: layout.state(name) };
        if quiet(environment.program("python").args(["-c", "import pip"])).is_err() {
            digest::emptied(&environment.folder)?;
            quiet(Command::new("python3").args(["-m", "venv"]).arg(&environment.folder))
                .context("cannot make a Python environment")?;
        }
        Ok(environment)
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same, with these packages installed.
    pub fn with(self, packages: &[&str]) -> anyhow::Result<Self> {
        let recipe = packages.join("\n");
        if !digest::is_made_from(&self.folder, &recipe) {
            quiet(self.program("python").args(["-m", "pip", "install", "--quiet"]).args(packages))?;
            digest::note_made_from(&self.folder, &recipe)?;
        }
        Ok(self)
    }
}
