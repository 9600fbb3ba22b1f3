//! The network policies: which pods they select, and where these may connect to.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rendering::{EXAMPLES, Helm, find_manifest, title};

/// Returns the labels of the pods that a manifest creates.
fn pod_labels(manifest: &Value) -> Option<&Value> {
    let places = ["/spec/template/metadata/labels", "/spec/jobTemplate/spec/template/metadata/labels"];
    places.iter().find_map(|place| manifest.pointer(place))
}

/// Returns whether a policy restricts the egress of pods with these labels.
fn restricts_egress(policy: &Value, labels: &Value) -> bool {
    let wanted = policy["spec"]["podSelector"]["matchLabels"].as_object().expect("labels");
    let types = policy["spec"]["policyTypes"].as_array().expect("types");
    types.contains(&json!("Egress")) && wanted.iter().all(|(name, value)| labels[name] == *value)
}

/// Returns the ports that a policy permits its pods to connect to.
fn ports(policy: &Value) -> BTreeSet<u64> {
    let rules = policy["spec"]["egress"].as_array().expect("rules");
    let ports = rules.iter().flat_map(|rule| rule["ports"].as_array().expect("a rule that names ports"));
    ports.map(|port| port["port"].as_u64().expect("a number")).collect()
}

#[test]
fn a_console_with_a_service_of_its_own_is_reached_by_whom_its_policy_names() {
    let Some(helm) = Helm::find("a_console_with_a_service_of_its_own_is_reached_by_whom_its_policy_names")
    else {
        return;
    };
    let rules = |manifests: &[Value]| {
        let policy = find_manifest(manifests, "NetworkPolicy photofinish-api");
        policy["spec"]["ingress"].as_array().expect("rules").clone()
    };
    let of_console = |rule: &&Value| rule["ports"][0]["port"] == "console";
    let without = helm.manifests(EXAMPLES[0], &[]);
    assert!(rules(&without).iter().find(of_console).is_none());
    let office = r#"console.from=[{"ipBlock":{"cidr":"10.1.0.0/16"}}]"#;
    let own = "console.ownService=true,settings.CONSOLE_URL=https://console.example.com";
    let with = helm.manifests(EXAMPLES[0], &["--set", own, "--set-json", office]);
    let rules = rules(&with);
    let rule = rules.iter().find(of_console).expect("a rule of the console");
    assert_eq!(rule["from"], json!([{ "ipBlock": { "cidr": "10.1.0.0/16" } }]));
    let service = find_manifest(&with, "Service photofinish-console");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "console");
    let pod = &find_manifest(&with, "Deployment photofinish-api")["spec"]["template"]["spec"];
    let ports = pod["containers"][0]["ports"].as_array().expect("ports");
    assert!(ports.contains(&json!({ "name": "console", "containerPort": 8081, "protocol": "TCP" })));
}

#[test]
fn every_pod_has_a_policy() {
    let Some(helm) = Helm::find("every_pod_has_a_policy") else { return };
    for example in EXAMPLES {
        let manifests = helm.manifests(example, &[]);
        let policies: Vec<&Value> =
            manifests.iter().filter(|manifest| manifest["kind"] == "NetworkPolicy").collect();
        let makers: Vec<_> =
            manifests.iter().filter_map(|manifest| Some((title(manifest), pod_labels(manifest)?))).collect();
        assert_eq!(makers.len(), 4, "API, worker, migration and sweep");
        for (title, labels) in makers {
            let own = policies.iter().filter(|policy| restricts_egress(policy, labels)).count();
            assert_eq!(own, 1, "policies for the pods of {title}");
        }
    }
}

#[test]
fn pods_may_connect_only_to_what_they_need() {
    let Some(helm) = Helm::find("pods_may_connect_only_to_what_they_need") else { return };
    // All ports are different, so that each identifies its destination.
    let values = [
        r#"networkPolicy.egress.database=[{"ports":[{"port":6432,"protocol":"TCP"}]}]"#,
        r#"networkPolicy.egress.queue=[{"ports":[{"port":4333,"protocol":"TCP"}]}]"#,
        r#"networkPolicy.egress.storage=[{"ports":[{"port":9000,"protocol":"TCP"}]}]"#,
        r#"networkPolicy.egress.webhooks=[{"ports":[{"port":8443,"protocol":"TCP"}]}]"#,
        r#"networkPolicy.egress.other=[{"ports":[{"port":7000,"protocol":"TCP"}]}]"#,
        r#"tracing.endpoint="http://collector:4318""#,
    ];
    let values: Vec<&str> = values.into_iter().flat_map(|value| ["--set-json", value]).collect();
    let manifests = helm.manifests(EXAMPLES[0], &values);
    let cases: [(&str, &[u64]); 4] = [
        ("api", &[53, 6432, 4333, 9000, 8443, 7000, 4318]),
        ("worker", &[53, 6432, 4333, 9000, 7000, 4318]),
        ("sweep", &[53, 6432, 4333, 9000]),
        ("migrate", &[53, 6432]),
    ];
    for (component, needed) in cases {
        let policy = find_manifest(&manifests, &format!("NetworkPolicy photofinish-{component}"));
        let needed: BTreeSet<u64> = needed.iter().copied().collect();
        assert_eq!(ports(policy), needed, "{component}");
    }
}

