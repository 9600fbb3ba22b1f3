//! What requests cost, and declining those that the balance does not cover.

use photofinish_store::model::album::{Album, Tenant};
use photofinish_store::model::credit::{ChargedRequest, Credits, RequestOrigin};
use photofinish_store::model::ids::ProbeId;
use photofinish_store::traits::Decline;
use photofinish_store::{StoreError, StoreErrorKind};

use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::DeclineCode;
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

/// Refuses requests that the balance does not cover together, before work is done for them: by one that may be some seconds
/// old.
pub(crate) async fn require(
    ctx: &Context,
    tenant: &Tenant,
    requests: &[ChargedRequest],
    origin: RequestOrigin,
) -> Result<(), ApiError> {
    let price = price_of(ctx, requests);
    if !ctx.store.credits.settings().is_enforced || price <= Credits::ZERO {
        return Ok(());
    }
    let balance = ctx.store.credits.recent_balance(tenant).await?.available();
    if balance >= price {
        return Ok(());
    }
    let what = what_is_declined(requests);
    Err(match origin {
        RequestOrigin::Partner => declined(what, &Decline { balance, price }),
        RequestOrigin::Gallery => declined_to_visitor(what),
    })
}

/// As [`declined`], for visitors of a gallery: what its organizer has and pays is not for them.
fn declined_to_visitor(what: Declined) -> ApiError {
    what.count();
    ApiError::declined(DeclineCode::InsufficientCredits)
}

fn price_of(ctx: &Context, requests: &[ChargedRequest]) -> Credits {
    let prices = &ctx.store.credits.settings().prices;
    requests.iter().map(|request| request.price(prices)).sum()
}

/// What is counted where requests are declined together: the last one, for which the others are made.
fn what_is_declined(requests: &[ChargedRequest]) -> Declined {
    match requests.last() {
        Some(ChargedRequest::FaceSearch(..)) => Declined::FaceSearch,
        Some(ChargedRequest::TextSearch(_)) => Declined::TextSearch,
        Some(ChargedRequest::Download) | None => Declined::Download,
    }
}

/// What is charged for one answer, together and once there is an answer. What costs nothing is counted as it is added.
pub(crate) struct Bill<'a> {
    ctx: &'a Context,
    album: &'a Album,
    origin: RequestOrigin,
    charged: Vec<ChargedRequest>,
}

impl<'a> Bill<'a> {
    /// A bill of the owner of an album.
    pub(crate) fn new(ctx: &'a Context, album: &'a Album, origin: RequestOrigin) -> Self {
        Self { ctx, album, origin, charged: Vec::new() }
    }

    /// Who makes the request.
    pub(crate) fn origin(&self) -> RequestOrigin {
        self.origin
    }

    /// Adds the search with a selfie, which is charged once.
    pub(crate) fn add_face_search(&mut self, selfie: SelfieSearch) {
        let search = ChargedRequest::FaceSearch(selfie.probe, self.origin);
        let is_due = if self.is_free(search) { selfie.is_new } else { !selfie.is_charged };
        if is_due {
            self.add(search);
        }
    }

    /// Adds a bib search.
    pub(crate) fn add_text_search(&mut self) {
        self.add(ChargedRequest::TextSearch(self.origin));
    }

    /// Adds a download of many photos.
    pub(crate) fn add_download(&mut self) {
        self.add(ChargedRequest::Download);
    }

    fn add(&mut self, request: ChargedRequest) {
        if self.is_free(request) {
            self.ctx.store.credits.count(&self.album.tenant, self.album.id, request.operation());
        } else {
            self.charged.push(request);
        }
    }

    fn is_free(&self, request: ChargedRequest) -> bool {
        price_of(self.ctx, &[request]) <= Credits::ZERO
    }

    /// Charges all of it.
    ///
    /// # Errors
    /// 422 if the balance does not cover it: then nothing is charged.
    pub(crate) async fn charge(self) -> Result<(), ApiError> {
        let Self { ctx, album, origin, charged } = self;
        if charged.is_empty() {
            return Ok(());
        }
        let (tenant, what) = (&album.tenant, what_is_declined(&charged));
        let is_to_visitor = origin == RequestOrigin::Gallery;
        match ctx.store.credits.charge_requests(tenant, album.id, &charged).await {
            Ok(()) => Ok(()),
            Err(error) if is_to_visitor && error.kind == StoreErrorKind::InsufficientCredits => {
                Err(declined_to_visitor(what))
            }
            Err(error) => Err(explain(ctx, tenant, price_of(ctx, &charged), what, error).await),
        }
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
