//! What the chart refuses: wrong types by its schema, and wrong combinations by a message that says what to do.

use serde_json::{Value, json};

use crate::rendering::{EXAMPLES, Helm, chart};

/// An example, values that override it, and the expected message.
type Refusal = (&'static str, &'static [&'static str], &'static str);

const CPU: &str = EXAMPLES[0];
const GPU: &str = EXAMPLES[1];

/// Every message of `templates/_checks.tpl`, in its order.
const REFUSALS: [Refusal; 28] = [
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
    (CPU, &["settings.SWEEP_HOURS=2"], "settings.SWEEP_HOURS is 2 but must be at least 3"),
    (CPU, &["settings.UPLOAD_SECONDS=180000"], "settings.SWEEP_HOURS is 48 but must be at least 52"),
    (
        CPU,
        &["extraEnv[0].name=PHOTOFINISH_DRAIN_SECONDS", "extraEnv[0].value=sixty"],
        "extraEnv gives PHOTOFINISH_DRAIN_SECONDS: use settings.DRAIN_SECONDS",
    ),
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
    let checks = std::fs::read_to_string(chart().join("templates/_checks.tpl")).expect("the checks");
    let messages = checks.matches("append $problems").count();
    // Four messages have two refusals here: those for the autoscalers, the GPU's resource, the public endpoint and the age of
    // garbage.
    // Two messages have tests of their own: that for secrets in plain text, and that for a missing public URL, which both
    // examples have.
    let tested = REFUSALS.len() - 4 + 2;
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

/// The grace of a pod follows from `settings` alone, and so do other checks.
#[test]
fn a_setting_is_refused_in_the_environment_unless_it_has_no_place_in_the_settings() {
    const TEST: &str = "a_setting_is_refused_in_the_environment_unless_it_has_no_place_in_the_settings";
    let Some(helm) = Helm::find(TEST) else { return };
    let schema = std::fs::read_to_string(chart().join("values.schema.json")).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let settings = schema["properties"]["settings"]["properties"].as_object().expect("settings");
    let given = |names: &[&str]| {
        let entry = |name: &&str| json!({ "name": format!("PHOTOFINISH_{name}"), "value": "file:x" });
        let entries: Vec<Value> = names.iter().map(entry).collect();
        helm.template(CPU, &["--set-json", &format!("extraEnv={}", Value::from(entries))])
    };
    let names: Vec<&str> = settings.keys().map(String::as_str).filter(|name| *name != "PUBLIC_URL").collect();
    assert!(names.len() > 40, "{names:?}");
    let refused = given(&names).stderr;
    for name in names {
        assert!(refused.contains(&format!("extraEnv gives PHOTOFINISH_{name}: ")), "{name}: {refused}");
    }
    let elsewhere = ["PUBLIC_URL", "SECRET_KEY_OLD", "QUEUE_CREDENTIALS", "CONSOLE_DIR", "MODELS_DIR"];
    given(&elsewhere).expect_success();
    let from_config_map = |name: &str| {
        let reference = json!({ "configMapKeyRef": { "name": "n", "key": "k" } });
        let entry = json!([{ "name": format!("PHOTOFINISH_{name}"), "valueFrom": reference }]);
        helm.template(CPU, &["--set-json", &format!("extraEnv={entry}")])
    };
    from_config_map("GALLERY_URL").expect_success();
    let refused = from_config_map("DRAIN_SECONDS").stderr;
    assert!(refused.contains("extraEnv gives PHOTOFINISH_DRAIN_SECONDS: "), "{refused}");
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
        // What the service refuses at its start.
        ("storage.publicEndpoint=https://s3.example.com/photos", "/storage/publicEndpoint"),
        ("storage.url=s3:photos", "/storage/url"),
        ("storage.url=s3://key:secret@photos", "/storage/url"),
        ("queue.stream=photo.finish", "/queue/stream"),
        ("settings.UPLOAD_SECONDS=900000", "/settings/UPLOAD_SECONDS"),
        ("settings.DOWNLOAD_SECONDS=604801", "/settings/DOWNLOAD_SECONDS"),
        ("settings.RATE_LIMITS=foo", "/settings/RATE_LIMITS"),
        ("settings.RATE_LIMITS=read=1000001", "/settings/RATE_LIMITS"),
        ("settings.PRICES=photo=0.0001", "/settings/PRICES"),
        ("settings.COST_PRICES=cpu_minute=1", "/settings/COST_PRICES"),
        ("settings.RETENTION_DAYS=photos=0", "/settings/RETENTION_DAYS"),
        ("settings.RETENTION_MAX=faces=3651", "/settings/RETENTION_MAX"),
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

/// As the service takes them.
#[test]
fn the_schema_accepts_lists_and_locations() {
    let Some(helm) = Helm::find("the_schema_accepts_lists_and_locations") else { return };
    let values = [
        r#"storage.url="s3://event-photos.example/live/2026/""#,
        r#"storage.publicEndpoint="https://s3.example.com:9000""#,
        r#"queue.stream="autumn_2026-live""#,
        r#"settings.RATE_LIMITS="read=0, search=1000000""#,
        r#"settings.PRICES="photo=1,face_search=0.2, text_search=0.125""#,
        r#"settings.COST_PRICES="cpu_hour=0.04, gpu_hour=2.5,gb_month=1e-3""#,
        r#"settings.RETENTION_DAYS="photos=365,faces=90""#,
        r#"settings.RETENTION_MAX="photos=3650""#,
        "settings.UPLOAD_SECONDS=604800",
        "settings.SWEEP_HOURS=200",
    ];
    let values: Vec<&str> = values.into_iter().flat_map(|value| ["--set-json", value]).collect();
    helm.text(CPU, &values);
}
