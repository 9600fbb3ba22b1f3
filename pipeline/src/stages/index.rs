//! The stage `index`: writes previews to storage, then all results to the database, in one transaction for the batch.
//! Its results finish the tickets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::cost::Spent;
use photofinish_store::model::ids::LeaseId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{Blobs, FinishOutcome, PhotoResults, Queue};
use time::OffsetDateTime;
use tokio::task::JoinSet;

use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::leases::{Hold, LeaseTable};
use crate::engine::metrics as names;
use crate::engine::spans::PhotoOutcome;
use crate::engine::stage::{BatchResults, Stage};
use crate::engine::stage_stats::take_cpu_time;
use crate::engine::store_client::{CALL_TIMEOUT, StoreClient, with_timeout};
use crate::stages::photo::ReadPhoto;

/// The stage `index`; one per thread.
pub(crate) struct Index {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) leases: Arc<LeaseTable>,
    pub(crate) lease_ttl: Duration,
    pub(crate) store_client: StoreClient,
}

/// Content type of previews and thumbnails.
const PREVIEW_CONTENT_TYPE: &str = "image/jpeg";

impl Stage for Index {
    type In = ReadPhoto;
    type Out = FinishOutcome;

    fn run(&mut self, batch: &[ReadPhoto]) -> Result<BatchResults<FinishOutcome>, Outage> {
        // Objects first: the database must never refer to missing objects.
        let hold_of = |lease| self.leases.hold_of(lease, self.lease_ttl);
        self.store_client.run_cancellable(
            Component::Storage,
            upload_previews(&self.blobs, batch, hold_of, CALL_TIMEOUT),
        )?;
        charge_batch(batch);
        match self.finish_photos(batch.iter().map(to_photo_results).collect())? {
            Ok(results) => {
                self.apply_results(batch, &results);
                Ok(results.into_iter().map(Ok).collect())
            }
            Err(error) if batch.len() == 1 => classify_error(error).map(|poison| vec![Err(poison)]),
            // One of the photos cannot be written. Writing each alone shows which.
            Err(error) if is_photo_fault(&error) => {
                batch.iter().map(|photo| self.finish_photo(photo)).collect()
            }
            Err(error) => Err(Outage::from_store_error(Component::Database, error)),
        }
    }
}

impl Index {
    /// Converts the store's result to the outcome of a photo's trace.
    pub(crate) fn to_outcome(result: &FinishOutcome) -> PhotoOutcome {
        match result {
            FinishOutcome::Done => PhotoOutcome::Ready,
            FinishOutcome::Superseded | FinishOutcome::Gone => PhotoOutcome::Superseded,
        }
    }

    fn finish_photos(
        &self,
        photos: Vec<PhotoResults>,
    ) -> Result<Result<Vec<FinishOutcome>, StoreError>, Outage> {
        self.store_client.call(Component::Database, self.queue.finish(photos))
    }

    fn finish_photo(&self, photo: &ReadPhoto) -> Result<Result<FinishOutcome, Poison>, Outage> {
        match self.finish_photos(vec![to_photo_results(photo)])? {
            Ok(results) => {
                self.apply_results(std::slice::from_ref(photo), &results);
                let result = results.into_iter().next().map(Ok);
                result.ok_or_else(|| {
                    Outage::new(Component::Database, "the store returned no result for a photo")
                })
            }
            Err(error) => classify_error(error).map(Err),
        }
    }

    /// Counts the results and removes the previews of deleted photos. Each result ends its photo here: a superseded one
    /// is leased by another worker, or it waits again with other settings.
    fn apply_results(&self, batch: &[ReadPhoto], results: &[FinishOutcome]) {
        for (photo, result) in batch.iter().zip(results) {
            match result {
                FinishOutcome::Done => count_searchable(photo),
                FinishOutcome::Superseded | FinishOutcome::Gone => {
                    metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1)
                }
            }
        }
        let gone = batch.iter().zip(results).filter(|(_, result)| **result == FinishOutcome::Gone);
        if let Err(outage) = self.remove_previews(gone.map(|(photo, _)| photo)) {
            // The results are written. An erasure removes them once more after the end of the leases, and later the garbage
            // collection.
            tracing::warn!(%outage, "failed to remove the pictures of a deleted photo");
        }
    }

    /// Removes the previews of photos that were deleted meanwhile: the deletion listed their objects before these were
    /// written.
    fn remove_previews<'a>(&self, gone: impl Iterator<Item = &'a ReadPhoto>) -> Result<(), Outage> {
        for (key, _) in gone.flat_map(preview_files) {
            self.store_client
                .call(Component::Storage, self.blobs.delete(&key))?
                .map_err(|error| Outage::from_store_error(Component::Storage, error))?;
        }
        Ok(())
    }
}

