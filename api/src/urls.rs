//! Presigned download URLs of a photo's pictures, and when presigned URLs expire.

use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::Photo;
use time::OffsetDateTime;

use crate::context::Context;
use crate::errors::ApiError;
use crate::wire::photo::PictureUrls;

/// Presigns the preview and the thumbnail of a photo, whether or not the objects exist.
pub(crate) async fn presign_pictures(
    ctx: &Context,
    organization: OrganizationId,
    photo: &Photo,
) -> Result<PictureUrls, ApiError> {
    let key = |role| ObjectKey::photo(organization, photo.album, photo.id, role);
    let ttl = ctx.settings.download_ttl;
    let preview = ctx.store.blobs.download_url(&key(ObjectRole::Preview), ttl).await?.into();
    let thumbnail = ctx.store.blobs.download_url(&key(ObjectRole::Thumbnail), ttl).await?.into();
    Ok(PictureUrls { preview, thumbnail })
}

/// Returns the time `ttl` from now, in whole seconds.
pub(crate) fn expiry_after(ttl: Duration) -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    now.replace_microsecond(0).unwrap_or(now) + ttl
}
