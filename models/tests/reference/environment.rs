//! Finds the runtime, the models and the reference pictures on this machine.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use photofinish_models::onnx::cpu::Cpu;
use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};

/// What the tests need.
pub(crate) struct TestEnvironment {
    /// Opened once per process.
    pub(crate) runtime: &'static Runtime,
    /// Folder of the reference pictures and results.
    pub(crate) reference: PathBuf,
    folders: Vec<PathBuf>,
}

impl TestEnvironment {
    /// Finds a model file in the operator's folder, the set-up's folders and `../shared/models`, in this order. Reports a
    /// skip when no folder has it.
    pub(crate) fn model_file(&self, name: &str) -> Option<PathBuf> {
        let file = self.folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        if file.is_none() {
            let folders: Vec<_> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
            report_skip(&format!("the model {name} is in none of {}", folders.join(", ")));
        }
        file
    }

    /// Whether OpenVINO and the processor compute integers. Prints what is left out where not: no set-up helps there, so nothing
    /// requires it.
    pub(crate) fn computes_integers(&self, left_out: &str) -> bool {
        let computes = self.runtime.has_openvino() && Cpu::detect().precisions.contains(&Precision::Int8);
        if !computes {
            eprintln!(
                "SKIPPED: {left_out}: this processor has no VNNI instructions, or the library no OpenVINO"
            );
        }
        computes
    }
}

/// Returns the environment of this machine; reports a skip and returns `None` when something is missing.
pub(crate) fn shared_environment() -> Option<&'static TestEnvironment> {
    static ENVIRONMENT: OnceLock<Option<TestEnvironment>> = OnceLock::new();
    ENVIRONMENT.get_or_init(detect_environment).as_ref()
}

fn detect_environment() -> Option<TestEnvironment> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shared = root.join("../shared/models");
    let reference = shared.join("reference");
    if !reference.join("reference.json").is_file() {
        report_skip("../shared/models/reference does not exist");
        return None;
    }
    let state = root.join(".photofinish");
    let configured = variable("PHOTOFINISH_ONNXRUNTIME").map(PathBuf::from);
    let Some(library) = find_library(&configured.unwrap_or_else(|| state.join("runtime"))) else {
        report_skip("there is no libonnxruntime.so; `cargo xtask setup` gets it");
        return None;
    };
    let settings = RuntimeSettings { library, device: DeviceChoice::Cpu, ordinal: 0, kernel_cache: None };
    let runtime = Box::leak(Box::new(Runtime::open(&settings).unwrap()));
    let operator = variable("PHOTOFINISH_MODELS_DIR").map(PathBuf::from);
    let set_up = [state.join("models"), state.join("models-registry"), shared];
    Some(TestEnvironment { runtime, reference, folders: operator.into_iter().chain(set_up).collect() })
}

/// Returns the library at `path`, or in the folder `path`, where wheels have only the versioned file name.
fn find_library(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_path_buf());
    }
    let names = std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_library = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
    };
    names.filter(is_library).min()
}

/// Prints why a test is skipped; panics with `REQUIRE_SHARED=1`.
fn report_skip(reason: &str) {
    let is_required = variable("REQUIRE_SHARED").is_some_and(|value| !matches!(value.as_str(), "" | "0"));
    assert!(!is_required, "{reason}, and REQUIRE_SHARED=1");
    eprintln!("SKIPPED: {reason}");
}

#[expect(clippy::disallowed_methods, reason = "the environment tells tests where set-up put its files")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
