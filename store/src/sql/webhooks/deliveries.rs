//! Deliveries of webhooks: made by the publisher of events, listed, made pending again. Every function runs inside the
//! caller's transaction.

use std::time::Duration;

use sqlx::FromRow;

use super::rows::{ContentRow, DeliveryRow, delivery_columns};
use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::encoding::{from_micros, to_micros};
use crate::model::ids::{AlbumId, DeliveryId, EventId, WebhookId};
use crate::model::webhook::{Attempt, Delivery, DeliveryDetail, DeliveryPage, DeliveryQuery, Redelivery};
use crate::sql::database::Transaction;
use crate::sql::row_types::{convert_rows, from_json};
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

pub(crate) const OPERATION: &str = "read deliveries";

/// A webhook that events may be for.
pub(crate) struct Subscriber {
    webhook: WebhookId,
    types: Vec<String>,
    album: Option<AlbumId>,
}

/// Returns the webhooks of a tenant that are enabled.
pub(crate) async fn list_subscribers(
    transaction: &mut Transaction,
    tenant: &Tenant,
) -> Result<Vec<Subscriber>> {
    let list = "select id, types, album from webhook where organization = $1 and mode = $2 and enabled = 1";
    let rows: Vec<(WebhookId, String, Option<AlbumId>)> = query(OPERATION, list)
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .fetch_all(transaction)
        .await?;
    rows.into_iter()
        .map(|(webhook, types, album)| Ok(Subscriber { webhook, types: from_json(&types)?, album }))
        .collect()
}

/// An event to deliver.
pub(crate) struct PublishedEvent<'e> {
    pub(crate) sequence: i64,
    pub(crate) id: EventId,
    pub(crate) event_type: &'e str,
    pub(crate) album: Option<AlbumId>,
}

impl Subscriber {
    pub(crate) fn wants(&self, event: &PublishedEvent<'_>) -> bool {
        self.types.iter().any(|wanted| wanted == event.event_type)
            && self.album.is_none_or(|album| event.album == Some(album))
    }

    /// Makes the delivery of an event, due now.
    pub(crate) async fn deliver(
        &self,
        transaction: &mut Transaction,
        event: &PublishedEvent<'_>,
        now: i64,
    ) -> Result<()> {
        let insert = "insert into webhook_delivery (id, webhook, event, event_id, type, state, next_at, created_at) \
                      values ($1, $2, $3, $4, $5, 'pending', $6, $6)";
        query(OPERATION, insert)
            .bind(DeliveryId::generate())
            .bind(self.webhook)
            .bind(event.sequence)
            .bind(event.id)
            .bind(event.event_type)
            .bind(now)
            .execute(transaction)
            .await
            .map(drop)
    }
}

/// Without a filter where a text is empty.
const PAGE: &str = concat!(
    "select ",
    delivery_columns!(),
    " from webhook_delivery where webhook = $1 and id < $2 and ($3 = '' or state = $3) \
     and ($4 = '' or type = $4) order by id desc limit $5"
);

pub(super) async fn list(
    snapshot: &mut Transaction,
    webhook: WebhookId,
    filter: &DeliveryQuery,
) -> Result<DeliveryPage> {
    let state = filter.state.map_or("", |state| state.as_str());
    let event_type = filter.event_type.as_deref().unwrap_or_default();
    let rows: Vec<DeliveryRow> = query(OPERATION, PAGE)
        .bind(webhook)
        .bind(filter.before.unwrap_or(DeliveryId(uuid::Uuid::max())))
        .bind(state)
        .bind(event_type)
        // One more than the limit shows whether there is a next page.
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(&mut *snapshot)
        .await?;
    let count = "select count(*) from webhook_delivery where webhook = $1 and ($2 = '' or state = $2) \
                 and ($3 = '' or type = $3)";
    let (total,): (i64,) =
        query(OPERATION, count).bind(webhook).bind(state).bind(event_type).fetch_one(snapshot).await?;
    let mut deliveries: Vec<Delivery> = convert_rows(rows)?;
    let has_more = deliveries.len() > filter.limit as usize;
    deliveries.truncate(filter.limit as usize);
    let next = if has_more { deliveries.last().map(|delivery| delivery.id) } else { None };
    Ok(DeliveryPage { deliveries, next, total: total.unsigned_abs() })
}

