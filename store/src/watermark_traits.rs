//! What other crates may call of watermarks.

use async_trait::async_trait;

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::watermark::{AlbumToMark, MarkedPhoto, Watermark, WatermarkChange};
use crate::traits::Result;

/// Watermarks of albums, and which photos show them. The caller has checked with [`crate::traits::Albums::get`] that an album
/// belongs to the tenant.
///
/// Photos are marked when they are processed. Those that were processed before are marked by a task: whoever changes a
/// watermark, or finishes a photo with another version than the album's, notes that there is something to do.
#[async_trait]
pub trait Watermarks: Send + Sync {
    /// Returns the watermark of an album.
    async fn get(&self, album: AlbumId) -> Result<Option<Watermark>>;
    /// Returns the version of the watermark of an open album; 0 where there is none.
    async fn version(&self, album: AlbumId) -> Result<i64>;
    /// Sets a watermark. `NotFound` where the picture is to be kept and there is none.
    async fn set(&self, album: AlbumId, change: WatermarkChange) -> Result<Watermark>;
    /// Removes the watermark. May be repeated.
    async fn remove(&self, album: AlbumId) -> Result<()>;
    /// Returns how many photos that are ready do not show this version.
    async fn count_unmarked(&self, album: AlbumId, version: i64) -> Result<u64>;
    /// Returns the newest photo with a marked picture.
    async fn find_marked(&self, album: AlbumId) -> Result<Option<PhotoId>>;
    /// Returns some of the albums with something to do: the oldest one of each organization, then the second one of each and
    /// so on.
    async fn list_albums_to_mark(&self) -> Result<Vec<AlbumToMark>>;
    /// Returns photos that are ready and do not show this version, `limit` at most, in the order of their ids, after one.
    async fn list_unmarked(
        &self,
        album: AlbumId,
        version: i64,
        after: Option<PhotoId>,
        limit: u32,
    ) -> Result<Vec<PhotoId>>;
    /// Notes that the marked pictures of photos show a version, and what drawing and writing them cost. Where it is not the
    /// current one there is something to do again.
    async fn note_marked(&self, album: AlbumId, photos: &[MarkedPhoto], version: i64) -> Result<()>;
    /// Notes that what was to be done when an album was listed is done.
    async fn note_all_marked(&self, done: AlbumToMark) -> Result<()>;
}
