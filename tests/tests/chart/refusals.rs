//! What the chart refuses: wrong types by its schema, and wrong combinations by a message that says what to do.

use crate::rendering::{EXAMPLES, Helm};

/// An example, values that override it, and the expected message.
type Refusal = (&'static str, &'static [&'static str], &'static str);

const CPU: &str = EXAMPLES[0];
const GPU: &str = EXAMPLES[1];

/// Every message of `templates/_checks.tpl`, in its order.
const REFUSALS: [Refusal; 25] = [
    (CPU, &["settings.ENVIRONMENT="], "settings.ENVIRONMENT is missing"),
    (CPU, &["database.existingSecret="], "database.existingSecret is missing"),
    (CPU, &["queue.existingSecret="], "queue.existingSecret is missing"),
    (CPU, &["secretKey.existingSecret="], "secretKey.existingSecret is missing"),
    (CPU, &["storage.url="], "storage.url is missing"),
    (CPU, &["storage.url=file:/photos"], "storage.url begins with file:"),
    (
        CPU,
        &["storage.workloadIdentity=true"],
        "storage.existingSecret and storage.workloadIdentity are both set",
    ),
    (CPU, &["storage.existingSecret="], "storage.existingSecret is missing"),
    (CPU, &["storage.endpoint=http://s3.example.com"], "storage.allowHttp is false"),
    (CPU, &["storage.endpoint=https://s3.storage.svc:9000"], "storage.publicEndpoint is missing"),
    (
        CPU,
        &["storage.endpoint=http://minio.storage:9000", "storage.allowHttp=true"],
        "storage.publicEndpoint is missing",
    ),
    (CPU, &["worker.hpa.enabled=true"], "worker.keda.enabled and worker.hpa.enabled are both true"),
    (CPU, &["queue.monitoringEndpoint="], "queue.monitoringEndpoint is missing"),
    (
        CPU,
        &["worker.keda.minReplicas=30"],
        "worker.keda.minReplicas (30) is above worker.keda.maxReplicas (20)",
    ),
    (CPU, &["api.hpa.minReplicas=11"], "api.hpa.minReplicas (11) is above api.hpa.maxReplicas (10)"),
    (
        CPU,
        &["worker.rollingUpdate.maxSurge=0", "worker.rollingUpdate.maxUnavailable=0"],
        "no new version could ever start",
    ),
    (GPU, &["worker.gpu.count=0"], "worker.gpu.resource or worker.gpu.count is missing"),
    (GPU, &["worker.gpu.resource="], "worker.gpu.resource or worker.gpu.count is missing"),
    (GPU, &["worker.image.tag="], "name the image that was built from Dockerfile.cuda"),
    (GPU, &["worker.keda.enabled=false", "worker.hpa.enabled=true"], "give worker.hpa.metrics"),
    (CPU, &["api.terminationGracePeriodSeconds=40"], "is 40 but a stop may take 55 seconds"),
    (
        CPU,
        &["settings.DRAIN_SECONDS=60", "worker.terminationGracePeriodSeconds=80"],
        "is 80 but a stop may take 90 seconds",
    ),
    (CPU, &["ingress.hosts=null"], "ingress.hosts is empty"),
    (CPU, &["settings.PROXIES=0"], "settings.PROXIES is not at least 1"),
    (CPU, &["console.ownService=true"], "settings.CONSOLE_URL is missing"),
];

fn settings(values: &[&'static str]) -> Vec<&'static str> {
    values.iter().flat_map(|value| ["--set", *value]).collect()
}

#[test]
fn invalid_values_are_refused_with_a_message() {
    let Some(helm) = Helm::find("invalid_values_are_refused_with_a_sentence") else { return };
    for (example, values, sentence) in REFUSALS {
        let output = helm.template(example, &settings(values));
        assert_ne!(output.code, Some(0), "{values:?} is not refused");
        assert!(output.stderr.contains(sentence), "{values:?}: no `{sentence}` in {}", output.stderr);
        let sentences = output.stderr.lines().filter(|line| line.starts_with("- ")).count();
        assert_eq!(sentences, 1, "{values:?} is one problem: {}", output.stderr);
    }
}

#[test]
fn every_check_of_the_chart_is_tested_here() {
    let checks =
        std::fs::read_to_string(crate::rendering::chart().join("templates/_checks.tpl")).expect("the checks");
    let messages = checks.matches("append $problems").count();
    // Three messages have two refusals here: those for the autoscalers, the GPU's resource and the public endpoint.
    // Two messages have tests of their own: that for secrets in plain text, and that for a missing public URL, which both
    // examples have.
    let tested = REFUSALS.len() - 3 + 2;
    assert_eq!(messages, tested, "a message of the checks is not tested, or no longer exists");
}

#[test]
fn secrets_in_plain_text_are_refused() {
    let Some(helm) = Helm::find("secrets_in_plain_text_are_refused") else { return };
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "PHOTOFINISH_DATABASE_URL",
        "SOME_PASSWORD",
        "API_TOKEN",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    ] {
        let plain = format!("extraEnv=[{{\"name\":\"{name}\",\"value\":\"x\"}}]");
        let output = helm.template(CPU, &["--set-json", &plain]);
        assert!(
            output.stderr.contains(&format!("extraEnv gives {name} as plain text")),
            "{}",
            output.combined_output()
        );
        let reference = format!(
            "extraEnv=[{{\"name\":\"{name}\",\"valueFrom\":{{\"secretKeyRef\":{{\"name\":\"n\",\"key\":\"k\"}}}}}}]"
        );
        helm.text(CPU, &["--set-json", &reference]);
    }
}

#[test]
fn the_location_of_a_secret_may_be_given() {
    let Some(helm) = Helm::find("the_location_of_a_secret_may_be_given") else { return };
    for name in ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] {
        let path = format!("extraEnv=[{{\"name\":\"{name}\",\"value\":\"/run/token\"}}]");
        helm.text(CPU, &["--set-json", &path]);
    }
    let file = r#"extraEnv=[{"name":"PHOTOFINISH_SECRET_KEY","value":"file:/run/secrets/key"}]"#;
    helm.text(CPU, &["--set", "secretKey.existingSecret=", "--set-json", file]);
}

#[test]
fn links_that_would_lead_to_the_pod_are_refused() {
    let Some(helm) = Helm::find("links_that_would_lead_to_the_pod_are_refused") else { return };
    let output = |set: &str| {
        helm.command(&["template", "photofinish"], &["--kube-version", "1.37.0", "--set", set]).stderr
    };
    let message = "settings.PUBLIC_URL is missing";
    for given in [
        "settings.ENVIRONMENT=production",
        "settings.ENVIRONMENT=sandbox",
        "settings.ENVIRONMENT=local,ingress.enabled=true",
    ] {
        let refused = output(given);
        assert!(refused.contains(message), "{given}: {refused}");
    }
    for given in [
        "settings.ENVIRONMENT=production,settings.PUBLIC_URL=https://photos.example",
        "settings.ENVIRONMENT=local",
    ] {
        let others = output(given);
        assert!(!others.contains(message), "{given}: {others}");
    }
    let elsewhere = |name: &str| {
        let env = format!("extraEnv=[{{\"name\":\"{name}\",\"value\":\"https://photos.example\"}}]");
        let production = ["--kube-version", "1.37.0", "--set", "settings.ENVIRONMENT=production"];
        let arguments = [&production[..], &["--set-json", env.as_str()]].concat();
        helm.command(&["template", "photofinish"], &arguments).stderr
    };
    let given = elsewhere("PHOTOFINISH_PUBLIC_URL");
    assert!(!given.contains(message), "{given}");
    let refused = elsewhere("PHOTOFINISH_CONSOLE_URL");
    assert!(refused.contains(message), "{refused}");
}

#[test]
fn every_problem_is_reported_at_once() {
    let Some(helm) = Helm::find("every_problem_is_reported_at_once") else { return };
    let output = helm.command(&["template", "photofinish"], &["--kube-version", "1.37.0"]);
    for missing in ["settings.ENVIRONMENT", "database.existingSecret", "queue.existingSecret", "storage.url"]
    {
        assert!(output.stderr.contains(&format!("- {missing} is missing")), "{missing}: {}", output.stderr);
    }
}

#[test]
fn the_schema_refuses_values_of_a_wrong_kind() {
    let Some(helm) = Helm::find("the_schema_refuses_values_of_a_wrong_kind") else { return };
    let cases = [
        ("api.replicas=two", "/api/replicas"),
        ("api.replicaCount=2", "replicaCount"),
        ("database.password=x", "password"),
        ("settings.ENVIRONMENT=moon", "/settings/ENVIRONMENT"),
        ("settings.DATABASE_URL=postgres://u:p@h/d", "DATABASE_URL"),
        ("settings.MAX_PHOTO_MB=0", "/settings/MAX_PHOTO_MB"),
        ("settings.PUBLIC_URL=https://user:word@photos.example", "/settings/PUBLIC_URL"),
        ("securityContext.runAsUser=0", "/securityContext/runAsUser"),
        ("api.podDisruptionBudget.maxUnavailable=0", "/api/podDisruptionBudget/maxUnavailable"),
        ("api.resources.limits.memory=lots", "/api/resources/limits/memory"),
        ("queue.monitoringEndpoint=http://nats:8222", "/queue/monitoringEndpoint"),
        ("networkPolicy.egress={x}", "/networkPolicy/egress"),
        ("service.port=70000", "/service/port"),
        ("image.digest=latest", "/image/digest"),
        ("image.digest=sha256:abc", "/image/digest"),
        ("worker.image.digest=0.1.0", "/worker/image/digest"),
        ("scratch.tmp=lots", "/scratch/tmp"),
        ("scratch.data=0", "/scratch/data"),
        ("database.existingSecret=postgres://u:p@h/d", "/database/existingSecret"),
        // A quantile is never above the last bucket: the alert could not fire.
        ("prometheusRule.thresholds.requestSeconds=30", "/prometheusRule/thresholds/requestSeconds"),
        ("prometheusRule.thresholds.searchableSeconds=21600", "/prometheusRule/thresholds/searchableSeconds"),
    ];
    for (value, place) in cases {
        let output = helm.template(CPU, &["--set", value]);
        assert_ne!(output.code, Some(0), "{value} is not refused");
        let refused = output.stderr.contains("specifications of the schema") && output.stderr.contains(place);
        assert!(refused, "{value}: {}", output.stderr);
    }
}
