//! The steps of an upload: [`LocalFiles::begin_upload`], [`LocalFiles::receive_upload`], [`LocalFiles::publish_upload`].
//!
//! Whoever has a URL can send as often and as slowly as they want. So an object has few uploads at once, a body has a
//! deadline, and nothing is stored long after its URL has expired. Between the steps the caller checks whether the photo
//! or the selfie still exists, which this module does not know.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt;

use super::durable::StagedFile;
use super::{LocalFiles, UploadGrant, run_blocking, unavailable};
use crate::error::StoreError;
use crate::model::object_key::{ObjectKey, ObjectOwner};

/// How many uploads of one object are received at once: one, and one that a client begins again because its connection
/// broke, before the service has noticed that.
const UPLOADS_PER_OBJECT: usize = 2;

/// How many photos are remembered that were uploaded and not confirmed. The folders of others are synced once more.
const MAX_SYNCED: usize = 16_384;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// How slow an upload may be, and how late.
#[derive(Clone, Copy, Debug)]
pub struct UploadPace {
    /// The time that every upload may take, however small it is.
    pub base_time: Duration,
    /// The time grows by a second for each so many bytes.
    pub bytes_per_second: u64,
    /// How long after the expiry of its URL an upload that began before it may end.
    pub grace: Duration,
}

impl UploadPace {
    /// The pace of the service: the partner client gives up at the same one. 32 kB a second are a quarter of a megabit,
    /// less than a phone at the edge of a cell has.
    pub const SERVICE: Self =
        Self { base_time: Duration::from_secs(60), bytes_per_second: 32_000, grace: Duration::from_secs(60) };

    fn time_limit(self, bytes: u64) -> Duration {
        self.base_time.saturating_add(Duration::from_secs(bytes / self.bytes_per_second.max(1)))
    }
}

/// The object has as many uploads as it may have at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has too many uploads at once")]
pub struct TooManyUploads;

