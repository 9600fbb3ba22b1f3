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
            Err(error) => return classify_error(error, max_bytes).map(Err),
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
        let buffer = self.pool.acquire_buffer(permit.bytes());
        let read = self.blobs.read_into(key, max_bytes, buffer);
        match self.store_client.call_cancellable(Component::Storage, read)? {
            Ok(bytes) => {
                let bytes_read = bytes.len() as u64;
                let bytes = PooledFile::new(bytes, &self.pool);
                lease.spent.add("fetch", Spent { bytes_read, ..Spent::default() });
                let (lease, watermark) = (Arc::clone(lease), self.watermarks.get(&self.store_client, lease)?);
                Ok(Ok(Step::Done(FetchedPhoto { lease, bytes, watermark, _permit: permit })))
            }
            Err(error) => classify_error(error, max_bytes).map(Err),
        }
    }
}

/// Tells errors of this photo's file (poison) from those of the storage (an outage).
fn classify_error(error: StoreError, max_bytes: u64) -> Result<Poison, Outage> {
    match error.kind {
        StoreErrorKind::NotFound => Ok(missing_object()),
        StoreErrorKind::TooLarge => Ok(too_large(max_bytes)),
        StoreErrorKind::Corrupt => Ok(Poison::new(FailureReason::CorruptImage, error.to_string())),
        StoreErrorKind::Conflict
        | StoreErrorKind::Unavailable
        | StoreErrorKind::Invalid
        | StoreErrorKind::InsufficientCredits => Err(Outage::from_store_error(Component::Storage, error)),
    }
}

fn missing_object() -> Poison {
    Poison::new(FailureReason::MissingObject, "the file is not in storage")
}

fn too_large(max_bytes: u64) -> Poison {
    Poison::new(FailureReason::TooLarge, format!("the file has more than {max_bytes} bytes"))
}
