//! Where the runtime, the models and the reference are on this machine.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};

/// What the tests run with.
pub(crate) struct TestEnvironment {
    /// One a process.
    pub(crate) runtime: &'static Runtime,
    /// The reference pictures and answers.
    pub(crate) reference: PathBuf,
    folders: Vec<PathBuf>,
}

impl TestEnvironment {
    /// A model file: from the first of the operator's folder, the set-up's folders and `../shared/models` that has
    /// it; none after saying so.
    pub(crate) fn model_file(&self, name: &str) -> Option<PathBuf> {
        let file = self.folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        if file.is_none() {
            report_skip(&format!("the model {name} is in none of {:?}", self.folders));
        }
        file
    }
}

/// What this machine has; none after saying what it lacks.
pub(crate) fn shared_environment() -> Option<&'static TestEnvironment> {
    static PLACE: OnceLock<Option<TestEnvironment>> = OnceLock::new();
    PLACE.get_or_init(detect_environment).as_ref()
}

fn detect_environment() -> Option<TestEnvironment> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let shared = root.join("../shared/models");
    let reference = shared.join("reference");
    if !reference.join("reference.json").is_file() {
        report_skip("../shared/models/reference is not here");
        return None;
    }
    let state = root.join(".photofinish");
    let configured = variable("PHOTOFINISH_ONNXRUNTIME").map(PathBuf::from);
    let Some(library) = find_library(&configured.unwrap_or_else(|| state.join("runtime"))) else {
        report_skip("there is no libonnxruntime.so; `cargo xtask setup` gets it");
        return None;
    };
    let settings = RuntimeSettings { library, device: DeviceChoice::Cpu, text_precision: Precision::F32 };
    let runtime = Box::leak(Box::new(Runtime::open(&settings).unwrap()));
    let operator = variable("PHOTOFINISH_MODELS_DIR").map(PathBuf::from);
    let set_up = [state.join("models"), state.join("models-registry"), shared];
    Some(TestEnvironment { runtime, reference, folders: operator.into_iter().chain(set_up).collect() })
}

/// A library by its path, or in a folder, where wheels leave only the versioned name.
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

fn report_skip(what: &str) {
    assert!(variable("REQUIRE_SHARED").as_deref() != Some("1"), "{what}, and REQUIRE_SHARED=1");
    eprintln!("SKIPPED: {what}");
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment where set-up put things")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
