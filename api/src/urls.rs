//! Presigned download URLs of a photo's pictures, and when presigned URLs expire.

use std::time::Duration;

use photofinish_store::model::album::Album;
use photofinish_store::model::gallery::OpenGallery;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::Photo;
use time::OffsetDateTime;

use crate::context::Context;
use crate::errors::ApiError;
use crate::wire::photo::PictureUrls;

/// Thumbnails up to this size are shown without the watermark, pixels: nobody prints them.
const MAX_CLEAN_THUMBNAIL: u32 = 512;

/// How long visitors can use a URL at most: what the organizer takes back is soon out of reach.
pub(crate) const VISITOR_TTL: Duration = Duration::from_mins(10);

/// Presigns the preview and the thumbnail of a photo for the owner of its album, whether or not the objects exist.
pub(crate) async fn presign_pictures(
    ctx: &Context,
    album: &Album,
    photo: &Photo,
) -> Result<PictureUrls, ApiError> {
    let preview = match album.config.preview_watermarked {
        true => marked_role(album, photo),
        false => ObjectRole::Preview,
    };
    let pictures = Pictures { preview, thumbnail: ObjectRole::Thumbnail };
    presign(ctx, album, photo, pictures, ctx.settings.download_ttl).await
}

/// Presigns the pictures of a photo for visitors of a gallery; `None` if it has none that they may see yet.
pub(crate) async fn presign_public_pictures(
    ctx: &Context,
    open: &OpenGallery,
    photo: &Photo,
) -> Result<Option<PictureUrls>, ApiError> {
    let album = &open.album;
    let mut pictures = Pictures { preview: ObjectRole::Preview, thumbnail: ObjectRole::Thumbnail };
    if open.shows_marked() {
        pictures.preview = marked_role(album, photo);
        if album.config.largest_thumbnail() > MAX_CLEAN_THUMBNAIL {
            if !photo.is_marked {
                return Ok(None);
            }
            pictures.thumbnail = ObjectRole::Marked;
        }
    }
    let ttl = VISITOR_TTL.min(ctx.settings.download_ttl);
    presign(ctx, album, photo, pictures, ttl).await.map(Some)
}

/// What is shown in place of the preview: nothing larger than the thumbnail, as long as the photo is not marked.
fn marked_role(album: &Album, photo: &Photo) -> ObjectRole {
    match (album.watermark_version > 0, photo.is_marked) {
        (false, _) => ObjectRole::Preview,
        (true, true) => ObjectRole::Marked,
        (true, false) => ObjectRole::Thumbnail,
    }
}

/// Which objects are shown.
struct Pictures {
    preview: ObjectRole,
    thumbnail: ObjectRole,
}

async fn presign(
    ctx: &Context,
    album: &Album,
    photo: &Photo,
    pictures: Pictures,
    ttl: Duration,
) -> Result<PictureUrls, ApiError> {
    let key = |role| ObjectKey::photo(album.tenant.organization, photo.album, photo.id, role);
    let preview = ctx.store.blobs.download_url(&key(pictures.preview), ttl).await?.into();
    let thumbnail = ctx.store.blobs.download_url(&key(pictures.thumbnail), ttl).await?.into();
    Ok(PictureUrls { preview, thumbnail })
}

/// Returns the time `ttl` from now, in whole seconds.
pub(crate) fn expiry_after(ttl: Duration) -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_microsecond(0).unwrap_or(now) + ttl
}
