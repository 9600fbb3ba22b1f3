//! Webhooks and the deliveries of events to them.

use std::time::Duration;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::model::album::Tenant;
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, DeliveryId, EventId, KeyId, WebhookId};

/// The secret that signs the deliveries of one webhook.
pub type WebhookSecret = [u8; 32];

/// The event type of a test, which is no event.
pub const TEST_TYPE: &str = "webhook.test";

/// A URL of a partner that is told events.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// Whose events it is told.
    pub tenant: Tenant,
    /// Where it is.
    pub url: String,
    /// A name for people.
    pub label: String,
    /// What it is told: names of [`EventType`], and of types of other versions.
    pub types: Vec<String>,
    /// Only events of this album.
    pub album: Option<AlbumId>,
    /// Whether it is told anything.
    pub enabled: bool,
    /// Why the service disabled it.
    pub disabled_reason: Option<String>,
    /// Microsecond precision.
    pub created_at: OffsetDateTime,
    /// Microsecond precision.
    pub updated_at: OffsetDateTime,
    /// When it last accepted an event.
    pub last_success_at: Option<OffsetDateTime>,
    /// When it last did not.
    pub last_failure_at: Option<OffsetDateTime>,
    /// Deliveries that are still to be made.
    pub pending: u64,
}

/// A webhook to create.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    /// Whose events it is told.
    pub tenant: Tenant,
    /// The key that creates it.
    pub created_by: KeyId,
    /// Where it is.
    pub url: String,
    /// A name for people.
    pub label: String,
    /// What it is told.
    pub types: Vec<EventType>,
    /// Only events of this album.
    pub album: Option<AlbumId>,
    /// Signs its deliveries.
    pub secret: WebhookSecret,
}

/// Changes of a webhook; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct WebhookChange {
    /// Where it is.
    pub url: Option<String>,
    /// What it is told.
    pub types: Option<Vec<EventType>>,
    /// A name for people.
    pub label: Option<String>,
    /// Whether it is told anything. Its pending deliveries are cancelled when it is disabled.
    pub enabled: Option<bool>,
}

/// Why the service disables a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisableReason {
    /// It answered 410.
    Gone,
    /// Every attempt of five days has failed.
    Failing,
}

impl DisableReason {
    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "GONE",
            Self::Failing => "FAILING",
        }
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// To be attempted, again or for the first time.
    Pending,
    /// Accepted.
    Delivered,
    /// Not accepted at the last attempt.
    Failed,
    /// Not to be attempted, because the webhook was disabled.
    Cancelled,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Failed, Self::Cancelled];

    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The delivery of one event to one webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// The event; of a test, an id of its own.
    pub event: EventId,
    /// The type of the event, or [`TEST_TYPE`].
    pub event_type: String,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts that were begun.
    pub attempts: u32,
    /// When the next attempt is due, while it is pending.
    pub next_attempt_at: Option<OffsetDateTime>,
    /// The status of the last response.
    pub last_status: Option<u16>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When the event was published.
    pub created_at: OffsetDateTime,
    /// When it was accepted.
    pub delivered_at: Option<OffsetDateTime>,
}

/// What an event says, for the body of its deliveries.
#[derive(Clone, Debug, PartialEq)]
pub struct EventContent {
    /// Its place among all events; `None` for a test.
    pub sequence: Option<i64>,
    /// Its type.
    pub event_type: String,
    /// When it happened.
    pub created_at: OffsetDateTime,
    /// More about it.
    pub data: Map<String, Value>,
}

/// One attempt to deliver.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// When it was made.
    pub at: OffsetDateTime,
    /// How long it took.
    pub duration: Duration,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
    /// The beginning of the response.
    pub answer: String,
}

/// A delivery with its body and attempts.
#[derive(Clone, Debug)]
pub struct DeliveryDetail {
    /// The delivery.
    pub delivery: Delivery,
    /// What is delivered; `None` when the event is no longer kept.
    pub content: Option<EventContent>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

/// Which deliveries of a webhook to list, newest first.
#[derive(Clone, Debug)]
pub struct DeliveryQuery {
    /// Those before this one.
    pub before: Option<DeliveryId>,
    /// Those in this state.
    pub state: Option<DeliveryState>,
    /// Those of this type.
    pub event_type: Option<String>,
    /// At most this many.
    pub limit: u32,
}

/// A page of deliveries, newest first.
#[derive(Clone, Debug)]
pub struct DeliveryPage {
    /// The deliveries.
    pub deliveries: Vec<Delivery>,
    /// Where the next page begins.
    pub next: Option<DeliveryId>,
    /// Of all pages.
    pub total: u64,
}

/// Which deliveries to make again.
#[derive(Clone, Copy, Debug)]
pub enum Redelivery {
    /// This one, in whatever state it is.
    One(DeliveryId),
    /// Those created since a time that have failed or were cancelled.
    FailedSince(OffsetDateTime),
}

/// A delivery that this process attempts now.
#[derive(Clone, Debug)]
pub struct DueDelivery {
    /// The delivery.
    pub id: DeliveryId,
    /// Its webhook.
    pub webhook: WebhookId,
    /// Whose webhook it is.
    pub tenant: Tenant,
    /// Where the webhook is.
    pub url: String,
    /// The event.
    pub event: EventId,
    /// What to send; `None` when the event is no longer kept.
    pub content: Option<EventContent>,
    /// The number of this attempt since the delivery was last made pending, from 1.
    pub attempt: u32,
    /// The number among all its attempts: fences the outcome.
    pub number: u32,
    /// What signs it: during a rotation two secrets, the new one first.
    pub secrets: Vec<WebhookSecret>,
}

impl DueDelivery {
    /// Whether it tells no event, but tests the webhook.
    pub fn is_test(&self) -> bool {
        self.content.as_ref().is_some_and(|content| content.event_type == TEST_TYPE)
    }
}

/// What follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The event was accepted.
    Delivered,
    /// It was not, and is attempted again after this time.
    Retry(Duration),
    /// It was not, and was the last attempt.
    Failed,
    /// The webhook does not exist any more: it is disabled.
    Gone,
}

impl AttemptOutcome {
    /// The names of all outcomes.
    pub const NAMES: [&str; 4] = ["delivered", "retry", "failed", "gone"];

    /// Its name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry(_) => "retry",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}
