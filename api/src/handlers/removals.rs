//! What happens when visitors of a gallery ask to be removed.

use std::collections::BTreeMap;

use photofinish_store::model::erasure::PhotoFate;
use photofinish_store::model::gallery::{NewReport, OpenGallery, Removal, ReportKind, ReportedPhoto};
use photofinish_store::model::ids::{PhotoId, ProbeId};
use photofinish_store::model::photo::BoundingBox;

use super::erasures;
use super::visitors::{caller, find_selfie, open};
use crate::auth::AlbumManager;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::search;
use crate::visitor::{Answer, Visitor};
use crate::wire::erasure_requests::{EraseFaces, ErasureOptions};
use crate::wire::visitor::{OneSelfie, PublicErasure};

/// The confidence from which a face is surely the selfie's: what a visitor erases is nobody else's.
const SURE: f64 = 90.0;

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
    let erased = erasures::erase_faces(ctx.clone(), caller::<AlbumManager>(&open)?, asked).await?;
    Ok(PublicErasure { is_request, ..PublicErasure::from(erased) }.into())
}

/// Tells the organizer in which photos the selfie's face surely is. Nothing is erased, so nothing needs to be confirmed.
async fn request_removal(
    ctx: &Context,
    open: &OpenGallery,
    selfie: ProbeId,
) -> Result<PublicErasure, ApiError> {
    let album = &open.album;
    if !album.config.face.enabled {
        return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
    }
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
    };
    ctx.store.galleries.report(report).await?;
    tracing::info!(album.id = %album.id, faces = found.len(), "a visitor asks to be removed");
    Ok(PublicErasure { faces: found.len() as u64, confirm: None, receipt_id: None, is_request: true })
}
