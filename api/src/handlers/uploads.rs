//! Upload tickets, and the confirmation of uploads.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt};
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{NewPhoto, Photo, PhotoState};
use photofinish_store::traits::{Upload, UploadConditions};
use serde_json::json;

use super::parse_id;
use crate::auth::Uploader;
use crate::context::{ApiSettings, Context};
use crate::credits::{self, declined};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::metrics::Declined;
use crate::urls::expiry_after;
use crate::wire::Acknowledgement;
use crate::wire::photo::OnePhoto;
use crate::wire::upload::{
    ConfirmPhotos, Confirmation, Confirmations, PhotoFile, PhotoTicket, PhotoTickets, SignPhoto, SignPhotos,
    TicketResult,
};

/// Concurrent storage requests of one batch.
const CONCURRENT_LOOKUPS: usize = 16;

const CONFIRMED_MESSAGE: &str = "Photo queued for processing";

pub(crate) async fn sign_photo(
    ctx: Context,
    caller: Uploader,
    input: SignPhoto,
) -> Result<PhotoTicket, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let photo = check_file(&ctx.settings, input.file)?;
    let (covered, decline) = credits::count_covered_photos(&ctx, &caller.tenant).await?;
    if covered == 0 {
        return Err(declined(Declined::Ticket, &decline));
    }
    let content_type = photo.content_type.clone();
    let ids = ctx.store.photos.create(input.album, vec![photo]).await?;
    let id = ids.first().ok_or_else(|| ApiError::internal("the store created no photo"))?;
    issue_ticket(&ctx, *id, original_key(&caller, input.album, *id), &content_type).await
}

