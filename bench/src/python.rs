//! Virtual environments of Python for the programs that we are compared with: packages of pinned versions, so that a figure
//! states what it is compared with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::paths::state_dir;

/// Creates the virtual environment `name` with these packages, unless it exists; returns its interpreter. `bare_packages` are
/// installed without their dependencies.
///
/// # Errors
/// When Python or a package is not available.
pub fn prepare_environment(name: &str, packages: &[&str], bare_packages: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = state_dir().join(name);
    let python = folder.join("bin").join("python");
    let marker = folder.join("packages.txt");
    let wanted = [packages, bare_packages].concat().join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        println!("using the environment: {}", folder.display());
        return Ok(python);
    }
    println!("creating the environment: {}", folder.display());
    run_command(Command::new("python3").arg("-m").arg("venv").arg(&folder))?;
    let pip = |arguments: &[&str], packages: &[&str]| {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"])
            .args(arguments)
            .args(packages);
        run_command(&mut pip)
    };
    pip(&[], packages)?;
    if !bare_packages.is_empty() {
        pip(&["--no-deps"], bare_packages)?;
    }
    std::fs::write(&marker, wanted)?;
    Ok(python)
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// When it cannot be started or fails, with what it wrote to standard error.
pub fn run_command(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{program} failed ({}): {error}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
