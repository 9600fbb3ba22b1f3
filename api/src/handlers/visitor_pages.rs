//! The photos on a page of a gallery, with what a visitor may see of them. A few pages are made at once: see
//! [`PagePlaces`](crate::context::PagePlaces).

use std::collections::HashMap;

use photofinish_store::model::gallery::OpenGallery;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::Photo;

use crate::context::Context;
use crate::errors::ApiError;
use crate::urls::presign_public_pictures;
use crate::wire::visitor::{PublicPhoto, Reason};

/// Photos in the order of the album.
pub(super) struct Page {
    pub(super) photos: Vec<PublicPhoto>,
    /// How many were read: some may not be shown yet.
    pub(super) read: usize,
    /// Where the next page begins.
    pub(super) next: Option<PhotoId>,
}

/// Returns the photos that a visitor browses.
pub(super) async fn browse(
    ctx: &Context,
    open: &OpenGallery,
    after: Option<PhotoId>,
    limit: u32,
) -> Result<Page, ApiError> {
    let _place = ctx.page_places.take_place(open.album.tenant.organization).await;
    let (found, next) = ctx.store.photos.list_shown(open.album.id, after, limit).await?;
    let mut photos = Vec::with_capacity(found.len());
    for photo in &found {
        if let Some(urls) = presign_public_pictures(ctx, open, photo).await? {
            photos.push(PublicPhoto::new(photo, urls, Reason::default()));
        }
    }
    Ok(Page { photos, read: found.len(), next })
}

/// Loads photos in the order of their reasons.
pub(super) async fn load(
    ctx: &Context,
    open: &OpenGallery,
    reasons: Vec<(String, Reason)>,
) -> Result<Vec<PublicPhoto>, ApiError> {
    let ids: Vec<PhotoId> = reasons.iter().filter_map(|(id, _)| id.parse().ok()).collect();
    let _place = ctx.page_places.take_place(open.album.tenant.organization).await;
    let found = ctx.store.photos.get_many(open.album.id, &ids).await?;
    let by_id: HashMap<PhotoId, Photo> = found.into_iter().map(|photo| (photo.id, photo)).collect();
    let mut photos = Vec::with_capacity(ids.len());
    for (id, reason) in reasons {
        let photo = id.parse().ok().and_then(|id: PhotoId| by_id.get(&id));
        // One that was deleted since is no hit.
        let Some(photo) = photo else { continue };
        if let Some(urls) = presign_public_pictures(ctx, open, photo).await? {
            photos.push(PublicPhoto::new(photo, urls, reason));
        }
    }
    Ok(photos)
}
