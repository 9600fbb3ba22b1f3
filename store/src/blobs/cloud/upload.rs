//! Writes of whole objects: small ones in one request, large ones in parts. An object is not visible before its last
//! part is written.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
};

use crate::blobs::cloud::timeouts::{Timeouts, with_timeout};
use crate::blobs::object_ops::object_error;
use crate::error::StoreError;
use crate::traits::Result;

/// The largest body of one request. S3 accepts no parts below 5 MiB; at 1.1 MB/s this one is sent within the read
/// timeout of [`Timeouts::SERVICE`], which also applies while a body is sent.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// How many parts are sent concurrently.
const CONCURRENT_PARTS: usize = 4;

/// Writes an object in one request.
///
/// # Errors
/// `Unavailable`.
pub(crate) async fn put_whole(
    objects: &dyn ObjectStore,
    path: &Path,
    content_type: &str,
    bytes: Bytes,
) -> Result<()> {
    let options = PutOptions { attributes: attributes(content_type), ..PutOptions::default() };
    let put = objects.put_opts(path, PutPayload::from_bytes(bytes), options).await;
    put.map(drop).map_err(|cause| object_error(path, cause))
}

/// Writes an object in parts. The parts of a failed upload are removed if the storage responds; otherwise the bucket's
/// lifecycle rule removes them.
///
/// # Errors
/// `Unavailable`.
pub(crate) async fn put_multipart(
    objects: &dyn ObjectStore,
    timeouts: &Timeouts,
    path: &Path,
    content_type: &str,
    bytes: Bytes,
) -> Result<()> {
    let mut upload: Option<Box<dyn MultipartUpload>> = None;
    let sending = async {
        let options =
            PutMultipartOptions { attributes: attributes(content_type), ..PutMultipartOptions::default() };
        let started = objects.put_multipart_opts(path, options).await;
        let started = started.map_err(|cause| object_error(path, cause))?;
        send_parts(&mut **upload.insert(started), bytes).await.map_err(|cause| object_error(path, cause))
    };
    let sent = with_timeout(timeouts.total, path, sending).await;
    if let (Err(_), Some(upload)) = (&sent, &mut upload) {
        abort_upload(&mut **upload, timeouts, path).await;
    }
    sent
}

async fn send_parts(upload: &mut dyn MultipartUpload, bytes: Bytes) -> object_store::Result<()> {
    let starts = (0..bytes.len()).step_by(PART_BYTES);
    let parts = starts.map(|start| bytes.slice(start..bytes.len().min(start + PART_BYTES)));
    let sends: Vec<_> = parts.map(|part| upload.put_part(PutPayload::from_bytes(part))).collect();
    let mut sends = stream::iter(sends).buffer_unordered(CONCURRENT_PARTS);
    while let Some(sent) = sends.next().await {
        sent?;
    }
    upload.complete().await.map(drop)
}

async fn abort_upload(upload: &mut dyn MultipartUpload, timeouts: &Timeouts, path: &Path) {
    let abort = async { upload.abort().await.map_err(|cause| object_error(path, cause)) };
    let aborted: std::result::Result<(), StoreError> = with_timeout(timeouts.cleanup, path, abort).await;
    if let Err(error) = aborted {
        tracing::warn!(%error, "failed to remove parts of failed upload, left to the bucket's lifecycle rule");
    }
}

fn attributes(content_type: &str) -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, content_type.to_owned())])
}
