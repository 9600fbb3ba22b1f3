//! `photofinish doctor`: checks each component and prints a line about it, without starting the service. It neither creates nor
//! migrates a database: it may have been started with settings that nobody wants to start a service with.

use std::process::ExitCode;
use std::time::Duration;

use photofinish_api::context::SeatLimits;
use photofinish_console::Files;
use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::{NetworkDevice, Precision, Runtime};
use photofinish_models::tuning::PrecisionChoice;
use photofinish_store::model::photo::CountMismatch;
use photofinish_store::{DatabaseKind, SchemaState, Store, StoreError, check_schema};
use photofinish_zoo::Zoo;

use crate::commands::doctor_cors;
use crate::config::redact::redact_url;
use crate::config::{Config, ModelKind};
use crate::file_limit::FileLimit;
use crate::{devices, models, onnxruntime, run, store};

/// The connection to the queue is made in the background: how often it is checked, and the pause between two checks.
const CONNECT_ATTEMPTS: usize = 30;
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Fewest open files with which the API serves more than a handful of clients.
const MIN_OPEN_FILES: u64 = 1024;

/// The state of one component: what is right with it, or what is wrong.
#[derive(Clone)]
struct Finding {
    component: &'static str,
    state: Result<String, String>,
}

/// Prints a line per component. Exit code 1 when one of them cannot be used.
///
/// # Errors
/// When the async runtime does not start.
pub fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let mut findings = vec![check_open_files(config), describe_console(config), describe_heic(config)];
    match config.settings.models.models {
        #[cfg(feature = "fakes")]
        ModelKind::Fake => {
            findings.push(Finding { component: "networks", state: Ok("painted marks only".into()) })
        }
        ModelKind::Zoo => {
            let runtime = models::open_runtime(config).map(|opened| opened.runtime);
            findings.extend([check_runtime_library(config, runtime.as_ref().ok()), check_models(config)]);
            findings.extend(check_device(config, runtime));
        }
    }
    findings.extend(run::block_on(check_store(config))?);
    let mut ready = true;
    for Finding { component, state } in findings {
        match state {
            Ok(text) => println!("ok    {component:<16} {text}"),
            Err(text) => {
                ready = false;
                println!("FAIL  {component:<16} {text}");
            }
        }
    }
    println!("{}", if ready { "ready" } else { "not ready: the lines marked FAIL say why" });
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Raises the limit as the service does at its start.
fn check_open_files(config: &Config) -> Finding {
    let FileLimit { inherited, current, .. } = FileLimit::raise();
    let state = if current < MIN_OPEN_FILES {
        Err(format!("{current} allowed, must be at least {MIN_OPEN_FILES} (ulimit -n)"))
    } else {
        let SeatLimits { total, per_address, .. } = SeatLimits::for_open_files(current);
        let per_address = if config.settings.console.proxies > 0 { total } else { per_address };
        let raised = if inherited < current { format!(", raised from {inherited}") } else { String::new() };
        Ok(format!("{current} allowed{raised}: {total} connections, {per_address} from one address"))
    };
    Finding { component: "open files", state }
}

/// Says where the pages of the console come from. Without them the service works, so this never fails.
fn describe_console(config: &Config) -> Finding {
    let settings = &config.settings.console;
    let files = settings.console_dir.clone().map_or(Files::Embedded, Files::Folder);
    let state = match (settings.is_enabled(), files.get("console.html"), &files) {
        (false, ..) if settings.console => "not in this build: it has no cargo feature `console`".to_owned(),
        (false, ..) => "off".to_owned(),
        (true, None, _) => "its pages were not built: run cargo xtask setup, then build again".to_owned(),
        (true, Some(_), Files::Embedded) => {
            format!("at {}/console", config.console_url().as_str().trim_end_matches('/'))
        }
        (true, Some(_), Files::Folder(folder)) => format!("pages from {}", folder.display()),
    };
    Finding { component: "console", state: Ok(state) }
}

/// Says whether HEIC photos are read. A service that does not is none the worse.
fn describe_heic(config: &Config) -> Finding {
    let state = match (cfg!(feature = "heic"), config.settings.storage.reads_heic()) {
        (false, _) => "not built in: build with the feature heic, and mind the patents on HEVC",
        (true, false) => "off",
        (true, true) => "accepted and read",
    };
    Finding { component: "heic photos", state: Ok(state.to_owned()) }
}

/// Names the library of the device in use; where none can be used, that of the one demanded, else the CPU's.
fn check_runtime_library(config: &Config, runtime: Option<&Runtime>) -> Finding {
    let settings = &config.settings.models;
    let device = runtime.map(Runtime::device).or_else(|| settings.device.demanded());
    let device = device.unwrap_or(NetworkDevice::Cpu);
    let state = onnxruntime::find_library(settings.onnxruntime.as_deref(), device)
        .map_err(|error| format!("{error:#}"))
        .and_then(|path| {
            let minor = photofinish_models::onnx::runtime::read_library_version(&path)
                .map_err(|error| error.to_string())?;
            Ok(format!("version 1.{minor}, {}", path.display()))
        });
    Finding { component: "onnx runtime", state }
}

