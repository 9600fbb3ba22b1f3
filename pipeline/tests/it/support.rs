//! What the tests share: a store with an organization, painted pictures, and files of them.

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exif::experimental::Writer;
use exif::{Field, In, Tag, Value};
use photofinish_kernels::image::frame::Picture;
use photofinish_kernels::image::orient::{Orientation, apply_orientation};
use photofinish_models::fakes::{FakeModels, paint_bib, paint_face};
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{
    DEVICE_CALL_LIMIT, Limits, Pipeline, PipelineDependencies, PipelineSettings, PipelineStatus,
    ProbeSettings, ReservedCores, StopReport,
};
use photofinish_store::model::album::{AlbumConfig, Grid, NewAlbum, RecognitionMode, Tenant};
use photofinish_store::model::ids::{AlbumId, KeyId, OrganizationId, PhotoId};
use photofinish_store::model::key::{KeyMode, NewKey, Scope};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{DetectedFace, DetectedText, NewPhoto, Photo, StateCounts};
use photofinish_store::model::rate::RateLimits;
use photofinish_store::traits::Blobs;
use photofinish_store::{Store, conformance};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const LIMITS: Limits = Limits { max_file_bytes: 4 << 20, max_pixels: 50_000_000, reads_heic: false };

/// The settings of probe services, with a time limit that no test reaches.
pub const PROBE_SETTINGS: ProbeSettings = ProbeSettings {
    limits: LIMITS,
    places: 16,
    time_limit: TEST_TIMEOUT,
    device_call_limit: DEVICE_CALL_LIMIT,
};

/// The longest time that [`wait_for`] waits.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// A store in a temporary directory, with an organization.
pub struct PipelineFixture {
    pub runtime: Runtime,
    pub store: Store,
    tenant: Tenant,
    key: KeyId,
    _store_dir: TempDir,
}

