//! Requests and responses of `webhooks/*` but their deliveries, and the body of a webhook.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use photofinish_store::model::event::EventType;
use photofinish_store::model::ids::{AlbumId, WebhookId};
use photofinish_store::model::webhook::{self as stored, EventContent, WebhookSecret};
use serde::Serialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{Boolean, Integer, ListOf, OneOf, Text, text, uuid, web_uri};
use crate::wire::cursor::{decode_id, id_cursor};

/// The types that webhooks are told: not their own end, which nobody would receive.
pub(crate) const WEBHOOK_TYPES: [EventType; 7] = [
    EventType::PhotoReady,
    EventType::PhotoFailed,
    EventType::AlbumIdle,
    EventType::AlbumDeleted,
    EventType::CreditsLow,
    EventType::PersonErased,
    EventType::AlbumExpiring,
];

/// What a webhook is told unless it asks for something else: all but the many ready photos.
pub(crate) const DEFAULT_TYPES: [EventType; 6] = [
    EventType::PhotoFailed,
    EventType::AlbumIdle,
    EventType::AlbumDeleted,
    EventType::CreditsLow,
    EventType::PersonErased,
    EventType::AlbumExpiring,
];

/// Returns the body of a webhook that tells an event.
pub fn webhook_body(content: &EventContent) -> String {
    webhook_json(content).to_string()
}

/// Returns the body of a webhook as JSON.
pub(crate) fn webhook_json(content: &EventContent) -> Value {
    let mut data = Map::new();
    if let Some(sequence) = content.sequence {
        data.insert("sequence".to_owned(), sequence.into());
    }
    data.extend(content.data.clone());
    // The years that a database has are all in this format.
    let timestamp = content.created_at.format(&Rfc3339).unwrap_or_default();
    json!({ "type": content.event_type, "timestamp": timestamp, "data": data })
}

/// Returns a secret as receivers take it.
pub(crate) fn secret_text(secret: &WebhookSecret) -> String {
    format!("whsec_{}", STANDARD.encode(secret))
}

/// A URL that is told events.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Webhook {
    id: Uuid,
    #[schema(format = "uri")]
    url: String,
    label: String,
    /// What it is told.
    types: Vec<String>,
    /// Only events of this album.
    #[schema(required)]
    album_id: Option<Uuid>,
    /// Whether it is told anything.
    enabled: bool,
    /// Why the service disabled it: `GONE` after a 410, `FAILING` after five days in which every attempt failed and 20 deliveries at least; null otherwise.
    #[schema(required)]
    disabled_reason: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    updated_at: OffsetDateTime,
    /// When it last accepted an event.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    last_success_at: Option<OffsetDateTime>,
    /// When it last did not.
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    last_failure_at: Option<OffsetDateTime>,
    /// Deliveries that are still to be made.
    #[schema(value_type = f64, minimum = 0)]
    pending: u64,
}

impl From<stored::Webhook> for Webhook {
    fn from(webhook: stored::Webhook) -> Self {
        Self {
            id: webhook.id.0,
            url: webhook.url,
            label: webhook.label,
            types: webhook.types,
            album_id: webhook.album.map(|album| album.0),
            enabled: webhook.enabled,
            disabled_reason: webhook.disabled_reason,
            created_at: webhook.created_at,
            updated_at: webhook.updated_at,
            last_success_at: webhook.last_success_at,
            last_failure_at: webhook.last_failure_at,
            pending: webhook.pending,
        }
    }
}

impl Output for Webhook {
    fn example() -> Self {
        Self {
            id: sample::WEBHOOK.0,
            url: "https://timing.example/hook".to_owned(),
            label: "timing".to_owned(),
            types: DEFAULT_TYPES.map(|event_type| event_type.as_str().to_owned()).to_vec(),
            album_id: None,
            enabled: true,
            disabled_reason: None,
            created_at: sample::TIME,
            updated_at: sample::TIME,
            last_success_at: Some(sample::TIME),
            last_failure_at: None,
            pending: 0,
        }
    }
}

/// A webhook with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    #[serde(flatten)]
    pub(crate) webhook: Webhook,
    /// Signs what is sent. It is not shown again.
    pub(crate) secret: String,
}

impl Output for CreatedWebhook {
    fn example() -> Self {
        Self { webhook: Webhook::example(), secret: secret_text(&[7; 32]) }
    }
}

