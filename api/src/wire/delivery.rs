//! Requests and responses of `webhooks/deliveries/*` and `webhooks/redeliver`.

use photofinish_store::model::event::EventType;
use photofinish_store::model::ids::{DeliveryId, WebhookId};
use photofinish_store::model::webhook::{self as stored, DeliveryState};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};
use crate::validate::input::{Fields, Input};
use crate::validate::issues::code;
use crate::validate::times::date_time;
use crate::validate::validators::{Integer, OneOf, text, uuid};
use crate::wire::cursor::{decode_id, encode_id, id_cursor};
use crate::wire::webhook::{read_webhook_id, webhook_json};

/// The delivery of one event to one webhook.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    id: Uuid,
    /// The id of the event, and the header `webhook-id` of every attempt.
    event_id: String,
    #[serde(rename = "type")]
    event_type: String,
    /// `pending`, `delivered`, `failed` or `cancelled`.
    #[schema(example = "delivered")]
    state: &'static str,
    /// Attempts that were begun.
    #[schema(value_type = f64, minimum = 0)]
    attempts: u32,
    /// When the next attempt is due, while it is pending.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    next_attempt_at: Option<OffsetDateTime>,
    /// The status of the last response.
    #[schema(required, value_type = Option<f64>)]
    last_status: Option<u16>,
    /// Why the last attempt failed, for people.
    #[schema(required)]
    last_error: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    /// When it was accepted.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    delivered_at: Option<OffsetDateTime>,
}

impl From<stored::Delivery> for Delivery {
    fn from(delivery: stored::Delivery) -> Self {
        Self {
            id: delivery.id.0,
            event_id: format!("evt_{}", delivery.event.0.simple()),
            event_type: delivery.event_type,
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            next_attempt_at: delivery.next_attempt_at,
            last_status: delivery.last_status,
            last_error: delivery.last_error,
            created_at: delivery.created_at,
            delivered_at: delivery.delivered_at,
        }
    }
}

impl Output for Delivery {
    fn example() -> Self {
        Self {
            id: sample::DELIVERY.0,
            event_id: format!("evt_{}", sample::EVENT.0.simple()),
            event_type: EventType::AlbumIdle.as_str().to_owned(),
            state: DeliveryState::Delivered.as_str(),
            attempts: 1,
            next_attempt_at: None,
            last_status: Some(204),
            last_error: None,
            created_at: sample::TIME,
            delivered_at: Some(sample::TIME),
        }
    }
}

/// One attempt to deliver.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attempt {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    /// The status of the response, if there was one.
    #[schema(required, value_type = Option<f64>)]
    status: Option<u16>,
    #[schema(value_type = f64, minimum = 0)]
    duration_ms: u64,
    /// Why it failed, for people.
    #[schema(required)]
    error: Option<String>,
    /// The beginning of the response.
    answer: String,
}

/// A delivery with its body and attempts.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeliveryDetail {
    #[serde(flatten)]
    delivery: Delivery,
    /// The body; null when the event is no longer kept.
    #[schema(required, value_type = Option<Object>)]
    body: Option<Value>,
    /// Oldest first.
    history: Vec<Attempt>,
}

impl From<stored::DeliveryDetail> for DeliveryDetail {
    fn from(detail: stored::DeliveryDetail) -> Self {
        let attempt = |attempt: stored::Attempt| Attempt {
            at: attempt.at,
            status: attempt.status,
            duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
            error: attempt.error,
            answer: attempt.answer,
        };
        Self {
            delivery: detail.delivery.into(),
            body: detail.content.as_ref().map(webhook_json),
            history: detail.attempts.into_iter().map(attempt).collect(),
        }
    }
}