/// Reads one delivery of a webhook.
pub(super) async fn find(
    transaction: &mut Transaction,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Delivery> {
    let find =
        concat!("select ", delivery_columns!(), " from webhook_delivery where id = $1 and webhook = $2");
    let row: Option<DeliveryRow> =
        query(OPERATION, find).bind(id).bind(webhook).fetch_optional(transaction).await?;
    row.ok_or_else(|| delivery_not_found(id))?.try_into()
}

#[derive(FromRow)]
struct AttemptRow {
    at: i64,
    duration_ms: i64,
    status: Option<i64>,
    error: Option<String>,
    answer: String,
}

impl TryFrom<AttemptRow> for Attempt {
    type Error = StoreError;
    fn try_from(row: AttemptRow) -> Result<Self> {
        Ok(Self {
            at: from_micros(row.at)?,
            duration: Duration::from_millis(row.duration_ms.unsigned_abs()),
            status: row.status.and_then(|status| u16::try_from(status).ok()),
            error: row.error,
            answer: row.answer,
        })
    }
}

pub(super) async fn get(
    snapshot: &mut Transaction,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<DeliveryDetail> {
    let delivery = find(snapshot, webhook, id).await?;
    let content = "select d.event, d.type, d.created_at as delivery_created_at, e.data, \
                   e.created_at as event_created_at from webhook_delivery d left join event e on e.sequence = d.event \
                   where d.id = $1";
    let content: ContentRow = query(OPERATION, content).bind(id).fetch_one(&mut *snapshot).await?;
    let attempts = "select at, duration_ms, status, error, answer from webhook_attempt where delivery = $1 \
                    order by number";
    let attempts: Vec<AttemptRow> = query(OPERATION, attempts).bind(id).fetch_all(snapshot).await?;
    Ok(DeliveryDetail {
        delivery,
        content: content.into_content(webhook)?,
        attempts: convert_rows(attempts)?,
    })
}

pub(super) async fn redeliver(
    transaction: &mut Transaction,
    webhook: WebhookId,
    redelivery: Redelivery,
) -> Result<u64> {
    let now = transaction.read_clock(OPERATION).await?;
    // The earlier attempts stay and numbering goes on after them; the schedule restarts.
    match redelivery {
        Redelivery::One(id) => {
            let one = "update webhook_delivery set state = 'pending', next_at = $3, first_attempt = attempts \
                       where id = $1 and webhook = $2 and state <> 'pending'";
            find(transaction, webhook, id).await?;
            query(OPERATION, one).bind(id).bind(webhook).bind(now).execute(transaction).await
        }
        Redelivery::FailedSince(since) => {
            let failed = "update webhook_delivery set state = 'pending', next_at = $3, first_attempt = attempts \
                          where webhook = $1 and state in ('failed', 'cancelled') and created_at >= $2";
            query(OPERATION, failed).bind(webhook).bind(to_micros(since)).bind(now).execute(transaction).await
        }
    }
}

/// Asks again whether the webhook is disabled: what an enabled one is told stays, also where it has just been enabled. Skips what
/// others have locked, who may cancel the same.
const CANCEL_OF_DISABLED: Statement = Statement::PerDialect {
    sqlite: "update webhook_delivery set state = 'cancelled' where webhook = $1 and state = 'pending' \
             and event is not null and exists (select 1 from webhook where id = $1 and enabled = 0)",
    postgres: "with left_over as materialized (select id from webhook_delivery where webhook = $1 \
               and state = 'pending' and event is not null \
               and exists (select 1 from webhook where id = $1 and enabled = 0) for update skip locked) \
               update webhook_delivery set state = 'cancelled' from left_over \
               where webhook_delivery.id = left_over.id",
};

/// Cancels what a disabled webhook was still to be told: the publisher reads which are enabled before it writes, and one may be
/// disabled in between. Tests stay.
pub(super) async fn cancel_of_disabled(transaction: &mut Transaction, webhook: WebhookId) -> Result<()> {
    query(OPERATION, CANCEL_OF_DISABLED).bind(webhook).execute(transaction).await.map(drop)
}

fn delivery_not_found(id: DeliveryId) -> StoreError {
    StoreError::not_found(format!("delivery {id}"))
}
