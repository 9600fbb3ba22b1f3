//! What requests cost, and declining those that the balance does not cover.

use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{ChargedSearch, Credits};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::traits::Decline;
use photofinish_store::{StoreError, StoreErrorKind};

use crate::context::Context;
use crate::errors::ApiError;
use crate::metrics::CREDITS_DECLINED;
use crate::search::Selfie;

/// What was declined, for the metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declined {
    Ticket,
    Confirmation,
    Retry,
    FaceSearch,
    TextSearch,
}

impl Declined {
    /// Every kind.
    pub(crate) const ALL: [Self; 5] =
        [Self::Ticket, Self::Confirmation, Self::Retry, Self::FaceSearch, Self::TextSearch];

    /// The value of the label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Confirmation => "confirmation",
            Self::Retry => "retry",
            Self::FaceSearch => "face_search",
            Self::TextSearch => "text_search",
        }
    }

    /// Returns the error of something that was declined, and counts it.
    pub(crate) fn error(self, decline: &Decline) -> ApiError {
        metrics::counter!(CREDITS_DECLINED, "what" => self.as_str()).increment(1);
        ApiError::insufficient_credits(decline)
    }
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
    if balance >= price { Ok(()) } else { Err(Declined::FaceSearch.error(&Decline { balance, price })) }
}

/// Charges the search with a selfie, once, or counts it where it costs nothing.
pub(crate) async fn charge_face_search(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    selfie: &Selfie,
) -> Result<(), ApiError> {
    let search = ChargedSearch::Face(selfie.probe);
    let is_free = search.price(&ctx.store.credits.settings().prices) <= Credits::ZERO;
    match (is_free, selfie) {
        (true, Selfie { is_new: true, .. }) => ctx.store.credits.count(tenant, album, search.operation()),
        (false, Selfie { is_charged: false, .. }) => {
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
) -> Result<(), ApiError> {
    let search = ChargedSearch::Text;
    if search.price(&ctx.store.credits.settings().prices) <= Credits::ZERO {
        ctx.store.credits.count(tenant, album, search.operation());
        return Ok(());
    }
    charge(ctx, tenant, album, search, Declined::TextSearch).await
}

async fn charge(
    ctx: &Context,
    tenant: &Tenant,
    album: AlbumId,
    search: ChargedSearch,
    declined: Declined,
) -> Result<(), ApiError> {
    let price = search.price(&ctx.store.credits.settings().prices);
    match ctx.store.credits.charge_search(tenant, album, search).await {
        Ok(()) => Ok(()),
        Err(error) => Err(explain(ctx, tenant, price, declined, error).await),
    }
}

/// Turns an error of the store into one of the API; one about credits says what is left and what was needed.
pub(crate) async fn explain(
    ctx: &Context,
    tenant: &Tenant,
    price: Credits,
    declined: Declined,
    error: StoreError,
) -> ApiError {
    if error.kind != StoreErrorKind::InsufficientCredits {
        return error.into();
    }
    match ctx.store.credits.balance(tenant).await {
        Ok(balance) => declined.error(&Decline { balance: balance.available(), price }),
        Err(error) => error.into(),
    }
}