/// Charges photos what this stage has spent on them, before their costs are written. What it spends from here on is overhead
/// of the next batch.
fn charge_batch(batch: &[ReadPhoto]) {
    let cpu = take_cpu_time() / u32::try_from(batch.len()).unwrap_or(u32::MAX).max(1);
    for photo in batch {
        let bytes_written = photo.previews.size_bytes() as u64;
        photo.metadata.lease.spent.add("index", Spent { cpu, bytes_written, ..Spent::default() });
    }
}

/// Counts a photo that searches find from now on, and records how long that took.
fn count_searchable(photo: &ReadPhoto) {
    metrics::counter!(names::PHOTOS_FINISHED).increment(1);
    let elapsed = OffsetDateTime::now_utc() - photo.metadata.lease.confirmed_at;
    // The clock of the machine that confirmed the upload may be ahead of this one.
    metrics::histogram!(names::CONFIRM_TO_SEARCHABLE_SECONDS).record(elapsed.as_seconds_f64().max(0.0));
}

/// The files of a photo's pictures, with their keys.
fn preview_files(photo: &ReadPhoto) -> impl Iterator<Item = (ObjectKey, Bytes)> {
    let (lease, previews) = (Arc::clone(&photo.metadata.lease), &photo.previews);
    let files = [
        (ObjectRole::Preview, Some(previews.preview.clone())),
        (ObjectRole::Thumbnail, Some(previews.thumbnail.clone())),
        (ObjectRole::Marked, previews.marked.clone()),
    ];
    files.into_iter().filter_map(move |(role, bytes)| {
        Some((ObjectKey::photo(lease.organization, lease.album, lease.photo, role), bytes?))
    })
}

/// Concurrent uploads of a batch: enough to hide the storage's latency, few enough that each makes progress on a slow
/// connection.
const MAX_CONCURRENT_UPLOADS: usize = 16;

/// Uploads the previews of a batch, several at once, and none of photos that another worker has or that were deleted: nobody would
/// remove it if this process ended before the database says so. `timeout` bounds each upload, not the batch: a slow storage that
/// completes each upload in time is available, and may take minutes for a whole batch.
async fn upload_previews(
    blobs: &Arc<dyn Blobs>,
    batch: &[ReadPhoto],
    hold_of: impl Fn(LeaseId) -> Hold,
    timeout: Duration,
) -> Result<(), Outage> {
    let mut uploads = JoinSet::new();
    for photo in batch {
        for (key, bytes) in preview_files(photo) {
            if uploads.len() >= MAX_CONCURRENT_UPLOADS {
                join_next_upload(&mut uploads).await?;
            }
            match hold_of(photo.metadata.lease.id) {
                Hold::Held => {}
                Hold::Over => continue,
                Hold::Unsure => {
                    return Err(Outage::new(Component::Database, "leases were not renewed in time"));
                }
            }
            let blobs = Arc::clone(blobs);
            uploads.spawn(async move {
                with_timeout(Component::Storage, timeout, blobs.write(&key, PREVIEW_CONTENT_TYPE, bytes))
                    .await?
                    .map_err(|error| Outage::from_store_error(Component::Storage, error))
            });
        }
    }
    while !uploads.is_empty() {
        join_next_upload(&mut uploads).await?;
    }
    Ok(())
}

async fn join_next_upload(uploads: &mut JoinSet<Result<(), Outage>>) -> Result<(), Outage> {
    let to_outage = |join_error| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "upload a preview").with_source(join_error);
        Outage::from_store_error(Component::Storage, error)
    };
    uploads.join_next().await.unwrap_or(Ok(Ok(()))).map_err(to_outage)?
}

fn to_photo_results(photo: &ReadPhoto) -> PhotoResults {
    PhotoResults {
        lease: photo.metadata.lease.as_ref().clone(),
        size: photo.metadata.size,
        taken_at: photo.metadata.taken_at,
        camera: photo.metadata.camera.clone(),
        watermark_version: photo.metadata.watermark.as_ref().map_or(0, |watermark| watermark.version()),
        pictures: photo.previews.sizes(),
        skipped_runners: photo.skipped_runners,
        faces: photo.faces.clone(),
        texts: photo.texts.clone(),
    }
}

/// Whether the error is caused by a photo's values, not by the store.
fn is_photo_fault(error: &StoreError) -> bool {
    error.is_rejected_value()
}

