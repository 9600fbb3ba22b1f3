//! Tools of the tests: the oRPC client, a fuzzer that reads the OpenAPI document, and the servers of the cluster profile.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::python::{self, PythonEnvironment};
use super::system;
use crate::digest;
use crate::layout::Layout;
use crate::process::{capture_output_with_retries, has_program};
use crate::report::{StepOutcome, Unavailable, print_note};

const SCHEMATHESIS: &str = "schemathesis==4.32.5";
const SCHEMATHESIS_FOLDER: &str = "venv-test";
const CLIENT_FOLDER: &str = "node";
/// Checks signatures and expiry, and needs only cargo and two minutes on two cores to build (versitygw needs Go and contains
/// the SDKs of three clouds). The newest version that the workspace's Rust builds.
const S3_SERVER: (&str, &str) = ("s3s-fs", "0.14.1");
const S3_SERVER_FOLDER: &str = "s3-server";

/// Verified by Go's checksum database.
const NATS_SERVER: &str = "github.com/nats-io/nats-server/v2@v2.14.9";
const NATS_FOLDER: &str = "nats";

/// The folder in which Node.js finds the client.
pub fn node_modules(layout: &Layout) -> PathBuf {
    layout.state_path(CLIENT_FOLDER).join("node_modules")
}

/// The fuzzer's program.
pub fn schemathesis(layout: &Layout) -> PathBuf {
    layout.state_path(SCHEMATHESIS_FOLDER).join("bin/schemathesis")
}

/// The S3 server's program.
pub fn s3_server(layout: &Layout) -> PathBuf {
    layout.state_path(S3_SERVER_FOLDER).join("bin").join(S3_SERVER.0)
}

/// Installs the client by its lock file.
pub fn install_client(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = layout.state_path(CLIENT_FOLDER);
    let mut recipe = String::new();
    for name in ["package.json", "package-lock.json"] {
        let source = layout.checkout_path("tests/orpc").join(name);
        let text =
            std::fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
        recipe.push_str(&digest::hash_text(&text));
    }
    if digest::has_stamp(&folder, &recipe) {
        return Ok(StepOutcome::Present);
    }
    digest::recreate_folder(&folder)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(layout.checkout_path("tests/orpc").join(name), folder.join(name))?;
    }
    capture_output_with_retries(
        Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder),
    )
    .map_err(|error| Unavailable {
        what: "the oRPC client from npm".into(),
        why: format!("{error:#}"),
        remedy: "check that this machine reaches npm's registry, then run this again".into(),
    })?;
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done("installed by npm, as locked".into()))
}

/// Installs the fuzzer into a Python environment of its own.
pub fn install_schemathesis(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let recipe = python::recipe(layout, &[SCHEMATHESIS])?;
    if digest::has_stamp(&layout.state_path(SCHEMATHESIS_FOLDER), &recipe) && schemathesis(layout).is_file() {
        return Ok(StepOutcome::Present);
    }
    PythonEnvironment::new(layout, SCHEMATHESIS_FOLDER)?.with_packages(&[SCHEMATHESIS]).map_err(|error| {
        Unavailable {
            what: SCHEMATHESIS.into(),
            why: format!("{error:#}"),
            remedy: "check that this machine reaches PyPI, then run this again".into(),
        }
    })?;
    Ok(StepOutcome::Done(SCHEMATHESIS.into()))
}

/// The NATS server of the cluster profile: built here, else the system's.
pub fn nats_server(layout: &Layout) -> PathBuf {
    let built = layout.state_path(NATS_FOLDER).join("nats-server");
    if built.is_file() { built } else { PathBuf::from(system::NATS_SERVER) }
}

/// Builds the server with Go in half a minute; without Go installs the system's, which is older.
pub fn install_nats_server(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = layout.state_path(NATS_FOLDER);
    if digest::has_stamp(&folder, NATS_SERVER) && nats_server(layout).is_file() {
        return Ok(StepOutcome::Present);
    }
    if !has_program("go") {
        return system::install(system::NATS);
    }
    digest::recreate_folder(&folder)?;
    capture_output_with_retries(Command::new("go").args(["install", NATS_SERVER]).env("GOBIN", &folder)).map_err(|error| {
        Unavailable {
            what: NATS_SERVER.into(),
            why: format!("{error:#}"),
            remedy: "check that this machine reaches Go's module proxy and that its Go is new enough, then run this again; \
                     without Go on the path the system's nats-server is used"
                .into(),
        }
    })?;
    digest::write_stamp(&folder, NATS_SERVER)?;
    Ok(StepOutcome::Done(format!("built {NATS_SERVER}")))
}

/// Builds the S3 server with the dependencies of its lock file.
pub fn install_s3_server(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let (name, version) = S3_SERVER;
    let recipe = format!("{name} {version}");
    let folder = layout.state_path(S3_SERVER_FOLDER);
    if digest::has_stamp(&folder, &recipe) && s3_server(layout).is_file() {
        return Ok(StepOutcome::Present);
    }
    print_note("building the S3 server of the tests (minutes)");
    digest::recreate_folder(&folder)?;
    let mut install = Command::new("cargo");
    install.args(["install", "--quiet", "--locked", "--features", "binary", "--version", version, name]);
    capture_output_with_retries(install.arg("--root").arg(&folder)).map_err(|error| Unavailable {
        what: recipe.clone(),
        why: format!("{error:#}"),
        remedy: "check that cargo reaches its registry, then run this again".into(),
    })?;
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done(recipe))
}
