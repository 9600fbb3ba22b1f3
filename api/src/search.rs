//! Face and bib searches.
//!
//! A selfie is uploaded to a presigned URL. The first search with it computes the embedding, stores it, or why there is
//! none, and deletes the bytes; later searches use what is stored until the `imageId` expires.
//!
//! Face and text hits differ in what they contain and how they are ranked; [`load_page`] sorts, pages and completes
//! both.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::album::{Album, Tenant};
use photofinish_store::model::cost::{CostMeter, SELFIE_STAGE, Spent};
use photofinish_store::model::credit::{ChargedRequest, RequestOrigin};
use photofinish_store::model::ids::{AlbumId, PhotoId, ProbeId};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::photo::{BoundingBox, Embedding, Photo};
use photofinish_store::traits::{
    self, ANY_IMAGE, HitReason, Probe, ProbeOutcome, ProbeRefusal, SelfieHit, SelfieQuery, TextQuery,
    UploadConditions,
};
use tracing::Instrument;

use crate::context::{Context, ProbeError, ProbeTurn};
use crate::credits::{self, SelfieSearch};
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
use crate::urls::{expiry_after, presign_pictures};
use crate::wire::cursor::HitPosition;
use crate::wire::photo::PictureUrls;
use crate::wire::round_percent;
use crate::wire::search::{FACE_MATCH, FaceHit, Hits, Paging, ProbeTicket, READ_HERE, SAME_BIB, TextHit};

/// By how much a confidence may be shown larger than it is: see [`round_percent`].
const ROUNDING: f64 = 0.005;

/// Most hits that one face search counts: more photos than any runner is in.
const MAX_HITS: usize = 100_000;

/// Creates a probe and the URL to which the selfie is uploaded.
pub(crate) async fn create_probe(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
) -> Result<ProbeTicket, ApiError> {
    let probe = ctx.store.probes.create(album, ctx.settings.probe_ttl).await?;
    let key = ObjectKey::probe(tenant.organization, album, probe.id);
    let ttl = ctx.settings.upload_ttl.min(ctx.settings.probe_ttl);
    let conditions =
        UploadConditions { content_type: ANY_IMAGE, max_bytes: ctx.settings.max_probe_bytes, ttl };
    let upload_url = ctx.store.blobs.upload_url(&key, conditions).await?.into();
    let image_id = probe.id.to_string();
    Ok(ProbeTicket {
        upload_url,
        image_id,
        expires_at: expiry_after(ttl),
        image_expires_at: probe.expires_at,
    })
}

/// A selfie that can be searched with.
pub(crate) struct Selfie {
    pub(crate) embedding: Embedding,
    pub(crate) search: SelfieSearch,
}

impl Selfie {
    fn new(probe: &Probe, outcome: ProbeOutcome, is_new: bool) -> Result<Self, ApiError> {
        let search = SelfieSearch { probe: probe.id, is_charged: probe.is_charged, is_new };
        Ok(Self { embedding: embedding_from_outcome(outcome)?, search })
    }
}

/// Returns the probe's embedding: the stored one, or one computed from the selfie. Its bytes are deleted once it is known
/// whether they can be searched with.
///
/// The computation goes on when the request is dropped: what it found is stored, and no retry repeats it.
pub(crate) async fn load_or_create_embedding(
    ctx: &Context,
    album: &Album,
    id: ProbeId,
    origin: RequestOrigin,
) -> Result<Selfie, ApiError> {
    let probe = ctx.store.probes.get(album.id, id).await?;
    if !probe.is_charged {
        credits::require(ctx, &album.tenant, &[ChargedRequest::FaceSearch(id, origin)], origin).await?;
    }
    load_or_examine(ctx, album, probe).await
}

/// Returns the probe's embedding as [`load_or_create_embedding`] does, whatever the balance: nobody pays for being erased.
pub(crate) async fn load_or_create_free_embedding(
    ctx: &Context,
    album: &Album,
    id: ProbeId,
) -> Result<Embedding, ApiError> {
    let probe = ctx.store.probes.get(album.id, id).await?;
    Ok(load_or_examine(ctx, album, probe).await?.embedding)
}

