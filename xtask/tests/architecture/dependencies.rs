//! The import law, from `cargo metadata`: normal dependencies only, since tests may look at everything.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::source;

/// A crate of the house: what of ours it may use, and what of others it must never use.
struct Law {
    package: &'static str,
    ours: &'static [&'static str],
    never: &'static [&'static str],
}

const KERNELS: &str = "photofinish-kernels";
const MODELS: &str = "photofinish-models";
const STORE: &str = "photofinish-store";
const ZOO: &str = "photofinish-zoo";

/// Crates that may use all of ours: the composition root, and those that look at the whole from outside.
const MAY_USE_ALL: [&str; 4] = ["photofinish", "photofinish-bench", "photofinish-soak", "photofinish-tests"];

const LAWS: [Law; 9] = [
    Law { package: KERNELS, ours: &[], never: &["ort", "image", "tokio", "sqlx"] },
    Law { package: ZOO, ours: &[], never: &["ort", "image", "tokio", "sqlx", "ureq"] },
    Law { package: MODELS, ours: &[KERNELS, ZOO], never: &["image", "tokio", "sqlx", "warp"] },
    Law { package: STORE, ours: &[KERNELS], never: &["warp", "ort"] },
    Law {
        package: "photofinish-pipeline",
        ours: &[KERNELS, MODELS, STORE],
        never: &["warp", "sqlx", "object_store", "serde_json"],
    },
    Law {
        package: "photofinish-api",
        ours: &[STORE],
        never: &["ort", "wgpu", "cudarc", "image", "crossbeam-channel", "crossbeam"],
    },
    // The demonstration builds it beside the service: it must stay small.
    Law { package: "photofinish-scenes", ours: &[], never: &["ort", "tokio", "sqlx", "warp", "ureq"] },
    // What it starts is to be found out about the product by its tests.
    Law { package: "photofinish-servers", ours: &[], never: &["ort", "sqlx", "object_store", "async-nats"] },
    // Builds fast on a fresh machine: nothing of ours but the list of networks, and no library for HTTP.
    Law {
        package: "xtask",
        ours: &[ZOO],
        never: &["ort", "image", "tokio", "sqlx", "warp", "ureq", "reqwest"],
    },
];

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(source::root().join("Cargo.toml")).no_deps().exec().unwrap()
}

fn normal_dependencies(package: &Package) -> BTreeSet<&str> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.as_str()).collect()
}

#[test]
fn no_crate_imports_what_the_law_forbids() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut broken = Vec::new();
    for package in &metadata.packages {
        let Some(law) = LAWS.iter().find(|law| law.package == package.name.as_str()) else { continue };
        for dependency in normal_dependencies(package) {
            let is_foreign_to_it = ours.contains(dependency) && !law.ours.contains(&dependency);
            if is_foreign_to_it || law.never.contains(&dependency) {
                broken.push(format!("{} must not import {dependency}", law.package));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_crate_is_under_the_law() {
    for package in &metadata().packages {
        let name = package.name.as_str();
        let known = MAY_USE_ALL.contains(&name) || LAWS.iter().any(|law| law.package == name);
        assert!(known, "{name} is new: say in the house's laws what it may import");
    }
}

#[test]
fn every_version_stands_in_the_workspace_manifest() {
    for package in &metadata().packages {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        let own = manifest.split("\n[workspace]").next().unwrap_or_default();
        let mut in_dependencies = false;
        for line in own.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies]");
            } else if in_dependencies && line.contains('=') {
                assert!(
                    line.contains("workspace = true"),
                    "{}: `{line}` names its own version",
                    package.name
                );
            }
        }
    }
}
