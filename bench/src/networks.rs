//! The real networks in this process, for what cannot be measured from outside.

use std::sync::Arc;

use photofinish_models::factory::ZooModels;
use photofinish_models::onnx::runtime::{DeviceChoice, Precision, Runtime, RuntimeSettings};
use photofinish_models::traits::{ModelError, ModelFactory};

use crate::paths::InputPaths;

/// The networks on the CPU.
///
/// # Errors
/// When the runtime or the models are not there.
pub fn open_on_cpu(places: &InputPaths) -> anyhow::Result<Box<dyn ModelFactory>> {
    Ok(Box::new(open(places, DeviceChoice::Cpu, Precision::F32)??))
}

/// The networks on a device. The outer error says that files are missing, the inner one what the device said.
///
/// # Errors
/// When the runtime or the models are not there.
pub fn open(
    places: &InputPaths,
    device: DeviceChoice,
    text_precision: Precision,
) -> anyhow::Result<Result<ZooModels, ModelError>> {
    let settings = RuntimeSettings { library: places.find_runtime()?, device, text_precision };
    let folder = places.find_models_dir()?;
    Ok(Runtime::open(&settings).and_then(|runtime| ZooModels::open(Arc::new(runtime), folder)))
}

/// The runtime in words, its library by file name only: a results page names no folders of a machine.
///
/// # Errors
/// When there is no library.
pub fn describe_runtime(models: &ZooModels, places: &InputPaths) -> anyhow::Result<String> {
    let library = places.find_runtime()?;
    let name = library.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(models.runtime().to_string().replace(&library.display().to_string(), &name))
}
