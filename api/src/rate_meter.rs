//! What a request spends of a limit when its handler knows how much work it is: a body names a bib, and only the search for it
//! says of how many photos.

use std::cell::Cell;

use crate::context::Context;
use crate::errors::ApiError;
use crate::metrics::RATE_LIMITED;
use crate::rate_limits::{RateClaim, RateStatus};

tokio::task_local! {
    static METER: Meter;
}

/// What a request has spent before its handler begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) claim: RateClaim,
    /// Whether the limit is that of a key, and not of a network.
    pub(crate) is_of_key: bool,
}

struct Meter {
    /// `None` without a limit.
    spent: Option<Spent>,
    /// What is left after the handler has spent more.
    left: Cell<Option<RateStatus>>,
}

/// Waits for an answer whose handler may call [`spend_up_to`]; then `left` is what is left of the limit.
pub(crate) async fn metered<T>(
    spent: Option<Spent>,
    left: &mut Option<RateStatus>,
    answer: impl Future<Output = T>,
) -> T {
    let metered = async move {
        let answered = answer.await;
        (answered, METER.with(|meter| meter.left.get()))
    };
    let (answered, left_now) = METER.scope(Meter { spent, left: Cell::default() }, metered).await;
    *left = left_now.or(*left);
    answered
}

/// Has the request that is being answered cost so many units altogether, but no more than the whole limit. To be called once.
///
/// # Errors
/// 429 above the limit; 503 if the database cannot be asked.
pub(crate) async fn spend_up_to(ctx: &Context, units: u32) -> Result<(), ApiError> {
    let Some(Spent { claim, is_of_key }) = METER.try_with(|meter| meter.spent).ok().flatten() else {
        return Ok(());
    };
    let further = units.min(claim.limit).saturating_sub(claim.units);
    if further == 0 {
        return Ok(());
    }
    let claim = RateClaim { units: further, ..claim };
    let decision = ctx.rate_limiter.spend(ctx.store.rate_windows.as_deref(), &claim).await?;
    METER.with(|meter| meter.left.set(Some(decision.status)));
    if decision.is_admitted {
        return Ok(());
    }
    if is_of_key {
        metrics::counter!(RATE_LIMITED, "class" => claim.class.as_str()).increment(1);
    }
    Err(ApiError::rate_limited(decision.status.wait()))
}
