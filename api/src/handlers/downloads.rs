//! Permits downloads of many photos. [`crate::downloads`] makes the files.

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
use crate::credits;
use crate::downloads::{
    DOWNLOADS_PREFIX, TICKET_LENGTH, TICKET_TTL, load_sizes, select_files, ticket_digest,
};
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::search::{self, RankedHit};
use crate::urls::expiry_after;
use crate::wire::download::{CreateDownload, DownloadTicket, MAX_PHOTOS, Selection};

pub(crate) async fn create(
    ctx: Context,
    caller: Searcher,
    input: CreateDownload,
) -> Result<DownloadTicket, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    check_file(&album, input.file)?;
    let photos = select_photos(&ctx, &album, input.selection, caller.origin()).await?;
    let permitted = Permitted { file: input.file, base: &ctx.settings.console.public_url };
    permit(&ctx, &album, photos, permitted).await
}

/// Looks whether photos of an album may have this file, before a search is paid for.
///
/// # Errors
/// 404 if none has: what photos still have is of a watermark that was removed.
pub(crate) fn check_file(album: &Album, file: DownloadFile) -> Result<(), ApiError> {
    let has_none = file == DownloadFile::Marked && album.watermark_version == 0;
    if has_none { Err(ApiError::not_found()) } else { Ok(()) }
}

/// Returns the photos of a selection, best first. Searching costs what it costs elsewhere.
pub(crate) async fn select_photos(
    ctx: &Context,
    album: &Album,
    selection: Selection,
    origin: RequestOrigin,
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
            credits::charge_text_search(ctx, &album.tenant, album.id, origin).await?;
            Ok(best_photos(hits))
        }
        Selection::Selfie(image) => {
            if !album.config.face.enabled {
                return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
            }
            let selfie = search::load_or_create_embedding(ctx, album, parse_id(&image)?).await?;
            let threshold = album.config.face.confidence_threshold;
            let hits = search::find_faces(ctx, album.id, &selfie.embedding, threshold).await?;
            credits::charge_face_search(ctx, &album.tenant, album.id, selfie.search, origin).await?;
            Ok(best_photos(hits))
        }
    }
}

fn best_photos<H: RankedHit>(mut hits: Vec<H>) -> Vec<PhotoId> {
    hits.sort_by(|a, b| a.position().compare(&b.position()));
    hits.into_iter().take(MAX_PHOTOS).map(|hit| hit.position().photo).collect()
}

/// Which files may be downloaded, and under which URL: that by which whoever asks reaches the service.
pub(crate) struct Permitted<'a> {
    pub(crate) file: DownloadFile,
    pub(crate) base: &'a Url,
}

/// Permits the download of those photos that have the file.
///
/// # Errors
/// 404 if none has; 422 if the balance does not cover it.
pub(crate) async fn permit(
    ctx: &Context,
    album: &Album,
    photos: Vec<PhotoId>,
    Permitted { file, base }: Permitted<'_>,
) -> Result<DownloadTicket, ApiError> {
    check_file(album, file)?;
    let organization = album.tenant.organization;
    let found = select_files(ctx, album.id, &photos, file).await?;
    let key = |photo: &Photo| ObjectKey::photo(organization, album.id, photo.id, file.role());
    let sizes = load_sizes(&ctx.store.blobs, found.iter().map(key).collect()).await?;
    let with_size = found.iter().zip(sizes).filter_map(|(photo, size)| Some((photo.id, size?)));
    let (photos, sizes): (Vec<PhotoId>, Vec<u64>) = with_size.unzip();
    if photos.is_empty() {
        return Err(ApiError::not_found());
    }
    let ticket = base62(&rand::random::<[u8; 32]>(), TICKET_LENGTH);
    let files = photos.len();
    let digest = ticket_digest(&ticket);
    let download = NewDownload { digest, album: album.id, photos, file, ttl: TICKET_TTL };
    ctx.store.downloads.create(download).await?;
    // Now that it is there. Nobody learns the address of one that is declined.
    credits::charge_download(ctx, &album.tenant, album.id).await?;
    let url = format!("{}{DOWNLOADS_PREFIX}{ticket}", base.as_str().trim_end_matches('/'));
    Ok(DownloadTicket { url, expires_at: expiry_after(TICKET_TTL), files, bytes: sizes.iter().sum() })
}
