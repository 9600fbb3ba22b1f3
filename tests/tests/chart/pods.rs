//! Requirements of every pod of the chart.

use photofinish_tests::harness::repository_root;
use promql_parser::parser::Expr;
use serde_json::{Value, json};

use crate::rendering::{EXAMPLES, Helm, chart, documents, find_manifest, title};

/// Returns the pod template of a manifest that creates pods.
fn pod(manifest: &Value) -> Option<&Value> {
    let places = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
    places.iter().find_map(|place| manifest.pointer(place)).filter(|pod| pod["containers"].is_array())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().filter_map(|kind| pod[kind].as_array()).flatten()
}

#[test]
fn no_pod_is_root_or_can_write_its_image() {
    let Some(helm) = Helm::find("no_pod_is_root_or_can_write_its_image") else { return };
    for example in EXAMPLES {
        let manifests = helm.manifests(example, &[]);
        let pods: Vec<_> =
            manifests.iter().filter_map(|manifest| Some((title(manifest), pod(manifest)?))).collect();
        assert_eq!(pods.len(), 4, "API, worker, migration and sweep");
        for (title, pod) in pods {
            let security = &pod["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{title}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{title}");
            assert_eq!(pod["automountServiceAccountToken"], false, "{title}");
            for container in containers(pod) {
                let own = &container["securityContext"];
                assert_eq!(own["readOnlyRootFilesystem"], true, "{title}");
                assert_eq!(own["allowPrivilegeEscalation"], false, "{title}");
                assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}), "{title}");
                assert!(
                    container["resources"]["limits"]["memory"].is_string(),
                    "{title} has no memory limit"
                );
            }
        }
    }
}

#[test]
fn every_scratch_volume_has_a_size_limit() {
    let Some(helm) = Helm::find("every_scratch_volume_has_a_size_limit") else { return };
    for example in EXAMPLES {
        let manifests = helm.manifests(example, &["--set", "scratch.tmp=7Mi"]);
        for (title, pod) in manifests.iter().filter_map(|manifest| Some((title(manifest), pod(manifest)?))) {
            let volumes = pod["volumes"].as_array().expect("volumes");
            let has_gpu = example == EXAMPLES[1] && title == "Deployment photofinish-worker";
            assert_eq!(volumes.len(), if has_gpu { 3 } else { 2 }, "{title}: {volumes:?}");
            for volume in volumes {
                let limit = match volume["name"].as_str() {
                    Some("tmp") => "7Mi",
                    Some("gpu-cache") => "4Gi",
                    _ => "2Gi",
                };
                assert_eq!(volume["emptyDir"]["sizeLimit"], limit, "{title}: {volume}");
            }
        }
    }
}

/// A digest of an image in the values.
fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

#[test]
fn images_are_named_by_digest_where_one_is_given() {
    let Some(helm) = Helm::find("images_are_named_by_digest_where_one_is_given") else { return };
    let (a, b) = (digest('a'), digest('b'));
    let cases: [(&str, &[String], String, String); 5] = [
        (EXAMPLES[0], &[], "photofinish:0.1.0".into(), "photofinish:0.1.0".into()),
        (
            EXAMPLES[0],
            &[format!("image.digest={a}")],
            format!("photofinish:0.1.0@{a}"),
            format!("photofinish:0.1.0@{a}"),
        ),
        // The worker's own tag names another image.
        (
            EXAMPLES[1],
            &[format!("image.digest={a}")],
            format!("photofinish:0.1.0@{a}"),
            "photofinish:0.1.0-cuda".into(),
        ),
        (
            EXAMPLES[1],
            &[format!("image.digest={a}"), format!("worker.image.digest={b}")],
            format!("photofinish:0.1.0@{a}"),
            format!("photofinish:0.1.0-cuda@{b}"),
        ),
        (
            EXAMPLES[0],
            &[format!("worker.image.digest={b}")],
            "photofinish:0.1.0".into(),
            format!("photofinish:0.1.0@{b}"),
        ),
    ];
    for (example, values, others, worker) in cases {
        let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value.as_str()]).collect();
        let manifests = helm.manifests(example, &values);
        for (title, pod) in manifests.iter().filter_map(|manifest| Some((title(manifest), pod(manifest)?))) {
            let expected = if title == "Deployment photofinish-worker" { &worker } else { &others };
            assert_eq!(pod["containers"][0]["image"], **expected, "{title} with {values:?}");
        }
    }
}

