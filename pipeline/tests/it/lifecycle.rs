//! Stops, outages and restarts: no photo is lost or processed twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_models::fakes::FakeModels;
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError, ModelFactory,
};
use photofinish_pipeline::{Component, PipelineSettings, PipelineStatus};
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::ids::{AlbumId, OrganizationId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{Blobs, LeaseKind, LeaseRequest, Result, UploadConditions};
use url::Url;

use crate::support::{
    PipelineFixture, album_config, encode_jpeg, gradient_picture, grid_config, runner_picture, test_settings,
    wait_for, wait_until_running,
};

/// Returns `count` JPEG files, each of another runner with another bib.
fn race_files(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|i| encode_jpeg(&runner_picture(i, &format!("{}", 100 + i)))).collect()
}

#[test]
fn a_stop_under_load_gives_everything_back_and_the_next_start_finishes_it() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    fixture.upload_photos(album, &race_files(30));
    let slow = FakeModels { delay: Duration::from_millis(200), ..FakeModels::default() };
    let pipeline = fixture.start_pipeline_with(
        Arc::new(slow),
        Arc::clone(&fixture.store.blobs),
        Duration::from_millis(1),
    );
    wait_for("some ready photos", || (fixture.state_counts(album).ready > 2).then_some(()));
    let report = pipeline.stop();
    assert!(!report.drained && report.unfinished == 0 && report.abandoned_threads.is_empty(), "{report:?}");
    let counts = fixture.state_counts(album);
    assert_eq!((counts.processing, counts.failed), (0, 0));
    assert!(counts.queued > 0 && counts.ready + counts.queued == 30, "{counts:?}");

    let pipeline = fixture.start_pipeline(FakeModels::default());
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (30, 0));
    assert!(pipeline.stop().drained);
}

/// Issue 9: a stop waited in vain for all cells, and counted an attempt.
#[test]
fn a_stop_ends_between_two_cells_and_counts_no_attempt() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(grid_config());
    let photo = fixture.upload_photos(album, &[encode_jpeg(&gradient_picture(2600, 2600))])[0];
    // 16 cells and the whole photo take 34 s, longer than a stop waits for threads.
    let slow = FakeModels { read_delay: Duration::from_secs(2), ..FakeModels::default() };
    for _ in 0..3 {
        let blobs = Arc::clone(&fixture.store.blobs);
        let pipeline = fixture.start_pipeline_with(Arc::new(slow), blobs, Duration::from_millis(1));
        wait_for("photo in processing", || (fixture.state_counts(album).processing > 0).then_some(()));
        let report = pipeline.stop();
        assert!(report.abandoned_threads.is_empty() && report.unfinished == 0, "{report:?}");
        assert_eq!((report.drained, report.given_back), (false, 1));
        assert_eq!(fixture.state_counts(album).queued, 1);
    }
    let request = LeaseRequest { limit: 1, ttl: Duration::from_secs(60), kind: LeaseKind::Fresh };
    let leases = fixture.runtime.block_on(fixture.store.queue.lease(request)).unwrap();
    assert_eq!(leases.iter().map(|lease| (lease.photo, lease.attempt)).collect::<Vec<_>>(), [(photo, 1)]);
    fixture.runtime.block_on(fixture.store.queue.release(&leases[..1])).unwrap();
    fixture.process_album(album, FakeModels::default());
    assert_eq!(fixture.load_photo(album, photo).failure, None);
}

#[test]
fn a_stop_with_time_to_drain_finishes_what_is_in_flight() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    fixture.upload_photos(album, &race_files(12));
    let slow = FakeModels { delay: Duration::from_millis(5), ..FakeModels::default() };
    let pipeline = fixture.start_pipeline(slow);
    wait_for("photos in processing", || (fixture.state_counts(album).processing > 0).then_some(()));
    let report = pipeline.stop();
    assert!(report.drained && report.given_back == 0, "{report:?}");
    assert_eq!(fixture.state_counts(album).processing, 0);
    assert_eq!(pipeline.stop(), report, "a second stop returns the report of the first");
}

#[test]
fn a_photo_deleted_while_it_is_read_leaves_no_objects() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let photo = fixture.upload_photos(album, &race_files(1))[0];
    let slow = FakeModels { delay: Duration::from_secs(1), ..FakeModels::default() };
    let pipeline = fixture.start_pipeline(slow);
    wait_for("photo in processing", || (fixture.state_counts(album).processing > 0).then_some(()));
    fixture.runtime.block_on(fixture.store.photos.delete(album, photo)).unwrap();
    let report = pipeline.stop();
    assert!(report.drained && report.given_back == 0, "{report:?}");
    for role in [ObjectRole::Preview, ObjectRole::Thumbnail] {
        let key = fixture.object_key(album, photo, role);
        assert_eq!(fixture.runtime.block_on(fixture.store.blobs.head(&key)).unwrap(), None, "{role:?}");
    }
}

