//! Whether Kubernetes accepts what is rendered: validation against the schemas of its API and of the custom resources,
//! without unknown fields.

use std::path::{Path, PathBuf};

use jsonschema::{Registry, Validator};
use photofinish_tests::harness::{read_variable, repository_root, skip_or_fail};
use serde_json::{Value, json};

use crate::rendering::{EXAMPLES, Helm, documents, title};

/// The oldest Kubernetes that `Chart.yaml` names, and the newest.
const VERSIONS: [&str; 2] = ["1.30", "1.37"];

/// Custom resources that the chart uses.
const DEFINITIONS: [&str; 3] = [
    "keda.sh_scaledobjects.yaml",
    "monitoring.coreos.com_servicemonitors.yaml",
    "monitoring.coreos.com_prometheusrules.yaml",
];

/// What is rendered in addition to the examples: everything that they omit.
const VARIANTS: [&[&str]; 3] = [
    &[],
    &["--set", "worker.keda.enabled=false", "--set", "worker.hpa.enabled=true"],
    &[
        "--set-json",
        r#"extraEnv=[{"name":"A","value":"b"}]"#,
        "--set-json",
        r#"networkPolicy.apiFrom=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]"#,
        "--set-json",
        r#"image.pullSecrets=["registry"]"#,
        "--set-json",
        r#"api.affinity={"nodeAffinity":{}}"#,
        "--set",
        "api.priorityClassName=high,worker.podLabels.team=photos,api.podAnnotations.note=x,serviceAccount.create=false",
    ],
];

fn folder(test: &str) -> Option<PathBuf> {
    let folder = read_variable("PHOTOFINISH_TEST_CHART_SCHEMAS")
        .map_or_else(|| repository_root().join(".photofinish/chart-schemas"), PathBuf::from);
    if DEFINITIONS.iter().all(|name| folder.join(name).is_file()) {
        return Some(folder);
    }
    skip_or_fail(test, &format!("no schemas in {}: run `cargo xtask test`", folder.display()));
    None
}

/// The schemas of one version of Kubernetes, and of the custom resources.
struct Schemas {
    kubernetes: Value,
    definitions: Vec<Value>,
}

/// The URI that Kubernetes' schemas use in references.
const KUBERNETES_URI: &str = "https://kubernetes.io/api/_definitions.json";

impl Schemas {
    fn read(folder: &Path, version: &str) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        let kubernetes = read(&format!("kubernetes-{version}.json"));
        let definitions = DEFINITIONS.iter().flat_map(|name| documents(&read(name)));
        Self {
            kubernetes: serde_json::from_str(&kubernetes).expect("JSON"),
            definitions: definitions.collect(),
        }
    }

    /// Returns the problems of a manifest, each with its path.
    fn problems(&self, manifest: &Value) -> Vec<String> {
        let registry = Registry::new()
            .add(KUBERNETES_URI, &self.kubernetes)
            .and_then(|registry| registry.prepare())
            .expect("the schemas refer to each other");
        let schema = self.schema_of(manifest).unwrap_or_else(|| panic!("no schema of {}", title(manifest)));
        let validator: Validator =
            jsonschema::options().with_registry(&registry).build(&schema).expect("a schema");
        validator.iter_errors(manifest).map(|error| format!("{}: {error}", error.instance_path())).collect()
    }

    fn schema_of(&self, manifest: &Value) -> Option<Value> {
        let (api, kind) = (manifest["apiVersion"].as_str()?, manifest["kind"].as_str()?);
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        let wanted = json!({"group": group, "kind": kind, "version": version});
        let kubernetes = self.kubernetes["$defs"].as_object()?;
        let known = kubernetes.iter().find(|(_, schema)| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&wanted))
        });
        if let Some((name, _)) = known {
            return Some(json!({"$ref": format!("{KUBERNETES_URI}#/$defs/{name}")}));
        }
        let custom = self.definitions.iter().find(|definition| {
            definition["spec"]["group"] == group && definition["spec"]["names"]["kind"] == kind
        })?;
        let versions = custom["spec"]["versions"].as_array()?;
        let mut schema =
            versions.iter().find(|known| known["name"] == version)?["schema"]["openAPIV3Schema"].clone();
        refuse_unknown_fields(&mut schema);
        // Known to the API server; the definition only says that it is an object.
        schema["properties"]["metadata"] = json!({"$ref": format!("{KUBERNETES_URI}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")});
        Some(schema)
    }
}

/// Refuses fields that a custom resource does not define. An API server drops them silently; here they are errors.
fn refuse_unknown_fields(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(refuse_unknown_fields);
            let keeps = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            let is_closed = fields.get("properties").is_some_and(Value::is_object)
                && fields.get("type").is_some_and(|kind| kind == "object");
            if is_closed && !keeps && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_unknown_fields),
        _ => {}
    }
}

#[test]
fn kubernetes_accepts_everything_that_is_rendered() {
    const TEST: &str = "kubernetes_accepts_everything_that_is_rendered";
    let (Some(helm), Some(folder)) = (Helm::find(TEST), folder(TEST)) else { return };
    for version in VERSIONS {
        let schemas = Schemas::read(&folder, version);
        for example in EXAMPLES {
            for variant in VARIANTS {
                // The chart refuses CPU use for GPU workers, so this uses custom metrics.
                let metrics = r#"worker.hpa.metrics=[{"type":"External","external":{"metric":{"name":"lag"},"target":{"type":"AverageValue","averageValue":"200"}}}]"#;
                let arguments = [variant, &["--set-json", metrics]].concat();
                for manifest in helm.manifests(example, &arguments) {
                    let problems = schemas.problems(&manifest);
                    assert!(problems.is_empty(), "{version}, {example}: {}: {problems:#?}", title(&manifest));
                }
            }
        }
    }
}

#[test]
fn a_manifest_that_kubernetes_rejects_is_found() {
    const TEST: &str = "a_manifest_that_kubernetes_rejects_is_found";
    let (Some(helm), Some(folder)) = (Helm::find(TEST), folder(TEST)) else { return };
    let schemas = Schemas::read(&folder, VERSIONS[1]);
    let manifests = helm.manifests(EXAMPLES[0], &[]);
    let spoilt = [
        ("Deployment photofinish-api", "/spec/template/spec/containers/0/env/0", json!({"nane": "A"})),
        ("Deployment photofinish-api", "/spec/template/spec/terminationGracePeriodSeconds", json!("55")),
        (
            "ScaledObject photofinish-worker",
            "/spec/triggers/0",
            json!({"type": "nats-jetstream", "meta": {}}),
        ),
        ("ServiceMonitor photofinish", "/spec/endpoints/0", json!({"prot": "admin"})),
        ("PrometheusRule photofinish", "/spec/groups/0/rules/0", json!({"alert": "A", "exp": "up"})),
    ];
    for (wanted, place, wrong) in spoilt {
        let mut manifest = crate::rendering::find_manifest(&manifests, wanted).clone();
        *manifest.pointer_mut(place).expect("a place in the manifest") = wrong;
        assert!(!schemas.problems(&manifest).is_empty(), "{wanted} with a wrong {place} passes");
    }
}
