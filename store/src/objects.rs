//! What every object store behind `object_store` does alike: capped reads, sizes, errors. Knows no backend.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{StoreError, StoreErrorKind};
use crate::object::ObjectKey;
use crate::traits::Result;

/// The whole object, refused by its size before a byte of it is held.
pub(crate) async fn read(store: &dyn ObjectStore, key: &ObjectKey, at_most: u64) -> Result<Bytes> {
    let found = store.get(&Path::from(key.as_str())).await.map_err(|cause| failure(key, cause))?;
    if found.meta.size > at_most {
        return Err(StoreError::new(StoreErrorKind::TooLarge, format!("object {key}")));
    }
    found.bytes().await.map_err(|cause| failure(key, cause))
}

/// The object's size in bytes.
pub(crate) async fn head(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Option<u64>> {
    match store.head(&Path::from(key.as_str())).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(cause) => Err(failure(key, cause)),
    }
}

/// An `object_store` error by what the caller can do about it.
pub(crate) fn failure(key: &ObjectKey, cause: object_store::Error) -> StoreError {
    let kind = match cause {
        object_store::Error::NotFound { .. } => StoreErrorKind::NotFound,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, format!("object {key}")).because(cause)
}
