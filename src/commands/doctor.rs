//! `photofinish doctor`: checks each component and prints a line about it, without starting the service. It neither creates nor
//! migrates a database, and creates neither secrets nor the storage's folder nor the stream of a message queue: it may have been
//! started with settings that nobody wants to start a service with.

use std::process::ExitCode;

use photofinish_api::context::SeatLimits;
use photofinish_console::Files;
use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::{NetworkDevice, Precision, Runtime};
use photofinish_models::tuning::PrecisionChoice;
use photofinish_zoo::Zoo;

use super::doctor_store;
use crate::config::{Config, ModelKind};
use crate::file_limit::FileLimit;
use crate::{devices, memory, models, onnxruntime, run};

/// Fewest open files with which the API serves more than a handful of clients.
const MIN_OPEN_FILES: u64 = 1024;

/// The state of one component: what is right with it, or what is wrong.
#[derive(Clone)]
pub(super) struct Finding {
    pub(super) component: &'static str,
    pub(super) state: Result<String, String>,
}

/// Prints a line per component. Exit code 1 when one of them cannot be used.
///
/// # Errors
/// When the async runtime does not start.
pub fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let mut findings = vec![
        check_open_files(config),
        describe_memory(config),
        describe_console(config),
        describe_heic(config),
    ];
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
    findings.extend(run::block_on(doctor_store::check(config))?);
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

/// Says whether the memory suffices for the settings. The service starts either way, so this never fails.
fn describe_memory(config: &Config) -> Finding {
    Finding { component: "memory", state: Ok(memory::describe(config)) }
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
        _ if !networks.has_choice() => Ok("f32 for all networks, nothing to choose".to_owned()),
        PrecisionChoice::Always(Precision::F16) if networks.runtime().is_gpu() => {
            Ok("f16 for the networks that have a file for it, f32 for the others, as configured".to_owned())
        }
        PrecisionChoice::Always(_) if networks.runtime().is_gpu() => {
            Ok("f32 for all networks, as configured".to_owned())
        }
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

/// Returns the measurements of the last start, or measures and does not keep it: the data folder may be a wrong one. On a GPU a
/// measurement may take minutes, and end its process.
fn describe_speeds(config: &Config, networks: &ZooModels) -> anyhow::Result<String> {
    let measurements = match networks.measured(&models::tuning_file(config))? {
        Some(measurements) => measurements,
        None if networks.runtime().is_gpu() => {
            return Ok("not measured yet: the first start does, and `photofinish models tune`".to_owned());
        }
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