/// Shows the devices, the bib gate and the light text detector, then which library and precision computes each network on the
/// first device, and how fast.
fn check_device(config: &Config, runtime: anyhow::Result<Runtime>) -> Vec<Finding> {
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return vec![Finding { component: "device", state: Err(format!("{error:#}")) }],
    };
    let device = Finding { component: "device", state: Ok(describe_device(&runtime)) };
    let has_choice = runtime.has_openvino();
    let networks = match models::open_networks(config, runtime) {
        Ok(networks) => networks,
        Err(error) => {
            return vec![device, Finding { component: "networks", state: Err(format!("{error:#}")) }];
        }
    };
    let gate = match networks.describe_bib_gate() {
        Ok(description) => {
            Ok(description.unwrap_or_else(|| "off: small runners are not read, all others are".to_owned()))
        }
        Err(error) => Err(error.to_string()),
    };
    let gate = Finding { component: "bib gate", state: gate };
    let light = match networks.describe_light_detector() {
        Ok(description) => Ok(description.unwrap_or_else(|| "not used".to_owned())),
        Err(error) => Err(error.to_string()),
    };
    let light = Finding { component: "light text detector", state: light };
    let speed = match config.settings.models.text_precision {
        _ if !has_choice => Ok("f32 for all networks, nothing to choose".to_owned()),
        PrecisionChoice::Always(Precision::Int8) => {
            Ok("int8 for the networks that have a file for it, f32 for the others, as configured".to_owned())
        }
        PrecisionChoice::Always(precision) => Ok(format!("{precision} for all networks, as configured")),
        PrecisionChoice::Auto => describe_speeds(config, &networks).map_err(|error| format!("{error:#}")),
    };
    vec![device, gate, light, Finding { component: "networks", state: speed }]
}

/// The runtime, the devices in use, and those that are not used, with the reasons.
fn describe_device(runtime: &Runtime) -> String {
    devices::describe().map_or(runtime.to_string(), |device| format!("{runtime}; {device}"))
}

/// Returns the measurements of the last start, or measures and does not keep it: the data folder may be a wrong one.
fn describe_speeds(config: &Config, networks: &ZooModels) -> anyhow::Result<String> {
    let measurements = match networks.measured(&models::tuning_file(config))? {
        Some(measurements) => measurements,
        None => networks.measure(None)?,
    };
    Ok(measurements.lines().join("; "))
}

fn check_models(config: &Config) -> Finding {
    let zoo = Zoo::embedded();
    let models_dir = &config.settings.models.models_dir;
    let state = zoo
        .choose_set(models_dir)
        .map(|set| {
            let complete = zoo.verify(models_dir).into_iter().filter(|status| status.is_complete());
            let names: Vec<String> =
                complete.filter(|status| status.sets.contains(&set)).map(|status| status.identity).collect();
            format!("{set} in {}: {}, SHA-256 verified", models_dir.display(), names.join(", "))
        })
        .map_err(|error| error.to_string());
    Finding { component: "models", state }
}

/// Checks the database, and what is behind the store where that can be opened without creating or migrating it.
async fn check_store(config: &Config) -> Vec<Finding> {
    match check_schema(&config.database_url).await {
        Ok(schema) => match describe_unready(config, &schema) {
            Some(database) => {
                let mut findings = vec![Finding { component: "database", state: database }];
                findings.extend(check_without_database(config).await);
                findings
            }
            None => check_opened_store(config, &schema).await,
        },
        Err(error) => vec![Finding { component: "database", state: Err(error.to_string_with_causes()) }],
    }
}

/// Says what a start would do to the database first, or why it would refuse it; `None` where it would use it as it is.
fn describe_unready(config: &Config, schema: &SchemaState) -> Option<Result<String, String>> {
    let url = redact_url(&config.database_url);
    let SchemaState::Present { pending, unknown } = schema else {
        return Some(Ok(format!(
            "{url} is not created yet: the first start or photofinish migrate does that. If it should be there, \
             PHOTOFINISH_DATABASE_URL or PHOTOFINISH_DATA_DIR is wrong"
        )));
    };
    let is_file = DatabaseKind::from_url(&config.database_url) == Some(DatabaseKind::Sqlite);
    if is_file && !unknown.is_empty() {
        return Some(Err(format!("{url} cannot be used: {}", describe_newer(unknown))));
    }
    (!pending.is_empty()).then(|| {
        Ok(format!(
            "{url} is not up to date: the next start or photofinish migrate applies {} migrations and indexes: {}",
            pending.len(),
            pending.join(", ")
        ))
    })
}

fn describe_newer(unknown: &[i64]) -> String {
    let versions: Vec<String> = unknown.iter().map(|version| format!("{version:04}")).collect();
    format!("a newer version of photofinish has migrated it, to {}", versions.join(", "))
}

