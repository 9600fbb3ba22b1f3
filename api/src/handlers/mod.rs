//! One function per operation: from an authenticated caller and a validated body to the body of the response.
//!
//! Handlers know nothing of HTTP, except for the event streams of `progress` and `events`. The type of the caller says which scope an
//! operation requires.

pub(crate) mod albums;
pub(crate) mod console;
pub(crate) mod credits;
pub(crate) mod downloads;
pub(crate) mod erasures;
pub(crate) mod events;
pub(crate) mod galleries;
pub(crate) mod photos;
pub(crate) mod progress;
pub(crate) mod removals;
pub(crate) mod search;
pub(crate) mod start_lists;
mod stream_end;
pub(crate) mod uploads;
pub(crate) mod visitor_downloads;
mod visitor_pages;
pub(crate) mod visitor_reports;
pub(crate) mod visitors;
pub(crate) mod watermarks;
pub(crate) mod webhooks;

use photofinish_store::model::album::Album;
use photofinish_store::model::photo::Photo;

use crate::context::Context;
use crate::errors::ApiError;
use crate::urls;
use crate::wire::photo::PictureUrls;
use crate::wire::search::KnownEntries;

/// Presigns the pictures of a photo; `None` until it has some.
async fn presign_picture_urls(
    ctx: &Context,
    album: &Album,
    photo: &Photo,
) -> Result<Option<PictureUrls>, ApiError> {
    if !photo.has_pictures() {
        return Ok(None);
    }
    urls::presign_pictures(ctx, album, photo).await.map(Some)
}

/// Returns what the start list of an album says of texts; `None` if it has none or does not use it.
async fn find_entries(
    ctx: &Context,
    album: &Album,
    texts: impl Iterator<Item = String>,
) -> Result<KnownEntries, ApiError> {
    if !album.config.start_list.enabled {
        return Ok(None);
    }
    Ok(ctx.store.start_lists.find_entries(album.id, texts.collect()).await?)
}

/// Parses an id that a caller sent. Text that is not an id cannot name an object, so it is a 404 and not a 400.
fn parse_id<T: std::str::FromStr>(id: &str) -> Result<T, ApiError> {
    id.parse().map_err(|_| ApiError::not_found())
}
