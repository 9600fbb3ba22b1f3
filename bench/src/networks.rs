//! Loads the real networks into this process, for what cannot be measured through the API.

use std::sync::Arc;

use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};
use photofinish_models::traits::{ModelError, ModelFactory};
use photofinish_models::tuning::PrecisionChoice;

use crate::paths::InputPaths;

/// Loads the networks on the CPU.
///
/// # Errors
/// When the runtime or the models are missing.
pub fn open_on_cpu(paths: &InputPaths) -> anyhow::Result<Box<dyn ModelFactory>> {
    Ok(Box::new(open(paths, DeviceChoice::Cpu, Precision::F32)??))
}

/// Loads the networks on a device. The outer error means missing files; the inner error comes from loading.
///
/// # Errors
/// When the runtime or the models are missing.
pub fn open(
    paths: &InputPaths,
    device: DeviceChoice,
    precision: Precision,
) -> anyhow::Result<Result<ZooModels, ModelError>> {
    let settings = RuntimeSettings { library: paths.find_runtime()?, device, ordinal: 0, kernel_cache: None };
    let folder = paths.find_models_dir()?;
    let open = |runtime| {
        ZooModels::open(Arc::new(runtime), folder)?.with_precision(PrecisionChoice::Always(precision), None)
    };
    Ok(Runtime::open(&settings).and_then(open))
}

/// Describes the runtime; its library by file name only, because a results page names no folders of a machine.
///
/// # Errors
/// When there is no library.
pub fn describe_runtime(models: &ZooModels, paths: &InputPaths) -> anyhow::Result<String> {
    let library = paths.find_runtime()?;
    let name = library.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(models.runtime().to_string().replace(&library.display().to_string(), &name))
}
