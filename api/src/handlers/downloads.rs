//! Permits downloads of many photos. [`crate::downloads`] makes the files.

use std::future::ready;

use photofinish_store::model::album::Album;
use photofinish_store::model::credit::RequestOrigin;
use photofinish_store::model::download::{DownloadFile, NewDownload};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::Photo;
use photofinish_store::search::variants::normalise_bib;
use photofinish_store::traits::TextQuery;
use url::Url;

use super::parse_id;
use crate::auth::Searcher;
use crate::base62::base62;
use crate::context::Context;
use crate::credits::Bill;
use crate::downloads::{
    DOWNLOADS_PREFIX, TICKET_LENGTH, TICKET_TTL, load_sizes, select_files, ticket_digest,
};
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::rate_meter::spend_up_to;
use crate::search::{self, RankedHit};
use crate::urls::expiry_after;
use crate::validate::input::batch_units;
use crate::wire::download::{CreateDownload, DownloadTicket, MAX_PHOTOS, Selection};

pub(crate) async fn create(
    ctx: Context,
    caller: Searcher,
    input: CreateDownload,
) -> Result<DownloadTicket, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    let base = &ctx.settings.console.public_url;
    let asked = AskedDownload { selection: input.selection, file: input.file, base, origin: caller.origin() };
    permit(&ctx, &album, asked, ready(Ok(()))).await
}

/// Looks whether photos of an album may have this file, before they are searched for.
///
/// # Errors
/// 404 if none has: what photos still have is of a watermark that was removed.
pub(crate) fn check_file(album: &Album, file: DownloadFile) -> Result<(), ApiError> {
    let has_none = file == DownloadFile::Marked && album.watermark_version == 0;
    if has_none { Err(ApiError::not_found()) } else { Ok(()) }
}

/// What somebody wants to download who may.
pub(crate) struct AskedDownload<'a> {
    pub(crate) selection: Selection,
    pub(crate) file: DownloadFile,
    /// The URL by which whoever asks reaches the service.
    pub(crate) base: &'a Url,
    pub(crate) origin: RequestOrigin,
}

/// Permits the download of those photos that have the file. `count` counts it where there are limits of a day, once the request is
/// within those of a minute.
///
/// # Errors
/// 404 if none has; 422 if the balance does not cover it and the search for the photos; those of `count`. Then nothing is charged.
pub(crate) async fn permit(
    ctx: &Context,
    album: &Album,
    asked: AskedDownload<'_>,
    count: impl Future<Output = Result<(), ApiError>>,
) -> Result<DownloadTicket, ApiError> {
    let AskedDownload { selection, file, base, origin } = asked;
    check_file(album, file)?;
    let mut bill = Bill::new(ctx, album, origin);
    let selected = select_photos(ctx, album, selection, &mut bill).await?;
    // The storage is asked for the size of each.
    spend_up_to(ctx, batch_units(selected.len())).await?;
    count.await?;
    let FoundFiles { photos, bytes } = find_files(ctx, album, &selected, file).await?;
    if photos.is_empty() {
        return Err(ApiError::not_found());
    }
    let ticket = base62(&rand::random::<[u8; 32]>(), TICKET_LENGTH);
    let files = photos.len();
    let digest = ticket_digest(&ticket);
    let download = NewDownload { digest, album: album.id, photos, file, ttl: TICKET_TTL };
    ctx.store.downloads.create(download).await?;
    // Now that it is there. Nobody learns the address of one that is declined.
    bill.add_download();
    bill.charge().await?;
    let url = format!("{}{DOWNLOADS_PREFIX}{ticket}", base.as_str().trim_end_matches('/'));
    Ok(DownloadTicket { url, expires_at: expiry_after(TICKET_TTL), files, bytes })
}

/// Returns the photos of a selection, best first. The bill has a search for them then, which costs what it costs elsewhere.
async fn select_photos(
    ctx: &Context,
    album: &Album,
    selection: Selection,
    bill: &mut Bill<'_>,
) -> Result<Vec<PhotoId>, ApiError> {
    match selection {
        Selection::Photos(photos) => Ok(photos),
        Selection::Bib(bib) => {
            if !album.config.text.enabled {
                return Err(ApiError::declined(DeclineCode::TextSearchDisabled));
            }
            let query = TextQuery { text: normalise_bib(&bib), exact: false };
            let threshold = album.config.text.confidence_threshold;
            let hits = search::find_texts(ctx, album.id, &query, threshold).await?;
            bill.add_text_search();
            Ok(best_photos(hits))
        }
        Selection::Selfie(image) => {
            if !album.config.face.enabled {
                return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
            }
            let image = parse_id(&image)?;
            let selfie = search::load_or_create_embedding(ctx, album, image, bill.origin()).await?;
            let threshold = album.config.face.confidence_threshold;
            let hits = search::find_faces(ctx, album.id, &selfie.embedding, threshold).await?;
            bill.add_face_search(selfie.search);
            Ok(best_photos(hits))
        }
    }
}

fn best_photos<H: RankedHit>(mut hits: Vec<H>) -> Vec<PhotoId> {
    hits.sort_by(|a, b| a.position().compare(&b.position()));
    hits.into_iter().take(MAX_PHOTOS).map(|hit| hit.position().photo).collect()
}

/// Photos that have a file.
struct FoundFiles {
    photos: Vec<PhotoId>,
    /// Of the files together.
    bytes: u64,
}

/// Finds those photos whose file is there, in the order of the ids.
async fn find_files(
    ctx: &Context,
    album: &Album,
    ids: &[PhotoId],
    file: DownloadFile,
) -> Result<FoundFiles, ApiError> {
    let organization = album.tenant.organization;
    let found = select_files(ctx, album.id, ids, file).await?;
    let key = |photo: &Photo| ObjectKey::photo(organization, album.id, photo.id, file.role());
    let sizes = load_sizes(&ctx.store.blobs, found.iter().map(key).collect()).await?;
    let with_size = found.iter().zip(sizes).filter_map(|(photo, size)| Some((photo.id, size?)));
    let (photos, sizes): (Vec<PhotoId>, Vec<u64>) = with_size.unzip();
    Ok(FoundFiles { photos, bytes: sizes.iter().sum() })
}
