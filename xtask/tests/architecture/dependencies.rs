//! Which crate may depend on which, from `cargo metadata`. Normal dependencies only: tests may use every crate.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::source;

/// The crates of this workspace that a package may depend on, and the external ones that it must not.
struct DependencyRule {
    package: &'static str,
    workspace: &'static [&'static str],
    forbidden: &'static [&'static str],
}

const ALLOCATORS: &str = "photofinish-allocators";
const CLIENT: &str = "photofinish-client";
const CUDA: &str = "photofinish-cuda";
const DOT: &str = "photofinish-dot";
const JPEG: &str = "photofinish-jpeg";
const KERNELS: &str = "photofinish-kernels";
const LAUNCHER: &str = "photofinish-launcher";
const LIBFACEDETECTION: &str = "photofinish-libfacedetection";
const MODELS: &str = "photofinish-models";
const STORE: &str = "photofinish-store";
const CONSOLE: &str = "photofinish-console";
const ZOO: &str = "photofinish-zoo";

/// Packages that may depend on every crate: the composition root, and those that test or measure the whole.
const MAY_USE_ALL: [&str; 5] =
    ["photofinish", "photofinish-attack", "photofinish-bench", "photofinish-soak", "photofinish-tests"];

const RULES: [DependencyRule; 17] = [
    // Its unsafe code must stay small.
    DependencyRule {
        package: ALLOCATORS,
        workspace: &[],
        forbidden: &["ort", "image", "tokio", "sqlx", "ureq"],
    },
    DependencyRule { package: DOT, workspace: &[], forbidden: &["image", "tokio"] },
    // It could be published on its own.
    DependencyRule { package: JPEG, workspace: &[], forbidden: &["image", "turbojpeg", "tokio"] },
    // Its unsafe code must stay small.
    DependencyRule { package: CUDA, workspace: &[], forbidden: &["ort", "image", "tokio", "wgpu"] },
    DependencyRule {
        package: KERNELS,
        workspace: &[CUDA, DOT],
        forbidden: &["ort", "image", "tokio", "sqlx"],
    },
    DependencyRule { package: ZOO, workspace: &[], forbidden: &["ort", "image", "tokio", "sqlx", "ureq"] },
    DependencyRule {
        package: LIBFACEDETECTION,
        workspace: &[],
        forbidden: &["ort", "image", "tokio", "sqlx", "ureq"],
    },
    DependencyRule {
        package: MODELS,
        workspace: &[KERNELS, LIBFACEDETECTION, ZOO],
        forbidden: &["image", "tokio", "sqlx", "warp"],
    },
    DependencyRule { package: STORE, workspace: &[KERNELS], forbidden: &["warp", "ort"] },
    DependencyRule {
        package: "photofinish-pipeline",
        workspace: &[JPEG, KERNELS, MODELS, STORE],
        forbidden: &["warp", "sqlx", "object_store", "serde_json"],
    },
    DependencyRule {
        package: "photofinish-api",
        workspace: &[CONSOLE, STORE],
        forbidden: &["ort", "wgpu", "cudarc", "image", "crossbeam-channel", "crossbeam"],
    },
    DependencyRule { package: CONSOLE, workspace: &[], forbidden: &["warp", "tokio"] },
    // The demo builds it beside the service, so it must stay small.
    DependencyRule {
        package: "photofinish-scenes",
        workspace: &[],
        forbidden: &["ort", "tokio", "sqlx", "warp", "ureq"],
    },
    // It starts servers for tests and must know nothing of the product.
    DependencyRule {
        package: "photofinish-servers",
        workspace: &[],
        forbidden: &["ort", "sqlx", "object_store", "async-nats"],
    },
    // A partner's program: it knows the contract, and nothing of the service behind it.
    DependencyRule {
        package: CLIENT,
        workspace: &[],
        forbidden: &["tokio", "sqlx", "warp", "reqwest", "ort", "image"],
    },
    DependencyRule {
        package: LAUNCHER,
        workspace: &[CLIENT],
        forbidden: &["tokio", "sqlx", "warp", "ort", "image"],
    },
    // Must build fast on a fresh machine: only the list of models, and for the demo the client and the launcher, whose
    // HTTP library the service needs anyway.
    DependencyRule {
        package: "xtask",
        workspace: &[ZOO, CLIENT, LAUNCHER],
        forbidden: &["ort", "image", "tokio", "sqlx", "warp", "ureq", "reqwest"],
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
fn no_crate_has_a_forbidden_dependency() {
    let metadata = metadata();
    let members: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut broken = Vec::new();
    for package in &metadata.packages {
        let Some(rule) = RULES.iter().find(|rule| rule.package == package.name.as_str()) else { continue };
        for dependency in normal_dependencies(package) {
            let is_outside_the_rule = members.contains(dependency) && !rule.workspace.contains(&dependency);
            if is_outside_the_rule || rule.forbidden.contains(&dependency) {
                broken.push(format!("{} must not depend on {dependency}", rule.package));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_crate_has_a_rule() {
    for package in &metadata().packages {
        let name = package.name.as_str();
        let known = MAY_USE_ALL.contains(&name) || RULES.iter().any(|rule| rule.package == name);
        assert!(known, "{name} has no rule: add one to RULES");
    }
}

#[test]
fn every_version_is_in_the_workspace_manifest() {
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
