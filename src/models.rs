//! Opens the networks that the configuration asks for.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_models::factory::ZooModels;
use photofinish_models::fakes::FakeModels;
use photofinish_models::onnx::runtime::{Runtime, RuntimeSettings};
use photofinish_models::traits::ModelFactory;
use photofinish_store::search::calibration::Calibration;
use photofinish_zoo::{Contract, Zoo};

use crate::config::{Config, ModelKind};
use crate::onnxruntime;

/// What a cosine of two fake vectors is worth: they are equal or nearly at right angles.
const FAKE_CALIBRATION: Calibration = Calibration { midpoint: 0.6, slope: 14.0 };

/// The factory of the configured networks.
///
/// # Errors
/// When the runtime, the device or the model files do not serve: the message says what to do.
pub fn open_models(config: &Config) -> anyhow::Result<Arc<dyn ModelFactory>> {
    if config.models == ModelKind::Fake {
        tracing::warn!("PHOTOFINISH_MODELS=fake: only painted marks are read, no faces and no bibs");
        return Ok(Arc::new(FakeModels { read_delay: config.fake_delay, ..FakeModels::default() }));
    }
    let runtime = open_runtime(config)?;
    tracing::info!(%runtime, "networks open");
    Ok(Arc::new(ZooModels::open(Arc::new(runtime), config.models_dir.clone())?))
}

/// The runtime on the configured device.
///
/// # Errors
/// When the library or the device does not serve.
pub fn open_runtime(config: &Config) -> anyhow::Result<Runtime> {
    let settings = RuntimeSettings {
        library: onnxruntime::find_library(config)?,
        device: config.device,
        text_precision: config.text_precision,
    };
    Ok(Runtime::open(&settings)?)
}

/// What a cosine is worth, for every embedder whose vectors an album may hold.
pub fn calibrations() -> HashMap<String, Calibration> {
    let mut calibrations = HashMap::from([("fake-embedder@1".to_owned(), FAKE_CALIBRATION)]);
    for model in Zoo::embedded().models {
        let identity = model.identity();
        if let Contract::Embedder(contract) = model.contract {
            let photofinish_zoo::Calibration { midpoint, slope } = contract.calibration;
            calibrations.insert(identity, Calibration { midpoint, slope });
        }
    }
    calibrations
}
