//! What tests talk to the service with: the real oRPC client, and a fuzzer that reads the OpenAPI document.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::python::Environment;
use crate::digest;
use crate::layout::Layout;
use crate::process::quiet;
use crate::report::{Outcome, Unavailable};

const SCHEMATHESIS: &str = "schemathesis==4.32.5";
const SCHEMATHESIS_FOLDER: &str = "venv-test";
const CLIENT_FOLDER: &str = "node";

/// Where Node.js finds the client.
pub fn node_modules(layout: &Layout) -> PathBuf {
    layout.state(CLIENT_FOLDER).join("node_modules")
}

/// The fuzzer's program.
pub fn schemathesis(layout: &Layout) -> PathBuf {
    layout.state(SCHEMATHESIS_FOLDER).join("bin/schemathesis")
}

/// Installs the client exactly as its lock file says.
pub fn install_client(layout: &Layout) -> anyhow::Result<Outcome> {
    let folder = layout.state(CLIENT_FOLDER);
    let mut recipe = String::new();
    for name in ["package.json", "package-lock.json"] {
        let source = layout.file("tests/orpc").join(name);
        let text =
            std::fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
        recipe.push_str(&digest::of_text(&text));
    }
    if digest::is_made_from(&folder, &recipe) {
        return Ok(Outcome::Present);
    }
    digest::emptied(&folder)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(layout.file("tests/orpc").join(name), folder.join(name))?;
    }
    quiet(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder))
        .map_err(|error| Unavailable {
            what: "the oRPC client from npm".into(),
            why: format!("{error:#}"),
            remedy: "check that this machine reaches npm's registry, then run this again".into(),
        })?;
    digest::note_made_from(&folder, &recipe)?;
    Ok(Outcome::Done("installed by npm, as locked".into()))
}

/// Installs the fuzzer into an environment of its own.
pub fn install_schemathesis(layout: &Layout) -> anyhow::Result<Outcome> {
    if digest::is_made_from(&layout.state(SCHEMATHESIS_FOLDER), SCHEMATHESIS)
        && schemathesis(layout).is_file()
    {
        return Ok(Outcome::Present);
    }
    Environment::new(layout, SCHEMATHESIS_FOLDER)?.with(&[SCHEMATHESIS]).map_err(|error| Unavailable {
        what: SCHEMATHESIS.into(),
        why: format!("{error:#}"),
        remedy: "check that this machine reaches PyPI, then run this again".into(),
    })?;
    Ok(Outcome::Done(SCHEMATHESIS.into()))
}