/// Checks bucket and queue without the database, with an empty one that is deleted again: before the first start above all,
/// wrong addresses and credentials are to be found.
async fn check_without_database(config: &Config) -> Vec<Finding> {
    let unchecked =
        |component, reason: &str| Finding { component, state: Ok(format!("not checked: {reason}")) };
    let counts = unchecked("photo counts", "that needs a database that is up to date");
    let is_folder = config.storage_url.starts_with("file:");
    let unopened = unchecked("storage", "a start opens the folder, and creates it where there is none");
    if is_folder && config.queue.is_none() {
        return vec![unopened, unchecked("queue", "it is in the database"), counts];
    }
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return vec![Finding { component: "storage", state: Err(error.to_string()) }],
    };
    let mut beside = config.clone();
    beside.database_url = format!("sqlite:{}", folder.path().join("photofinish.sqlite").display());
    beside.settings.service.data_dir = folder.path().to_owned();
    if is_folder {
        beside.storage_url = format!("file:{}", folder.path().join("objects").display());
    }
    let found = check_opened_store(&beside, &UP_TO_DATE).await;
    let of_others = found.into_iter().filter_map(move |finding| match (finding.component, &finding.state) {
        ("database", Ok(_)) | ("photo counts", _) => None,
        // The database is not at fault.
        ("database", Err(_)) => Some(Finding { component: "storage and queue", ..finding }),
        ("storage", _) if is_folder => Some(unopened.clone()),
        _ => Some(finding),
    });
    of_others.chain([counts]).collect()
}

const UP_TO_DATE: SchemaState = SchemaState::Present { pending: Vec::new(), unknown: Vec::new() };

async fn check_opened_store(config: &Config, schema: &SchemaState) -> Vec<Finding> {
    let store = match store::open_store(config).await {
        Ok(store) => store,
        Err(error) => return vec![Finding { component: "database", state: Err(format!("{error:#}")) }],
    };
    let database = store.check_database().await.map(|()| describe_database(config, schema));
    let storage = store.check_storage().await.map(|()| redact_url(&config.storage_url));
    let queue = check_queue(config, &store).await;
    let mut findings = vec![
        Finding { component: "database", state: database.map_err(|error| error.to_string()) },
        Finding { component: "storage", state: storage.map_err(|error| error.to_string()) },
        Finding { component: "queue", state: queue.map_err(|error| error.to_string()) },
        Finding { component: "photo counts", state: check_counts(&store).await },
    ];
    if store.local.is_none() {
        findings.push(Finding {
            component: "bucket's versions",
            state: Ok(describe_versions(&store).to_owned()),
        });
    }
    if store.local.is_none() && config.settings.console.is_enabled() {
        // Without it partners are served all the same, so this never fails.
        let gallery_url = config.settings.console.gallery_url.as_ref().unwrap_or(&config.public_url);
        let state = Ok(doctor_cors::describe(&store, &[config.console_url(), gallery_url]).await);
        findings.push(Finding { component: "bucket's CORS", state });
    }
    findings
}

/// The URL, and what a newer version has made of a server, which replicas of two versions share during a rolling update.
fn describe_database(config: &Config, schema: &SchemaState) -> String {
    let url = redact_url(&config.database_url);
    match schema {
        SchemaState::Present { unknown, .. } if !unknown.is_empty() => {
            format!("{url}; {}", describe_newer(unknown))
        }
        _ => url,
    }
}

/// Says whether what is deleted from the bucket is gone. The service works either way, so this never fails.
fn describe_versions(store: &Store) -> &'static str {
    match store.storage_keeps_versions() {
        Some(false) => "the bucket keeps no older versions of objects",
        Some(true) => {
            "WARNING: the bucket keeps older versions of objects, so what is erased stays in them until a rule of the bucket \
             removes them, and receipts say so. Give it a lifecycle rule that expires noncurrent versions"
        }
        None => {
            "not known: look whether the bucket keeps older versions of objects, in which what is erased would stay"
        }
    }
}

/// Compares the kept counts of photos with their rows.
async fn check_counts(store: &Store) -> Result<String, String> {
    let mismatches = store.find_count_mismatches().await.map_err(|error| error.to_string())?;
    let Some(CountMismatch { album, state, kept, counted }) = mismatches.first() else {
        return Ok("are those of the rows".to_owned());
    };
    let others = mismatches.len() - 1;
    Err(format!(
        "album {album} has {counted} photos that are {state}, not {kept}; {others} other counts are wrong"
    ))
}

/// Waits up to 3 s for the connection.
async fn check_queue(config: &Config, store: &Store) -> Result<String, StoreError> {
    let depth = store.queue.depth().await?;
    let Some(queue) = &config.queue else {
        return Ok(format!("in the database, {depth} photos wait"));
    };
    let mut checked = store.check_queue().await;
    for _ in 0..CONNECT_ATTEMPTS {
        if checked.is_ok() {
            break;
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
        checked = store.check_queue().await;
    }
    checked.map(|()| format!("the stream {}, {depth} photos wait", queue.stream))
}
