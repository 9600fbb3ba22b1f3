//! Opens the configured models.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use photofinish_models::factory::ZooModels;
#[cfg(feature = "fakes")]
use photofinish_models::fakes::FakeModels;
use photofinish_models::onnx::runtime::Runtime;
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
};
use photofinish_store::search::calibration::Calibration;
use photofinish_store::traits::SelfieScale;
use photofinish_zoo::{Contract, Zoo};

use crate::config::{Config, ModelKind};
use crate::{devices, onnxruntime};

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

fn open_zoo(config: &Config) -> anyhow::Result<Vec<Arc<dyn ModelFactory>>> {
    let OpenedRuntime { runtime, others } = open_runtime(config)?;
    tracing::info!(%runtime, "opened the models");
    let first = open_networks(config, runtime)?
        .with_precision(config.settings.models.text_precision, Some(&tuning_file(config)))?;
    let others: Vec<ZooModels> = others.iter().map(|ordinal| first.on_device(*ordinal)).collect();
    Ok(std::iter::once(first).chain(others).map(|models| Arc::new(models) as Arc<dyn ModelFactory>).collect())
}

/// Returns the models for selfies, of which one is examined at a time, from those of at least one device: on the first, or on
/// another where that fails.
pub fn for_selfies(models: &[Arc<dyn ModelFactory>]) -> Arc<dyn ModelFactory> {
    match models {
        [only] => Arc::clone(only),
        _ => Arc::new(AnyDevice { models: models.to_vec(), loads: AtomicUsize::new(0) }),
    }
}

/// Opens the networks of the best complete model set, computed by ONNX Runtime.
///
/// # Errors
/// When a model file is missing or wrong.
pub fn open_networks(config: &Config, runtime: Runtime) -> anyhow::Result<ZooModels> {
    let models = &config.settings.models;
    Ok(ZooModels::open(Arc::new(runtime), models.models_dir.clone())?.with_bib_gate(models.bib_gate))
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
    let library = onnxruntime::find_library(models.onnxruntime.as_deref())?;
    let chosen = devices::choose(models.device, &library)?;
    let settings = devices::settings(&chosen, library);
    let others = chosen.used.iter().skip(1).map(|device| device.ordinal).collect();
    Ok(OpenedRuntime { runtime: Runtime::open(&settings)?, others })
}

/// Loads models on one device after the other: whoever loads them again does so because they failed.
struct AnyDevice {
    models: Vec<Arc<dyn ModelFactory>>,
    /// How often face detectors were loaded.
    loads: AtomicUsize,
}

impl AnyDevice {
    /// Loads from the device whose turn it is, or else from the next one that works.
    fn load<T>(
        &self,
        turn: usize,
        load: impl Fn(&dyn ModelFactory) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let count = self.models.len();
        let mut result = load(&*self.models[turn % count]);
        for offset in 1..count {
            if result.is_err() {
                result = load(&*self.models[(turn + offset) % count]);
            }
        }
        result
    }
}

impl ModelFactory for AnyDevice {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        self.load(self.loads.fetch_add(1, Ordering::Relaxed), |models| models.create_face_detector())
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        // On the device of the detector, which is loaded first.
        let turn = self.loads.load(Ordering::Relaxed).saturating_sub(1);
        self.load(turn, |models| models.create_face_embedder())
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        self.load(0, |models| models.create_bib_reader())
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.models[0].batch_sizes()
    }
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

#[cfg(all(test, feature = "fakes"))]
mod tests {
    use super::*;

    /// Models of a device on which networks can be created or not, and that counts how many were.
    struct CountedModels {
        works: bool,
        created: AtomicUsize,
    }

    impl CountedModels {
        fn new(works: bool) -> Arc<Self> {
            Arc::new(Self { works, created: AtomicUsize::new(0) })
        }

        fn count(&self) -> usize {
            self.created.load(Ordering::Relaxed)
        }

        fn create<T>(&self, create: impl Fn(&FakeModels) -> Result<T, ModelError>) -> Result<T, ModelError> {
            if !self.works {
                return Err(ModelError::Device { device: "cuda".into(), detail: "it is lost".into() });
            }
            self.created.fetch_add(1, Ordering::Relaxed);
            create(&FakeModels::default())
        }
    }

    impl ModelFactory for CountedModels {
        fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
            self.create(|fakes| fakes.create_face_detector())
        }

        fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
            self.create(|fakes| fakes.create_face_embedder())
        }

        fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
            self.create(|fakes| fakes.create_bib_reader())
        }

        fn batch_sizes(&self) -> BatchSizes {
            FakeModels::default().batch_sizes()
        }
    }

    fn load(models: &dyn ModelFactory) -> bool {
        models.create_face_detector().is_ok() && models.create_face_embedder().is_ok()
    }

    #[test]
    fn selfies_go_on_with_another_device() {
        let devices = [CountedModels::new(true), CountedModels::new(true)];
        let models = for_selfies(&devices.clone().map(|device| device as Arc<dyn ModelFactory>));
        assert!(load(&*models));
        assert_eq!([devices[0].count(), devices[1].count()], [2, 0], "both networks on the first device");
        // They are loaded again because a call failed.
        assert!(load(&*models));
        assert_eq!([devices[0].count(), devices[1].count()], [2, 2]);

        let devices = [CountedModels::new(false), CountedModels::new(true)];
        let models = for_selfies(&devices.clone().map(|device| device as Arc<dyn ModelFactory>));
        assert!((0..3).all(|_| load(&*models)), "one device works");
        assert_eq!(devices[1].count(), 6);
        let lost = [CountedModels::new(false), CountedModels::new(false)];
        assert!(!load(&*for_selfies(&lost.map(|device| device as Arc<dyn ModelFactory>))));
    }
}
