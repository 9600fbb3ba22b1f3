//! The alert rules and the dashboard: each query is valid PromQL. An architecture test checks that the metrics exist.

use promql_parser::parser;
use serde_json::Value;

use crate::rendering::{EXAMPLES, Helm, chart, documents, find_manifest, title};

/// Alerts that must exist.
const NEEDED: [&str; 5] = [
    "PhotofinishQueueIsOld",
    "PhotofinishPhotosFail",
    "PhotofinishWorkerDown",
    "PhotofinishNobodyWorks",
    "PhotofinishApiDown",
];

/// Returns whether a query divides by a sum that may be empty. A pod that finished no photo may have no such series; a
/// sum over it is empty and not 0, and so is the quotient: no photo finishes, and no alert fires.
fn divides_by_possibly_empty_sum(query: &str) -> bool {
    let divisor = query.split_once('/').map_or("", |(_, divisor)| divisor);
    divisor
        .split("photofinish_photos_finished_total")
        .skip(1)
        .all(|rest| rest.split_once("]))").is_some_and(|(_, after)| after.starts_with(" or vector(0))")))
}

#[test]
fn the_lost_leases_alert_needs_a_count_and_a_share() {
    let Some(helm) = Helm::find("the_lost_leases_alert_needs_a_count_and_a_share") else { return };
    let manifests = helm.manifests(EXAMPLES[0], &[]);
    let groups = &find_manifest(&manifests, "PrometheusRule photofinish")["spec"]["groups"];
    let rules = groups.as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array());
    let alert = rules.flatten().find(|rule| rule["alert"] == "PhotofinishLeasesLost").expect("the alert");
    let query = alert["expr"].as_str().expect("a query").replace('\n', " ");
    let (floor, share) = query.split_once(" and ").expect("two conditions");
    assert!(
        floor.contains("leases_lost") && floor.ends_with("> 10"),
        "a few lost leases must not alert: {floor}"
    );
    let is_relative =
        share.contains("leases_lost") && share.contains("/ (sum(increase(photofinish_photos_finished");
    assert!(is_relative && share.ends_with("> 1"), "busy workers lose some leases: {share}");
}

/// The first start on a GPU compiles kernels: neither an update nor a new worker has failed because of it.
#[test]
fn a_worker_may_take_as_long_to_start_as_its_probe_gives_it() {
    let Some(helm) = Helm::find("a_worker_may_take_as_long_to_start_as_its_probe_gives_it") else { return };
    let slower = ["--set", "worker.probes.startup.failureThreshold=721"];
    let cases: [(&str, &[&str], u64, &str); 3] =
        [(EXAMPLES[0], &[], 600, "5m"), (EXAMPLES[1], &[], 1200, "15m"), (EXAMPLES[1], &slower, 3905, "61m")];
    for (example, values, deadline, down_for) in cases {
        let manifests = helm.manifests(example, values);
        let workers = &find_manifest(&manifests, "Deployment photofinish-worker")["spec"];
        assert_eq!(workers["progressDeadlineSeconds"], deadline, "{example}");
        let groups = &find_manifest(&manifests, "PrometheusRule photofinish")["spec"]["groups"];
        let rules = groups.as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array());
        let alert = rules.flatten().find(|rule| rule["alert"] == "PhotofinishWorkerDown").expect("the alert");
        assert_eq!(alert["for"], down_for, "{example}");
    }
}

