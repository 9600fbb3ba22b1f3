//! Writes of whole bodies: small ones in one request, large ones in parts. Nobody sees a part of an object: it is there
//! once its last part is.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
};

use super::within;
use crate::blobs::cloud::timeouts::Timeouts;
use crate::blobs::object_ops::failure;
use crate::error::StoreError;
use crate::traits::Result;

/// What one request carries at most. S3 takes no parts under 5 MiB; at 1.1 MB/s this one arrives within the silence of
/// [`Patience::SERVICE`], which lasts while a body is sent.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// Parts on their way at once.
const CONCURRENT_PARTS: usize = 4;

/// Writes a body in one request.
///
/// # Errors
/// `Unavailable`.
pub(crate) async fn put_whole(
    objects: &dyn ObjectStore,
    path: &Path,
    (content_type, bytes): (&str, Bytes),
) -> Result<()> {
    let options = PutOptions { attributes: attributes(content_type), ..PutOptions::default() };
    let put = objects.put_opts(path, PutPayload::from_bytes(bytes), options).await;
    put.map(drop).map_err(|cause| failure(path, cause))
}

/// Writes a body in parts. What was sent of one that fails is removed as far as the storage answers; the bucket's
/// lifecycle rule removes the rest.
///
/// # Errors
/// `Unavailable`.
pub(crate) async fn put_multipart(
    objects: &dyn ObjectStore,
    patience: &Timeouts,
    path: &Path,
    (content_type, bytes): (&str, Bytes),
) -> Result<()> {
    let mut upload: Option<Box<dyn MultipartUpload>> = None;
    let sending = async {
        let options =
            PutMultipartOptions { attributes: attributes(content_type), ..PutMultipartOptions::default() };
        let begun = objects.put_multipart_opts(path, options).await.map_err(|cause| failure(path, cause))?;
        send_parts(&mut **upload.insert(begun), bytes).await.map_err(|cause| failure(path, cause))
    };
    let sent = within(patience.call, path, sending).await;
    if let (Err(_), Some(upload)) = (&sent, &mut upload) {
        abort_upload(&mut **upload, patience, path).await;
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

async fn abort_upload(upload: &mut dyn MultipartUpload, patience: &Timeouts, path: &Path) {
    let abort = async { upload.abort().await.map_err(|cause| failure(path, cause)) };
    let aborted: std::result::Result<(), StoreError> = within(patience.cleanup, path, abort).await;
    if let Err(error) = aborted {
        tracing::warn!(%error, "parts of a broken upload stay until the bucket's lifecycle rule removes them");
    }
}

fn attributes(content_type: &str) -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, content_type.to_owned())])
}
