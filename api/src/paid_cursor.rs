//! Cursors into bib searches that were charged: with one of them a search goes on, or its first page comes again, and that costs
//! nothing more.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::traits::TextQuery;
use time::{Duration, OffsetDateTime};

use crate::context::Context;
use crate::wire::cursor::{CursorProof, HitPosition};
use crate::wire::search::Paging;

/// For how long a first page comes again: visitors look at photos for longer than the URLs of these are valid.
const FIRST_PAGE_TTL: Duration = Duration::DAY;

/// Whether a page belongs to a bib search of which the service gave a page before: that one was charged. A cursor that
/// somebody made, or took from another search, begins a search that costs what any other costs.
pub(crate) fn is_paid(ctx: &Context, album: AlbumId, query: &TextQuery, paging: &Paging) -> bool {
    paging.after.is_some_and(|after| {
        !after.position.is_over(OffsetDateTime::now_utc())
            && after.proof.is_some()
            && after.proof == Some(prove_cursor(ctx, album, query, &after.position.to_cursor()))
    })
}

/// Returns the cursor into the hits of a bib search with the proof that the service gave it.
pub(crate) fn with_proof(ctx: &Context, album: AlbumId, query: &TextQuery, cursor: &str) -> String {
    format!("{cursor}{}", hex::encode(prove_cursor(ctx, album, query, cursor)))
}

/// Returns the cursor of the first page of a bib search that has just been charged.
pub(crate) fn first_page(ctx: &Context, album: AlbumId, query: &TextQuery) -> String {
    let first = HitPosition::before_all(OffsetDateTime::now_utc() + FIRST_PAGE_TTL);
    with_proof(ctx, album, query, &first.to_cursor())
}

/// The text comes last: all before it has a fixed length, so that no two searches have the same message.
fn prove_cursor(ctx: &Context, album: AlbumId, query: &TextQuery, cursor: &str) -> CursorProof {
    let mut message = b"cursor of a bib search".to_vec();
    message.extend_from_slice(album.0.as_bytes());
    message.push(u8::from(query.exact));
    message.extend_from_slice(cursor.as_bytes());
    message.extend_from_slice(query.text.as_bytes());
    let mut proof = CursorProof::default();
    proof.copy_from_slice(&ctx.visitor_secret.digest(&message)[..16]);
    proof
}
