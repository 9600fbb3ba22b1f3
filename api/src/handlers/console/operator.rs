//! What operators see of the whole service, and the credits that they grant.

use photofinish_store::StoreErrorKind;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::{Credits, NewGrant};
use photofinish_store::model::ids::GrantId;
use time::OffsetDateTime;

use crate::auth::Operator;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::console::Nothing;
use crate::wire::console::operator::{GrantCredits, GrantedBalance, ServiceHealth, WaitingPhotos};

pub(crate) async fn get(ctx: Context, _: Operator, _: Nothing) -> Result<ServiceHealth, ApiError> {
    let components = ctx.health.check_components().await;
    let processes = ctx.health.list_processes().await?;
    let oldest = ctx.store.queue.waiting_since().await?;
    let queue = WaitingPhotos {
        queued: ctx.store.queue.depth().await?,
        oldest_seconds: oldest.map(|since| (OffsetDateTime::now_utc() - since).as_seconds_f64().max(0.0)),
    };
    let tasks = ctx.store.tasks.list().await?;
    Ok(ServiceHealth::new(components, processes, tasks, queue, ctx.settings.console.version))
}

pub(crate) async fn grant(
    ctx: Context,
    caller: Operator,
    input: GrantCredits,
) -> Result<GrantedBalance, ApiError> {
    let amount = Credits::from_f64(input.credits).ok_or_else(|| {
        let message = "is too much".to_owned();
        let path = vec![PathSegment::Field("credits")];
        ApiError::invalid(&[Issue { path, code: code::TOO_BIG, message }])
    })?;
    let organization = ctx.store.keys.find_organization(input.organization.trim()).await?;
    let organization = organization.ok_or_else(ApiError::not_found)?;
    let grant = NewGrant {
        tenant: Tenant { organization, mode: input.mode },
        amount,
        note: input.note,
        granted_by: caller.signed_in.account.to_string(),
    };
    let id = input.grant.unwrap_or_else(GrantId::generate);
    let balance = match ctx.store.credits.grant_once(id, grant).await {
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            return Err(ApiError::new(ErrorKind::Conflict).with_code("GRANTED_OTHERWISE"));
        }
        granted => granted?,
    };
    tracing::info!(grant.id = %id, organization.id = %organization, by = %caller.signed_in.account, %amount, "credits granted");
    Ok(GrantedBalance { balance: balance.available().to_f64() })
}