impl PipelineFixture {
    pub fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store_dir = TempDir::new().unwrap();
        let (store, tenant, key) = runtime.block_on(async {
            let store = Store::open(conformance::test_settings(store_dir.path())).await.unwrap();
            let organization = store.keys.get_or_create_organization("pipeline tests").await.unwrap();
            let key = store.keys.create(new_key(organization)).await.unwrap();
            (store, key.tenant, key.id)
        });
        Self { runtime, store, tenant, key, _store_dir: store_dir }
    }

    pub fn create_album(&self, config: AlbumConfig) -> AlbumId {
        self.create_album_of(self.tenant, config)
    }

    /// Creates another organization.
    pub fn create_tenant(&self, name: &str) -> Tenant {
        self.runtime.block_on(async {
            let organization = self.store.keys.get_or_create_organization(name).await.unwrap();
            let key = NewKey { digest: [10; 32], ..new_key(organization) };
            self.store.keys.create(key).await.unwrap().tenant
        })
    }

    pub fn create_album_of(&self, tenant: Tenant, config: AlbumConfig) -> AlbumId {
        let album = NewAlbum {
            tenant,
            created_by: self.key,
            title: "Test run".into(),
            cover_url: None,
            tags: Vec::new(),
            config,
        };
        self.runtime.block_on(self.store.albums.create(album)).unwrap().id
    }

    pub fn object_key(&self, album: AlbumId, photo: PhotoId, role: ObjectRole) -> ObjectKey {
        ObjectKey::photo(self.tenant.organization, album, photo, role)
    }

    /// Creates photos, writes their files to the storage and confirms them.
    pub fn upload_photos(&self, album: AlbumId, files: &[Vec<u8>]) -> Vec<PhotoId> {
        self.upload_photos_of(self.tenant, album, files)
    }

    pub fn upload_photos_of(&self, tenant: Tenant, album: AlbumId, files: &[Vec<u8>]) -> Vec<PhotoId> {
        self.runtime.block_on(async {
            let photos = (0..files.len())
                .map(|i| NewPhoto { filename: format!("{i}.jpg"), content_type: "image/jpeg".into() });
            let photos = self.store.photos.create(album, photos.collect()).await.unwrap();
            for (photo, file) in photos.iter().zip(files) {
                let key = ObjectKey::photo(tenant.organization, album, *photo, ObjectRole::Original);
                self.store.blobs.write(&key, "image/jpeg", Bytes::from(file.clone())).await.unwrap();
            }
            assert_eq!(self.store.queue.confirm(album, &photos).await.unwrap().len(), photos.len());
            photos
        })
    }

    pub fn state_counts(&self, album: AlbumId) -> StateCounts {
        self.runtime.block_on(self.store.photos.count_by_state(album)).unwrap()
    }

    /// Waits until no photo of the album is queued or in processing.
    pub fn wait_until_processed(&self, album: AlbumId) -> StateCounts {
        wait_for("the end of all photos", || {
            let counts = self.state_counts(album);
            (counts.queued + counts.processing == 0).then_some(counts)
        })
    }

    pub fn load_photo(&self, album: AlbumId, photo: PhotoId) -> Photo {
        self.runtime.block_on(self.store.photos.get(album, photo)).unwrap()
    }

    pub fn load_detections(&self, album: AlbumId, photo: PhotoId) -> (Vec<DetectedFace>, Vec<DetectedText>) {
        self.runtime.block_on(self.store.photos.get_detections(album, photo)).unwrap()
    }

    pub fn read_object(&self, key: &ObjectKey) -> Bytes {
        self.runtime.block_on(self.store.blobs.read(key, 100 << 20)).unwrap()
    }

    /// Starts a pipeline, waits until it has processed all photos of the album, and stops it.
    pub fn process_album(&self, album: AlbumId, models: FakeModels) -> StopReport {
        let pipeline = self.start_pipeline(models);
        self.wait_until_processed(album);
        pipeline.stop()
    }

    pub fn start_pipeline(&self, models: FakeModels) -> Pipeline {
        self.start_pipeline_with(Arc::new(models), Arc::clone(&self.store.blobs), Duration::from_secs(300))
    }

    pub fn start_pipeline_with(
        &self,
        models: Arc<dyn ModelFactory>,
        blobs: Arc<dyn Blobs>,
        drain_grace: Duration,
    ) -> Pipeline {
        let settings = PipelineSettings { drain_grace, ..test_settings() };
        self.start_pipeline_with_settings(settings, models, blobs)
    }

    pub fn start_pipeline_with_settings(
        &self,
        settings: PipelineSettings,
        models: Arc<dyn ModelFactory>,
        blobs: Arc<dyn Blobs>,
    ) -> Pipeline {
        self.start_pipeline_on(settings, vec![models], blobs)
    }

    /// Starts a pipeline with one lane for each factory.
    pub fn start_pipeline_on(
        &self,
        settings: PipelineSettings,
        models: Vec<Arc<dyn ModelFactory>>,
        blobs: Arc<dyn Blobs>,
    ) -> Pipeline {
        let (queue, watermarks) = (Arc::clone(&self.store.queue), Arc::clone(&self.store.watermarks));
        let runtime = self.runtime.handle().clone();
        let reserved_cores = ReservedCores::default();
        let dependencies = PipelineDependencies { queue, blobs, watermarks, models, runtime, reserved_cores };
        Pipeline::start(settings, dependencies)
    }
}

pub fn test_settings() -> PipelineSettings {
    PipelineSettings {
        cores: 4,
        decode_threads: 2,
        resize_threads: 1,
        fetch_threads: 2,
        detect_threads: 1,
        embed_threads: 1,
        read_threads: 2,
        file_budget_bytes: 8 << 20,
        pixel_budget_bytes: 64 << 20,
        limits: LIMITS,
        max_grid_cells: 16,
        max_runners: 100,
        lease_ttl: Duration::from_secs(60),
        device_call_limit: DEVICE_CALL_LIMIT,
        drain_grace: Duration::from_secs(30),
    }
}