/// A new secret, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct RotatedSecret {
    pub(crate) secret: String,
}

impl Output for RotatedSecret {
    fn example() -> Self {
        Self { secret: secret_text(&[8; 32]) }
    }
}

/// A page of webhooks, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookPage {
    pub(crate) webhooks: Vec<Webhook>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// Number of webhooks on all pages.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) total: u64,
}

impl Output for WebhookPage {
    fn example() -> Self {
        Self { webhooks: vec![Webhook::example()], next_cursor: None, total: 1 }
    }
}

fn type_list() -> ListOf<OneOf<EventType>> {
    let name = OneOf { choices: &WEBHOOK_TYPES, to_name: EventType::as_str };
    ListOf { item: name, min: 1, max: 20 }
}

fn label_text() -> Text {
    text(0, 200)
}

/// Reads the field `webhookId`.
pub(crate) fn read_webhook_id(fields: &mut Fields<'_>) -> Option<WebhookId> {
    fields.required("webhookId", "The webhook.", uuid())
}

const URL_DESCRIPTION: &str = "Where events are sent: `https`, a public address, port 443 or one from 1024.";

/// Body of `webhooks/create`.
pub(crate) struct CreateWebhook {
    pub(crate) url: String,
    pub(crate) types: Option<Vec<EventType>>,
    pub(crate) album: Option<AlbumId>,
    pub(crate) label: String,
}

impl Input for CreateWebhook {
    const NAME: &'static str = "CreateWebhook";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let url = fields.required("url", URL_DESCRIPTION, web_uri());
        let description = "What it is told; all but `photo.ready` if missing.";
        let types = fields.optional("types", description, type_list());
        let album = fields.optional("albumId", "Only events of this album.", uuid());
        let label = fields.optional("label", "A name for people.", label_text());
        Some(Self { url: url?, types, album, label: label.unwrap_or_default() })
    }

    fn example() -> Value {
        json!({ "url": "https://timing.example/hook", "types": ["photo.ready", "album.idle"] })
    }
}

/// Body of `webhooks/list`.
pub(crate) struct ListWebhooks {
    pub(crate) after: Option<WebhookId>,
    pub(crate) limit: u32,
}

impl Input for ListWebhooks {
    const NAME: &'static str = "ListWebhooks";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let limit = fields.optional_or("limit", "Webhooks per page.", 50, Integer { min: 1, max: 200 });
        let after = fields.optional("cursor", "`nextCursor` of the previous page.", id_cursor());
        Some(Self { after: after.and_then(|text| decode_id(&text)).map(WebhookId), limit })
    }

    fn example() -> Value {
        json!({ "limit": 20 })
    }
}

/// Body of every operation on one webhook.
pub(crate) struct OneWebhook {
    pub(crate) webhook: WebhookId,
}

impl Input for OneWebhook {
    const NAME: &'static str = "OneWebhook";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        Some(Self { webhook: webhook? })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK })
    }
}

/// Body of `webhooks/update`.
pub(crate) struct UpdateWebhook {
    pub(crate) webhook: WebhookId,
    pub(crate) change: stored::WebhookChange,
}

impl Input for UpdateWebhook {
    const NAME: &'static str = "UpdateWebhook";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        let url = fields.optional("url", URL_DESCRIPTION, web_uri());
        let types = fields.optional("types", "What it is told from now on.", type_list());
        let label = fields.optional("label", "A name for people.", label_text());
        let description = "Whether it is told anything. What is pending is cancelled when it is disabled.";
        let enabled = fields.optional("enabled", description, Boolean);
        Some(Self { webhook: webhook?, change: stored::WebhookChange { url, types, label, enabled } })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK, "enabled": true })
    }
}

/// Body of `webhooks/rotate`.
pub(crate) struct RotateSecret {
    pub(crate) webhook: WebhookId,
    pub(crate) overlap_hours: u32,
}

impl Input for RotateSecret {
    const NAME: &'static str = "RotateSecret";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let webhook = read_webhook_id(fields);
        let description = "For how long the old secret signs too, hours.";
        let overlap_hours = fields.optional_or("overlapHours", description, 24, Integer { min: 0, max: 72 });
        Some(Self { webhook: webhook?, overlap_hours })
    }

    fn example() -> Value {
        json!({ "webhookId": sample::WEBHOOK, "overlapHours": 24 })
    }
}
