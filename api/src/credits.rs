//! What requests cost, and declining those that the balance does not cover.

use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{ChargedRequest, Credits, RequestOrigin};
use photofinish_store::model::ids::{AlbumId, ProbeId};
use photofinish_store::traits::Decline;
use photofinish_store::{StoreError, StoreErrorKind};

use crate::context::Context;
use crate::errors::ApiError;
use crate::metrics::Declined;

/// Returns the error of something that was declined, and counts it.
pub(crate) fn declined(what: Declined, decline: &Decline) -> ApiError {
    what.count();
    ApiError::insufficient_credits(decline)
}

/// What charging the search with a selfie depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelfieSearch {
    pub(crate) probe: ProbeId,
    /// Whether searching with it was charged.
    pub(crate) is_charged: bool,
    /// Whether this search examined it: the first one.
    pub(crate) is_new: bool,
}

/// Returns for how many photos tickets are given out, by a balance that may be some seconds old: uploads that are sure to be
/// declined need not be made. Why for no more is in the second part.
pub(crate) async fn count_covered_photos(
    ctx: &Context,
    tenant: &Tenant,
) -> Result<(usize, Decline), ApiError> {
    let settings = ctx.store.credits.settings();
    let price = settings.prices.photo;
    if !settings.is_enforced || price <= Credits::ZERO {
        return Ok((usize::MAX, Decline { balance: Credits::ZERO, price }));
    }
    let balance = ctx.store.credits.recent_balance(tenant).await?.available();
    Ok((balance.covers(price), Decline { balance, price }))
}

/// Refuses a search that the balance does not cover, before work is done for it.
pub(crate) async fn require_face_search(ctx: &Context, tenant: &Tenant) -> Result<(), ApiError> {
    let settings = ctx.store.credits.settings();
    let price = settings.prices.face_search;
    if !settings.is_enforced || price <= Credits::ZERO {
        return Ok(());
    }
    let balance = ctx.store.credits.recent_balance(tenant).await?.available();
    if balance >= price { Ok(()) } else { Err(declined(Declined::FaceSearch, &Decline { balance, price })) }
}

/// Charges the search with a selfie, once, or counts it where it costs nothing.
pub(crate) async fn charge_face_search(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    selfie: SelfieSearch,
    origin: RequestOrigin,
) -> Result<(), ApiError> {
    let search = ChargedRequest::FaceSearch(selfie.probe, origin);
    let is_free = search.price(&ctx.store.credits.settings().prices) <= Credits::ZERO;
    match (is_free, selfie) {
        (true, SelfieSearch { is_new: true, .. }) => {
            ctx.store.credits.count(tenant, album, search.operation())
        }
        (false, SelfieSearch { is_charged: false, .. }) => {
            charge(ctx, tenant, album, search, Declined::FaceSearch).await?;
        }
        _ => {}
    }
    Ok(())
}

/// Charges a bib search, or counts it where it costs nothing.
pub(crate) async fn charge_text_search(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    origin: RequestOrigin,
) -> Result<(), ApiError> {
    charge_or_count(ctx, tenant, album, ChargedRequest::TextSearch(origin), Declined::TextSearch).await
}

/// Charges a download of many photos, or counts it where it costs nothing.
pub(crate) async fn charge_download(ctx: &Context, tenant: &Tenant, album: AlbumId) -> Result<(), ApiError> {
    charge_or_count(ctx, tenant, album, ChargedRequest::Download, Declined::Download).await
}

async fn charge_or_count(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    request: ChargedRequest,
    what: Declined,
) -> Result<(), ApiError> {
    if request.price(&ctx.store.credits.settings().prices) <= Credits::ZERO {
        ctx.store.credits.count(tenant, album, request.operation());
        return Ok(());
    }
    charge(ctx, tenant, album, request, what).await
}

async fn charge(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    request: ChargedRequest,
    what: Declined,
) -> Result<(), ApiError> {
    let price = request.price(&ctx.store.credits.settings().prices);
    match ctx.store.credits.charge_request(tenant, album, request).await {
        Ok(()) => Ok(()),
        Err(error) => Err(explain(ctx, tenant, price, what, error).await),
    }
}

/// Turns an error of the store into one of the API; one about credits says what is left and what was needed.
pub(crate) async fn explain(
    ctx: &Context,
    tenant: &Tenant,
    price: Credits,
    what: Declined,
    error: StoreError,
) -> ApiError {
    if error.kind != StoreErrorKind::InsufficientCredits {
        return error.into();
    }
    match ctx.store.credits.balance(tenant).await {
        Ok(balance) => declined(what, &Decline { balance: balance.available(), price }),
        Err(error) => error.into(),
    }
}
