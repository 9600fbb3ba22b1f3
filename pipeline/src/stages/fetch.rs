//! Brings a photo's bytes here: at most the upload limit, under a hold of budget A.

use std::sync::Arc;

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::FailureReason;
use photofinish_store::traits::{Blobs, Lease};

use crate::engine::budget::Budget;
use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::engine::store_client::StoreClient;
use crate::settings::Limits;
use crate::stages::photo::FetchedPhoto;

/// The stage `fetch`.
pub(crate) struct Fetch {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) store_client: StoreClient,
    pub(crate) file_budget: Budget,
    pub(crate) limits: Limits,
}

impl Stage for Fetch {
    type In = Arc<Lease>;
    type Out = FetchedPhoto;

    fn run(&mut self, batch: &[Arc<Lease>]) -> Result<BatchResults<FetchedPhoto>, Outage> {
        batch.iter().map(|lease| self.fetch(lease)).collect()
    }
}

impl Fetch {
    fn fetch(&self, lease: &Arc<Lease>) -> Result<Result<FetchedPhoto, Poison>, Outage> {
        let key = ObjectKey::photo(lease.organization, lease.album, lease.photo, ObjectRole::Original);
        let at_most = self.limits.max_file_bytes;
        let size = match self.store_client.call_cancellable(Component::Storage, self.blobs.head(&key))? {
            Ok(Some(size)) if size > at_most => return Ok(Err(too_large(at_most))),
            Ok(Some(size)) => size,
            Ok(None) => return Ok(Err(missing_object())),
            Err(error) => return classify_error(error, at_most).map(Err),
        };
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let held = self
            .file_budget
            .acquire(bytes)
            .map_err(|closed| Outage::new(Component::Storage, closed.to_string()))?;
        match self.store_client.call_cancellable(Component::Storage, self.blobs.read(&key, at_most))? {
            Ok(bytes) => Ok(Ok(FetchedPhoto { lease: Arc::clone(lease), bytes, _permit: held })),
            Err(error) => classify_error(error, at_most).map(Err),
        }
    }
}

/// The store's answer is the photo's fault, or the storage's.
fn classify_error(error: StoreError, at_most: u64) -> Result<Poison, Outage> {
    match error.kind {
        StoreErrorKind::NotFound => Ok(missing_object()),
        StoreErrorKind::TooLarge => Ok(too_large(at_most)),
        StoreErrorKind::Corrupt => Ok(Poison::new(FailureReason::CorruptImage, error.to_string())),
        StoreErrorKind::Conflict | StoreErrorKind::Unavailable => {
            Err(Outage::from_store_error(Component::Storage, error))
        }
    }
}

fn missing_object() -> Poison {
    Poison::new(FailureReason::MissingObject, "the bytes are not in storage")
}

fn too_large(at_most: u64) -> Poison {
    Poison::new(FailureReason::TooLarge, format!("more than {at_most} bytes"))
}