fn new_key(organization: OrganizationId) -> NewKey {
    NewKey {
        organization,
        mode: KeyMode::Live,
        label: "tests".into(),
        hint: "svc_live_test".into(),
        scopes: Scope::ALL.to_vec(),
        limits: RateLimits::default(),
        expires_at: None,
        digest: [9; 32],
    }
}

/// Polls until the closure returns `Some`, and returns its value.
pub fn wait_for<T>(expected: &str, poll: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {expected}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_until_running(pipeline: &Pipeline) {
    wait_for("status running", || (pipeline.status() == PipelineStatus::Running).then_some(()));
}

/// How the album of a test is processed: with thumbnails that are smaller than its photos.
pub fn album_config() -> AlbumConfig {
    AlbumConfig { thumbnail_max_dimension: 256, ..conformance::album_config() }
}

/// The configuration of an album whose texts are read in a grid of 16 x 16 cells.
pub fn grid_config() -> AlbumConfig {
    let mut config = album_config();
    config.text.mode = RecognitionMode::Grid;
    config.text.grid = Some(Grid { rows: 16, columns: 16, cell_width: 640, cell_height: 640 });
    config
}

/// Returns a picture that gets brighter to the right and to the bottom.
pub fn gradient_picture(width: u32, height: u32) -> Picture {
    let pixels = (0..height).flat_map(|y| {
        (0..width).flat_map(move |x| [(60 + 100 * x / width) as u8, (60 + 100 * y / height) as u8, 120])
    });
    Picture::new(pixels.collect(), width, height).unwrap()
}

/// Returns a picture of 1200 x 800 pixels with marks that the fake models read as a face of `person` and as `bib`.
pub fn runner_picture(person: u16, bib: &str) -> Picture {
    let mut picture = gradient_picture(1200, 800);
    paint_face(&mut picture, person, [300, 100, 160]);
    paint_bib(&mut picture, bib, [320, 420]);
    picture
}

pub fn encode_jpeg(picture: &Picture) -> Vec<u8> {
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let frame = picture.frame();
    let image = turbojpeg::Image {
        pixels: frame.pixels(),
        width,
        pitch: width * 3,
        height,
        format: turbojpeg::PixelFormat::RGB,
    };
    turbojpeg::compress(image, 92, turbojpeg::Subsamp::Sub2x2).unwrap().to_vec()
}

/// Returns the JPEG file with an EXIF segment inserted after its first marker, which is two bytes long.
pub fn with_exif(file: &[u8], tags: &[(Tag, Value)]) -> Vec<u8> {
    let fields: Vec<Field> = tags
        .iter()
        .map(|(tag, value)| Field { tag: *tag, ifd_num: In::PRIMARY, value: value.clone() })
        .collect();
    let mut writer = Writer::new();
    fields.iter().for_each(|field| writer.push_field(field));
    let mut tiff = Cursor::new(Vec::new());
    writer.write(&mut tiff, false).unwrap();
    let tiff = tiff.into_inner();
    let mut with_exif = file[..2].to_vec();
    with_exif.extend([0xff, 0xe1]);
    with_exif.extend(u16::try_from(tiff.len() + 8).unwrap().to_be_bytes());
    with_exif.extend(b"Exif\0\0");
    with_exif.extend(tiff);
    with_exif.extend(&file[2..]);
    with_exif
}

/// Returns a JPEG file with the EXIF orientation `exif`, whose stored pixels are rotated so that upright it shows `picture`.
pub fn encode_jpeg_with_orientation(picture: &Picture, exif: u16) -> Vec<u8> {
    // Each orientation is its own inverse, except for the two quarter turns, which are each other's.
    let stored = match Orientation::from_exif(exif.into()) {
        Orientation::Rotate90 => apply_orientation(picture.clone(), Orientation::Rotate270),
        Orientation::Rotate270 => apply_orientation(picture.clone(), Orientation::Rotate90),
        other => apply_orientation(picture.clone(), other),
    };
    with_exif(&encode_jpeg(&stored), &[(Tag::Orientation, Value::Short(vec![exif]))])
}

pub fn exif_text(text: &str) -> Value {
    Value::Ascii(vec![text.as_bytes().to_vec()])
}