#[test]
fn secrets_are_only_named() {
    let Some(helm) = Helm::find("secrets_are_only_named") else { return };
    for example in EXAMPLES {
        let manifests = helm.manifests(example, &[]);
        assert!(manifests.iter().all(|manifest| manifest["kind"] != "Secret"), "the chart creates a Secret");
        for pod in manifests.iter().filter_map(pod) {
            let environment = pod["containers"][0]["env"].as_array().expect("an environment");
            for name in ["PHOTOFINISH_DATABASE_URL", "PHOTOFINISH_QUEUE_URL"] {
                let entry = environment.iter().find(|entry| entry["name"] == name).expect(name);
                assert!(entry["valueFrom"]["secretKeyRef"]["name"].is_string(), "{name}: {entry}");
            }
        }
    }
}

#[test]
fn a_terminating_pod_is_unready_first_and_has_time_to_drain() {
    let Some(helm) = Helm::find("a_terminating_pod_is_unready_first_and_has_time_to_drain") else { return };
    let manifests = helm.manifests(EXAMPLES[0], &["--set", "settings.DRAIN_SECONDS=120"]);
    let api = pod(find_manifest(&manifests, "Deployment photofinish-api")).expect("a pod");
    assert_eq!(api["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"], 10);
    let drain = api_drain_seconds();
    let grace = api["terminationGracePeriodSeconds"].as_u64().expect("a number");
    assert!(grace > 10 + drain, "{grace} seconds for 10 before and {drain} after the signal");
    let worker = pod(find_manifest(&manifests, "Deployment photofinish-worker")).expect("a pod");
    assert_eq!(worker["terminationGracePeriodSeconds"], 150);
    let strategy =
        &find_manifest(&manifests, "Deployment photofinish-api")["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(strategy["maxUnavailable"], 0, "an update stops replicas before it starts new ones");
}

#[test]
fn files_are_mounted_into_every_pod() {
    let Some(helm) = Helm::find("files_are_mounted_into_every_pod") else { return };
    let settings = [
        "extraVolumes[0].name=nats",
        "extraVolumes[0].secret.secretName=nats-credentials",
        "extraVolumeMounts[0].name=nats",
        "extraVolumeMounts[0].mountPath=/etc/nats",
    ];
    let settings: Vec<&str> = settings.into_iter().flat_map(|value| ["--set", value]).collect();
    let manifests = helm.manifests(EXAMPLES[0], &settings);
    for pod in manifests.iter().filter_map(pod) {
        let has = |list: &Value| {
            list.as_array().is_some_and(|list| list.iter().any(|entry| entry["name"] == "nats"))
        };
        assert!(has(&pod["volumes"]) && has(&pod["containers"][0]["volumeMounts"]), "{pod}");
    }
}

#[test]
fn workers_are_scaled_by_the_database_queue_too_where_prometheus_is() {
    let Some(helm) = Helm::find("workers_are_scaled_by_the_rows_too") else { return };
    let address = "worker.keda.prometheusAddress=http://prometheus.monitoring:9090";
    let manifests = helm.manifests(EXAMPLES[0], &["--set", address]);
    let triggers = &find_manifest(&manifests, "ScaledObject photofinish-worker")["spec"]["triggers"];
    assert_eq!(
        (&triggers[0]["type"], &triggers[1]["type"]),
        (&json!("nats-jetstream"), &json!("prometheus"))
    );
    let query = triggers[1]["metadata"]["query"].as_str().expect("a query");
    assert!(query.contains("photofinish_queue_depth"), "{query}");
    let Expr::Aggregate(max) = promql_parser::parser::parse(query).expect("valid PromQL") else {
        panic!("not the largest of all pods: {query}")
    };
    let Expr::Binary(known) = *max.expr else { panic!("counts pods that do not know the number: {query}") };
    // NaN, of a pod that cannot read the number, is not at least 0.
    assert_eq!((known.op.to_string().as_str(), known.rhs.to_string().as_str()), (">=", "0"), "{query}");
    assert_eq!(triggers[1]["metadata"]["ignoreNullValues"], "false", "no number is not the number 0");
}

/// A worker has few photos of an album with a grid in progress: one for each thread that reads and half as many, and as many that
/// wait for that (`pipeline/src/assembly.rs`). The stream contains as many more, and is filled again when a quarter is free. The
/// autoscaler leaves a tenth as it is.
#[test]
fn workers_that_are_busy_with_few_costly_photos_scale_up() {
    let Some(helm) = Helm::find("workers_that_are_busy_with_few_costly_photos_scale_up") else { return };
    // On 4 cores and on the 12 beside a GPU.
    for (example, held_by_one) in [(EXAMPLES[0], 6), (EXAMPLES[1], 12)] {
        let manifests = helm.manifests(example, &[]);
        let scaler = &find_manifest(&manifests, "ScaledObject photofinish-worker")["spec"];
        let threshold = scaler["triggers"][0]["metadata"]["lagThreshold"].as_str().expect("a threshold");
        let threshold: u64 = threshold.parse().expect("a number");
        let least_lag = held_by_one + held_by_one * 3 / 4;
        assert!(
            threshold * 11 < least_lag * 10,
            "{example} stays at one worker, whatever waits: {threshold}"
        );
        // Of plain photos the same messages are done before others have started.
        let behavior = &scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"];
        let doubled = json!([{ "type": "Percent", "value": 100, "periodSeconds": 60 }]);
        assert_eq!(behavior["scaleUp"]["policies"], doubled, "{example}");
    }
}

#[test]
fn every_pod_listens_where_a_cluster_with_one_kind_of_address_has_it() {
    const TEST: &str = "every_pod_listens_where_a_cluster_with_one_kind_of_address_has_it";
    let Some(helm) = Helm::find(TEST) else { return };
    let console = "console.ownService=true,settings.CONSOLE_URL=https://console.example.com";
    for (address, host) in [("0.0.0.0", "0.0.0.0"), ("::", "[::]")] {
        let values = format!("{console},service.listenAddress={address}");
        let manifests = helm.manifests(EXAMPLES[0], &["--set", &values]);
        let listens = |name: &str| -> Vec<String> {
            let pod = pod(find_manifest(&manifests, name)).expect("a pod");
            let environment = pod["containers"][0]["env"].as_array().expect("an environment");
            let of_address =
                |entry: &&Value| entry["name"].as_str().is_some_and(|name| name.ends_with("LISTEN"));
            environment
                .iter()
                .filter(of_address)
                .map(|entry| entry["value"].as_str().expect("a text").to_owned())
                .collect()
        };
        let at = |port: u16| format!("{host}:{port}");
        assert_eq!(listens("Deployment photofinish-api"), [at(8080), at(9090), at(8081)]);
        assert_eq!(listens("Deployment photofinish-worker"), [at(9090)]);
    }
}

/// Returns the time limit of the server for requests in progress, on which the chart relies.
fn api_drain_seconds() -> u64 {
    let server =
        std::fs::read_to_string(repository_root().join("api/src/server/listener.rs")).expect("the server");
    let words = server.split("DRAIN_LIMIT: Duration = Duration::from_secs(").nth(1).expect("the limit");
    words.split(')').next().and_then(|number| number.parse().ok()).expect("a number of seconds")
}

#[test]
fn traces_go_to_the_configured_collector_and_a_policy_permits_it() {
    let Some(helm) = Helm::find("traces_go_to_the_configured_collector_and_a_policy_permits_it") else {
        return;
    };
    let values =
        ["--set", "tracing.endpoint=http://collector.watch:4318", "--set", "tracing.samplingRatio=0.1"];
    let manifests = helm.manifests(EXAMPLES[0], &values);
    for name in ["Deployment photofinish-api", "Deployment photofinish-worker"] {
        let container = &pod(find_manifest(&manifests, name)).expect("a pod")["containers"][0];
        let environment = container["env"].as_array().expect("an environment");
        let value = |name: &str| {
            let entry = environment.iter().find(|entry| entry["name"] == name).expect(name);
            entry["value"].as_str().expect("a string")
        };
        assert_eq!(value("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://collector.watch:4318", "{name}");
        assert_eq!(value("OTEL_TRACES_SAMPLER"), "parentbased_traceidratio", "{name}");
        assert_eq!(value("OTEL_TRACES_SAMPLER_ARG"), "0.1", "{name}");
    }
    for name in ["NetworkPolicy photofinish-api", "NetworkPolicy photofinish-worker"] {
        let egress = find_manifest(&manifests, name)["spec"]["egress"].as_array().expect("rules");
        assert!(egress.iter().any(|rule| rule["ports"][0]["port"] == 4318), "{name}: {egress:?}");
    }
    let silent = helm.manifests(EXAMPLES[0], &[]);
    assert!(
        silent.iter().all(|manifest| !manifest.to_string().contains("OTEL_")),
        "traces are configured without a collector"
    );
}

#[test]
fn a_start_may_last_five_minutes() {
    let Some(helm) = Helm::find("a_start_may_last_five_minutes") else { return };
    let manifests = helm.manifests(EXAMPLES[1], &[]);
    for name in ["Deployment photofinish-api", "Deployment photofinish-worker"] {
        let container = &pod(find_manifest(&manifests, name)).expect("a pod")["containers"][0];
        let number = |field: &str| container["startupProbe"][field].as_u64().expect("a number");
        assert!(number("periodSeconds") * number("failureThreshold") >= 300, "{name}");
        assert_eq!(container["startupProbe"]["httpGet"]["path"], "/healthz", "{name}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz", "{name}");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz", "{name}");
    }
}

#[test]
fn a_gpu_worker_gets_its_gpu_and_the_api_none() {
    let Some(helm) = Helm::find("a_gpu_worker_gets_its_gpu_and_the_api_none") else { return };
    let manifests = helm.manifests(EXAMPLES[1], &[]);
    let worker = pod(find_manifest(&manifests, "Deployment photofinish-worker")).expect("a pod");
    assert_eq!(worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1);
    assert_eq!(worker["runtimeClassName"], "nvidia");
    assert!(worker["tolerations"].is_array() && worker["nodeSelector"].is_object());
    let api = find_manifest(&manifests, "Deployment photofinish-api").to_string();
    assert!(!api.contains("nvidia") && !api.contains("cuda"), "{api}");
}

#[test]
fn workers_are_scaled_by_keda_or_by_an_hpa_or_by_hand() {
    let Some(helm) = Helm::find("workers_are_scaled_by_keda_or_by_an_hpa_or_by_hand") else { return };
    let cases = [
        (["worker.keda.enabled=true", "worker.hpa.enabled=false"], "ScaledObject"),
        (["worker.keda.enabled=false", "worker.hpa.enabled=true"], "HorizontalPodAutoscaler"),
        (["worker.keda.enabled=false", "worker.hpa.enabled=false"], "nothing"),
    ];
    for (values, scaler) in cases {
        let manifests = helm.manifests(EXAMPLES[0], &["--set", values[0], "--set", values[1]]);
        let scalers: Vec<&str> = manifests
            .iter()
            .filter(|manifest| manifest["spec"]["scaleTargetRef"]["name"] == "photofinish-worker")
            .filter_map(|manifest| manifest["kind"].as_str())
            .collect();
        assert_eq!(scalers, if scaler == "nothing" { vec![] } else { vec![scaler] });
        let replicas = &find_manifest(&manifests, "Deployment photofinish-worker")["spec"]["replicas"];
        assert_eq!(replicas.is_u64(), scaler == "nothing", "a fixed count conflicts with the autoscaler");
    }
}

#[test]
fn the_compose_file_runs_the_whole_cluster_profile() {
    let text = std::fs::read_to_string(chart().join("compose.yaml")).expect("the compose file");
    let [compose] = documents(&text).try_into().expect("one document");
    let services = compose["services"].as_object().expect("services");
    for name in ["postgres", "nats", "s3", "migrate", "api-1", "api-2", "worker-1", "worker-2", "proxy"] {
        assert!(services.contains_key(name), "no {name} among {:?}", services.keys().collect::<Vec<_>>());
    }
    for (role, names) in [("serve", ["api-1", "api-2"]), ("work", ["worker-1", "worker-2"])] {
        for name in names {
            assert_eq!(services[name]["command"], json!([role]), "{name}");
        }
    }
    for (name, service) in services {
        for needed in service["depends_on"].as_object().into_iter().flat_map(|needed| needed.keys()) {
            assert!(services.contains_key(needed), "{name} waits for {needed}, which is not there");
        }
    }
}

#[test]
fn a_gpu_worker_keeps_compiled_kernels_and_may_start_slowly() {
    let Some(helm) = Helm::find("a_gpu_worker_keeps_compiled_kernels_and_may_start_slowly") else { return };
    let worker_pod = |example, more: &[&str]| {
        let manifests = helm.manifests(example, more);
        pod(find_manifest(&manifests, "Deployment photofinish-worker")).expect("a pod").clone()
    };
    let cache = |pod: &serde_json::Value| {
        let volumes = pod["volumes"].as_array().expect("volumes").clone();
        volumes.into_iter().find(|volume| volume["name"] == "gpu-cache")
    };
    let variable = |pod: &serde_json::Value, name: &str| {
        let variables = pod["containers"][0]["env"].as_array().expect("variables").clone();
        variables.into_iter().find(|variable| variable["name"] == name).map(|it| it["value"].clone())
    };

    let cuda = worker_pod(EXAMPLES[1], &[]);
    assert_eq!(cache(&cuda).expect("a cache")["emptyDir"]["sizeLimit"], "4Gi");
    assert_eq!(variable(&cuda, "PHOTOFINISH_DEVICE").expect("a device"), "cuda");
    let mounts = cuda["containers"][0]["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["name"] == "gpu-cache").expect("a mount");
    let folder = mount["mountPath"].as_str().expect("a folder");
    for name in ["CUDA_CACHE_PATH", "XDG_CACHE_HOME", "__GL_SHADER_DISK_CACHE_PATH"] {
        let place = variable(&cuda, name).expect(name);
        assert!(place.as_str().is_some_and(|place| place.starts_with(folder)), "{name} is outside: {place}");
    }
    let probe = &cuda["containers"][0]["startupProbe"];
    let seconds = probe["periodSeconds"].as_u64().zip(probe["failureThreshold"].as_u64());
    assert!(seconds.is_some_and(|(period, times)| period * times >= 900), "{probe}");

    let values = "worker.gpu.device=wgpu,worker.gpu.cache.existingClaim=shaders,worker.gpu.supplementalGroups={105},\
                  worker.gpu.resource=nvidia.com/mig-1g\\.18gb";
    let wgpu = worker_pod(EXAMPLES[1], &["--set", values]);
    assert_eq!(cache(&wgpu).expect("a cache")["persistentVolumeClaim"]["claimName"], "shaders");
    assert_eq!(variable(&wgpu, "PHOTOFINISH_DEVICE").expect("a device"), "wgpu");
    assert_eq!(wgpu["securityContext"]["supplementalGroups"], serde_json::json!([105]));
    assert_eq!(wgpu["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.18gb"], 1);

    let cpu = worker_pod(EXAMPLES[0], &[]);
    assert!(cache(&cpu).is_none() && variable(&cpu, "CUDA_CACHE_PATH").is_none(), "{cpu}");
    let output = helm.template(EXAMPLES[1], &["--set", "worker.gpu.device=auto"]);
    assert!(output.stderr.contains("/worker/gpu/device"), "{}", output.combined_output());
}