/// Why an upload was not received. Nothing of it is left on the disk.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError<E> {
    /// The body is larger than its URL permits.
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The limit of the URL.
        max_bytes: u64,
    },
    /// The body has not ended in the time that its size permits.
    #[error("the body is too slow")]
    TooSlow,
    /// The URL has expired, and the grace after it.
    #[error("the url expired before the body ended")]
    Expired,
    /// The body ended early.
    #[error("the body ended early")]
    Body(#[source] E),
    /// The disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a received upload was not stored. Nothing of it is left on the disk.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The URL has expired, and the grace after it.
    #[error("the url expired before the upload was stored")]
    Expired,
    /// The disk failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An upload that has one of its object's places.
#[derive(Debug)]
pub struct StartedUpload {
    grant: UploadGrant,
    time_limit: Duration,
    /// From when on it is not stored: Unix time in nanoseconds.
    stale_at: i128,
    _slot: UploadSlot,
}

impl StartedUpload {
    /// The time in which it must be stored; zero when it is over.
    fn time_left(&self) -> Duration {
        let left = self.stale_at - OffsetDateTime::now_utc().unix_timestamp_nanos();
        Duration::from_nanos(u64::try_from(left.max(0)).unwrap_or(u64::MAX))
    }

    fn is_stale(&self) -> bool {
        self.time_left().is_zero()
    }
}

/// An upload whose body is complete on the disk, under no key yet; removed when dropped.
pub struct ReceivedUpload {
    upload: StartedUpload,
    staged: StagedFile,
    file: File,
    size_bytes: u64,
}

/// How many uploads each object has. Cheap to clone; clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadSlots(Arc<Mutex<HashMap<ObjectKey, usize>>>);

/// One of an object's places for uploads, until it is dropped.
#[derive(Debug)]
struct UploadSlot {
    slots: UploadSlots,
    key: ObjectKey,
}

impl UploadSlots {
    fn acquire(&self, key: &ObjectKey) -> Option<UploadSlot> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        if *count == UPLOADS_PER_OBJECT {
            return None;
        }
        *count += 1;
        Some(UploadSlot { slots: self.clone(), key: key.clone() })
    }

    /// Whether an upload of this object has begun and not ended.
    pub(super) fn is_uploading(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// Photos whose last upload has ended in this process, their folders synced, until somebody asks.
#[derive(Debug, Default)]
pub(super) struct SyncedUploads(Mutex<HashSet<ObjectKey>>);

impl SyncedUploads {
    fn add(&self, key: &ObjectKey) {
        // Nobody asks for selfies.
        if !matches!(key.owner(), Some((.., ObjectOwner::Photo(..)))) {
            return;
        }
        let mut synced = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.len() >= MAX_SYNCED {
            synced.clear();
        }
        synced.insert(key.clone());
    }

    /// Forgets an object; returns whether its last upload has ended.
    pub(super) fn take(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

impl LocalFiles {
    /// Begins an upload, whose time starts now. `declared_bytes` is the size that the request declares; without one the
    /// upload has the time of the largest body that its URL permits.
    ///
    /// # Errors
    /// [`TooManyUploads`].
    pub fn begin_upload(
        &self,
        grant: UploadGrant,
        declared_bytes: Option<u64>,
        pace: UploadPace,
    ) -> Result<StartedUpload, TooManyUploads> {
        let slot = self.upload_slots.acquire(grant.key()).ok_or(TooManyUploads)?;
        let max_bytes = grant.max_bytes();
        let time_limit = pace.time_limit(declared_bytes.unwrap_or(max_bytes).min(max_bytes));
        let grace = i128::try_from(pace.grace.as_nanos()).unwrap_or(i128::MAX / 2);
        let stale_at = (i128::from(grant.expires()) * NANOS_PER_SECOND).saturating_add(grace);
        Ok(StartedUpload { grant, time_limit, stale_at, _slot: slot })
    }

    /// Receives a body. One that ends early, is too large or too slow leaves nothing.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub async fn receive_upload<S, E>(
        &self,
        upload: StartedUpload,
        body: S,
    ) -> Result<ReceivedUpload, ReceiveError<E>>
    where
        S: Stream<Item = Result<Bytes, E>>,
    {
        let time_left = upload.time_left();
        let limit = upload.time_limit.min(time_left);
        let received = tokio::time::timeout(limit, self.stage_body(upload.grant.max_bytes(), body));
        match received.await {
            Ok(received) => {
                let StagedBody { staged, file, size_bytes } = received?;
                Ok(ReceivedUpload { upload, staged, file, size_bytes })
            }
            Err(_) if limit == time_left => Err(ReceiveError::Expired),
            Err(_) => Err(ReceiveError::TooSlow),
        }
    }

    /// Stores a received upload under its key and replaces a previous object; returns its size in bytes. Durable when it
    /// returns.
    ///
    /// # Errors
    /// See [`PublishError`].
    pub async fn publish_upload(&self, received: ReceivedUpload) -> Result<u64, PublishError> {
        let ReceivedUpload { upload, staged, file, size_bytes } = received;
        if upload.is_stale() {
            return Err(PublishError::Expired);
        }
        let key = upload.grant.key();
        self.synced_uploads.take(key);
        let (object_dir, target) = (Arc::clone(&self.object_dir), self.path(key));
        run_blocking("store an upload", move || object_dir.persist(staged, file, &target)).await?;
        self.synced_uploads.add(key);
        Ok(size_bytes)
    }

    async fn stage_body<S, E>(&self, max_bytes: u64, body: S) -> Result<StagedBody, ReceiveError<E>>
    where
        S: Stream<Item = Result<Bytes, E>>,
    {
        let failed = |cause| unavailable("receive an upload", cause);
        let (staged, file) = StagedFile::create(&self.scratch).await.map_err(failed)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut size_bytes: u64 = 0;
        let mut body = std::pin::pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(ReceiveError::Body)?;
            size_bytes += chunk.len() as u64;
            if size_bytes > max_bytes {
                return Err(ReceiveError::TooLarge { max_bytes });
            }
            file.write_all(&chunk).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        Ok(StagedBody { staged, file: file.into_std().await, size_bytes })
    }
}

struct StagedBody {
    staged: StagedFile,
    file: File,
    size_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_upload_grows_with_its_size() {
        assert_eq!(UploadPace::SERVICE.time_limit(0), Duration::from_secs(60));
        assert_eq!(UploadPace::SERVICE.time_limit(3_200_000), Duration::from_secs(160));
        let none = UploadPace { bytes_per_second: 0, ..UploadPace::SERVICE };
        assert_eq!(none.time_limit(5), Duration::from_secs(65));
    }

    #[test]
    fn places_are_counted_per_object_and_come_back() {
        let slots = UploadSlots::default();
        let key = |name| ObjectKey::parse(name).unwrap();
        let held: Vec<_> = (0..UPLOADS_PER_OBJECT).map(|_| slots.acquire(&key("o/1")).unwrap()).collect();
        assert!(slots.acquire(&key("o/1")).is_none());
        let other = slots.acquire(&key("o/2")).unwrap();
        drop(held);
        let again = slots.acquire(&key("o/1")).unwrap();
        drop((other, again));
        assert!(slots.0.lock().unwrap().is_empty(), "objects without uploads are remembered");
    }
}