#[test]
fn every_alert_is_valid_promql_and_is_documented() {
    let Some(helm) = Helm::find("every_alert_is_promql_and_says_what_is_wrong") else { return };
    let manifests = helm.manifests(EXAMPLES[0], &[]);
    let groups =
        find_manifest(&manifests, "PrometheusRule photofinish")["spec"]["groups"].as_array().expect("groups");
    let rules: Vec<&Value> = groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
    for rule in &rules {
        let name = rule["alert"].as_str().expect("a name");
        let query = rule["expr"].as_str().expect("a query");
        if let Err(error) = parser::parse(query) {
            panic!("{name}: {error} in {query}");
        }
        assert!(query.contains("namespace=\"photos\""), "{name} includes other releases: {query}");
        assert!(divides_by_possibly_empty_sum(query), "{name} is silent while no photo finishes: {query}");
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().expect("a severity")));
        for text in ["summary", "description"] {
            assert!(
                rule["annotations"][text].as_str().is_some_and(|text| !text.is_empty()),
                "{name}: no {text}"
            );
        }
    }
    for needed in NEEDED {
        assert!(rules.iter().any(|rule| rule["alert"] == needed), "no alert {needed}");
    }
    let page = std::fs::read_to_string(chart().join("README.md")).expect("the chart's page");
    for rule in &rules {
        let name = rule["alert"].as_str().expect("a name");
        assert!(page.contains(&format!("| `{name}` |")), "the chart's page does not explain {name}");
    }
}

/// The dashboard of a release in the namespace `photos`, by the name of its file.
fn release_dashboard(helm: &Helm, release: &str) -> (String, Value) {
    let arguments = ["--namespace", "photos", "--kube-version", "1.37.0", "--values", EXAMPLES[0]];
    let output = helm.command(&["template", release], &arguments);
    let manifests = documents(output.expect_success());
    let is_dashboard = |manifest: &&Value| title(manifest).ends_with("-dashboard");
    let files = manifests.iter().find(is_dashboard).expect("a dashboard")["data"].as_object().expect("files");
    let (name, text) = files.iter().next().expect("a file");
    (name.clone(), serde_json::from_str(text.as_str().expect("a text")).expect("JSON"))
}

#[test]
fn two_releases_have_a_dashboard_each() {
    let Some(helm) = Helm::find("two_releases_have_a_dashboard_each") else { return };
    let dashboards = ["photofinish", "autumn"].map(|release| release_dashboard(&helm, release));
    let [(first, one), (second, other)] = &dashboards;
    assert_eq!([first, second], ["photos-photofinish.json", "photos-autumn-photofinish.json"]);
    assert_ne!(one["uid"], other["uid"]);
    assert_ne!(one["title"], other["title"]);
    for (_, dashboard) in &dashboards {
        assert!(dashboard["uid"].as_str().is_some_and(|uid| uid.len() <= 40), "{}", dashboard["uid"]);
    }
    let mut queries = 0;
    for targets in
        other["panels"].as_array().expect("panels").iter().flat_map(|panel| panel["targets"].as_array())
    {
        for query in targets.iter().map(|target| target["expr"].as_str().expect("a query")) {
            let selectors = query.matches("namespace=~").count();
            let of_service = query.matches(r#"service=~"autumn-photofinish-(api|worker)-admin""#).count();
            let of_pod = query.matches(r#"pod=~"autumn-photofinish-(api|worker)-.+""#).count();
            assert!(selectors > 0 && of_service + of_pod == selectors, "{query} includes other releases");
            queries += 1;
        }
    }
    assert!(queries > 30, "only {queries} queries");
}

#[test]
fn every_dashboard_panel_is_valid_promql() {
    let Some(helm) = Helm::find("every_dashboard_panel_is_valid_promql") else { return };
    let (_, dashboard) = release_dashboard(&helm, "photofinish");
    let mut ids = std::collections::BTreeSet::new();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "two panels have the id {}", panel["id"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            // What Grafana substitutes. Its other interval may contain a single sample, for which rate and increase return nothing.
            assert!(!query.contains("[$__interval]"), "{} may be empty: {query}", panel["title"]);
            let query = query.replace("$__rate_interval", "5m").replace("$namespace", "photos");
            if let Err(error) = parser::parse(&query) {
                panic!("{}: {error} in {query}", panel["title"]);
            }
            assert!(
                divides_by_possibly_empty_sum(&query),
                "{} is empty while no photo finishes",
                panel["title"]
            );
            queries += 1;
        }
    }
    assert!(queries > 30, "only {queries} queries");
}