/// The service permits URLs of webhooks with the port 443 and with those from 1024.
#[test]
fn webhooks_are_reached_on_every_port_that_their_urls_may_have() {
    let Some(helm) = Helm::find("webhooks_are_reached_on_every_port_that_their_urls_may_have") else {
        return;
    };
    let manifests = helm.manifests(EXAMPLES[0], &[]);
    let policy = find_manifest(&manifests, "NetworkPolicy photofinish-api");
    let rules = policy["spec"]["egress"].as_array().expect("rules");
    let rule = rules.iter().find(|rule| rule["to"][0]["ipBlock"]["cidr"] == "0.0.0.0/0");
    let rule = rule.expect("the rule of webhooks");
    let ports = json!([
        { "port": 443, "protocol": "TCP" },
        { "port": 1024, "endPort": 65535, "protocol": "TCP" },
    ]);
    assert_eq!(rule["ports"], ports);
    let excepted = rule["to"][0]["ipBlock"]["except"].as_array().expect("private networks");
    assert!(excepted.contains(&json!("10.0.0.0/8")), "{excepted:?}");
    assert_eq!(rule["to"][1]["ipBlock"]["cidr"], "::/0");
    let excepted = rule["to"][1]["ipBlock"]["except"].as_array().expect("private networks");
    assert!(excepted.contains(&json!("fc00::/7")), "{excepted:?}");
}

#[test]
fn only_who_has_a_role_reaches_the_metadata_of_the_machine() {
    let Some(helm) = Helm::find("only_who_has_a_role_reaches_the_metadata_of_the_machine") else { return };
    for (example, is_reached) in [(EXAMPLES[0], false), (EXAMPLES[1], true)] {
        let manifests = helm.manifests(example, &[]);
        for component in ["api", "worker", "sweep"] {
            let policy = find_manifest(&manifests, &format!("NetworkPolicy photofinish-{component}"));
            let rules = policy["spec"]["egress"].to_string();
            assert_eq!(rules.contains("169.254.169.254/32"), is_reached, "{component} of {example}");
        }
    }
}

#[test]
fn the_migration_policy_exists_before_the_migration_and_is_removed_with_it() {
    const TEST: &str = "the_migration_policy_exists_before_the_migration_and_is_removed_with_it";
    let Some(helm) = Helm::find(TEST) else { return };
    let manifests = helm.manifests(EXAMPLES[0], &[]);
    let notes = |title| &find_manifest(&manifests, title)["metadata"]["annotations"];
    let (policy, job) = (notes("NetworkPolicy photofinish-migrate"), notes("Job photofinish-migrate"));
    let weight = |notes: &Value| -> i32 {
        notes["helm.sh/hook-weight"].as_str().and_then(|weight| weight.parse().ok()).expect("a weight")
    };
    assert!(weight(policy) < weight(job), "the migration starts before its policy");
    for note in ["helm.sh/hook", "helm.sh/hook-delete-policy"] {
        assert_eq!(policy[note], job[note], "{note}");
    }
}

#[test]
fn disabled_components_have_no_policy() {
    let Some(helm) = Helm::find("disabled_components_have_no_policy") else { return };
    let cases: [(&str, &[&str]); 3] = [
        ("sweep.enabled=false", &["api", "worker", "migrate"]),
        ("migration.enabled=false", &["api", "worker", "sweep"]),
        ("networkPolicy.enabled=false", &[]),
    ];
    for (value, components) in cases {
        let manifests = helm.manifests(EXAMPLES[0], &["--set", value]);
        let policies: BTreeSet<String> =
            manifests.iter().filter(|manifest| manifest["kind"] == "NetworkPolicy").map(title).collect();
        let wanted: BTreeSet<String> =
            components.iter().map(|component| format!("NetworkPolicy photofinish-{component}")).collect();
        assert_eq!(policies, wanted, "{value}");
    }
}

#[test]
fn health_and_metrics_are_for_the_namespace_and_for_those_that_are_listed() {
    const TEST: &str = "health_and_metrics_are_for_the_namespace_and_for_those_that_are_listed";
    let Some(helm) = Helm::find(TEST) else { return };
    let prometheus = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}});
    let listed = format!("networkPolicy.adminFrom=[{prometheus}]");
    let cases = [
        ("networkPolicy.adminFrom=[]", json!([{"podSelector": {}}])),
        (listed.as_str(), json!([{"podSelector": {}}, prometheus])),
    ];
    for (value, expected) in cases {
        let manifests = helm.manifests(EXAMPLES[0], &["--set-json", value]);
        for name in ["NetworkPolicy photofinish-api", "NetworkPolicy photofinish-worker"] {
            let rules = find_manifest(&manifests, name)["spec"]["ingress"].as_array().expect("rules");
            let admin: Vec<_> = rules.iter().filter(|rule| rule["ports"][0]["port"] == "admin").collect();
            assert_eq!(admin.len(), 1, "{name}: {rules:?}");
            assert_eq!(admin[0]["from"], expected, "{name}");
        }
    }
}