async fn load_or_examine(ctx: &Context, album: &Album, mut probe: Probe) -> Result<Selfie, ApiError> {
    let id = probe.id;
    if let Some(outcome) = probe.outcome.take() {
        return Selfie::new(&probe, outcome, false);
    }
    let lock = ctx.selfie_locks.lock(id).await?;
    // While this search waited for the lock, another one may have examined the selfie.
    let mut probe = ctx.store.probes.get(album.id, id).await?;
    if let Some(outcome) = probe.outcome.take() {
        return Selfie::new(&probe, outcome, false);
    }
    let turn = ctx.probe_embedder.take_turn(album.tenant.organization).await?;
    let (ctx, organization, album) = (ctx.clone(), album.tenant.organization, album.id);
    let examining = async move {
        let outcome = examine(&ctx, album, id, turn).await;
        drop(lock);
        outcome
    };
    let examining = photofinish_store::on_behalf_of(organization, examining);
    let examined = tokio::spawn(examining.in_current_span());
    match examined.await {
        Ok(outcome) => Selfie::new(&probe, outcome?, true),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

/// Examines a selfie and stores what it gave.
async fn examine(
    ctx: &Context,
    album: AlbumId,
    id: ProbeId,
    turn: Box<dyn ProbeTurn>,
) -> Result<ProbeOutcome, ApiError> {
    // While this search waited for its turn, another replica may have examined the selfie.
    let probe = ctx.store.probes.get(album, id).await?;
    if let Some(outcome) = probe.outcome {
        return Ok(outcome);
    }
    let key = ObjectKey::probe(probe.organization, album, id);
    let outcome = match ctx.store.blobs.read(&key, ctx.settings.max_probe_bytes).await {
        Ok(selfie) => embed(ctx, album, selfie, turn).await?,
        Err(error) if error.kind == StoreErrorKind::TooLarge => ProbeOutcome::Refused(ProbeRefusal::TooLarge),
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return outcome_stored_meanwhile(ctx, album, id).await;
        }
        Err(error) => return Err(error.into()),
    };
    ctx.store.probes.set_outcome(id, outcome.clone()).await?;
    if let Err(error) = ctx.store.blobs.delete(&key).await {
        tracing::warn!(probe.id = %id, %error, "failed to delete a used selfie, it stays until it expires");
    }
    Ok(outcome)
}

/// Finds the face on a selfie; the album is charged for it.
async fn embed(
    ctx: &Context,
    album: AlbumId,
    selfie: Bytes,
    turn: Box<dyn ProbeTurn>,
) -> Result<ProbeOutcome, ApiError> {
    let spent = Arc::<CostMeter>::default();
    let bytes_read = selfie.len() as u64;
    let embedded = turn.embed(selfie, Arc::clone(&spent)).await;
    let searches = ctx.store.costs.searches();
    searches.count(album, SELFIE_STAGE);
    searches.add(album, SELFIE_STAGE, Spent { bytes_read, ..spent.total() });
    match embedded {
        Ok(embedding) => Ok(ProbeOutcome::Embedded(embedding)),
        Err(ProbeError::NoFace) => Ok(ProbeOutcome::Refused(ProbeRefusal::NoFace)),
        Err(ProbeError::Unreadable) => Ok(ProbeOutcome::Refused(ProbeRefusal::Unreadable)),
        Err(error @ (ProbeError::Busy { .. } | ProbeError::Unavailable)) => Err(error.into()),
    }
}

/// Returns what a concurrent search may have stored before it deleted the bytes.
async fn outcome_stored_meanwhile(
    ctx: &Context,
    album: AlbumId,
    id: ProbeId,
) -> Result<ProbeOutcome, ApiError> {
    let probe: Probe = ctx.store.probes.get(album, id).await?;
    let missing = || ApiError::new(ErrorKind::PreconditionFailed).with_code("UPLOAD_MISSING");
    probe.outcome.ok_or_else(missing)
}

fn embedding_from_outcome(outcome: ProbeOutcome) -> Result<Embedding, ApiError> {
    match outcome {
        ProbeOutcome::Embedded(embedding) => Ok(embedding),
        ProbeOutcome::Refused(ProbeRefusal::NoFace) => Err(ApiError::declined(DeclineCode::NoFace)),
        ProbeOutcome::Refused(ProbeRefusal::Unreadable) => {
            Err(ApiError::declined(DeclineCode::UnreadableImage))
        }
        ProbeOutcome::Refused(ProbeRefusal::TooLarge) => {
            Err(ApiError::new(ErrorKind::PayloadTooLarge).with_code("SELFIE_TOO_LARGE"))
        }
    }
}

/// A hit of the store that can be ranked and, once its photo is loaded, written to the wire.
pub(crate) trait RankedHit {
    /// The hit as the response contains it.
    type Wire;

    /// Where the hit is in the order of the results.
    fn position(&self) -> HitPosition;

    /// Adds what the photo knows: its URLs and when it was taken.
    fn into_wire(self, photo: &Photo, urls: PictureUrls) -> Self::Wire;
}

/// A face hit with its calibrated confidence, 0 to 100.
pub(crate) struct RankedFace {
    hit: SelfieHit,
    confidence: f64,
}

impl RankedFace {
    /// Returns the photo, and where the face is in it.
    pub(crate) fn place(&self) -> (PhotoId, BoundingBox) {
        (self.hit.photo, self.hit.bounding_box)
    }
}

impl RankedHit for RankedFace {
    type Wire = FaceHit;

    fn position(&self) -> HitPosition {
        HitPosition { score: self.hit.score, photo: self.hit.photo }
    }

    fn into_wire(self, photo: &Photo, urls: PictureUrls) -> FaceHit {
        FaceHit {
            id: photo.id.to_string(),
            url: urls.preview,
            thumbnail_url: urls.thumbnail,
            confidence: round_percent(self.confidence),
            bounding_box: self.hit.bounding_box.into(),
            why: match self.hit.reason {
                HitReason::Face => FACE_MATCH,
                HitReason::SameBib => SAME_BIB,
            },
            taken_at: photo.taken_at,
        }
    }
}

impl RankedHit for traits::TextHit {
    type Wire = TextHit;

    /// The store's confidences rank exact readings above all others.
    fn position(&self) -> HitPosition {
        HitPosition { score: self.confidence, photo: self.photo }
    }

    fn into_wire(self, photo: &Photo, urls: PictureUrls) -> TextHit {
        TextHit {
            id: photo.id.to_string(),
            url: urls.preview,
            thumbnail_url: urls.thumbnail,
            matched_text: self.text,
            confidence: round_percent(self.confidence),
            bounding_box: self.bounding_box.into(),
            why: READ_HERE,
            on_start_list: None,
            wave: None,
            team: None,
            taken_at: photo.taken_at,
        }
    }
}

/// Finds the photos of the person on a selfie with at least `threshold` confidence, 0 to 100.
pub(crate) async fn find_faces(
    ctx: &Context,
    album: AlbumId,
    probe: &Embedding,
    threshold: f64,
) -> Result<Vec<RankedFace>, ApiError> {
    let calibration = ctx
        .settings
        .calibrations
        .get(&probe.model)
        .ok_or_else(|| ApiError::internal(format!("no calibration for {}", probe.model)))?;
    let query = SelfieQuery {
        probe: probe.clone(),
        scale: calibration.scale,
        // A little less: neither rounding may lose a hit exactly at the threshold.
        min_score: calibration.score(threshold - ROUNDING) - 1e-9,
        limit: MAX_HITS,
    };
    let found = ctx.store.faces.find_person(album, query).await?;
    let ranked = found.into_iter().map(|hit| {
        let confidence = calibration.confidence(hit.score);
        RankedFace { hit, confidence }
    });
    Ok(ranked.filter(|face| reaches(face.confidence, threshold)).collect())
}

/// Returns the cosine from which two faces are surely of one person.
pub(crate) fn sure_cosine(ctx: &Context, probe: &Embedding) -> Result<f64, ApiError> {
    let calibration = ctx.settings.calibrations.get(&probe.model);
    let missing = || ApiError::internal(format!("no calibration for {}", probe.model));
    Ok(calibration.ok_or_else(missing)?.scale.sure_cosine)
}

/// Finds the photos in which the bib was read with at least `threshold` confidence, 0 to 100.
pub(crate) async fn find_texts(
    ctx: &Context,
    album: AlbumId,
    query: &TextQuery,
    threshold: f64,
) -> Result<Vec<traits::TextHit>, ApiError> {
    let found = ctx.store.texts.search(album, query).await?;
    Ok(found.into_iter().filter(|hit| reaches(hit.confidence, threshold)).collect())
}

/// Whether a hit is kept: by its confidence as it is shown, so that a caller who takes that as the threshold keeps the hit.
fn reaches(confidence: f64, threshold: f64) -> bool {
    round_percent(confidence) >= threshold
}

/// Loads one page of hits, best first, with the URLs of their photos.
pub(crate) async fn load_page<H: RankedHit>(
    ctx: &Context,
    album: &Album,
    hits: Vec<H>,
    paging: &Paging,
) -> Result<Hits<H::Wire>, ApiError> {
    let total = hits.len();
    let (page, next_cursor) = paginate(hits, H::position, paging);
    let loaded = load_photos(ctx, album.id, page.iter().map(|hit| hit.position().photo)).await?;
    let mut photos = Vec::with_capacity(page.len());
    for hit in page {
        // The photo may have been deleted since the search.
        if let Some(photo) = loaded.get(&hit.position().photo) {
            let urls = presign_pictures(ctx, album, photo).await?;
            photos.push(hit.into_wire(photo, urls));
        }
    }
    Ok(Hits { photos, total, next_cursor })
}

/// Sorts the hits; returns the page that `paging` requests and the cursor of the next page.
fn paginate<H>(
    mut hits: Vec<H>,
    position: impl Fn(&H) -> HitPosition,
    paging: &Paging,
) -> (Vec<H>, Option<String>) {
    hits.sort_by(|a, b| position(a).compare(&position(b)));
    let start = match &paging.after {
        Some(last) => hits.partition_point(|hit| position(hit).compare(&last.position).is_le()),
        None => 0,
    };
    let mut page = hits.split_off(start);
    let has_more = page.len() > paging.limit;
    page.truncate(paging.limit);
    let next = if has_more { page.last().map(|hit| position(hit).to_cursor()) } else { None };
    (page, next)
}

/// Loads the photos of a page in one query.
async fn load_photos(
    ctx: &Context,
    album: AlbumId,
    ids: impl Iterator<Item = PhotoId>,
) -> Result<HashMap<PhotoId, Photo>, ApiError> {
    let ids: Vec<PhotoId> = ids.collect();
    let photos = ctx.store.photos.get_many(album, &ids).await?;
    Ok(photos.into_iter().map(|photo| (photo.id, photo)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::wire::cursor::HitCursor;

    proptest! {
        #[test]
        fn concatenated_pages_equal_the_full_result(
            scores in prop::collection::vec(0_u8..5, 0..60),
            limit in 1_usize..20,
        ) {
            let position = |hit: &(u8, u128)| HitPosition {
                score: f64::from(hit.0),
                photo: PhotoId(Uuid::from_u128(hit.1)),
            };
            let hits: Vec<(u8, u128)> = scores.into_iter().zip(0_u128..).collect();
            let all_hits = Paging { limit: 1000, after: None, min_confidence: None };
            let (expected, next) = paginate(hits.clone(), position, &all_hits);
            prop_assert!(next.is_none());
            let mut concatenated = Vec::new();
            let mut after = None;
            loop {
                let paging = Paging { limit, after, min_confidence: None };
                let (page, next) = paginate(hits.clone(), position, &paging);
                prop_assert!(page.len() <= limit);
                concatenated.extend(page);
                let Some(next) = next else { break };
                after = HitCursor::parse(&next);
            }
            prop_assert_eq!(concatenated, expected);
        }
    }
}