pub(crate) async fn sign_photos(
    ctx: Context,
    caller: Uploader,
    input: SignPhotos,
) -> Result<PhotoTickets, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let (mut covered, decline) = credits::count_covered_photos(&ctx, &caller.tenant).await?;
    let mut check = |file: PhotoFile| {
        let photo = check_file(&ctx.settings, file)?;
        covered = covered.checked_sub(1).ok_or_else(|| declined(Declined::Ticket, &decline))?;
        Ok(photo)
    };
    let files = input.files.into_iter();
    let checked: Vec<_> = files.map(|file| (file.filename.clone(), check(file))).collect();
    let photos: Vec<NewPhoto> = checked.iter().filter_map(|(_, photo)| photo.clone().ok()).collect();
    let ids =
        if photos.is_empty() { Vec::new() } else { ctx.store.photos.create(input.album, photos).await? };
    let mut ids = ids.into_iter();
    let mut outcomes = Vec::with_capacity(checked.len());
    for (filename, photo) in checked {
        let outcome = match photo {
            Ok(photo) => {
                let id = ids.next().ok_or_else(|| ApiError::internal("the store created too few photos"))?;
                issue_ticket(&ctx, id, original_key(&caller, input.album, id), &photo.content_type).await
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
    if is_to_be_queued(photo.state) {
        let upload = check_uploaded(&ctx, &caller, &photo).await?;
        let confirmed = ctx.store.queue.confirm_uploads(input.album, &[upload]).await?;
        if let Some(decline) = confirmed.decline {
            return Err(declined(Declined::Confirmation, &decline));
        }
        if confirmed.photos.is_empty() {
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
    let UploadChecks { mut outcomes, mut uploaded } = check_uploads(&ctx, &caller, known).await;
    // In the order of the request: where the balance does not cover all, the first ones are confirmed. An id that is repeated has
    // its first place.
    let mut places = HashMap::new();
    for (place, id) in ids.iter().enumerate() {
        places.entry(*id).or_insert(place);
    }
    uploaded.sort_by_key(|upload| places.get(&upload.photo).copied());
    let confirmed = ctx.store.queue.confirm_uploads(input.album, &uploaded).await?;
    if !confirmed.photos.is_empty() {
        (ctx.on_queued)();
    }
    let queued: HashSet<PhotoId> = confirmed.photos.into_iter().collect();
    // A photo that was deleted since it was checked cannot be confirmed.
    for upload in uploaded.iter().filter(|upload| !queued.contains(&upload.photo)) {
        outcomes.insert(upload.photo, Err(ApiError::not_found()));
    }
    if let Some(decline) = confirmed.decline {
        for photo in confirmed.declined {
            outcomes.insert(photo, Err(declined(Declined::Confirmation, &decline)));
        }
    }
    ApiError::log_entries(outcomes.values().filter_map(|outcome| outcome.as_ref().err()));
    let results = input.photos.into_iter().map(|text| {
        let outcome = parse_id::<PhotoId>(&text).ok().and_then(|id| outcomes.get(&id).cloned());
        let outcome = outcome.unwrap_or_else(|| Err(ApiError::not_found()));
        Confirmation::new(text, outcome.map(|()| CONFIRMED_MESSAGE))
    });
    Ok(Confirmations { results: results.collect() })
}

/// The uploads of a batch, checked.
struct UploadChecks {
    /// Of every photo; `Ok` also for photos that were confirmed before.
    outcomes: HashMap<PhotoId, Result<(), ApiError>>,
    /// The photos to confirm now.
    uploaded: Vec<Upload>,
}

async fn check_uploads(ctx: &Context, caller: &Uploader, photos: Vec<Photo>) -> UploadChecks {
    let mut checks = stream::iter(photos)
        .map(|photo| async move {
            if !is_to_be_queued(photo.state) {
                return (photo.id, Ok(None));
            }
            (photo.id, check_uploaded(ctx, caller, &photo).await.map(Some))
        })
        .buffer_unordered(CONCURRENT_LOOKUPS);
    let (mut outcomes, mut uploaded) = (HashMap::new(), Vec::new());
    while let Some((id, check)) = checks.next().await {
        uploaded.extend(check.as_ref().ok().copied().flatten());
        outcomes.insert(id, check.map(drop));
    }
    UploadChecks { outcomes, uploaded }
}

/// Whether a confirmation queues a photo in this state. One that failed was uploaded again.
fn is_to_be_queued(state: PhotoState) -> bool {
    matches!(state, PhotoState::AwaitingUpload | PhotoState::Failed)
}

/// Checks that a file's media type is accepted. The type is kept as it was declared, parameters included, because the
/// upload must send exactly this text; so it must be valid in a header.
fn check_file(settings: &ApiSettings, file: PhotoFile) -> Result<NewPhoto, ApiError> {
    let text = file.content_type.as_str();
    let fits_header = text == text.trim() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let declared: Option<mime::Mime> = text.parse().ok().filter(|_| fits_header);
    let is_accepted = declared.is_some_and(|declared| {
        settings.media_types.iter().any(|accepted| accepted == declared.essence_str())
    });
    if is_accepted {
        return Ok(NewPhoto { filename: file.filename, content_type: file.content_type });
    }
    let data = json!({ "code": "IMAGE_TYPE_NOT_ACCEPTED", "accepted": settings.media_types });
    Err(ApiError::new(ErrorKind::UnsupportedMediaType).with_data(data))
}

fn original_key(caller: &Uploader, album: AlbumId, photo: PhotoId) -> ObjectKey {
    ObjectKey::photo(caller.tenant.organization, album, photo, ObjectRole::Original)
}

async fn issue_ticket(
    ctx: &Context,
    photo: PhotoId,
    key: ObjectKey,
    content_type: &str,
) -> Result<PhotoTicket, ApiError> {
    let ttl = ctx.settings.upload_ttl;
    let conditions = UploadConditions { content_type, max_bytes: ctx.settings.max_photo_bytes, ttl };
    let url = ctx.store.blobs.upload_url(&key, conditions).await?;
    Ok(PhotoTicket { upload_url: url.into(), photo_id: photo.to_string(), expires_at: expiry_after(ttl) })
}

/// Checks that the bytes are in storage, for good, and not too many: presigned URLs of cloud storage cannot limit the size.
///
/// An oversized upload is deleted, and the ticket can be used again. The pipeline checks the size once more, because
/// the bytes can be replaced after this.
async fn check_uploaded(ctx: &Context, caller: &Uploader, photo: &Photo) -> Result<Upload, ApiError> {
    let key = original_key(caller, photo.album, photo.id);
    match ctx.store.blobs.head(&key).await? {
        Some(size) if size > ctx.settings.max_photo_bytes => {
            ctx.store.blobs.delete(&key).await?;
            Err(ApiError::new(ErrorKind::PayloadTooLarge).with_code("PHOTO_TOO_LARGE"))
        }
        Some(size) => {
            ctx.store.blobs.make_durable(&key).await?;
            Ok(Upload { photo: photo.id, size_bytes: Some(size) })
        }
        None => Err(ApiError::new(ErrorKind::PreconditionFailed).with_code("UPLOAD_MISSING")),
    }
}