/// A process that dies after the pictures and before the database says that the photo is gone would leave them.
#[test]
fn no_pictures_are_written_of_a_photo_whose_lease_is_lost() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let photo = fixture.upload_photos(album, &race_files(1))[0];
    let storage = InterruptibleBlobs::new(&fixture.store.blobs);
    // Each network takes three times as long as a lease is renewed.
    let slow = Arc::new(FakeModels { delay: Duration::from_secs(1), ..FakeModels::default() });
    let settings = PipelineSettings { lease_ttl: Duration::from_secs(1), ..test_settings() };
    let pipeline =
        fixture.start_pipeline_with_settings(settings, slow, Arc::clone(&storage) as Arc<dyn Blobs>);
    wait_for("photo in processing", || (fixture.state_counts(album).processing > 0).then_some(()));
    fixture.runtime.block_on(fixture.store.photos.delete(album, photo)).unwrap();
    let report = pipeline.stop();
    assert!(report.drained && report.given_back == 0, "{report:?}");
    assert_eq!(storage.written.load(Ordering::Acquire), 0);
}

#[test]
fn photos_larger_than_the_budgets_go_through_one_by_one() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    fixture.upload_photos(album, &race_files(12));
    let settings = PipelineSettings { file_budget_bytes: 1000, pixel_budget_bytes: 1000, ..test_settings() };
    let pipeline = fixture.start_pipeline_with_settings(
        settings,
        Arc::new(FakeModels::default()),
        Arc::clone(&fixture.store.blobs),
    );
    assert_eq!(fixture.wait_until_processed(album).ready, 12);
    assert!(pipeline.stop().drained);
}

/// A storage that a test can make unavailable.
struct InterruptibleBlobs {
    blobs: Arc<dyn Blobs>,
    is_down: AtomicBool,
    /// An object that it does not hand out, although it works.
    refused: OnceLock<ObjectKey>,
    /// The number of calls that failed.
    failed_calls: AtomicUsize,
    /// The number of objects that were written.
    written: AtomicUsize,
}

impl InterruptibleBlobs {
    fn new(blobs: &Arc<dyn Blobs>) -> Arc<Self> {
        Arc::new(Self {
            blobs: Arc::clone(blobs),
            is_down: AtomicBool::new(false),
            refused: OnceLock::new(),
            failed_calls: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        })
    }

    fn check_available(&self) -> Result<()> {
        if self.is_down.load(Ordering::Acquire) {
            self.failed_calls.fetch_add(1, Ordering::AcqRel);
            return Err(StoreError::new(StoreErrorKind::Unavailable, "storage"));
        }
        Ok(())
    }
}

#[async_trait]
impl Blobs for InterruptibleBlobs {
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes> {
        self.check_available()?;
        if self.refused.get() == Some(key) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "an archived object"));
        }
        self.blobs.read(key, max_bytes).await
    }

    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
        self.check_available()?;
        self.written.fetch_add(1, Ordering::AcqRel);
        self.blobs.write(key, content_type, bytes).await
    }

    async fn upload_url(&self, key: &ObjectKey, conditions: UploadConditions<'_>) -> Result<Url> {
        self.blobs.upload_url(key, conditions).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        self.blobs.download_url(key, ttl).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
        self.check_available()?;
        self.blobs.head(key).await
    }

    async fn is_refused(&self, key: &ObjectKey, _error: &StoreError) -> Result<bool> {
        self.check_available()?;
        Ok(self.refused.get() == Some(key))
    }

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        self.blobs.delete(key).await
    }

    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        self.blobs.delete_album(organization, album).await
    }
}

#[test]
fn a_storage_outage_counts_no_attempt() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let storage = InterruptibleBlobs::new(&fixture.store.blobs);
    let models = Arc::new(FakeModels { delay: Duration::from_millis(100), ..FakeModels::default() });
    fixture.upload_photos(album, &race_files(20));
    let pipeline =
        fixture.start_pipeline_with(models, Arc::clone(&storage) as Arc<dyn Blobs>, Duration::from_secs(30));
    wait_for("some ready photos", || (fixture.state_counts(album).ready > 2).then_some(()));
    storage.is_down.store(true, Ordering::Release);
    // More outages than a photo has attempts.
    wait_for("outages of the storage", || {
        let is_down = matches!(pipeline.status(), PipelineStatus::Down { component: Component::Storage, .. });
        (is_down && storage.failed_calls.load(Ordering::Acquire) > 4).then_some(())
    });
    storage.is_down.store(false, Ordering::Release);
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (20, 0));
    wait_until_running(&pipeline);
    pipeline.stop();
}

