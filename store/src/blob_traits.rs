//! Objects: the bytes of photos and selfies. The trait is part of [`crate::traits`].

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use url::Url;

use crate::error::StoreError;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::model::object_key::ObjectKey;

type Result<T> = std::result::Result<T, StoreError>;

/// The bytes of photos, previews, thumbnails and selfies.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Returns a whole object. `NotFound`; `TooLarge` above `max_bytes`.
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes>;
    /// As [`read`](Self::read), into a buffer that is reused: what was in it is gone, and it grows where it is too small. A
    /// call that fails or is dropped keeps the buffer.
    async fn read_into(&self, key: &ObjectKey, max_bytes: u64, mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        let bytes = self.read(key, max_bytes).await?;
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        Ok(buffer)
    }
    /// For how long [`read_into`](Self::read_into) of at most so many bytes may take, more than other calls. None for a storage
    /// that does not limit the pauses in what it sends: one that has died is noticed by the time alone.
    fn time_to_receive(&self, _max_bytes: u64) -> Duration {
        Duration::ZERO
    }
    /// Writes or replaces an object; durable when it returns.
    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()>;
    /// Returns a URL that accepts HTTP PUT under the conditions.
    async fn upload_url(&self, key: &ObjectKey, conditions: UploadConditions<'_>) -> Result<Url>;
    /// Returns a URL that serves HTTP GET for `ttl`.
    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url>;
    /// Returns the object's size in bytes; `None` when there is no object.
    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>>;
    /// Whether the storage works and yet refuses this one object, each time: asked when reading it has failed with `error`. A
    /// storage that cannot tell says no.
    async fn is_refused(&self, _key: &ObjectKey, _error: &StoreError) -> Result<bool> {
        Ok(false)
    }
    /// Makes an object durable that was found: it may have been while the call that writes it had not returned.
    async fn make_durable(&self, _key: &ObjectKey) -> Result<()> {
        Ok(())
    }
    /// Deletes an object; not an error when there is none.
    async fn delete(&self, key: &ObjectKey) -> Result<()>;
    /// Deletes every object of an album.
    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()>;
}

/// The content type of an upload that may be any image, for a sender who does not know the type yet. Local files enforce
/// it; a presigned URL of a bucket binds one exact type or none, and then accepts any.
pub const ANY_IMAGE: &str = "image/*";

/// What an upload URL is bound to.
#[derive(Clone, Copy, Debug)]
pub struct UploadConditions<'a> {
    /// The `Content-Type` that the PUT must carry, or [`ANY_IMAGE`].
    pub content_type: &'a str,
    /// The largest body, bytes. A presigned URL of a bucket cannot be bound to it: the caller must check the object's
    /// size once it is uploaded.
    pub max_bytes: u64,
    /// How long the URL is valid; a week at most.
    pub ttl: Duration,
}
