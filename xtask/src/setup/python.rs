//! Python for set-up: the system's where its standard library suffices, private environments for the rest. Nothing is
//! installed outside `.photofinish`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::digest;
use crate::layout::Layout;
use crate::process::{capture_output, capture_output_with_retries};

/// The versions of all indirect dependencies, for pip.
const CONSTRAINTS: &str = "constraints.txt";

/// Runs one of set-up's programs with the system's Python.
pub fn run_script(layout: &Layout, name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    capture_output(Command::new("python3").arg("-B").arg(layout.script_path(name)).args(arguments))
}

/// Runs one of set-up's programs with the packages of `convert/requirements.txt`.
pub fn run_conversion(layout: &Layout, name: &str, arguments: &[&OsStr]) -> anyhow::Result<String> {
    let requirements = std::fs::read_to_string(layout.script_path("requirements.txt"))?;
    let packages: Vec<&str> =
        requirements.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let python = PythonEnvironment::new(layout, "venv")?.with_packages(&packages)?;
    capture_output(python.program("python").arg("-B").arg(layout.script_path(name)).args(arguments))
}

/// The stamp of an environment with these packages.
pub fn recipe(layout: &Layout, packages: &[&str]) -> anyhow::Result<String> {
    let path = layout.script_path(CONSTRAINTS);
    let constraints = digest::hash_file(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{}\n{CONSTRAINTS} {constraints}", packages.join("\n")))
}

/// A private environment.
pub struct PythonEnvironment {
    layout: Layout,
    folder: PathBuf,
    /// Whether nothing has been installed into it.
    is_empty: bool,
}

impl PythonEnvironment {
    /// Opens the environment, and creates it when it is missing or its Python does not start.
    pub fn new(layout: &Layout, name: &str) -> anyhow::Result<Self> {
        let mut environment =
            Self { layout: layout.clone(), folder: layout.state_path(name), is_empty: false };
        if capture_output(environment.program("python").args(["-c", "import pip"])).is_err() {
            environment.recreate()?;
        }
        Ok(environment)
    }

    fn recreate(&mut self) -> anyhow::Result<()> {
        digest::recreate_folder(&self.folder)?;
        capture_output(Command::new("python3").args(["-m", "venv"]).arg(&self.folder))
            .context("cannot make a Python environment")?;
        self.is_empty = true;
        Ok(())
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// A pip command that takes all versions from the constraints, those of build dependencies too.
    pub fn pip(&self, command: &str) -> Command {
        let mut pip = self.program("python");
        pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check"]);
        // A bare file name: pip splits these variables at spaces. Older versions of pip use the first variable for build
        // dependencies too.
        pip.current_dir(self.layout.script_path("")).env("PIP_CONSTRAINT", CONSTRAINTS);
        pip.env("PIP_BUILD_CONSTRAINT", CONSTRAINTS);
        pip
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Installs these packages and no others.
    pub fn with_packages(mut self, packages: &[&str]) -> anyhow::Result<Self> {
        let recipe = recipe(&self.layout, packages)?;
        if !digest::has_stamp(&self.folder, &recipe) {
            // Pip treats what an interrupted install left as complete, so the environment is created again. The old one
            // stays aside until the new one is complete: there may be no network now.
            let aside = self.folder.with_extension("before");
            if !self.is_empty {
                digest::recreate_folder(&aside)?;
                std::fs::rename(&self.folder, &aside)?;
                self.recreate()?;
            }
            if let Err(error) = capture_output_with_retries(self.pip("install").args(packages)) {
                if aside.is_dir() {
                    digest::recreate_folder(&self.folder)?;
                    std::fs::rename(&aside, &self.folder)?;
                }
                return Err(error);
            }
            digest::write_stamp(&self.folder, &recipe)?;
            if aside.is_dir() {
                std::fs::remove_dir_all(&aside)?;
            }
        }
        Ok(self)
    }

    /// Installs packages beside those that are there, which keep their versions if they may. They are gone when the environment
    /// is created again.
    pub fn add_packages(&self, packages: &[&str]) -> anyhow::Result<()> {
        // Asks no index for what is installed.
        capture_output_with_retries(self.pip("install").args(packages)).map(drop)
    }
}
