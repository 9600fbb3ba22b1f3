//! What operations do: one function each, from a caller and a checked body to an answer of the wire.
//! Nothing here knows HTTP; who may call is said by the type of the caller.

pub(crate) mod albums;
pub(crate) mod photos;
pub(crate) mod progress;
pub(crate) mod search;
pub(crate) mod uploads;

use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{Photo, PhotoState};
use time::OffsetDateTime;

use crate::context::Context;
use crate::errors::ApiError;
use crate::wire::photo::PictureUrls;

/// The pictures of a photo, when it has been read.
async fn presign_picture_urls(
    ctx: &Context,
    organization: OrganizationId,
    photo: &Photo,
) -> Result<Option<PictureUrls>, ApiError> {
    if photo.state != PhotoState::Ready {
        return Ok(None);
    }
    let key = |role| ObjectKey::photo(organization, photo.album, photo.id, role);
    let ttl = ctx.settings.download_ttl;
    let preview = ctx.store.blobs.download_url(&key(ObjectRole::Preview), ttl).await?.into();
    let thumbnail = ctx.store.blobs.download_url(&key(ObjectRole::Thumbnail), ttl).await?.into();
    Ok(Some(PictureUrls { preview, thumbnail }))
}

/// An id as a caller spelled it: what is no id names nothing.
fn parse_id<T: std::str::FromStr>(id: &str) -> Result<T, ApiError> {
    id.parse().map_err(|_| ApiError::not_found())
}

/// When something that lives for `ttl` from now ends.
fn expiry_after(ttl: std::time::Duration) -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_microsecond(0).unwrap_or(now) + ttl
}
