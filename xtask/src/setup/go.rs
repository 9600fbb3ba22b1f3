//! Modules of Go's public proxy, pinned by version and by the hash that Go's own checksum database keeps of them.
//! Programs are built where their module lies, so that its `go.sum` pins what it needs in turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::process::{capture_output_with_retries, has_program};
use crate::report::Unavailable;

/// A module.
pub struct GoModule {
    /// As the proxy knows it.
    pub path: &'static str,
    /// The pinned version.
    pub version: &'static str,
    /// Its hash, as in a `go.sum`.
    pub sum: &'static str,
}

impl GoModule {
    /// What a thing made from this module alone is stamped with.
    pub fn recipe(&self) -> String {
        format!("{} {} {}", self.path, self.version, self.sum)
    }
}

/// Whether Go is on this machine.
pub fn is_installed() -> bool {
    has_program("go")
}

/// The folder of a module in Go's cache, fetched when it is not there.
///
/// # Errors
/// When the proxy cannot be reached, or gives something else than what is pinned.
pub fn download_module(module: &GoModule) -> anyhow::Result<PathBuf> {
    let wanted = format!("{}@{}", module.path, module.version);
    // From a folder without a `go.mod`: a module above this checkout is none of ours.
    let answer = capture_output_with_retries(
        Command::new("go").args(["mod", "download", "-json", &wanted]).current_dir(std::env::temp_dir()),
    )
    .map_err(|error| unavailable(module, &format!("{error:#}")))?;
    let answer: Value = serde_json::from_str(&answer).context("`go mod download` did not answer in JSON")?;
    let sum = answer["Sum"].as_str().unwrap_or_default();
    if sum != module.sum {
        return Err(unavailable(module, &format!("its hash is {sum}, expected {}", module.sum)).into());
    }
    answer["Dir"].as_str().map(PathBuf::from).context("`go mod download` names no folder")
}

/// Builds a program of a module.
///
/// # Errors
/// When it cannot be fetched or built.
pub fn build_program(program: &GoModule, package: &str, target: &Path) -> anyhow::Result<()> {
    let folder = download_module(program)?;
    // Without symbols: a third smaller, and linked faster.
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"]).arg(target).arg(package);
    capture_output_with_retries(go.current_dir(folder))
        .map_err(|error| unavailable(program, &format!("{error:#}")))?;
    Ok(())
}

fn unavailable(module: &GoModule, why: &str) -> Unavailable {
    Unavailable {
        what: format!("{} {} through Go", module.path, module.version),
        why: why.to_owned(),
        remedy: "check that this machine reaches Go's module proxy (`go env GOPROXY`) and has Go 1.21 or newer, which \
                 fetches the version of itself that it needs"
            .into(),
    }
}
