//! What happens when visitors of a gallery ask to be removed.

use std::collections::BTreeMap;

use photofinish_store::model::erasure::PhotoFate;
use photofinish_store::model::gallery::{NewReport, OpenGallery, Removal, ReportKind, ReportedPhoto};
use photofinish_store::model::ids::{PhotoId, ProbeId};
use photofinish_store::model::photo::BoundingBox;

use super::erasures;
use super::visitors::{
    answer, asked_bib, caller, count_search, find_selfie, identify, open, search_disabled,
};
use crate::auth::PeopleEraser;
use crate::context::Context;
use crate::errors::ApiError;
use crate::paid_cursor::is_paid;
use crate::search::{self, RankedHit};
use crate::visitor::{Answer, Visitor};
use crate::wire::Acknowledgement;
use crate::wire::erasure_requests::{EraseFaces, ErasureOptions};
use crate::wire::visitor::{OneSelfie, PublicErasure, SearchGallery};

/// The confidence from which a face is surely the selfie's: what a visitor erases is nobody else's.
const SURE: f64 = 90.0;
/// Most photos of a request by a bib: it says whom to look for, and the organizer erases by the bib.
const MAX_REQUESTED: usize = 100;

/// Has the faces that are surely the selfie's erased: first says how many, then does it, or asks the organizer to.
pub(crate) async fn erase_faces(
    ctx: Context,
    visitor: Visitor,
    input: OneSelfie,
) -> Result<Answer<PublicErasure>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    let selfie = find_selfie(&ctx, &open, &input.image).await?;
    let is_request = open.gallery.settings.removal == Removal::Request;
    if is_request && input.confirm.is_some() {
        return Ok(request_removal(&ctx, &open, selfie).await?.into());
    }
    let options =
        ErasureOptions { photos: PhotoFate::Keep, dry_run: input.confirm.is_none(), confirm: input.confirm };
    let asked = EraseFaces { album: open.album.id, image: input.image, min_confidence: Some(SURE), options };
    let erased = erasures::erase_faces(ctx.clone(), caller::<PeopleEraser>(&open)?, asked).await?;
    Ok(PublicErasure { is_request, ..PublicErasure::from(erased) }.into())
}

/// Tells the organizer in which photos the selfie's face surely is. Nothing is erased, so nothing needs to be confirmed.
async fn request_removal(
    ctx: &Context,
    open: &OpenGallery,
    selfie: ProbeId,
) -> Result<PublicErasure, ApiError> {
    let album = &open.album;
    erasures::require_faces(ctx, album).await?;
    let created_at = ctx.store.erasures.read_clock().await?;
    let vector = search::load_or_create_free_embedding(ctx, album, selfie).await?;
    let found = search::find_faces(ctx, album.id, &vector, SURE).await?;
    let mut photos: BTreeMap<PhotoId, Vec<BoundingBox>> = BTreeMap::new();
    for (photo, face) in found.iter().map(search::RankedFace::place) {
        photos.entry(photo).or_default().push(face);
    }
    let report = NewReport {
        album: album.id,
        photos: photos.into_iter().map(|(photo, faces)| ReportedPhoto { photo, faces }).collect(),
        kind: ReportKind::Removal,
        // Not the network, which runners share: each selfie is a request, and one that is sent again is the same.
        visitor: ctx.visitor_secret.digest(selfie.0.as_bytes()),
        note: String::new(),
        created_at,
        // Each selfie is a search of its visitor, of which there are so many a day.
        limits: None,
    };
    ctx.store.galleries.report(report).await?;
    tracing::info!(album.id = %album.id, faces = found.len(), "a visitor asks to be removed");
    Ok(PublicErasure { faces: found.len() as u64, confirm: None, receipt_id: None, is_request: true })
}

/// Tells the organizer that whoever wears a bib asks to be removed. Never erases, whatever the gallery permits: anybody knows a
/// bib. Counts as a search, unless it comes with the cursor of one.
pub(crate) async fn request_by_bib(
    ctx: Context,
    visitor: Visitor,
    input: SearchGallery,
) -> Result<Answer<Acknowledgement>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    let album = &open.album;
    if !open.gallery.settings.bib_search || !album.config.text.enabled {
        return Err(search_disabled());
    }
    let asked = asked_bib(&open, input.text, input.cursor.as_deref())?;
    let query = asked.query();
    let counted = identify(&ctx, &visitor);
    if !is_paid(&ctx, album.id, &query, &asked.paging) {
        count_search(&ctx, &open, &counted).await?;
    }
    let created_at = ctx.store.erasures.read_clock().await?;
    let threshold = album.config.text.confidence_threshold;
    let mut found = search::find_texts(&ctx, album.id, &query, threshold).await?;
    if found.is_empty() {
        return Err(ApiError::not_found());
    }
    found.sort_by(|a, b| a.position().compare(&b.position()));
    found.truncate(MAX_REQUESTED);
    let report = NewReport {
        album: album.id,
        photos: found.iter().map(|hit| ReportedPhoto { photo: hit.photo, faces: Vec::new() }).collect(),
        kind: ReportKind::Removal,
        // Whoever asks: what several say of one bib is one request.
        visitor: ctx.visitor_secret.digest(format!("removal of {}", query.text).as_bytes()),
        note: query.text,
        created_at,
        // Each bib is a search.
        limits: None,
    };
    ctx.store.galleries.report(report).await?;
    tracing::info!(album.id = %album.id, photos = found.len(), "a visitor asks to be removed by bib");
    Ok(answer(Acknowledgement::new("The organizer knows"), counted))
}
