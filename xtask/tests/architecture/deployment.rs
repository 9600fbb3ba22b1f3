//! The chart, the images and the compose file name only metrics, settings and versions that exist in the code.

use std::collections::BTreeSet;

use super::source;

/// The alerts.
const ALERTS: &str = "helm/templates/prometheusrule.yaml";
/// Deployment files that name metrics.
const METRIC_FILES: [&str; 2] = ["helm/dashboards/photofinish.json", ALERTS];

/// Suffixes that Prometheus adds to the name of a histogram.
const HISTOGRAM_SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The words of `text` that start with `prefix` and continue with characters that `is_part` accepts.
fn words(text: &str, prefix: &str, is_part: fn(char) -> bool) -> BTreeSet<String> {
    let found = text.match_indices(prefix).map(|(start, _)| {
        let rest = &text[start + prefix.len()..];
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        format!("{prefix}{}", &rest[..end])
    });
    found.filter(|word| word != prefix).collect()
}

fn metrics_in(text: &str) -> BTreeSet<String> {
    words(text, "photofinish_", |letter| letter.is_ascii_lowercase() || letter == '_')
}

fn settings_in(text: &str) -> BTreeSet<String> {
    words(text, "PHOTOFINISH_", |letter| letter.is_ascii_uppercase() || letter == '_')
}

/// The metrics that the code exports: the public constants of the crates.
fn exported_metrics() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, text) in source::rust().into_iter().filter(|(name, _)| !source::is_test(name)) {
        if name.starts_with("xtask/") || name.starts_with("bench/") {
            continue;
        }
        let constants = text.lines().filter(|line| line.trim_start().starts_with("pub const "));
        names.extend(constants.flat_map(metrics_in));
    }
    names
}

