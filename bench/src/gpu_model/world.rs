//! The pipeline with a database of its own, on photos that cost next to nothing: what the simulations of devices share.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{Pipeline, PipelineDependencies, PipelineSettings, ReservedCores};
use photofinish_store::conformance::{AlbumFixture, test_settings};
use photofinish_store::model::photo::StateCounts;
use photofinish_store::traits::{Blobs, Queue};
use photofinish_store::{Store, StoreSettings};
use tokio::runtime::Runtime;

/// Size of the photo that is really decoded.
const WIDTH: usize = 320;
const HEIGHT: usize = 240;

/// Photos that are queued in one call.
pub const PHOTOS_PER_CALL: usize = 500;

/// An album in a database, and what the pipeline runs on.
pub struct World {
    pub runtime: Runtime,
    pub store: Store,
    album: AlbumFixture,
    /// Last, so that the store is closed before its folder is removed.
    _folder: tempfile::TempDir,
}

impl World {
    /// Creates a database in a temporary folder.
    ///
    /// # Errors
    /// When the folder or the store cannot be opened.
    pub fn open() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let folder = tempfile::tempdir()?;
        let (store, album) = runtime.block_on(open_store(folder.path()))?;
        Ok(Self { runtime, store, album, _folder: folder })
    }

    /// Uploads and confirms photos.
    pub fn queue_photos(&self, count: usize) {
        let mut rest = count;
        while rest > 0 {
            let count = rest.min(PHOTOS_PER_CALL);
            self.runtime.block_on(self.album.queue_photos(count));
            rest -= count;
        }
    }

    /// Counts the photos by state.
    ///
    /// # Errors
    /// When the database fails, or a photo has.
    pub fn count_photos(&self) -> anyhow::Result<StateCounts> {
        let counts = self.runtime.block_on(self.store.photos.count_by_state(self.album.album))?;
        anyhow::ensure!(counts.failed == 0, "{} photos failed", counts.failed);
        Ok(counts)
    }

    /// Starts the pipeline on the album.
    pub fn start(
        &self,
        settings: PipelineSettings,
        queue: Arc<dyn Queue>,
        blobs: Arc<dyn Blobs>,
        models: Arc<dyn ModelFactory>,
    ) -> Pipeline {
        let dependencies = PipelineDependencies {
            queue,
            blobs,
            watermarks: Arc::clone(&self.store.watermarks),
            models: vec![models],
            runtime: self.runtime.handle().clone(),
            reserved_cores: ReservedCores::default(),
        };
        Pipeline::start(settings, dependencies)
    }

    /// Closes the database.
    pub fn close(self) {
        self.runtime.block_on(self.store.close());
    }
}

async fn open_store(folder: &Path) -> anyhow::Result<(Store, AlbumFixture)> {
    let database_url = format!("sqlite:{}", folder.join("model.sqlite").display());
    let store = Store::open(StoreSettings { database_url, ..test_settings(folder) }).await?;
    let album = AlbumFixture::create(&store).await;
    Ok((store, album))
}

/// Encodes the photo that all are copies of.
///
/// # Errors
/// When libjpeg-turbo fails.
pub fn encode_photo() -> anyhow::Result<Bytes> {
    let pixels: Vec<u8> = (0..WIDTH * HEIGHT * 3).map(|index| (index % 251) as u8).collect();
    let image = turbojpeg::Image {
        pixels: pixels.as_slice(),
        width: WIDTH,
        pitch: WIDTH * 3,
        height: HEIGHT,
        format: turbojpeg::PixelFormat::RGB,
    };
    let file = turbojpeg::compress(image, 80, turbojpeg::Subsamp::Sub2x2).context("encoding a photo")?;
    Ok(Bytes::copy_from_slice(&file))
}
