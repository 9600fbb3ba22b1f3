//! The stage `fetch`: reads a photo's file from storage, at most the upload limit, within the file budget.

use std::sync::Arc;
use std::time::Duration;

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::cost::Spent;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{Blobs, Lease};

use crate::engine::budget::{Budget, BudgetClosed, BudgetPermit, BudgetRequest, MEMORY_PATIENCE};
use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::engine::store_client::StoreClient;
use crate::image::pool::{BufferPool, PooledFile};
use crate::settings::Limits;
use crate::stages::photo::FetchedPhoto;
use crate::stages::watermarks::WatermarkCache;

/// The stage `fetch`; one per thread.
pub(crate) struct Fetch {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) store_client: StoreClient,
    pub(crate) file_budget: Budget,
    pub(crate) limits: Limits,
    pub(crate) watermarks: Arc<WatermarkCache>,
    /// Of the files' buffers.
    pub(crate) pool: BufferPool,
}

impl SteppedStage for Fetch {
    type In = Arc<Lease>;
    type Part = BudgetRequest;
    type Out = FetchedPhoto;

    fn step(
        &mut self,
        batch: &[Arc<Lease>],
        parts: &[Vec<BudgetRequest>],
    ) -> Result<StepResults<BudgetRequest, FetchedPhoto>, Outage> {
        batch.iter().zip(parts).map(|(lease, parts)| self.fetch(lease, parts)).collect()
    }
}

type FetchStep = Result<Step<BudgetRequest, FetchedPhoto>, Poison>;

impl Fetch {
    /// Reads the file when the budget has its bytes; `parts` has the request of an earlier step.
    fn fetch(&self, lease: &Arc<Lease>, parts: &[BudgetRequest]) -> Result<FetchStep, Outage> {
        let key = ObjectKey::photo(lease.organization, lease.album, lease.photo, ObjectRole::Original);
        let max_bytes = self.limits.max_file_bytes;
        let closed = |closed: BudgetClosed| Outage::new(Component::Storage, closed.to_string());
        if let Some(request) = parts.first() {
            let permit = request.take_within(MEMORY_PATIENCE).map_err(closed)?;
            return permit.map_or(Ok(Ok(Step::Wait(None))), |permit| self.read(lease, &key, permit));
        }
        let size = match self.store_client.call_cancellable(Component::Storage, self.blobs.head(&key))? {
            Ok(Some(size)) if size > max_bytes => return Ok(Err(too_large(max_bytes))),
            Ok(Some(size)) => size,
            Ok(None) => return Ok(Err(missing_object())),
            Err(error) => return self.classify_error(&key, error).map(Err),
        };
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let request = self.file_budget.request(lease.organization, bytes);
        match request.take_within(Duration::ZERO).map_err(closed)? {
            Some(permit) => self.read(lease, &key, permit),
            None => Ok(Ok(Step::Wait(Some(request)))),
        }
    }

    fn read(&self, lease: &Arc<Lease>, key: &ObjectKey, permit: BudgetPermit) -> Result<FetchStep, Outage> {
        let max_bytes = self.limits.max_file_bytes;
        let buffer = self.pool.acquire_file_buffer(permit.bytes());
        let read = self.blobs.read_into(key, max_bytes, buffer);
        match self.store_client.read(self.blobs.time_to_receive(max_bytes), read)? {
            Ok(bytes) => {
                let bytes_read = bytes.len() as u64;
                let bytes = PooledFile::new(bytes, &self.pool);
                lease.spent.add("fetch", Spent { bytes_read, ..Spent::default() });
                let (lease, watermark) = (Arc::clone(lease), self.watermarks.get(&self.store_client, lease)?);
                Ok(Ok(Step::Done(FetchedPhoto { lease, bytes, watermark, _permit: permit })))
            }
            Err(error) => self.classify_error(key, error).map(Err),
        }
    }

    /// Tells errors of this photo's file (poison) from those of the storage (an outage). A file that a working storage refuses
    /// fails its photo: as an outage, it would keep all photos from being processed for as long as it is there.
    fn classify_error(&self, key: &ObjectKey, error: StoreError) -> Result<Poison, Outage> {
        match error.kind {
            StoreErrorKind::NotFound => Ok(missing_object()),
            StoreErrorKind::TooLarge => Ok(too_large(self.limits.max_file_bytes)),
            StoreErrorKind::Corrupt => Ok(Poison::new(FailureReason::CorruptImage, error.to_string())),
            StoreErrorKind::Unavailable if self.is_refused(key, &error)? => Ok(refused_object(&error)),
            StoreErrorKind::Conflict
            | StoreErrorKind::Unavailable
            | StoreErrorKind::Invalid
            | StoreErrorKind::InsufficientCredits => Err(Outage::from_store_error(Component::Storage, error)),
        }
    }

    fn is_refused(&self, key: &ObjectKey, error: &StoreError) -> Result<bool, Outage> {
        let asked =
            self.store_client.call_cancellable(Component::Storage, self.blobs.is_refused(key, error))?;
        // A storage that cannot be asked is down.
        Ok(asked.unwrap_or(false))
    }
}

fn missing_object() -> Poison {
    Poison::new(FailureReason::MissingObject, "the file is not in storage")
}

fn refused_object(error: &StoreError) -> Poison {
    let detail = format!("the storage works and refuses the file: {}", error.to_string_with_causes());
    Poison::new(FailureReason::MissingObject, detail)
}

fn too_large(max_bytes: u64) -> Poison {
    Poison::new(FailureReason::TooLarge, format!("the file has more than {max_bytes} bytes"))
}