impl Output for DeliveryDetail {
    fn example() -> Self {
        let attempt = Attempt {
            at: sample::TIME,
            status: Some(204),
            duration_ms: 120,
            error: None,
            answer: String::new(),
        };
        let data = json!({ "sequence": 18231, "albumId": sample::ALBUM, "total": 1480, "ready": 1477,
            "failed": 3, "awaitingUpload": 0 });
        let body = json!({ "type": "album.idle", "timestamp": "2026-10-04T09:41:07Z", "data": data });
        Self { delivery: Delivery::example(), body: Some(body), history: vec![attempt] }
    }
}

/// A page of deliveries, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryPage {
    deliveries: Vec<Delivery>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
    /// Number of deliveries on all pages.
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
}

impl From<stored::DeliveryPage> for DeliveryPage {
    fn from(page: stored::DeliveryPage) -> Self {
        Self {
            deliveries: page.deliveries.into_iter().map(Delivery::from).collect(),
            next_cursor: page.next.map(|delivery| encode_id(delivery.0)),
            total: page.total,
        }
    }
}

impl Output for DeliveryPage {
    fn example() -> Self {
        Self { deliveries: vec![Delivery::example()], next_cursor: None, total: 1 }
    }
}

/// How many deliveries are made again.
#[derive(Serialize, ToSchema)]
pub(crate) struct Redelivered {
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) queued: u64,
}

impl Output for Redelivered {
    fn example() -> Self {
        Self { queued: 3 }
    }
}

fn state_choice() -> OneOf<DeliveryState> {
    OneOf { choices: &DeliveryState::ALL, to_name: DeliveryState::as_str }
}

/// Body of `webhooks/deliveries/list`.
pub(crate) struct ListDeliveries {
    pub(crate) webhook: WebhookId,
    pub(crate) query: stored::DeliveryQuery,
}

impl Input for ListDeliveries {
    const NAME: &'static str = "ListDeliveries";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        let limit = fields.optional_or("limit", "Deliveries per page.", 50, Integer { min: 1, max: 200 });
        let before = fields.optional("cursor", "`nextCursor` of the previous page.", id_cursor());
        let state = fields.optional("state", "Only deliveries in this state.", state_choice());
        let event_type = fields.optional("type", "Only events of this type.", text(1, 100));
        let before = before.and_then(|text| decode_id(&text)).map(DeliveryId);
        Some(Self { webhook: webhook?, query: stored::DeliveryQuery { before, state, event_type, limit } })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK, "state": "failed" })
    }
}

/// Body of `webhooks/deliveries/get`.
pub(crate) struct OneDelivery {
    pub(crate) webhook: WebhookId,
    pub(crate) delivery: DeliveryId,
}

impl Input for OneDelivery {
    const NAME: &'static str = "OneDelivery";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        let delivery = fields.required("deliveryId", "The delivery.", uuid());
        Some(Self { webhook: webhook?, delivery: delivery? })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK, "deliveryId": sample::DELIVERY })
    }
}

/// Body of `webhooks/redeliver`.
pub(crate) struct Redeliver {
    pub(crate) webhook: WebhookId,
    pub(crate) redelivery: stored::Redelivery,
}

impl Input for Redeliver {
    const NAME: &'static str = "Redeliver";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        let delivery = fields.optional("deliveryId", "This delivery, in whatever state it is.", uuid());
        let description = "In place of `deliveryId`: those from this time on that failed or were cancelled.";
        let since = fields.optional("since", description, date_time());
        let present = fields.count_present(&["deliveryId", "since"]);
        fields.check_together(|report| match present {
            0 => report.add(code::REQUIRED, "either deliveryId or since is required"),
            // One that is invalid has an issue of its own.
            1 => {}
            _ => report.add(code::INVALID_VALUE, "deliveryId and since exclude each other"),
        });
        let redelivery = match (delivery, since) {
            (Some(delivery), None) => Some(stored::Redelivery::One(delivery)),
            (None, Some(since)) => Some(stored::Redelivery::FailedSince(since)),
            _ => None,
        };
        Some(Self { webhook: webhook?, redelivery: redelivery? })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK, "deliveryId": sample::DELIVERY })
    }
}
