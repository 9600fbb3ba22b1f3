//! Face and bib searches.

use std::collections::HashMap;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::{AlbumId, PhotoId, ProbeId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{Embedding, Photo};
use photofinish_store::traits::{
    ANY_IMAGE, FaceHit as FoundFace, Probe, TextHit as FoundText, TextQuery, UploadConditions,
};

use super::{expiry_after, parse_id};
use crate::auth::Searcher;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
use crate::wire::album::OneAlbum;
use crate::wire::cursor::HitPosition;
use crate::wire::round_percent;
use crate::wire::search::{
    FACE_MATCH, FaceHit, FaceHits, Paging, ProbeTicket, READ_HERE, SearchFace, SearchText, TextHit, TextHits,
};

/// Most hits that one search counts: more photos than any runner is in.
const MAX_HITS: usize = 100_000;

pub(crate) async fn sign_selfie(
    ctx: Context,
    caller: Searcher,
    input: OneAlbum,
) -> Result<ProbeTicket, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let probe = ctx.store.probes.create(input.album, ctx.settings.probe_ttl).await?;
    let key = ObjectKey::probe(caller.tenant.organization, input.album, probe.id);
    let ttl = ctx.settings.upload_ttl.min(ctx.settings.probe_ttl);
    let terms = UploadConditions { content_type: ANY_IMAGE, max_bytes: ctx.settings.max_probe_bytes, ttl };
    let upload_url = ctx.store.blobs.upload_url(&key, terms).await?.into();
    let image_id = probe.id.to_string();
    Ok(ProbeTicket {
        upload_url,
        image_id,
        expires_at: expiry_after(ttl),
        image_expires_at: probe.expires_at,
    })
}

pub(crate) async fn search_faces(
    ctx: Context,
    caller: Searcher,
    input: SearchFace,
) -> Result<FaceHits, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    if !album.config.face.enabled {
        return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
    }
    let probe = ctx.store.probes.get(input.album, parse_id(&input.image)?).await?;
    let probe = load_or_create_embedding(&ctx, &caller.tenant, probe).await?;
    let calibration = *ctx
        .settings
        .calibrations
        .get(&probe.model)
        .ok_or_else(|| ApiError::internal(format!("no calibration for {}", probe.model)))?;
    let threshold = album.config.face.confidence_threshold.max(input.paging.min_confidence);
    let at_least = minus_epsilon(calibration.cosine(threshold));
    let found = ctx.store.faces.nearest(input.album, &probe, MAX_HITS, at_least).await?;
    let confidence = |hit: &FoundFace| calibration.confidence(f64::from(hit.cosine));
    let hits: Vec<_> = found.into_iter().filter(|hit| confidence(hit) >= threshold).collect();
    let total = hits.len();
    let place = |hit: &FoundFace| HitPosition { score: f64::from(hit.cosine), photo: hit.photo };
    let (page, next_cursor) = paginate(hits, place, &input.paging);
    let photos = load_photos(&ctx, input.album, page.iter().map(|hit| hit.photo)).await?;
    let mut shown_hits = Vec::with_capacity(page.len());
    for hit in page {
        // A photo deleted a moment ago is no hit.
        let Some(photo) = photos.get(&hit.photo) else {
            continue;
        };
        let (url, thumbnail_url) = presign_hit_urls(&ctx, &caller.tenant, photo).await?;
        shown_hits.push(FaceHit {
            id: hit.photo.to_string(),
            url,
            thumbnail_url,
            confidence: round_percent(confidence(&hit)),
            bounding_box: hit.bounding_box.into(),
            why: FACE_MATCH,
            taken_at: photo.taken_at,
        });
    }
    Ok(FaceHits { photos: shown_hits, total, next_cursor })
}

pub(crate) async fn search_texts(
    ctx: Context,
    caller: Searcher,
    input: SearchText,
) -> Result<TextHits, ApiError> {
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    if !album.config.text.enabled {
        return Err(ApiError::declined(DeclineCode::TextSearchDisabled));
    }
    let query = TextQuery { text: normalise_text(&input.text), exact: input.exact };
    // Nothing but punctuation: no bib reads so.
    let found =
        if query.text.is_empty() { Vec::new() } else { ctx.store.texts.search(input.album, &query).await? };
    let threshold = album.config.text.confidence_threshold.max(input.paging.min_confidence);
    let hits: Vec<FoundText> = found.into_iter().filter(|hit| hit.confidence >= threshold).collect();
    let total = hits.len();
    // The store's confidences put exact readings above all others.
    let place = |hit: &FoundText| HitPosition { score: hit.confidence, photo: hit.photo };
    let (page, next_cursor) = paginate(hits, place, &input.paging);
    let photos = load_photos(&ctx, input.album, page.iter().map(|hit| hit.photo)).await?;
    let mut shown_hits = Vec::with_capacity(page.len());
    for hit in page {
        let Some(photo) = photos.get(&hit.photo) else {
            continue;
        };
        let (url, thumbnail_url) = presign_hit_urls(&ctx, &caller.tenant, photo).await?;
        shown_hits.push(TextHit {
            id: hit.photo.to_string(),
            url,
            thumbnail_url,
            matched_text: hit.text,
            confidence: round_percent(hit.confidence),
            bounding_box: hit.bounding_box.into(),
            why: READ_HERE,
            taken_at: photo.taken_at,
        });
    }
    Ok(TextHits { photos: shown_hits, total, next_cursor })
}

