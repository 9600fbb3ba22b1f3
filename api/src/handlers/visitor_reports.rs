//! What visitors of a gallery say of its photos.

use photofinish_store::model::gallery::{NewReport, ReportLimits, ReportedPhoto};
use time::OffsetDateTime;

use super::visitors::{open, refused_until_tomorrow};
use crate::client_address::network_digest;
use crate::context::Context;
use crate::errors::ApiError;
use crate::visitor::{Answer, Visitor};
use crate::wire::Acknowledgement;
use crate::wire::visitor::ReportPhoto;

/// How many reports of an album wait for the organizer at most, and how many of them one network makes in a day: whoever reports
/// everything fills neither the database nor the organizer's list.
const LIMITS: ReportLimits = ReportLimits { album: 10_000, visitor: 200 };

/// Keeps what a visitor says of a photo.
///
/// # Errors
/// 429 `TOO_MANY_REPORTS` where there are as many as there may be.
pub(crate) async fn report(
    ctx: Context,
    visitor: Visitor,
    input: ReportPhoto,
) -> Result<Answer<Acknowledgement>, ApiError> {
    let open = open(&ctx, &visitor).await?;
    let photo = ctx.store.photos.get(open.album.id, input.photo).await?;
    let report = NewReport {
        album: open.album.id,
        photos: vec![ReportedPhoto { photo: photo.id, faces: Vec::new() }],
        kind: input.kind,
        // Not the cookie, of which anybody has as many as they like, and which only searches need.
        visitor: network_digest(&ctx.visitor_secret, visitor.address, OffsetDateTime::now_utc()),
        note: input.note,
        created_at: ctx.store.erasures.read_clock().await?,
        limits: Some(LIMITS),
    };
    if ctx.store.galleries.report(report).await? {
        Ok(Acknowledgement::new("Reported").into())
    } else {
        // Of a network the day ends that; of an album the organizer, whose list it is.
        Err(refused_until_tomorrow("TOO_MANY_REPORTS"))
    }
}