fn known_settings() -> BTreeSet<String> {
    let config = source::rust().into_iter().filter(|(name, _)| name.starts_with("src/config/"));
    let declarations = config.flat_map(|(_, text)| {
        let lines = text.lines().filter(|line| line.contains("env = \"")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    });
    declarations.flat_map(|line| settings_in(&line)).collect()
}

fn deployed_files() -> impl Iterator<Item = String> {
    source::files().into_iter().filter(|name| name.starts_with("helm/") || name.starts_with("Dockerfile"))
}

#[test]
fn every_metric_on_the_dashboard_and_in_an_alert_is_exported() {
    let exported = exported_metrics();
    for file in METRIC_FILES {
        let named = metrics_in(&source::text(file));
        assert!(named.len() > 5, "{file} names only {named:?}");
        for metric in named {
            let histogram = HISTOGRAM_SUFFIXES.iter().find_map(|suffix| metric.strip_suffix(suffix));
            let is_exported =
                exported.contains(&metric) || histogram.is_some_and(|name| exported.contains(name));
            assert!(is_exported, "{file} names {metric}, which no crate exports");
        }
    }
}

/// The labels, each with its value, that expressions select or leave out: `reason="no_seat"`, `operation!="admin"`.
fn selected_labels(text: &str) -> BTreeSet<(String, String)> {
    let found = text.match_indices("=\"").filter_map(|(at, mark)| {
        let before = text[..at].trim_end_matches('!');
        let label = before.rsplit(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next()?;
        let (value, _) = text[at + mark.len()..].split_once('"')?;
        (!label.is_empty()).then(|| (label.to_owned(), value.to_owned()))
    });
    found.collect()
}

/// An alert that selects another value never fires.
#[test]
fn every_label_that_an_alert_selects_is_recorded_with_that_value() {
    let mut code = String::new();
    for (_, text) in source::rust().into_iter().filter(|(name, _)| !source::is_test(name)) {
        for line in text.lines().take(source::production_lines(&text)) {
            code.push_str(line);
            code.push('\n');
        }
    }
    let selected = selected_labels(&source::text(ALERTS));
    let expected = ("reason".to_owned(), "PROCESSING_CRASHED".to_owned());
    assert!(selected.len() >= 4 && selected.contains(&expected), "{selected:?}");
    for (label, value) in selected {
        let is_recorded = code.contains(&format!("\"{label}\" =>"));
        assert!(is_recorded, "{ALERTS} selects by {label}, which no metric has");
        assert!(
            code.contains(&format!("=> \"{value}\"")),
            "{ALERTS} selects {label}=\"{value}\", which no code gives it"
        );
    }
}

#[test]
fn every_setting_of_a_deployment_is_one_of_the_service() {
    let known = known_settings();
    assert!(known.len() > 20, "only {known:?}");
    for name in deployed_files() {
        for setting in settings_in(&source::text(&name)) {
            assert!(
                known.contains(&setting),
                "{name} names {setting}, which is not a setting of the service"
            );
        }
    }
    let schema: serde_json::Value = serde_json::from_str(&source::text("helm/values.schema.json")).unwrap();
    let settings = schema["properties"]["settings"]["properties"].as_object().unwrap();
    for setting in settings.keys() {
        assert!(
            known.contains(&format!("PHOTOFINISH_{setting}")),
            "the chart's settings.{setting} is not a setting of the service"
        );
    }
}

#[test]
fn chart_and_images_have_the_version_of_the_workspace() {
    let manifest = source::text("Cargo.toml");
    let field = |name: &str| {
        let line = manifest.lines().find(|line| line.starts_with(&format!("{name} = ")));
        line.and_then(|line| line.split('"').nth(1)).unwrap().to_owned()
    };
    let version = field("version");
    let chart = source::text("helm/Chart.yaml");
    assert!(chart.contains(&format!("appVersion: \"{version}\"")), "the chart deploys a different version");
    for name in ["Dockerfile", "Dockerfile.cuda", "Dockerfile.wgpu"] {
        let text = source::text(name);
        assert!(text.contains(&format!("image.version=\"{version}\"")), "{name} has a different version");
        assert!(
            text.contains(&format!("FROM rust:{}-", field("rust-version"))),
            "{name} builds with a different Rust version"
        );
    }
}

/// All images run the same binary as the same user in the same folders; only the ONNX Runtime library differs.
#[test]
fn all_images_run_the_same_way() {
    let lines = |name: &str| {
        let text = source::text(name);
        let last = text.split("\nFROM ").last().unwrap();
        let is_common = |line: &&str| {
            ["USER ", "ENTRYPOINT ", "STOPSIGNAL ", "EXPOSE ", "WORKDIR "]
                .iter()
                .any(|word| line.starts_with(word))
        };
        last.lines().filter(is_common).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("Dockerfile"), lines("Dockerfile.cuda"));
    assert_eq!(lines("Dockerfile"), lines("Dockerfile.wgpu"));
    assert_eq!(lines("Dockerfile").len(), 5);
}

/// A tag can be pushed again; what a digest names stays what was looked at.
#[test]
fn every_image_of_others_is_named_by_its_digest() {
    let own = "photofinish:";
    let mut images = Vec::new();
    for name in deployed_files().filter(|name| name.starts_with("Dockerfile") || name == "helm/compose.yaml")
    {
        for line in source::text(&name).lines() {
            let line = line.trim();
            let image = ["FROM ", "image: ", "# syntax="].iter().find_map(|word| line.strip_prefix(word));
            images.extend(image.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned));
        }
    }
    let others: Vec<_> = images.iter().filter(|image| !image.starts_with(own)).collect();
    assert_eq!(others.len(), 14, "three lines of each of three Dockerfiles, five images of the compose file");
    for image in others {
        let digest = image.split_once("@sha256:").map(|(_, digest)| digest).unwrap_or_default();
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_digest, "{image} is named by its tag alone");
    }
}

/// The service opens NVIDIA's libraries by their paths.
#[test]
fn no_image_sets_a_search_path_of_libraries() {
    for name in ["Dockerfile", "Dockerfile.cuda", "Dockerfile.wgpu"] {
        assert!(!source::text(name).contains("LD_LIBRARY_PATH"), "{name} sets one");
    }
}