/// Upper-case letters and digits of what a runner typed.
fn normalise_text(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).filter(|c| c.is_alphanumeric()).collect()
}

/// A cosine as the index takes it, a hair lower: rounding must not lose a hit that stands exactly at the threshold.
fn minus_epsilon(cosine: f64) -> f32 {
    (cosine - 1e-6) as f32
}

/// The page that `paging` asks for, in order, and the cursor after it.
fn paginate<H>(
    mut hits: Vec<H>,
    place: impl Fn(&H) -> HitPosition,
    paging: &Paging,
) -> (Vec<H>, Option<String>) {
    hits.sort_by(|a, b| place(a).compare(&place(b)));
    let start = match &paging.after {
        Some(last) => hits.partition_point(|hit| place(hit).compare(last).is_le()),
        None => 0,
    };
    let mut page = hits.split_off(start);
    let more = page.len() > paging.limit;
    page.truncate(paging.limit);
    let next = if more { page.last().map(|hit| place(hit).to_cursor()) } else { None };
    (page, next)
}

/// The photos of a page, in one question.
async fn load_photos(
    ctx: &Context,
    album: AlbumId,
    hits: impl Iterator<Item = PhotoId>,
) -> Result<HashMap<PhotoId, Photo>, ApiError> {
    let ids: Vec<PhotoId> = hits.collect();
    let photos = ctx.store.photos.get_many(album, &ids).await?;
    Ok(photos.into_iter().map(|photo| (photo.id, photo)).collect())
}

/// Preview and thumbnail of a hit. A hit was ready once; while it is read again its old pictures stand.
async fn presign_hit_urls(
    ctx: &Context,
    tenant: &Tenant,
    photo: &Photo,
) -> Result<(String, String), ApiError> {
    let key = |role| ObjectKey::photo(tenant.organization, photo.album, photo.id, role);
    let ttl = ctx.settings.download_ttl;
    let preview = ctx.store.blobs.download_url(&key(ObjectRole::Preview), ttl).await?;
    let thumbnail = ctx.store.blobs.download_url(&key(ObjectRole::Thumbnail), ttl).await?;
    Ok((preview.into(), thumbnail.into()))
}

/// The probe's vector: the one kept, or made now from the selfie's bytes, which are deleted then.
async fn load_or_create_embedding(
    ctx: &Context,
    tenant: &Tenant,
    probe: Probe,
) -> Result<Embedding, ApiError> {
    if let Some(embedding) = probe.embedding {
        return Ok(embedding);
    }
    let key = ObjectKey::probe(tenant.organization, probe.album, probe.id);
    let selfie = match ctx.store.blobs.read(&key, ctx.settings.max_probe_bytes).await {
        Ok(selfie) => selfie,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return embedding_made_meanwhile(ctx, probe.album, probe.id).await;
        }
        Err(error) if error.kind == StoreErrorKind::TooLarge => {
            return Err(ApiError::new(ErrorKind::PayloadTooLarge).with_code("SELFIE_TOO_LARGE"));
        }
        Err(error) => return Err(error.into()),
    };
    // A selfie without a vector stays until it expires: asking again gives the same answer.
    let embedding = ctx.probe_embedder.embed(selfie).await?;
    ctx.store.probes.set_embedding(probe.id, embedding.clone()).await?;
    if let Err(error) = ctx.store.blobs.delete(&key).await {
        tracing::warn!(probe.id = %probe.id, %error, "a used selfie stays until it expires");
    }
    Ok(embedding)
}

/// Bytes that are gone may have been used by a search a moment ago.
async fn embedding_made_meanwhile(ctx: &Context, album: AlbumId, id: ProbeId) -> Result<Embedding, ApiError> {
    let probe = ctx.store.probes.get(album, id).await?;
    let missing = || ApiError::new(ErrorKind::PreconditionFailed).with_code("UPLOAD_MISSING");
    probe.embedding.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn search_text_is_normalised_to_letters_and_digits() {
        assert_eq!(normalise_text("  a-12 07 "), "A1207");
        assert_eq!(normalise_text("№ 5"), "5");
        assert_eq!(normalise_text("---"), "");
    }

    proptest! {
        #[test]
        fn concatenated_pages_equal_the_full_result(
            scores in prop::collection::vec(0_u8..5, 0..60),
            limit in 1_usize..20,
        ) {
            let place = |hit: &(u8, u128)| HitPosition {
                score: f64::from(hit.0),
                photo: PhotoId(Uuid::from_u128(hit.1)),
            };
            let hits: Vec<(u8, u128)> = scores.into_iter().zip(0_u128..).collect();
            let all = paginate(hits.clone(), place, &Paging { limit: 1000, after: None, min_confidence: 0.0 });
            prop_assert!(all.1.is_none());
            let mut gathered = Vec::new();
            let mut after = None;
            loop {
                let paging = Paging { limit, after, min_confidence: 0.0 };
                let (page, next) = paginate(hits.clone(), place, &paging);
                prop_assert!(page.len() <= limit);
                gathered.extend(page);
                let Some(next) = next else { break };
                after = HitPosition::from_cursor(&next);
            }
            prop_assert_eq!(gathered, all.0);
        }
    }
}
