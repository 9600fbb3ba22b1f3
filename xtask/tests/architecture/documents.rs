//! Documents stay true: the architecture page names every crate and every stage, and every test that a page cites exists.

use cargo_metadata::MetadataCommand;

use super::source;

const PAGE: &str = "docs/ARCHITECTURE.md";

/// The stages in the order in which a photo passes them.
const STAGES: [&str; 8] = ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

#[test]
fn the_architecture_page_names_every_crate() {
    let page = source::text(PAGE);
    let root = source::root();
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec().unwrap();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap().strip_prefix(root.to_str().unwrap()).unwrap();
        if !folder.as_str().is_empty() {
            assert!(page.contains(&format!("{folder}/")), "{PAGE} does not name {folder}/");
        }
    }
}

#[test]
fn the_architecture_page_names_every_stage_and_every_stage_has_its_module() {
    let page = source::text(PAGE);
    let files = source::files();
    for stage in STAGES {
        assert!(page.contains(&format!("| `{stage}` |")), "{PAGE} does not describe the stage {stage}");
        let places =
            [format!("pipeline/src/stages/{stage}.rs"), format!("pipeline/src/stages/{stage}/mod.rs")];
        assert!(
            places.iter().any(|place| files.contains(place)),
            "the stage {stage} has no module of its own"
        );
    }
}

#[test]
fn every_test_that_a_page_cites_exists() {
    let code: String = source::rust().into_iter().map(|(_, text)| text).collect();
    for page in source::files().iter().filter(|name| name.ends_with(".md")) {
        for name in source::text(page).split('`').filter_map(|word| word.strip_prefix("test ")) {
            assert!(
                code.contains(&format!("fn {name}(")),
                "{page} names the test {name}, which does not exist"
            );
        }
    }
}