/// It was an outage: all photos were given back, again and again, as long as the photo was there.
#[test]
fn a_photo_that_the_storage_refuses_fails_alone_and_the_others_are_processed() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let photos = fixture.upload_photos(album, &race_files(20));
    let storage = InterruptibleBlobs::new(&fixture.store.blobs);
    storage.refused.set(fixture.object_key(album, photos[0], ObjectRole::Original)).unwrap();
    let models = Arc::new(FakeModels { delay: Duration::from_millis(100), ..FakeModels::default() });
    let pipeline =
        fixture.start_pipeline_with(models, Arc::clone(&storage) as Arc<dyn Blobs>, Duration::from_secs(30));
    let counts = fixture.wait_until_processed(album);
    assert_eq!((counts.ready, counts.failed), (19, 1));
    assert_eq!(fixture.load_photo(album, photos[0]).failure, Some(FailureReason::MissingObject));
    assert_eq!(pipeline.status(), PipelineStatus::Running);
    let report = pipeline.stop();
    assert!(report.drained && report.given_back == 0, "a generation ended: {report:?}");
}

/// Models that cannot be loaded at first.
struct LateModels {
    models: FakeModels,
    /// How often loading the detector still fails.
    failures_left: AtomicUsize,
}

impl ModelFactory for LateModels {
    fn create_face_detector(&self) -> std::result::Result<Box<dyn FaceDetector>, ModelError> {
        let fails =
            self.failures_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        match fails {
            Ok(_) => Err(ModelError::Runtime("no library".into())),
            Err(_) => self.models.create_face_detector(),
        }
    }

    fn create_face_embedder(&self) -> std::result::Result<Box<dyn FaceEmbedder>, ModelError> {
        self.models.create_face_embedder()
    }

    fn create_bib_reader(&self) -> std::result::Result<Box<dyn BibReader>, ModelError> {
        self.models.create_bib_reader()
    }

    fn batch_sizes(&self) -> BatchSizes {
        self.models.batch_sizes()
    }
}

#[test]
fn missing_models_are_reported_and_waited_for() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    fixture.upload_photos(album, &race_files(3));
    let models = Arc::new(LateModels { models: FakeModels::default(), failures_left: AtomicUsize::new(2) });
    let pipeline =
        fixture.start_pipeline_with(models, Arc::clone(&fixture.store.blobs), Duration::from_secs(30));
    let reason = wait_for("status down", || match pipeline.status() {
        PipelineStatus::Down { component: Component::Models, reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason, "models is down: onnx runtime: no library");
    let counts = fixture.wait_until_processed(album);
    assert_eq!(counts.ready, 3);
    assert!(pipeline.stop().drained);
}

#[test]
fn a_pipeline_with_nothing_to_do_stops_at_once() {
    let fixture = PipelineFixture::new();
    let pipeline = fixture.start_pipeline(FakeModels::default());
    wait_until_running(&pipeline);
    let report = pipeline.stop();
    assert!(report.drained && report.abandoned_threads.is_empty(), "{report:?}");
}

/// The niceness of the threads of this process whose name begins so.
#[cfg(target_os = "linux")]
fn niceness_of(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let named = stats.filter_map(|stat| {
        let (head, rest) = stat.rsplit_once(')')?;
        let is_named = head.split_once('(')?.1.starts_with(name);
        // Field 19; the first after the name is number 3.
        is_named.then(|| rest.split_whitespace().nth(16)?.parse().ok())?
    });
    named.collect()
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_process_photos_have_a_lower_priority_than_the_others() {
    // As on a CPU, and as beside a device: there the threads of networks prepare what it gets.
    for batch_sizes in [None, Some(BatchSizes { detect: 16, embed: 16, read: 16 })] {
        let fixture = PipelineFixture::new();
        let pipeline = fixture.start_pipeline(FakeModels { batch_sizes, ..FakeModels::default() });
        wait_until_running(&pipeline);
        let usual = niceness_of("supervisor").into_iter().min().unwrap();
        for (stage, threads) in [("decode-", 2), ("resize-", 1), ("detect-", 1), ("embed-", 1), ("read-", 2)]
        {
            // Other tests of this process may just have begun theirs.
            wait_for("a lower priority of all threads of a stage", || {
                let found = niceness_of(stage);
                let all_are_lowered = found.iter().all(|nice| *nice == (usual + 3).min(19));
                (all_are_lowered && found.len() >= threads).then_some(())
            });
        }
        assert!(niceness_of("index").iter().all(|nice| *nice == usual));
        pipeline.stop();
    }
}
