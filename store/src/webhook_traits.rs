//! Webhooks and their deliveries. The traits are part of [`crate::traits`].

use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::ids::{DeliveryId, WebhookId};
use crate::model::webhook::{
    Attempt, AttemptOutcome, Delivery, DeliveryDetail, DeliveryPage, DeliveryQuery, DueDelivery, NewWebhook,
    Redelivery, Webhook, WebhookChange, WebhookSecret,
};

type Result<T> = std::result::Result<T, StoreError>;

/// Webhooks. Another tenant's webhook is `NotFound`.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Whether there is a master secret to seal secrets with. Without one no webhook can be created.
    fn can_seal(&self) -> bool;
    /// Creates a webhook; `Conflict` when the tenant has `limit` already, `Invalid` without a master secret.
    async fn create(&self, webhook: NewWebhook, limit: u32) -> Result<Webhook>;
    /// Returns a webhook.
    async fn get(&self, tenant: &Tenant, id: WebhookId) -> Result<Webhook>;
    /// Returns the webhooks of a tenant, oldest first: they are few.
    async fn list(&self, tenant: &Tenant) -> Result<Vec<Webhook>>;
    /// Changes a webhook. Disabling it cancels its pending deliveries, enabling it clears the reason why it was disabled.
    async fn update(&self, tenant: &Tenant, id: WebhookId, change: WebhookChange) -> Result<Webhook>;
    /// Deletes a webhook with its deliveries.
    async fn delete(&self, tenant: &Tenant, id: WebhookId) -> Result<()>;
    /// Replaces the secret; the old one signs too for `overlap`. While another one does so already it is that one, not the secret
    /// that is replaced.
    async fn rotate(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        secret: WebhookSecret,
        overlap: Duration,
    ) -> Result<()>;
    /// Returns a page of deliveries, newest first.
    async fn list_deliveries(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        query: DeliveryQuery,
    ) -> Result<DeliveryPage>;
    /// Returns a delivery with its attempts.
    async fn get_delivery(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        delivery: DeliveryId,
    ) -> Result<DeliveryDetail>;
    /// Makes deliveries pending again, from the first attempt; returns how many. `Conflict` when the webhook is disabled.
    async fn redeliver(&self, tenant: &Tenant, id: WebhookId, redelivery: Redelivery) -> Result<u64>;
}

/// How many deliveries a process can still attempt at the same time.
pub trait DeliveryRoom: Send + Sync {
    /// Those of a tenant, whose webhooks share them: one whose receivers are slow does not hold up the others.
    fn of_tenant(&self, tenant: &Tenant) -> usize;
    /// Those of a webhook.
    fn of_webhook(&self, webhook: WebhookId) -> usize;
}

/// What a sender of deliveries calls. Any number of processes send.
#[async_trait]
pub trait DeliveryQueue: Send + Sync {
    /// Whether a delivery is due. Costs a few index probes and no write.
    async fn is_due(&self) -> Result<bool>;
    /// Takes due deliveries for `ttl`, at most `limit` and at most as many of a tenant and of a webhook as `room` says. The attempt is
    /// counted and committed before this returns; it is made again when no outcome is written within `ttl`. Of a webhook that is
    /// disabled only tests are taken; what else is pending of it is cancelled.
    async fn lease(&self, limit: usize, ttl: Duration, room: &dyn DeliveryRoom) -> Result<Vec<DueDelivery>>;
    /// Creates a test of a webhook, taken by the caller.
    async fn create_test(&self, tenant: &Tenant, id: WebhookId, ttl: Duration) -> Result<DueDelivery>;
    /// Writes the outcome of an attempt; returns the delivery. `Conflict` when a later attempt has begun or the delivery
    /// was cancelled.
    async fn finish(&self, due: &DueDelivery, attempt: &Attempt, outcome: AttemptOutcome)
    -> Result<Delivery>;
}
