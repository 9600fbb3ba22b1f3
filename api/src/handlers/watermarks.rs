//! Watermarks of albums.

use std::time::Instant;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::album::Album;
use photofinish_store::model::ids::{AlbumId, WatermarkUploadId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::PhotoState;
use photofinish_store::model::watermark::{Watermark as Stored, WatermarkChange, WatermarkPlacement};
use photofinish_store::traits::UploadConditions;

use super::parse_id;
use crate::album_cache::Marks;
use crate::auth::AlbumManager;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::urls::expiry_after;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::album::OneAlbum;
use crate::wire::watermark::{NewWatermark, SetWatermark, Watermark, WatermarkTicket};

/// Largest file of a watermark, bytes.
const MAX_BYTES: u64 = 1 << 20;

pub(crate) async fn get(ctx: Context, caller: AlbumManager, input: OneAlbum) -> Result<Watermark, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    describe(&ctx, &album).await
}

pub(crate) async fn sign(
    ctx: Context,
    caller: AlbumManager,
    input: OneAlbum,
) -> Result<WatermarkTicket, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let id = WatermarkUploadId::generate();
    let key = ObjectKey::watermark(album.tenant.organization, album.id, id);
    let ttl = ctx.settings.upload_ttl;
    let conditions = UploadConditions { content_type: "image/png", max_bytes: MAX_BYTES, ttl };
    let upload_url = ctx.store.blobs.upload_url(&key, conditions).await?.into();
    Ok(WatermarkTicket { upload_url, image_id: id.0, expires_at: expiry_after(ttl) })
}

pub(crate) async fn set(
    ctx: Context,
    caller: AlbumManager,
    input: SetWatermark,
) -> Result<Watermark, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let is_set = input.watermark.is_some();
    match input.watermark {
        Some(asked) => change(&ctx, &album, asked).await?,
        None => ctx.store.watermarks.remove(album.id).await?,
    }
    tracing::info!(album.id = %album.id, key.id = %caller.key, is_set, "watermark changed");
    describe(&ctx, &album).await
}

async fn change(ctx: &Context, album: &Album, asked: NewWatermark) -> Result<(), ApiError> {
    let before = ctx.store.watermarks.get(album.id).await?;
    let placement = before.as_ref().map(|before| before.placement).unwrap_or_default();
    let placement = WatermarkPlacement {
        position: asked.position.unwrap_or(placement.position),
        opacity: asked.opacity.unwrap_or(placement.opacity),
        scale: asked.scale.unwrap_or(placement.scale),
    };
    let Some(image) = asked.image else {
        let kept = WatermarkChange { picture: None, placement };
        return match ctx.store.watermarks.set(album.id, kept).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Err(upload_missing()),
            saved => Ok(saved.map(drop)?),
        };
    };
    let key = ObjectKey::watermark(album.tenant.organization, album.id, parse_id(&image)?);
    let picture = match ctx.store.blobs.read(&key, MAX_BYTES).await {
        Ok(picture) => picture,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Err(upload_missing()),
        // A presigned URL of a bucket is bound to no size.
        Err(error) if error.kind == StoreErrorKind::TooLarge => {
            return Err(invalid_image("has more than 1 MiB".to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    let checked = Stored { version: 0, picture: picture.clone(), placement };
    let check = ctx.settings.check_watermark;
    let outcome = tokio::task::spawn_blocking(move || check(&checked)).await.map_err(ApiError::internal)?;
    outcome.map_err(invalid_image)?;
    ctx.store.watermarks.set(album.id, WatermarkChange { picture: Some(picture), placement }).await?;
    if let Err(error) = ctx.store.blobs.delete(&key).await {
        tracing::warn!(album.id = %album.id, %error, "failed to delete an uploaded watermark, it stays until garbage is collected");
    }
    Ok(())
}

fn upload_missing() -> ApiError {
    ApiError::new(ErrorKind::PreconditionFailed).with_code("UPLOAD_MISSING")
}

fn invalid_image(message: String) -> ApiError {
    let path = vec![PathSegment::Field("watermark"), PathSegment::Field("imageId")];
    ApiError::invalid(&[Issue { path, code: code::INVALID_IMAGE, message }])
}

async fn describe(ctx: &Context, album: &Album) -> Result<Watermark, ApiError> {
    let shared = ctx.album_cache.marks.entry(album.id);
    // A call that begins while another counts shares the next count.
    let marks = shared.get_or_measure(Instant::now(), count_marks(ctx.clone(), album.id)).await?;
    let mut described = Watermark {
        album_id: album.id.0,
        watermark: marks.as_ref().map(|marks| marks.placement.into()),
        photos_marked: 0,
        photos_left: 0,
        sample_url: None,
    };
    let Some(marks) = marks else { return Ok(described) };
    (described.photos_marked, described.photos_left) = (marks.marked, marks.left);
    if let Some(photo) = marks.sample {
        let key = ObjectKey::photo(album.tenant.organization, album.id, photo, ObjectRole::Marked);
        let url = ctx.store.blobs.download_url(&key, ctx.settings.download_ttl).await?;
        described.sample_url = Some(url.into());
    }
    Ok(described)
}

/// Reads the watermark too: what is counted is shared with others, who may know another version.
async fn count_marks(ctx: Context, album: AlbumId) -> Result<Option<Marks>, ApiError> {
    let Some(stored) = ctx.store.watermarks.get(album).await? else { return Ok(None) };
    let ready = ctx.store.photos.count_by_state(album).await?.get(PhotoState::Ready);
    let left = ctx.store.watermarks.count_unmarked(album, stored.version).await?.min(ready);
    let sample = ctx.store.watermarks.find_marked(album).await?;
    Ok(Some(Marks { placement: stored.placement, marked: ready - left, left, sample }))
}
