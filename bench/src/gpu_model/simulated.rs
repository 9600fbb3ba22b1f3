//! What the pipeline is given in the place of a device: networks that take the time of their calls, and a storage whose
//! reads take the time of decoding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_kernels::geometry::{Point, Rect};
use photofinish_kernels::image::frame::Frame;
use photofinish_models::bucket::{Bucket, padded};
use photofinish_models::traits::{
    BatchSizes, BibReader, BibText, EmbeddedFace, FaceBox, FaceCrop, FaceDetector, FaceEmbedder, ModelError,
    ModelFactory, ModelIdentity, ReadRequest,
};
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::object_key::{ObjectKey, ObjectOwner, ObjectRole};
use photofinish_store::traits::{Blobs, Result, UploadConditions};
use tokio::sync::Semaphore;
use url::Url;

use super::assumptions::{
    CORES, DETECTOR, DeviceModel, EMBEDDER, FACES, NetworkModel, PhotoModel, RECOGNISER, ROUNDS_OF_STRIPS,
    TEXT_DETECTOR,
};
use super::resource::{Resource, sleep_until};

/// Length of the vectors.
const DIMENSIONS: usize = 256;
/// Above every threshold of a face's quality.
pub const SHARPNESS: f32 = 1000.0;

/// How the pipeline uses the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// Name.
    pub name: &'static str,
    /// Items per call.
    pub batch_sizes: BatchSizes,
    /// Whether copies overlap the calls of others.
    pub overlaps: bool,
    /// Whether nvJPEG decodes what the cores do not.
    pub decodes_on_device: bool,
}

/// A network of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Faces in frames.
    Detector,
    /// Vectors of faces.
    Embedder,
    /// Texts on torsos.
    TextDetector,
    /// Characters of strips.
    Recogniser,
}

impl Network {
    /// All, in the order of a photo.
    pub const ALL: [Self; 4] = [Self::Detector, Self::Embedder, Self::TextDetector, Self::Recogniser];

    fn model(self) -> &'static NetworkModel {
        match self {
            Self::Detector => &DETECTOR,
            Self::Embedder => &EMBEDDER,
            Self::TextDetector => &TEXT_DETECTOR,
            Self::Recogniser => &RECOGNISER,
        }
    }
}

/// The calls of a network so far.
#[derive(Debug, Default)]
pub struct CallCount {
    calls: AtomicU64,
    items: AtomicU64,
}

