//! Lists, shows, deletes and retries photos.

use std::time::Instant;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{PhotoQuery, TakenQuery};

use super::{erasures, find_entries, parse_id, presign_picture_urls};
use crate::auth::{Uploader, Watcher};
use crate::context::Context;
use crate::credits;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::metrics::Declined;
use crate::wire::Acknowledgement;
use crate::wire::album::OneAlbum;
use crate::wire::cursor::PhotoPosition;
use crate::wire::download::Cameras;
use crate::wire::erasure::Deletion;
use crate::wire::photo::{ListPhotos, OnePhoto, Photo, PhotoDetail, PhotoPage, SeenText};

pub(crate) async fn list(ctx: Context, caller: Watcher, input: ListPhotos) -> Result<PhotoPage, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let ListPhotos { state, after, limit, camera, from, until, .. } = input;
    let query = PhotoQuery { after: after.map(|position| position.photo), limit, state };
    // All photos and those in a state are counted as they change, others for the first page of a list.
    let is_counted = camera.is_none() && from.is_none() && until.is_none();
    let page = if is_counted {
        ctx.store.photos.list(input.album, query).await?
    } else {
        let known_total = after.and_then(|position| position.total).map(u64::from);
        let query = TakenQuery { page: query, camera, from, until, known_total };
        ctx.store.photos.list_taken(input.album, query).await?
    };
    let total = if is_counted { None } else { u32::try_from(page.total).ok() };
    let mut photos = Vec::with_capacity(page.photos.len());
    for photo in page.photos {
        let urls = presign_picture_urls(&ctx, &album, &photo).await?;
        photos.push(Photo::new(photo, urls));
    }
    let next_cursor = page.next.map(|photo| PhotoPosition { photo, total }.to_cursor());
    Ok(PhotoPage { photos, next_cursor, total: page.total })
}

pub(crate) async fn list_cameras(
    ctx: Context,
    caller: Watcher,
    input: OneAlbum,
) -> Result<Cameras, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    // A call that begins while another counts shares the next count.
    let shared = ctx.album_cache.cameras.entry(album.id);
    let count = async move { Ok(ctx.store.photos.count_by_camera(album.id).await?) };
    let cameras = shared.get_or_measure(Instant::now(), count).await?;
    Ok(Cameras { cameras: cameras.into_iter().map(Into::into).collect() })
}

pub(crate) async fn get(ctx: Context, caller: Watcher, input: OnePhoto) -> Result<PhotoDetail, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let id: PhotoId = parse_id(&input.photo)?;
    let photo = ctx.store.photos.get(input.album, id).await?;
    let (faces, texts) = ctx.store.photos.get_detections(input.album, id).await?;
    let entries = find_entries(&ctx, &album, texts.iter().map(|text| text.text.clone())).await?;
    let explained = match entries {
        Some(_) => ctx.store.start_lists.explain_texts(input.album, id).await?,
        None => Vec::new(),
    };
    let urls = presign_picture_urls(&ctx, &album, &photo).await?;
    Ok(PhotoDetail {
        photo: Photo::new(photo, urls),
        faces: faces.into_iter().map(Into::into).collect(),
        texts: texts.into_iter().map(|text| SeenText::new(text, &entries, &explained)).collect(),
    })
}

pub(crate) async fn delete(ctx: Context, caller: Uploader, input: OnePhoto) -> Result<Deletion, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let id: PhotoId = parse_id(&input.photo)?;
    let erasure = ctx.store.erasures.begin_photo(&caller.tenant, input.album, id, caller.key).await?;
    tracing::info!(photo.id = %id, album.id = %input.album, key.id = %caller.key, "photo deleted");
    // The row is gone, and names what is to be deleted no more, but the erasure does.
    let deleted = erasures::remove_objects(&ctx, &caller, erasure).await?;
    Ok(Deletion::new("Photo deleted", deleted))
}

pub(crate) async fn retry(
    ctx: Context,
    caller: Uploader,
    input: OnePhoto,
) -> Result<Acknowledgement, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let id: PhotoId = parse_id(&input.photo)?;
    match ctx.store.queue.retry(input.album, id).await {
        Ok(()) => {
            (ctx.on_queued)();
            Ok(Acknowledgement::new("Photo queued for processing"))
        }
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            Err(ApiError::new(ErrorKind::Conflict).with_code("PHOTO_HAS_NOT_FAILED"))
        }
        Err(error) => {
            let price = ctx.store.credits.settings().prices.photo;
            Err(credits::explain(&ctx, &caller.tenant, price, Declined::Retry, error).await)
        }
    }
}
