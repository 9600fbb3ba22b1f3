//! What visitors of a gallery download: what the organizer has permitted, and never more than they see.

use photofinish_store::model::credit::{ChargedRequest, Credits, RequestOrigin};
use photofinish_store::model::download::DownloadFile;
use photofinish_store::model::gallery::{Downloads, OpenGallery};
use photofinish_store::model::object_key::ObjectKey;

use super::downloads::{self, AskedDownload};
use super::visitors::{answer, count_search, find_selfie, identify, open, require_covered, search_disabled};
use crate::context::Context;
use crate::downloads::file_name;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::urls::VISITOR_TTL;
use crate::visitor::{Answer, Visitor};
use crate::wire::download::{CreateGalleryDownload, DownloadTicket, Selection};
use crate::wire::visitor::{OnePublicPhoto, PublicDownload};

pub(crate) async fn download(
    ctx: Context,
    visitor: Visitor,
    input: OnePublicPhoto,
) -> Result<Answer<PublicDownload>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    let file = permitted_file(&open)?;
    let photo = ctx.store.photos.get(open.album.id, input.photo).await?;
    if !photo.has_pictures() || file == DownloadFile::Marked && !photo.is_marked {
        return Err(ApiError::not_found());
    }
    let key = ObjectKey::photo(open.album.tenant.organization, photo.album, photo.id, file.role());
    let url = ctx.store.blobs.download_url(&key, VISITOR_TTL).await?.into();
    Ok(PublicDownload { url, filename: file_name(&photo.filename, file) }.into())
}

/// Returns what visitors may download: never more than they see.
///
/// # Errors
/// 403 `DOWNLOADS_DISABLED`.
fn permitted_file(open: &OpenGallery) -> Result<DownloadFile, ApiError> {
    match open.gallery.settings.downloads {
        Downloads::None => Err(ApiError::new(ErrorKind::Forbidden).with_code("DOWNLOADS_DISABLED")),
        Downloads::Preview | Downloads::Original if open.shows_marked() => Ok(DownloadFile::Marked),
        Downloads::Preview => Ok(DownloadFile::Preview),
        Downloads::Original => Ok(DownloadFile::Original),
    }
}

pub(crate) async fn create_download(
    ctx: Context,
    visitor: Visitor,
    input: CreateGalleryDownload,
) -> Result<Answer<DownloadTicket>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    let file = permitted_file(&open)?;
    downloads::check_file(&open.album, file)?;
    let counted = identify(&ctx, &visitor);
    let mut charged = Vec::with_capacity(2);
    match &input.selection {
        Selection::Bib(_) if !open.gallery.settings.bib_search => return Err(search_disabled()),
        Selection::Bib(_) => charged.push(ChargedRequest::TextSearch(RequestOrigin::Gallery)),
        Selection::Selfie(image) => {
            let probe = find_selfie(&ctx, &open, image).await?;
            if !ctx.store.probes.get(open.album.id, probe).await?.is_charged {
                charged.push(ChargedRequest::FaceSearch(probe, RequestOrigin::Gallery));
            }
        }
        Selection::Photos(_) => {}
    }
    charged.push(ChargedRequest::Download);
    require_covered(&ctx, &open, &charged).await?;
    // A bib tells as much as a search. Nobody who may look at a gallery may spend the organizer's credits as often as they like.
    let is_search = matches!(input.selection, Selection::Bib(_));
    let is_counted = is_search || ctx.store.credits.settings().prices.download != Credits::ZERO;
    let count = async {
        match is_counted {
            true => count_search(&ctx, &open, &counted).await,
            false => Ok(()),
        }
    };
    let base = ctx.settings.console.gallery_base();
    let asked = AskedDownload { selection: input.selection, file, base, origin: RequestOrigin::Gallery };
    let ticket = downloads::permit(&ctx, &open.album, asked, count).await?;
    Ok(answer(ticket, counted))
}
