//! API keys of an organization.

use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::key::{Key as StoredKey, NewKey};
use photofinish_store::model::rate::{RateClass, RateLimits};
use time::{Duration, OffsetDateTime};

use crate::auth::{INSUFFICIENT_ROLE, Owner};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::key::KeyText;
use crate::wire::Acknowledgement;
use crate::wire::console::Nothing;
use crate::wire::console::key::{CreateKey, CreatedKey, Key, KeyList, RevokeKey};

/// Keys that an organization may have that are neither revoked nor expired. Each has the limits of the service for itself: their
/// number bounds what an organization may do in a minute.
const MAX_LIVE_KEYS: usize = 100;

/// Whether limits permit more than those of the service.
fn exceeds(limits: &RateLimits, service: &RateLimits) -> bool {
    RateClass::ALL.into_iter().any(|class| match (limits.get(class), service.get(class)) {
        // 0 is no limit.
        (Some(own), Some(service)) if service > 0 => own == 0 || own > service,
        _ => false,
    })
}

/// Returns how many keys of an organization are neither revoked nor expired.
async fn count_live(ctx: &Context, organization: OrganizationId) -> Result<usize, ApiError> {
    let now = OffsetDateTime::now_utc();
    let is_live = |key: &StoredKey| {
        key.tenant.organization == organization
            && key.revoked_at.is_none()
            && key.expires_at.is_none_or(|expiry| expiry > now)
    };
    Ok(ctx.store.keys.list().await?.iter().filter(|key| is_live(key)).count())
}

fn too_many_keys() -> ApiError {
    ApiError::new(ErrorKind::Conflict).with_code("TOO_MANY_KEYS")
}

pub(crate) async fn create(ctx: Context, caller: Owner, input: CreateKey) -> Result<CreatedKey, ApiError> {
    // Each key has its limits for itself, however many keys the organization has: an owner makes keys that may less than the
    // service permits, and only an operator makes some that may more.
    if exceeds(&input.limits, &ctx.settings.rate_limits) && !caller.signed_in.is_operator {
        return Err(ApiError::new(ErrorKind::Forbidden).with_code(INSUFFICIENT_ROLE));
    }
    let organization = caller.tenant.organization;
    if count_live(&ctx, organization).await? >= MAX_LIVE_KEYS {
        return Err(too_many_keys());
    }
    let text = KeyText::generate(input.mode);
    let expires_at =
        input.expires_in_days.map(|days| OffsetDateTime::now_utc() + Duration::days(days.into()));
    let key = NewKey {
        organization,
        mode: input.mode,
        label: input.label,
        hint: text.hint(),
        scopes: input.scopes,
        limits: input.limits,
        expires_at,
        digest: text.digest(),
    };
    let key = ctx.store.keys.create(key).await?;
    // Others may have been created at the same time. Nobody has been told this one, so that it must not stay.
    let counted = count_live(&ctx, organization).await;
    if !counted.as_ref().is_ok_and(|live| *live <= MAX_LIVE_KEYS) {
        ctx.store.keys.revoke(key.id).await?;
        return Err(counted.err().unwrap_or_else(too_many_keys));
    }
    tracing::info!(key.id = %key.id, by = %caller.signed_in.account, "key created");
    Ok(CreatedKey { key: text.reveal().to_owned(), details: key.into() })
}

pub(crate) async fn list(ctx: Context, caller: Owner, _: Nothing) -> Result<KeyList, ApiError> {
    let keys = ctx.store.keys.list().await?.into_iter().rev();
    let own = keys.filter(|key| key.tenant.organization == caller.tenant.organization);
    Ok(KeyList::of_all(own.map(Key::from).collect()))
}

pub(crate) async fn revoke(
    ctx: Context,
    caller: Owner,
    input: RevokeKey,
) -> Result<Acknowledgement, ApiError> {
    let keys = ctx.store.keys.list().await?;
    let is_own =
        |key: &StoredKey| key.id == input.key && key.tenant.organization == caller.tenant.organization;
    if !keys.iter().any(is_own) {
        return Err(ApiError::not_found());
    }
    ctx.store.keys.revoke(input.key).await?;
    tracing::info!(key.id = %input.key, by = %caller.signed_in.account, "key revoked");
    Ok(Acknowledgement::new("Key revoked"))
}
