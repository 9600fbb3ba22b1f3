//! Names and numbers at their limits: what the chart's schema accepts, Kubernetes must accept too.

use std::collections::BTreeSet;

use serde_json::json;

use crate::rendering::{EXAMPLES, Helm, documents, find_manifest, title};

#[test]
fn long_names_fit_everywhere() {
    let Some(helm) = Helm::find("long_names_fit_everywhere") else { return };
    let long = "race-of-many-kilometres-".repeat(4);
    for value in ["fullnameOverride", "nameOverride"] {
        let manifests = helm.manifests(EXAMPLES[0], &["--set", &format!("{value}={long}")]);
        let mut titles = BTreeSet::new();
        for manifest in &manifests {
            let name = manifest["metadata"]["name"].as_str().expect("a name");
            // A CronJob's Jobs add 11 letters to it.
            let limit = if manifest["kind"] == "CronJob" { 52 } else { 63 };
            assert!(name.len() <= limit, "{value}: {} has {} letters", title(manifest), name.len());
            assert!(!name.ends_with('-'), "{value}: {}", title(manifest));
            assert!(titles.insert(title(manifest)), "{value}: two of {}", title(manifest));
        }
    }
}

/// As on OpenShift, which assigns users to each namespace.
#[test]
fn null_values_are_left_to_kubernetes() {
    let Some(helm) = Helm::find("null_values_are_left_to_kubernetes") else { return };
    let values = ["--set", "securityContext.runAsUser=null", "--set", "migration.backoffLimit=null"];
    let manifests = helm.manifests(EXAMPLES[0], &values);
    assert!(!manifests.iter().any(|manifest| manifest.to_string().contains("nil")), "{manifests:?}");
}

/// Helm parses the numbers of a values file, and of `--set-json`, as floats.
#[test]
fn integers_stay_integers_and_fractions_stay_fractions() {
    let Some(helm) = Helm::find("integers_stay_integers_and_fractions_stay_fractions") else { return };
    let values = [
        "settings.FACE_INDEX_MB=1000000",
        "settings.FACE_THRESHOLD=0.5",
        r#"tracing={"endpoint":"http://collector:4318","samplingRatio":0.25}"#,
        // A user that OpenShift assigns.
        r#"securityContext={"runAsUser":1000680000,"runAsGroup":1000680000}"#,
        "api.terminationGracePeriodSeconds=1000000",
        "worker.terminationGracePeriodSeconds=1000000",
        "migration.activeDeadlineSeconds=1000000",
        "sweep.activeDeadlineSeconds=1000000",
        "worker.keda.lagThreshold=2000000",
        "worker.keda.activationLagThreshold=3000000",
        "worker.keda.photosPerWorker=4000000",
        r#"worker.keda.prometheusAddress="http://prometheus:9090""#,
        "worker.keda.cooldownPeriod=5000000",
    ];
    let values: Vec<&str> = values.into_iter().flat_map(|value| ["--set-json", value]).collect();
    let text = helm.text(EXAMPLES[0], &values);
    for line in text.lines() {
        assert!(!line.contains("e+0"), "a whole number became a float: {line}");
    }
    let manifests = documents(&text);
    let api = &find_manifest(&manifests, "Deployment photofinish-api")["spec"]["template"]["spec"];
    assert_eq!(api["securityContext"]["runAsUser"], 1_000_680_000);
    let environment = api["containers"][0]["env"].as_array().expect("an environment");
    for (name, value) in [
        ("PHOTOFINISH_FACE_INDEX_MB", "1000000"),
        ("PHOTOFINISH_FACE_THRESHOLD", "0.5"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
    ] {
        assert!(environment.contains(&json!({"name": name, "value": value})), "{name}: {environment:?}");
    }
    let scaler = &find_manifest(&manifests, "ScaledObject photofinish-worker")["spec"];
    assert_eq!(scaler["cooldownPeriod"], 5_000_000);
    assert_eq!(scaler["triggers"][0]["metadata"]["lagThreshold"], "2000000");
    assert_eq!(scaler["triggers"][1]["metadata"]["threshold"], "4000000");
    assert_eq!(
        find_manifest(&manifests, "Job photofinish-migrate")["spec"]["activeDeadlineSeconds"],
        1_000_000
    );
}
