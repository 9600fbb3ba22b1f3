//! Modules of Go's public proxy, pinned by version and by their hash in Go's checksum database. Programs are built in the
//! folder of their module, so that its `go.sum` pins the dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::process::{capture_output_with_retries, has_program};
use crate::report::Unavailable;

/// A pinned module.
pub struct GoModule {
    /// Its path at the proxy.
    pub path: &'static str,
    /// The pinned version.
    pub version: &'static str,
    /// Its hash, as in `go.sum`.
    pub sum: &'static str,
}

impl GoModule {
    /// The stamp of what is made from this module alone.
    pub fn recipe(&self) -> String {
        format!("{} {} {}", self.path, self.version, self.sum)
    }
}

/// Whether Go is installed.
pub fn is_installed() -> bool {
    has_program("go")
}

/// Downloads a module into Go's cache unless it is there, and returns its folder.
///
/// # Errors
/// When the proxy cannot be reached, or the module does not have the pinned hash.
pub fn download_module(module: &GoModule) -> anyhow::Result<PathBuf> {
    let wanted = format!("{}@{}", module.path, module.version);
    // In a folder without a `go.mod`, so that no module above the checkout takes part.
    let output = capture_output_with_retries(
        Command::new("go").args(["mod", "download", "-json", &wanted]).current_dir(std::env::temp_dir()),
    )
    .map_err(|error| unavailable(module, &format!("{error:#}")))?;
    let download: Value =
        serde_json::from_str(&output).context("the output of `go mod download` is not JSON")?;
    let sum = download["Sum"].as_str().unwrap_or_default();
    if sum != module.sum {
        return Err(unavailable(module, &format!("its hash is {sum}, expected {}", module.sum)).into());
    }
    download["Dir"].as_str().map(PathBuf::from).context("`go mod download` names no folder")
}

/// Builds the program `package` of a module into the file `target`.
///
/// # Errors
/// When it cannot be fetched or built.
pub fn build_program(program: &GoModule, package: &str, target: &Path) -> anyhow::Result<()> {
    let folder = download_module(program)?;
    // Without symbols: a third smaller and linked faster.
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
