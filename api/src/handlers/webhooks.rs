//! Creates, changes and tests webhooks, and shows what was delivered to them.

use std::time::Duration;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::webhook::NewWebhook;

use crate::auth::AlbumManager;
use crate::context::{Context, RefusedUrl};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::Acknowledgement;
use crate::wire::cursor::encode_id;
use crate::wire::delivery::{
    Delivery, DeliveryDetail, DeliveryPage, ListDeliveries, OneDelivery, Redeliver, Redelivered,
};
use crate::wire::webhook::{
    CreateWebhook, CreatedWebhook, DEFAULT_TYPES, ListWebhooks, OneWebhook, RotateSecret, RotatedSecret,
    UpdateWebhook, Webhook, WebhookPage, secret_text,
};

/// Webhooks of one tenant.
const MAX_WEBHOOKS: u32 = 20;
/// How long a test has its delivery: longer than an attempt takes.
const TEST_TTL: Duration = Duration::from_secs(60);

async fn check_url(ctx: &Context, url: &str) -> Result<(), ApiError> {
    let checked = ctx.webhooks.check_url(url).await;
    checked.map_err(|RefusedUrl(message)| {
        let path = vec![PathSegment::Field("url")];
        ApiError::invalid(&[Issue { path, code: code::ADDRESS_REFUSED, message }])
    })
}

pub(crate) async fn create(
    ctx: Context,
    caller: AlbumManager,
    input: CreateWebhook,
) -> Result<CreatedWebhook, ApiError> {
    if !ctx.store.webhooks.can_seal() {
        return Err(ApiError::new(ErrorKind::NotImplemented).with_code("NO_SECRET_KEY"));
    }
    check_url(&ctx, &input.url).await?;
    if let Some(album) = input.album {
        ctx.store.albums.get(&caller.tenant, album).await?;
    }
    let secret = rand::random();
    let webhook = NewWebhook {
        tenant: caller.tenant,
        created_by: caller.key,
        url: input.url,
        label: input.label,
        types: input.types.unwrap_or_else(|| DEFAULT_TYPES.to_vec()),
        album: input.album,
        secret,
    };
    match ctx.store.webhooks.create(webhook, MAX_WEBHOOKS).await {
        Ok(webhook) => Ok(CreatedWebhook { webhook: webhook.into(), secret: secret_text(&secret) }),
        Err(error) if error.kind == StoreErrorKind::Conflict => {
            Err(ApiError::new(ErrorKind::Conflict).with_code("TOO_MANY_WEBHOOKS"))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn list(
    ctx: Context,
    caller: AlbumManager,
    input: ListWebhooks,
) -> Result<WebhookPage, ApiError> {
    let all = ctx.store.webhooks.list(&caller.tenant).await?;
    let total = all.len() as u64;
    let is_later = |id| input.after.is_none_or(|after| id > after);
    let mut webhooks: Vec<_> = all.into_iter().filter(|webhook| is_later(webhook.id)).collect();
    let has_more = webhooks.len() > input.limit as usize;
    webhooks.truncate(input.limit as usize);
    let next = webhooks.last().filter(|_| has_more).map(|webhook| encode_id(webhook.id.0));
    Ok(WebhookPage { webhooks: webhooks.into_iter().map(Webhook::from).collect(), next_cursor: next, total })
}

pub(crate) async fn get(ctx: Context, caller: AlbumManager, input: OneWebhook) -> Result<Webhook, ApiError> {
    Ok(ctx.store.webhooks.get(&caller.tenant, input.webhook).await?.into())
}

pub(crate) async fn update(
    ctx: Context,
    caller: AlbumManager,
    input: UpdateWebhook,
) -> Result<Webhook, ApiError> {
    // Before the URL is judged: what is not there is 404, whatever is wrong with the rest.
    ctx.store.webhooks.get(&caller.tenant, input.webhook).await?;
    if let Some(url) = &input.change.url {
        check_url(&ctx, url).await?;
    }
    Ok(ctx.store.webhooks.update(&caller.tenant, input.webhook, input.change).await?.into())
}

pub(crate) async fn delete(
    ctx: Context,
    caller: AlbumManager,
    input: OneWebhook,
) -> Result<Acknowledgement, ApiError> {
    ctx.store.webhooks.delete(&caller.tenant, input.webhook).await?;
    tracing::info!(webhook.id = %input.webhook, key.id = %caller.key, "webhook deleted");
    Ok(Acknowledgement::new("Webhook deleted"))
}

pub(crate) async fn rotate(
    ctx: Context,
    caller: AlbumManager,
    input: RotateSecret,
) -> Result<RotatedSecret, ApiError> {
    let (secret, overlap) = (rand::random(), Duration::from_secs(3600 * u64::from(input.overlap_hours)));
    ctx.store.webhooks.rotate(&caller.tenant, input.webhook, secret, overlap).await?;
    Ok(RotatedSecret { secret: secret_text(&secret) })
}

pub(crate) async fn test(
    ctx: Context,
    caller: AlbumManager,
    input: OneWebhook,
) -> Result<Delivery, ApiError> {
    let due = ctx.store.deliveries.create_test(&caller.tenant, input.webhook, TEST_TTL).await?;
    Ok(ctx.webhooks.send_test(due).await?.into())
}

pub(crate) async fn list_deliveries(
    ctx: Context,
    caller: AlbumManager,
    input: ListDeliveries,
) -> Result<DeliveryPage, ApiError> {
    Ok(ctx.store.webhooks.list_deliveries(&caller.tenant, input.webhook, input.query).await?.into())
}

pub(crate) async fn get_delivery(
    ctx: Context,
    caller: AlbumManager,
    input: OneDelivery,
) -> Result<DeliveryDetail, ApiError> {
    let webhooks = &ctx.store.webhooks;
    Ok(webhooks.get_delivery(&caller.tenant, input.webhook, input.delivery).await?.into())
}

pub(crate) async fn redeliver(
    ctx: Context,
    caller: AlbumManager,
    input: Redeliver,
) -> Result<Redelivered, ApiError> {
    let queued = ctx.store.webhooks.redeliver(&caller.tenant, input.webhook, input.redelivery).await?;
    Ok(Redelivered { queued })
}
