//! What every object store behind `object_store` does alike: capped reads, sizes, errors. Knows no backend.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use time::OffsetDateTime;

use crate::blobs::storage::ListedObject;
use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// The whole object, refused by its size before a byte of it is held. All of it or an error: a body that ends early is
/// no shorter object.
pub(crate) async fn read(store: &dyn ObjectStore, path: &Path, at_most: u64) -> Result<Bytes> {
    let found = store.get(path).await.map_err(|cause| failure(path, cause))?;
    let size = found.meta.size;
    if size > at_most {
        return Err(StoreError::new(StoreErrorKind::TooLarge, format!("object {path}")));
    }
    let bytes = found.bytes().await.map_err(|cause| failure(path, cause))?;
    if bytes.len() as u64 != size {
        let what = format!("object {path}: {} bytes came of {size}", bytes.len());
        return Err(StoreError::new(StoreErrorKind::Unavailable, what));
    }
    Ok(bytes)
}

/// The object's size in bytes.
pub(crate) async fn head(store: &dyn ObjectStore, path: &Path) -> Result<Option<u64>> {
    match store.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(cause) => Err(failure(path, cause)),
    }
}

/// Removes an object; no error when it is not there.
pub(crate) async fn delete(store: &dyn ObjectStore, path: &Path) -> Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(cause) => Err(failure(path, cause)),
    }
}

/// An object as it was listed; `prefix` is what the storage has in front of every key, with its slash.
pub(crate) fn stored(meta: &ObjectMeta, prefix: &str) -> Result<ListedObject> {
    let path = meta.location.as_ref();
    let modified = OffsetDateTime::from_unix_timestamp(meta.last_modified.timestamp()).map_err(|cause| {
        StoreError::new(StoreErrorKind::Corrupt, format!("time of object {path}")).with_source(cause)
    })?;
    let path = path.strip_prefix(prefix).unwrap_or(path).to_owned();
    Ok(ListedObject { path, size_bytes: meta.size, modified_at: modified })
}

/// An `object_store` error by what the caller can do about it.
pub(crate) fn failure(path: &Path, cause: object_store::Error) -> StoreError {
    let kind = match cause {
        object_store::Error::NotFound { .. } => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, format!("object {path}")).with_source(cause)
}