/// A photo whose results cannot be written is poison: as an outage it would be retried forever.
fn classify_error(error: StoreError) -> Result<Poison, Outage> {
    if is_photo_fault(&error) {
        Ok(Poison::new(FailureReason::ProcessingCrashed, format!("cannot write results: {error}")))
    } else {
        Err(Outage::from_store_error(Component::Database, error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
    use photofinish_store::model::photo::PhotoSize;
    use photofinish_store::traits::{Lease, Result, UploadConditions};
    use tokio::runtime::Runtime;
    use url::Url;

    use super::*;
    use crate::engine::budget::Budget;
    use crate::engine::store_client::KillSwitch;
    use crate::stages::photo::{PhotoMetadata, Previews};
    use crate::testing::album_config;

    /// Storage that takes `delay` for each upload; forever when it is `None`.
    struct SlowBlobs {
        delay: Option<Duration>,
        uploads: AtomicUsize,
    }

    impl SlowBlobs {
        fn new(takes: Option<Duration>) -> Arc<Self> {
            Arc::new(Self { delay: takes, uploads: AtomicUsize::new(0) })
        }
    }

    #[async_trait]
    impl Blobs for SlowBlobs {
        async fn read(&self, _key: &ObjectKey, _at_most: u64) -> Result<Bytes> {
            unreachable!("the stage only writes")
        }

        async fn write(&self, _key: &ObjectKey, _content_type: &str, _bytes: Bytes) -> Result<()> {
            match self.delay {
                Some(takes) => tokio::time::sleep(takes).await,
                None => std::future::pending().await,
            }
            self.uploads.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }

        async fn upload_url(&self, _key: &ObjectKey, _upload: UploadConditions<'_>) -> Result<Url> {
            unreachable!("the stage only writes")
        }

        async fn download_url(&self, _key: &ObjectKey, _ttl: Duration) -> Result<Url> {
            unreachable!("the stage only writes")
        }

        async fn head(&self, _key: &ObjectKey) -> Result<Option<u64>> {
            unreachable!("the stage only writes")
        }

        async fn delete(&self, _key: &ObjectKey) -> Result<()> {
            unreachable!("the stage only writes")
        }

        async fn delete_album(&self, _organization: OrganizationId, _album: AlbumId) -> Result<()> {
            unreachable!("the stage only writes")
        }
    }

    fn photo() -> ReadPhoto {
        let lease = Lease {
            id: LeaseId::generate(),
            photo: PhotoId::generate(),
            album: AlbumId::generate(),
            organization: OrganizationId::generate(),
            config: Arc::new(album_config()),
            attempt: 1,
            confirmed_at: OffsetDateTime::now_utc(),
            erased_places: Vec::new(),
            watermark_version: 0,
            spent: Arc::default(),
        };
        let size = PhotoSize { width: 1, height: 1 };
        ReadPhoto {
            metadata: Arc::new(PhotoMetadata {
                lease: Arc::new(lease),
                size,
                taken_at: None,
                camera: None,
                watermark: None,
            }),
            previews: Previews { preview: Bytes::new(), thumbnail: Bytes::new(), marked: None },
            faces: Vec::new(),
            texts: Vec::new(),
            skipped_runners: 0,
            _permit: Arc::new(Budget::new(1).acquire(OrganizationId::generate(), 1).unwrap()),
        }
    }

    fn store_client() -> (Runtime, StoreClient) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let calls = StoreClient { runtime: runtime.handle().clone(), kill_switch: KillSwitch::new() };
        (runtime, calls)
    }

    /// 50 rounds of 16 concurrent uploads of 40 ms: together they take twice the timeout of a single upload.
    #[test]
    fn a_slow_storage_that_completes_each_upload_in_time_is_available() {
        let (_runtime, calls) = store_client();
        let slow = SlowBlobs::new(Some(Duration::from_millis(40)));
        let blobs: Arc<dyn Blobs> = slow.clone();
        let batch: Vec<ReadPhoto> = (0..400).map(|_| photo()).collect();
        let uploads = upload_previews(&blobs, &batch, |_| Hold::Held, Duration::from_secs(1));
        calls.run_cancellable(Component::Storage, uploads).unwrap();
        assert_eq!(slow.uploads.load(Ordering::Acquire), 800);
    }

    #[test]
    fn an_upload_that_times_out_is_a_storage_outage() {
        let (_runtime, calls) = store_client();
        let blobs: Arc<dyn Blobs> = SlowBlobs::new(None);
        let batch = [photo()];
        let uploads = upload_previews(&blobs, &batch, |_| Hold::Held, Duration::from_millis(10));
        let outage = calls.run_cancellable(Component::Storage, uploads).unwrap_err();
        assert_eq!(outage.to_string(), "storage is down: no response within 0.01 s");
    }

    #[test]
    fn the_end_of_a_generation_ends_its_uploads() {
        let (_runtime, calls) = store_client();
        calls.kill_switch.set();
        let blobs: Arc<dyn Blobs> = SlowBlobs::new(None);
        let batch = [photo()];
        let uploads = upload_previews(&blobs, &batch, |_| Hold::Held, CALL_TIMEOUT);
        let outage = calls.run_cancellable(Component::Storage, uploads).unwrap_err();
        assert_eq!(outage.to_string(), "storage is down: stopped while waiting for a response");
    }
}
