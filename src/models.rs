//! Opens the configured models.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use photofinish_models::factory::ZooModels;
#[cfg(feature = "fakes")]
use photofinish_models::fakes::FakeModels;
use photofinish_models::onnx::runtime::Runtime;
use photofinish_models::traits::ModelFactory;
use photofinish_store::search::calibration::Calibration;
use photofinish_store::traits::SelfieScale;
use photofinish_zoo::{Contract, Zoo};

use crate::config::{Config, ModelKind};
use crate::{devices, measuring};

/// Opens the factories of the configured models, one for each device.
///
/// # Errors
/// When the runtime, the device or a model file cannot be used: the message says what to do.
pub fn open_models(config: &Config) -> anyhow::Result<Vec<Arc<dyn ModelFactory>>> {
    match config.settings.models.models {
        ModelKind::Zoo => open_zoo(config),
        #[cfg(feature = "fakes")]
        ModelKind::Fake => Ok(vec![open_fakes(config)]),
    }
}

/// [`open_models`] on another thread: a device may take minutes, and whoever awaits this may leave.
///
/// # Errors
/// As [`open_models`].
pub async fn open_in_background(config: &Config) -> anyhow::Result<Vec<Arc<dyn ModelFactory>>> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || open_models(&config)).await?
}

fn open_zoo(config: &Config) -> anyhow::Result<Vec<Arc<dyn ModelFactory>>> {
    let OpenedRuntime { runtime, others } = open_runtime(config)?;
    tracing::info!(%runtime, "opened the models");
    let (networks, file) = (open_networks(config, runtime)?, tuning_file(config));
    let precision = measuring::measure_apart(config, &networks, &file)?;
    let first = networks.with_precision(precision, Some(&file))?;
    let others: Vec<ZooModels> = others.iter().map(|ordinal| first.on_device(*ordinal)).collect();
    Ok(std::iter::once(first).chain(others).map(|models| Arc::new(models) as Arc<dyn ModelFactory>).collect())
}

/// Opens the networks of the best complete model set, computed by ONNX Runtime.
///
/// # Errors
/// When a model file is missing or wrong.
pub fn open_networks(config: &Config, runtime: Runtime) -> anyhow::Result<ZooModels> {
    let models = &config.settings.models;
    let networks = ZooModels::open(Arc::new(runtime), models.models_dir.clone())?;
    Ok(networks.with_bib_gate(models.bib_gate).with_light_pass(models.light_text_detector))
}

/// Where the measured speeds of the networks are kept.
pub fn tuning_file(config: &Config) -> PathBuf {
    config.settings.service.data_dir.join("tuning.json")
}

#[cfg(feature = "fakes")]
fn open_fakes(config: &Config) -> Arc<dyn ModelFactory> {
    tracing::warn!(
        "using fake models (PHOTOFINISH_MODELS=fake): they read painted marks, no faces and no bibs"
    );
    Arc::new(FakeModels { read_delay: config.settings.fakes.read_delay, ..FakeModels::default() })
}

/// ONNX Runtime, and where else it can be used.
pub struct OpenedRuntime {
    /// On the first of the devices.
    pub runtime: Runtime,
    /// The numbers of the other devices.
    pub others: Vec<usize>,
}

/// Opens ONNX Runtime on the configured device.
///
/// # Errors
/// When the library or the device cannot be used.
pub fn open_runtime(config: &Config) -> anyhow::Result<OpenedRuntime> {
    let models = &config.settings.models;
    let settings = devices::choose(models.device, models.onnxruntime.as_deref(), &config.kernel_cache_dir)?;
    let runtime = Runtime::open(&settings.first)?;
    devices::publish(&settings);
    Ok(OpenedRuntime { runtime, others: settings.others })
}

/// How to search and to turn a score into a confidence, by identity of every embedder whose vectors an album may contain.
pub fn calibrations() -> HashMap<String, Calibration> {
    let mut calibrations = HashMap::new();
    // Fake embeddings are either equal or nearly orthogonal.
    #[cfg(feature = "fakes")]
    calibrations.insert(
        "fake-embedder@1".to_owned(),
        Calibration {
            midpoint: 0.6,
            slope: 14.0,
            scale: SelfieScale { sure_cosine: 0.9, bib_weight: 0.2, few_faces_level: 0.0 },
        },
    );
    for model in Zoo::embedded().models {
        let identity = model.identity();
        if let Contract::Embedder(contract) = model.contract {
            let photofinish_zoo::Calibration { midpoint, slope, sure_cosine, bib_weight, few_faces_level } =
                contract.calibration;
            let scale = SelfieScale { sure_cosine, bib_weight, few_faces_level };
            calibrations.insert(identity, Calibration { midpoint, slope, scale });
        }
    }
    calibrations
}
