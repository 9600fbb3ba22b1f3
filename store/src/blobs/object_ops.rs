//! What all storage backends share: listing entries, bounded reads, sizes and errors. Depends on no backend.

use std::io::Read as _;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt};
use time::OffsetDateTime;

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// How `object_store` names the local disk in its errors.
const LOCAL_STORE: &str = "LocalFileSystem";

/// How long after a refusal an object is read again: changed permissions take moments to reach all servers of a cloud.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// How often a body that breaks off is continued, each time as long as some of it arrives.
const MAX_CONTINUATIONS: u32 = 5;

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

/// Reads a whole object, into a buffer that is reused. Its size is checked before any of it is read. A body that breaks off is
/// continued some times; one that ends early is an error.
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
            // As `object_store` says it.
            let generic =
                |cause| object_store::Error::Generic { store: LOCAL_STORE, source: Box::new(cause) };
            read.map_err(|cause| object_error(path, generic(cause)))?
        }
        GetResultPayload::Stream(chunks) => {
            receive(store, path, &found.meta, chunks, &mut buffer).await?;
            buffer
        }
    };
    if buffer.len() as u64 != size {
        let what = format!("object {path}: received {} of {size} bytes", buffer.len());
        return Err(StoreError::new(StoreErrorKind::Unavailable, what));
    }
    Ok(buffer)
}

/// Receives the body of an object. Continues it where the connection breaks or is silent: `object_store` itself does only until its
/// time for retries is over, which begins with the request, and on a slow link a photo takes minutes.
async fn receive(
    store: &dyn ObjectStore,
    path: &Path,
    meta: &ObjectMeta,
    mut chunks: BoxStream<'static, object_store::Result<Bytes>>,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let mut continuations = 0;
    loop {
        let before = buffer.len();
        let Err(cause) = receive_chunks(&mut chunks, meta.size, buffer).await else { return Ok(()) };
        let received = buffer.len() as u64;
        let goes_on = buffer.len() > before && received < meta.size && continuations < MAX_CONTINUATIONS;
        // Without a tag the rest may be of another object.
        let Some(tag) = meta.e_tag.as_ref().filter(|_| goes_on) else {
            return Err(object_error(path, cause));
        };
        tracing::info!(object = %path, received, error = %cause, "continuing to read an object after an error");
        continuations += 1;
        let options = GetOptions::default().with_range(Some(received..meta.size)).with_if_match(Some(tag));
        let rest = store.get_opts(path, options).await.map_err(|cause| object_error(path, cause))?;
        // Not every server knows the condition.
        if rest.meta.e_tag.as_ref() != Some(tag) {
            return Err(object_error(path, cause));
        }
        chunks = rest.into_stream();
    }
}

/// Appends what arrives to the buffer, until one chunk more than the object has.
async fn receive_chunks(
    chunks: &mut BoxStream<'static, object_store::Result<Bytes>>,
    size: u64,
    buffer: &mut Vec<u8>,
) -> object_store::Result<()> {
    while buffer.len() as u64 <= size
        && let Some(chunk) = chunks.try_next().await?
    {
        buffer.extend_from_slice(&chunk);
    }
    Ok(())
}

/// Returns the size of an object in bytes; `None` if it does not exist.
pub(crate) async fn head(store: &dyn ObjectStore, path: &Path) -> Result<Option<u64>> {
    match store.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(cause) => Err(object_error(path, cause)),
    }
}

/// Whether an object cannot be read although the storage works: it was refused with `error`, `check` finds no fault, and the object
/// is refused again.
pub(crate) async fn is_refused(
    store: &dyn ObjectStore,
    path: &Path,
    error: &StoreError,
    check: impl Future<Output = Result<()>>,
) -> bool {
    if !is_refusal(error) || check.await.is_err() {
        return false;
    }
    tokio::time::sleep(REFUSAL_PAUSE).await;
    read_through(store, path).await.is_err_and(|error| is_refusal(&error))
}

/// Whether the error says that this object cannot be read, which may be a fault of the object alone: it is archived, its key of
/// encryption is denied, its file is damaged. Server errors and silence say nothing about an object.
fn is_refusal(error: &StoreError) -> bool {
    let cause = error.source.as_deref().and_then(|cause| cause.downcast_ref::<object_store::Error>());
    match cause {
        // 403; Azure responds with 409 to a read of an archived blob.
        Some(object_store::Error::PermissionDenied { .. } | object_store::Error::AlreadyExists { .. }) => {
            true
        }
        Some(object_store::Error::Generic { store, .. }) => *store == LOCAL_STORE,
        _ => false,
    }
}

/// Reads an object without keeping it in memory.
async fn read_through(store: &dyn ObjectStore, path: &Path) -> Result<()> {
    let found = store.get(path).await.map_err(|cause| object_error(path, cause))?;
    let mut chunks = found.into_stream();
    while chunks.try_next().await.map_err(|cause| object_error(path, cause))?.is_some() {}
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_of_an_object_is_its_refusal() {
        let path = Path::from("o/original");
        let refused = |cause: object_store::Error| is_refusal(&object_error(&path, cause));
        let denied = object_store::Error::PermissionDenied {
            path: "o/original".into(),
            source: "403: InvalidObjectState".into(),
        };
        assert!(refused(denied));
        let generic = |store| object_store::Error::Generic { store, source: "input/output error".into() };
        assert!(refused(generic(LOCAL_STORE)));
        assert!(!refused(generic("S3")), "a server error or a broken connection");
        let unauthenticated =
            object_store::Error::Unauthenticated { path: "o/original".into(), source: "401".into() };
        assert!(!refused(unauthenticated));
        assert!(!is_refusal(&StoreError::new(StoreErrorKind::Unavailable, "no response for 26 s")));
    }
}
