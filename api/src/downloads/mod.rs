//! ZIP files of photos, made while they are sent: nothing of them is stored.

mod archive;
mod names;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use photofinish_store::StoreError;
use photofinish_store::model::account::TokenDigest;
use photofinish_store::model::download::{Download, DownloadFile};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::{Photo, PhotoState};
use photofinish_store::traits::Blobs;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::archive::{plan, send};
pub(crate) use self::names::archive_name;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// The path under which downloads are.
pub(crate) const DOWNLOADS_PREFIX: &str = "/downloads/";

/// For how long a ticket can be used.
pub(crate) const TICKET_TTL: Duration = Duration::from_mins(15);
/// Base-62 digits of 256 bits.
pub(crate) const TICKET_LENGTH: usize = 43;
/// How many objects are asked for their size at once.
const CONCURRENT_HEADS: usize = 32;

/// Files that a process sends at once: each has some photos in memory.
const MAX_DOWNLOADS: usize = 4;
/// When one may have ended.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The places of downloads in progress. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct DownloadPlaces(Arc<Semaphore>);

impl Default for DownloadPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_DOWNLOADS)))
    }
}

impl DownloadPlaces {
    pub(crate) fn take(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let busy = |_| ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(RETRY_AFTER));
        Arc::clone(&self.0).try_acquire_owned().map_err(busy)
    }
}

/// Returns the digest by which the store finds a ticket.
pub(crate) fn ticket_digest(ticket: &str) -> TokenDigest {
    Sha256::digest(ticket.as_bytes()).into()
}

/// Returns those photos that have the file, in the order of the ids.
pub(crate) async fn select_files(
    ctx: &Context,
    album: AlbumId,
    ids: &[PhotoId],
    file: DownloadFile,
) -> Result<Vec<Photo>, ApiError> {
    let mut photos = ctx.store.photos.get_many(album, ids).await?;
    photos.retain(|photo| {
        photo.state == PhotoState::Ready && (file != DownloadFile::Marked || photo.is_marked)
    });
    photos.sort_by_key(|photo| ids.iter().position(|id| *id == photo.id));
    Ok(photos)
}

/// Returns the sizes of objects, in order; `None` for one that is not there.
pub(crate) async fn load_sizes(
    blobs: &Arc<dyn Blobs>,
    keys: Vec<ObjectKey>,
) -> Result<Vec<Option<u64>>, StoreError> {
    let sizes = stream::iter(keys).map(|key| {
        let blobs = Arc::clone(blobs);
        async move { blobs.head(&key).await }
    });
    sizes.buffered(CONCURRENT_HEADS).try_collect().await
}

/// Returns the photos of a download that are still there.
pub(crate) async fn select_photos(ctx: &Context, download: &Download) -> Result<Vec<Photo>, ApiError> {
    select_files(ctx, download.album, &download.photos, download.file).await
}
