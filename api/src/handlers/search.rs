//! Face and bib searches.

use super::{erasures, find_entries, parse_id};
use crate::auth::{PeopleEraser, ScopedCaller, Searcher};
use crate::context::Context;
use crate::credits::Bill;
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
use crate::wire::search::{FaceHits, ProbeTicket, SearchFace, SearchText, SignSelfie, TextHits};
use crate::{paid_cursor, search};

pub(crate) async fn sign_selfie(
    ctx: Context,
    caller: Searcher,
    input: SignSelfie,
) -> Result<ProbeTicket, ApiError> {
    if input.for_erasure {
        PeopleEraser::admit(*caller)?;
    }
    let album = ctx.store.albums.get(&caller.tenant, input.album).await?;
    // No selfie is taken that nothing can be done with.
    if input.for_erasure {
        erasures::require_faces(&ctx, &album).await?;
    } else if !album.config.face.enabled {
        return Err(ApiError::declined(DeclineCode::FaceSearchDisabled));
    }
    search::create_probe(&ctx, &caller.tenant, input.album).await
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
    let image = parse_id(&input.image)?;
    let selfie = search::load_or_create_embedding(&ctx, &album, image, caller.origin()).await?;
    let threshold = input.paging.min_confidence.unwrap_or(album.config.face.confidence_threshold);
    let hits = search::find_faces(&ctx, album.id, &selfie.embedding, threshold).await?;
    // Now that there is an answer.
    let mut bill = Bill::new(&ctx, &album, caller.origin());
    bill.add_face_search(selfie.search);
    bill.charge().await?;
    Ok(search::load_page(&ctx, &album, hits, &input.paging).await?.into())
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
    let query = input.query();
    let threshold = input.paging.min_confidence.unwrap_or(album.config.text.confidence_threshold);
    let hits = search::find_texts(&ctx, album.id, &query, threshold).await?;
    let mut hits: TextHits = search::load_page(&ctx, &album, hits, &input.paging).await?.into();
    hits.next_cursor =
        hits.next_cursor.map(|cursor| paid_cursor::with_proof(&ctx, album.id, &query, &cursor));
    let texts = hits.photos.iter().map(|hit| hit.matched_text.clone());
    let entries = find_entries(&ctx, &album, texts).await?;
    // Now that there is an answer.
    if !paid_cursor::is_paid(&ctx, album.id, &query, &input.paging) {
        let mut bill = Bill::new(&ctx, &album, caller.origin());
        bill.add_text_search();
        bill.charge().await?;
    }
    Ok(hits.with_entries(&entries))
}
