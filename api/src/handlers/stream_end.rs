//! When a stream of server-sent events ends although its client reads on.

use std::time::Duration;

use crate::auth::{Caller, INSUFFICIENT_ROLE};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// How often a stream checks its key.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What a stream's end depends on beside its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndRules {
    /// When the client of a stream connects again that ended because the service drains.
    pub(super) retry_after: Duration,
    /// Whether it ends when its caller may no longer manage albums.
    pub(super) is_for_managers: bool,
}

/// Waits until the service drains, the caller's key or session becomes invalid, or its account may less.
pub(super) async fn wait_for_end(ctx: &Context, caller: &Caller, rules: EndRules) -> ApiError {
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        tokio::select! {
            () = ctx.draining.wait_until_begun() => {
                return ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(rules.retry_after));
            }
            _ = checks.tick() => {
                match caller.check_credential(&ctx.store).await {
                    Ok(can_manage) if can_manage || !rules.is_for_managers => {}
                    // It would go on to get what is for those who manage albums.
                    Ok(_) => return ApiError::new(ErrorKind::Forbidden).with_code(INSUFFICIENT_ROLE),
                    Err(error) => return error,
                }
            }
        }
    }
}
