//! Upload tickets and confirmations.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt};
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{NewPhoto, PhotoState};
use photofinish_store::traits::UploadConditions;
use serde_json::json;

use super::{expiry_after, parse_id};
use crate::auth::Uploader;
use crate::context::{ApiSettings, Context};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::wire::Acknowledgement;
use crate::wire::photo::OnePhoto;
use crate::wire::upload::{
    ConfirmPhotos, Confirmation, Confirmations, PhotoFile, PhotoTicket, PhotoTickets, SignPhoto, SignPhotos,
    TicketResult,
};

/// Storage look-ups of one batch at a time.
const CONCURRENT_LOOKUPS: usize = 16;

const CONFIRMED_MESSAGE: &str = "Photo queued for processing";

pub(crate) async fn sign_photo(
    ctx: Context,
    caller: Uploader,
    input: SignPhoto,
) -> Result<PhotoTicket, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let photo = check_file(&ctx.settings, input.file)?;
    let content_type = photo.content_type.clone();
    let ids = ctx.store.photos.create(input.album, vec![photo]).await?;
    let id = ids.first().ok_or_else(|| ApiError::internal("the store made no photo"))?;
    issue_ticket(&ctx, (caller.tenant.organization, input.album, *id), &content_type).await
}

pub(crate) async fn sign_photos(
    ctx: Context,
    caller: Uploader,
    input: SignPhotos,
) -> Result<PhotoTickets, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let judged: Vec<_> =
        input.files.into_iter().map(|f| (f.filename.clone(), check_file(&ctx.settings, f))).collect();
    let photos: Vec<NewPhoto> = judged.iter().filter_map(|(_, photo)| photo.clone().ok()).collect();
    let ids =
        if photos.is_empty() { Vec::new() } else { ctx.store.photos.create(input.album, photos).await? };
    let mut ids = ids.into_iter();
    let mut outcomes = Vec::with_capacity(judged.len());
    for (filename, photo) in judged {
        let outcome = match photo {
            Ok(photo) => {
                let id = ids.next().ok_or_else(|| ApiError::internal("the store made too few photos"))?;
                issue_ticket(&ctx, (caller.tenant.organization, input.album, id), &photo.content_type).await
            }
            Err(error) => Err(error),
        };
        outcomes.push((filename, outcome));
    }
    ApiError::log_entries(outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err()));
    let results = outcomes.into_iter().map(|(filename, outcome)| TicketResult::new(filename, outcome));
    Ok(PhotoTickets { results: results.collect() })
}

pub(crate) async fn confirm_photo(
    ctx: Context,
    caller: Uploader,
    input: OnePhoto,
) -> Result<Acknowledgement, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let id: PhotoId = parse_id(&input.photo)?;
    let photo = ctx.store.photos.get(input.album, id).await?;
    if photo.state == PhotoState::AwaitingUpload {
        check_uploaded(&ctx, caller.tenant.organization, (input.album, id)).await?;
        if ctx.store.queue.confirm(input.album, &[id]).await?.is_empty() {
            return Err(ApiError::not_found());
        }
        (ctx.on_queued)();
    }
    Ok(Acknowledgement::new(CONFIRMED_MESSAGE))
}

pub(crate) async fn confirm_photos(
    ctx: Context,
    caller: Uploader,
    input: ConfirmPhotos,
) -> Result<Confirmations, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let ids: Vec<PhotoId> = input.photos.iter().filter_map(|id| parse_id(id).ok()).collect();
    let known = ctx.store.photos.get_many(input.album, &ids).await?;
    let organization = caller.tenant.organization;
    let mut outcomes: HashMap<PhotoId, Result<(), ApiError>> = HashMap::new();
    let mut uploads = stream::iter(known)
        .map(|photo| {
            let ctx = &ctx;
            async move {
                let waits = photo.state == PhotoState::AwaitingUpload;
                let place = (input.album, photo.id);
                let found = if waits { check_uploaded(ctx, organization, place).await } else { Ok(()) };
                (photo.id, waits, found)
            }
        })
        .buffer_unordered(CONCURRENT_LOOKUPS);
    let mut to_confirm = Vec::new();
    while let Some((id, waits, found)) = uploads.next().await {
        if waits && found.is_ok() {
            to_confirm.push(id);
        }
        outcomes.insert(id, found);
    }
    let confirmed: HashSet<PhotoId> =
        ctx.store.queue.confirm(input.album, &to_confirm).await?.into_iter().collect();
    if !confirmed.is_empty() {
        (ctx.on_queued)();
    }
    for id in to_confirm.iter().filter(|id| !confirmed.contains(*id)) {
        outcomes.insert(*id, Err(ApiError::not_found()));
    }
    ApiError::log_entries(outcomes.values().filter_map(|outcome| outcome.as_ref().err()));
    let results = input.photos.into_iter().map(|text| {
        let outcome = parse_id::<PhotoId>(&text).ok().and_then(|id| outcomes.get(&id).cloned());
        let outcome = outcome.unwrap_or_else(|| Err(ApiError::not_found()));
        Confirmation::new(text, outcome.map(|()| CONFIRMED_MESSAGE))
    });
    Ok(Confirmations { results: results.collect() })
}

/// A file of an accepted media type; parameters of the type do not matter, as long as a header can carry them unchanged:
/// the upload must be declared with exactly this text.
fn check_file(settings: &ApiSettings, file: PhotoFile) -> Result<NewPhoto, ApiError> {
    let text = file.content_type.as_str();
    let fits = text == text.trim() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let declared: Option<mime::Mime> = text.parse().ok().filter(|_| fits);
    let known = declared.is_some_and(|t| settings.media_types.iter().any(|taken| taken == t.essence_str()));
    if known {
        return Ok(NewPhoto { filename: file.filename, content_type: file.content_type });
    }
    let data = json!({ "code": "IMAGE_TYPE_NOT_ACCEPTED", "accepted": settings.media_types });
    Err(ApiError::new(ErrorKind::UnsupportedMediaType).with_data(data))
}

async fn issue_ticket(
    ctx: &Context,
    (organization, album, photo): (OrganizationId, AlbumId, PhotoId),
    content_type: &str,
) -> Result<PhotoTicket, ApiError> {
    let key = ObjectKey::photo(organization, album, photo, ObjectRole::Original);
    let ttl = ctx.settings.upload_ttl;
    let terms = UploadConditions { content_type, max_bytes: ctx.settings.max_photo_bytes, ttl };
    let url = ctx.store.blobs.upload_url(&key, terms).await?;
    Ok(PhotoTicket { upload_url: url.into(), photo_id: photo.to_string(), expires_at: expiry_after(ttl) })
}

/// Whether the bytes are there, and not more of them than a photo may have: no cloud binds a presigned upload to a size.
/// Too many are removed, so that nobody keeps them, and the ticket can be used again. Bytes replaced after this are
/// judged by the pipeline.
async fn check_uploaded(
    ctx: &Context,
    organization: OrganizationId,
    (album, photo): (AlbumId, PhotoId),
) -> Result<(), ApiError> {
    let key = ObjectKey::photo(organization, album, photo, ObjectRole::Original);
    match ctx.store.blobs.head(&key).await? {
        Some(size) if size > ctx.settings.max_photo_bytes => {
            ctx.store.blobs.delete(&key).await?;
            Err(ApiError::new(ErrorKind::PayloadTooLarge).with_code("PHOTO_TOO_LARGE"))
        }
        Some(_) => Ok(()),
        None => Err(ApiError::new(ErrorKind::PreconditionFailed).with_code("UPLOAD_MISSING")),
    }
}