impl CallCount {
    fn add(&self, items: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Calls, and the items of all of them.
    pub fn read(&self) -> [u64; 2] {
        [&self.calls, &self.items].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The machine: its resources, and the photos that it gets. All times are stretched by `slow_motion`, so that the work that
/// really is done here, of which the target has 16 cores for, does not count.
#[derive(Debug)]
pub struct Machine {
    pub cores: Resource,
    pub device: Resource,
    pub decoder: Resource,
    pub model: DeviceModel,
    pub photo: PhotoModel,
    pub design: Design,
    pub slow_motion: f64,
    /// The memory for pixels as a number of photos, each from the beginning of its decoding until its bibs are read; `None`
    /// where there is enough for all.
    pub memory: Option<Semaphore>,
    /// By network, in the order of [`Network::ALL`].
    pub calls: [CallCount; 4],
}

/// The photos a second that the resources allow, by arithmetic: with all batches full, and half of the photos decoded by
/// nvJPEG where it is there.
pub fn most_photos_per_second(device: &DeviceModel, photo: &PhotoModel, design: &Design) -> f64 {
    let BatchSizes { detect, embed, read } = design.batch_sizes;
    let time = |network: &NetworkModel, items: usize, most: usize| {
        device.call_time(network, most, design.overlaps).as_secs_f64() / most as f64 * items as f64
    };
    let strips: usize = ROUNDS_OF_STRIPS.iter().sum();
    let on_device = time(&DETECTOR, 1, detect)
        + time(&EMBEDDER, FACES, embed)
        + time(&TEXT_DETECTOR, FACES, read)
        + time(&RECOGNISER, strips, read);
    let on_cores = match design.decodes_on_device {
        true => (photo.with_decoding + photo.without_decoding) / 2,
        false => photo.with_decoding,
    };
    (1.0 / on_device).min(CORES as f64 / on_cores.as_secs_f64())
}

impl Machine {
    /// Uses the device for as many items, at most `most` in a call, and waits for the end of each call. Calls have the sizes
    /// of the service's.
    fn call(&self, network: Network, items: usize, most: usize) -> std::result::Result<(), ModelError> {
        let items = vec![(); items];
        Bucket::new(most).run(&items, |part| {
            self.calls[network as usize].add(part.len());
            let time = self.model.call_time(network.model(), padded(part.len()), self.design.overlaps);
            sleep_until(self.device.reserve(time.mul_f64(self.slow_motion)));
            Ok(part.to_vec())
        })?;
        Ok(())
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.design.batch_sizes
    }

    /// Waits for memory for the pixels of a photo.
    async fn take_memory(&self) {
        if let Some(memory) = &self.memory
            && let Ok(permit) = memory.acquire().await
        {
            // Given back when the pixels are freed, by another thread.
            permit.forget();
        }
    }

    fn give_memory_back(&self) {
        if let Some(memory) = &self.memory {
            memory.add_permits(1);
        }
    }

    /// Takes the work of decoding where it ends first, and returns when it does. What has no engine decodes with the
    /// arithmetic that networks use.
    fn decode(&self) -> Instant {
        let on_cores = self.photo.with_decoding.mul_f64(self.slow_motion);
        let rest = self.photo.without_decoding.mul_f64(self.slow_motion);
        if !self.design.decodes_on_device {
            return self.cores.reserve(on_cores);
        }
        let on_device = self.model.decode_time(&self.photo).mul_f64(self.slow_motion);
        let decoder = if self.model.has_decoder_engine { &self.decoder } else { &self.device };
        if decoder.next_free() + on_device + rest > self.cores.next_free() + on_cores {
            return self.cores.reserve(on_cores);
        }
        decoder.reserve(on_device).max(self.cores.reserve(rest))
    }
}

/// A storage of one file.
pub struct SimulatedBlobs {
    /// What decodes a photo when it is read; nothing does where it is absent.
    pub machine: Option<Arc<Machine>>,
    pub file: Bytes,
    pub inner: Arc<dyn Blobs>,
}

#[async_trait]
impl Blobs for SimulatedBlobs {
    async fn read(&self, _key: &ObjectKey, _max_bytes: u64) -> Result<Bytes> {
        if let Some(machine) = &self.machine {
            machine.take_memory().await;
            tokio::time::sleep_until(machine.decode().into()).await;
        }
        Ok(self.file.clone())
    }

    /// Previews are written right after a photo's bibs were read, once each.
    async fn write(&self, key: &ObjectKey, _content_type: &str, _bytes: Bytes) -> Result<()> {
        let is_preview =
            matches!(key.owner(), Some((_, _, ObjectOwner::Photo(_, role))) if role == ObjectRole::Preview);
        if let Some(machine) = &self.machine
            && is_preview
        {
            machine.give_memory_back();
        }
        Ok(())
    }

    async fn upload_url(&self, key: &ObjectKey, conditions: UploadConditions<'_>) -> Result<Url> {
        self.inner.upload_url(key, conditions).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        self.inner.download_url(key, ttl).await
    }

    async fn head(&self, _key: &ObjectKey) -> Result<Option<u64>> {
        Ok(Some(self.file.len() as u64))
    }

    async fn delete(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }

    async fn delete_album(
        &self,
        _organization: OrganizationId,
        _album: photofinish_store::model::ids::AlbumId,
    ) -> Result<()> {
        Ok(())
    }
}

/// Networks that find the same in every photo.
pub struct SimulatedModels(pub Arc<Machine>);

struct Simulated {
    machine: Arc<Machine>,
    identity: ModelIdentity,
}

impl SimulatedModels {
    fn create(&self, name: &str) -> Box<Simulated> {
        let identity = ModelIdentity { name: name.to_owned(), version: 1 };
        Box::new(Simulated { machine: Arc::clone(&self.0), identity })
    }
}

impl ModelFactory for SimulatedModels {
    fn create_face_detector(&self) -> std::result::Result<Box<dyn FaceDetector>, ModelError> {
        Ok(self.create("simulated-detector"))
    }

    fn create_face_embedder(&self) -> std::result::Result<Box<dyn FaceEmbedder>, ModelError> {
        Ok(self.create("simulated-embedder"))
    }

    fn create_bib_reader(&self) -> std::result::Result<Box<dyn BibReader>, ModelError> {
        Ok(self.create("simulated-reader"))
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.0.batch_sizes()
    }

    fn uses_cores(&self) -> bool {
        false
    }
}

impl FaceDetector for Simulated {
    fn detect(
        &mut self,
        frames: &[Frame<'_>],
        _long_side: u32,
    ) -> std::result::Result<Vec<Vec<FaceBox>>, ModelError> {
        self.machine.call(Network::Detector, frames.len(), self.machine.batch_sizes().detect)?;
        Ok(vec![(0..FACES).map(face).collect(); frames.len()])
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

impl FaceEmbedder for Simulated {
    fn embed(&mut self, faces: &[FaceCrop<'_>]) -> std::result::Result<Vec<EmbeddedFace>, ModelError> {
        self.machine.call(Network::Embedder, faces.len(), self.machine.batch_sizes().embed)?;
        Ok(vec![EmbeddedFace { vector: vector(), sharpness: SHARPNESS }; faces.len()])
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

impl BibReader for Simulated {
    fn read(&mut self, photos: &[ReadRequest<'_>]) -> std::result::Result<Vec<Vec<BibText>>, ModelError> {
        let most = self.machine.batch_sizes().read;
        self.machine.call(Network::TextDetector, FACES * photos.len(), most)?;
        for strips in ROUNDS_OF_STRIPS {
            self.machine.call(Network::Recogniser, strips * photos.len(), most)?;
        }
        Ok(vec![Vec::new(); photos.len()])
    }

    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }
}

/// A vector that a face may have.
pub fn vector() -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    vector[0] = 1.0;
    vector
}

/// A face that is large enough to be embedded, at the `index`th place of a photo of 320 x 240 pixels.
pub fn face(index: usize) -> FaceBox {
    const SIDE: f32 = 60.0;
    let left = 20.0 + 100.0 * index as f32;
    let landmarks = [(0.3, 0.4), (0.7, 0.4), (0.5, 0.6), (0.35, 0.8), (0.65, 0.8)]
        .map(|(x, y)| Point { x: left + x * SIDE, y: 20.0 + y * SIDE });
    let rect = Rect { left, top: 20.0, right: left + SIDE, bottom: 20.0 + SIDE };
    FaceBox { rect, landmarks, score: 0.95 }
}

#[cfg(test)]
mod tests {
    use photofinish_models::traits::BibPattern;

    use super::*;
    use crate::gpu_model::assumptions::{DEVICES, PHOTOS};

    #[test]
    fn torsos_and_strips_go_to_the_device_as_many_at_a_time_as_in_the_service() {
        const PHOTOS_PER_CALL: usize = 16;
        let design = Design {
            name: "with batches",
            batch_sizes: BatchSizes { detect: 16, embed: 64, read: PHOTOS_PER_CALL },
            overlaps: false,
            decodes_on_device: false,
        };
        let machine = Arc::new(Machine {
            cores: Resource::new(CORES),
            device: Resource::new(1),
            decoder: Resource::new(1),
            model: DEVICES[0],
            photo: PHOTOS[0],
            design,
            slow_motion: 0.0,
            memory: None,
            calls: Default::default(),
        });
        let mut reader = SimulatedModels(Arc::clone(&machine)).create_bib_reader().unwrap();
        let pattern = BibPattern::new("[0-9]+").unwrap();
        let request =
            ReadRequest { frame: Frame::new(&[0; 3], 1, 1).unwrap(), faces: &[], pattern: &pattern };
        reader.read(&[request; PHOTOS_PER_CALL]).unwrap();
        for network in [Network::TextDetector, Network::Recogniser] {
            let [calls, items] = machine.calls[network as usize].read();
            assert_eq!((calls, items), (3, 48), "{network:?}: 16 a call");
        }
    }
}
