//! Rows of webhooks and deliveries, and their conversion.

use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::encoding::from_micros;
use crate::model::ids::{AlbumId, DeliveryId, EventId, OrganizationId, WebhookId};
use crate::model::webhook::{Delivery, DeliveryState, EventContent, TEST_TYPE, Webhook};
use crate::sql::row_types::{from_json, parse_key_mode, parse_name};
use crate::traits::Result;

macro_rules! webhook_columns {
    () => {
        "id, organization, mode, url, label, types, album, enabled, disabled_reason, created_at, updated_at, \
         last_success_at, last_failure_at, (select count(*) from webhook_delivery \
         where webhook_delivery.webhook = webhook.id and state = 'pending') as pending from webhook"
    };
}
pub(super) use webhook_columns;

#[derive(FromRow)]
pub(super) struct WebhookRow {
    id: WebhookId,
    organization: OrganizationId,
    mode: String,
    url: String,
    label: String,
    types: String,
    album: Option<AlbumId>,
    enabled: i64,
    disabled_reason: Option<String>,
    created_at: i64,
    updated_at: i64,
    last_success_at: Option<i64>,
    last_failure_at: Option<i64>,
    pending: i64,
}

impl TryFrom<WebhookRow> for Webhook {
    type Error = StoreError;
    fn try_from(row: WebhookRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            url: row.url,
            label: row.label,
            types: from_json(&row.types)?,
            album: row.album,
            enabled: row.enabled != 0,
            disabled_reason: row.disabled_reason,
            created_at: from_micros(row.created_at)?,
            updated_at: from_micros(row.updated_at)?,
            last_success_at: row.last_success_at.map(from_micros).transpose()?,
            last_failure_at: row.last_failure_at.map(from_micros).transpose()?,
            pending: row.pending.unsigned_abs(),
        })
    }
}

macro_rules! delivery_columns {
    () => {
        "id, event_id, type, state, attempts, next_at, last_status, last_error, created_at, delivered_at"
    };
}
pub(super) use delivery_columns;

#[derive(FromRow)]
pub(super) struct DeliveryRow {
    pub(super) id: DeliveryId,
    event_id: EventId,
    r#type: String,
    state: String,
    attempts: i64,
    next_at: i64,
    last_status: Option<i64>,
    last_error: Option<String>,
    created_at: i64,
    delivered_at: Option<i64>,
}

impl TryFrom<DeliveryRow> for Delivery {
    type Error = StoreError;
    fn try_from(row: DeliveryRow) -> Result<Self> {
        let state = parse_name(&DeliveryState::ALL, DeliveryState::as_str, &row.state)?;
        let next_at = (state == DeliveryState::Pending).then_some(row.next_at);
        Ok(Self {
            id: row.id,
            event: row.event_id,
            event_type: row.r#type,
            state,
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            next_attempt_at: next_at.map(from_micros).transpose()?,
            last_status: row.last_status.and_then(|status| u16::try_from(status).ok()),
            last_error: row.last_error,
            created_at: from_micros(row.created_at)?,
            delivered_at: row.delivered_at.map(from_micros).transpose()?,
        })
    }
}

/// What a delivery says, from its own row and that of its event.
#[derive(FromRow)]
pub(super) struct ContentRow {
    /// Of the delivery.
    pub(super) event: Option<i64>,
    pub(super) r#type: String,
    pub(super) delivery_created_at: i64,
    /// Of the event, if it is kept.
    pub(super) data: Option<String>,
    pub(super) event_created_at: Option<i64>,
}

impl ContentRow {
    /// `None` when the event is no longer kept.
    pub(super) fn into_content(self, webhook: WebhookId) -> Result<Option<EventContent>> {
        let (created_at, data) = match (self.event, self.data, self.event_created_at) {
            (None, ..) => {
                let data = serde_json::Map::from_iter([("webhookId".to_owned(), webhook.to_string().into())]);
                (self.delivery_created_at, data)
            }
            (Some(_), Some(data), Some(created_at)) => (created_at, from_json(&data)?),
            (Some(_), ..) => return Ok(None),
        };
        let event_type = if self.event.is_none() { TEST_TYPE.to_owned() } else { self.r#type };
        let created_at = from_micros(created_at)?;
        Ok(Some(EventContent { sequence: self.event, event_type, created_at, data }))
    }
}
