//! The cargo commands of the checks, built from crates.io by their lock files.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::digest;
use crate::layout::Layout;
use crate::process::capture_output_with_retries;
use crate::report::{StepOutcome, Unavailable, print_note};

const FOLDER: &str = "cargo-tools";

/// Name and version of each.
const TOOLS: [(&str, &str); 2] = [("cargo-deny", "0.20.2"), ("cargo-machete", "0.9.2")];

/// They run for seconds and build for minutes: optimised little, so that they build fast.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

/// The folder of the programs.
pub fn programs(layout: &Layout) -> PathBuf {
    layout.state_path(FOLDER).join("bin")
}

/// Builds the programs.
pub fn install(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let recipe = TOOLS.map(|(name, version)| format!("{name} {version}")).join("\n");
    let folder = layout.state_path(FOLDER);
    let is_complete = TOOLS.iter().all(|(name, _)| programs(layout).join(name).is_file());
    if digest::has_stamp(&folder, &recipe) && is_complete {
        return Ok(StepOutcome::Present);
    }
    digest::recreate_folder(&folder)?;
    for (name, version) in TOOLS {
        print_note(&format!("building {name} {version} (minutes)"));
        install_one(&folder, name, version)?;
    }
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done(recipe.replace('\n', ", ")))
}

fn install_one(folder: &Path, name: &str, version: &str) -> anyhow::Result<()> {
    let mut install = Command::new("cargo");
    install.args(["install", "--quiet", "--locked", "--version", version, name, "--root"]).arg(folder);
    // Not into the workspace's build folder, whatever the caller has set.
    install.envs(PROFILE).env_remove("CARGO_TARGET_DIR").env_remove("RUSTC_WRAPPER");
    capture_output_with_retries(&mut install).map_err(|error| Unavailable {
        what: format!("{name} {version}"),
        why: format!("{error:#}"),
        remedy: "check that cargo reaches its registry, then run this again".into(),
    })?;
    Ok(())
}
