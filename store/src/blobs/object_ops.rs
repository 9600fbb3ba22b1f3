//! What all storage backends share: listing entries, bounded reads, sizes and errors. Depends on no backend.

use std::io::Read as _;

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt};
use time::OffsetDateTime;

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// An object as the storage lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedObject {
    /// The path below the storage's prefix: an [`ObjectKey`](crate::model::object_key::ObjectKey), if this store wrote it.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    /// When it was last written, by the storage's clock.
    pub(crate) modified_at: OffsetDateTime,
}

impl ListedObject {
    /// Converts a listed object; `prefix` precedes every key in this storage and includes its slash.
    ///
    /// # Errors
    /// `Corrupt` for a time that cannot be represented.
    pub(crate) fn from_meta(meta: &ObjectMeta, prefix: &str) -> Result<Self> {
        let path = meta.location.as_ref();
        let modified_at =
            OffsetDateTime::from_unix_timestamp(meta.last_modified.timestamp()).map_err(|cause| {
                StoreError::new(StoreErrorKind::Corrupt, format!("time of object {path}")).with_source(cause)
            })?;
        let path = path.strip_prefix(prefix).unwrap_or(path).to_owned();
        Ok(Self { path, size_bytes: meta.size, modified_at })
    }
}

/// Reads a whole object, into a buffer that is reused. Its size is checked before any of it is read, and a body that ends
/// early is an error.
pub(crate) async fn read_into(
    store: &dyn ObjectStore,
    path: &Path,
    max_bytes: u64,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>> {
    let found = store.get(path).await.map_err(|cause| object_error(path, cause))?;
    let too_large = || StoreError::new(StoreErrorKind::TooLarge, format!("object {path}"));
    let size = found.meta.size;
    if size > max_bytes {
        return Err(too_large());
    }
    buffer.clear();
    buffer.reserve_exact(usize::try_from(size).map_err(|_| too_large())?);
    let buffer = match found.payload {
        GetResultPayload::File(file, _) => {
            // One byte more than the object has: a file that grew is told from a whole one.
            let read = move || file.take(size + 1).read_to_end(&mut buffer).map(|_| buffer);
            let read = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::from).flatten();
            read.map_err(|cause| {
                StoreError::new(StoreErrorKind::Unavailable, format!("object {path}")).with_source(cause)
            })?
        }
        GetResultPayload::Stream(mut chunks) => {
            while buffer.len() as u64 <= size
                && let Some(chunk) = chunks.try_next().await.map_err(|cause| object_error(path, cause))?
            {
                buffer.extend_from_slice(&chunk);
            }
            buffer
        }
    };
    if buffer.len() as u64 != size {
        let what = format!("object {path}: received {} of {size} bytes", buffer.len());
        return Err(StoreError::new(StoreErrorKind::Unavailable, what));
    }
    Ok(buffer)
}

/// Returns the size of an object in bytes; `None` if it does not exist.
pub(crate) async fn head(store: &dyn ObjectStore, path: &Path) -> Result<Option<u64>> {
    match store.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(cause) => Err(object_error(path, cause)),
    }
}

/// Removes an object; no error if it does not exist.
pub(crate) async fn delete(store: &dyn ObjectStore, path: &Path) -> Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(cause) => Err(object_error(path, cause)),
    }
}

/// Classifies an error of `object_store` by what the caller can do about it.
pub(crate) fn object_error(path: &Path, cause: object_store::Error) -> StoreError {
    let kind = match cause {
        object_store::Error::NotFound { .. } => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, format!("object {path}")).with_source(cause)
}

/// Returns the error for a storage URL that cannot be used.
pub(crate) fn invalid_url(url: &str, reason: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, format!("storage url {url}: {reason}"))
}
