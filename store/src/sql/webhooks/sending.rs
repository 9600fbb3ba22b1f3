//! The work of sending deliveries: which are due, who attempts them, and what follows. As with photos, an attempt is counted
//! and committed before it is made, and its outcome is written only while no later one has begun.
//!
//! Rows are locked in one order: the webhook, then its deliveries. Taking deliveries skips those that are locked.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::FromRow;

use super::cancel_pending;
use super::deliveries::{self, find};
use super::rows::ContentRow;
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::album::Tenant;
use crate::model::encoding::{micros_after, to_micros};
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, DeliveryId, EventId, OrganizationId, WebhookId};
use crate::model::webhook::{
    Attempt, AttemptOutcome, Delivery, DisableReason, DueDelivery, TEST_TYPE, WebhookSecret,
};
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::database::{Database, Transaction};
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::row_types::parse_key_mode;
use crate::sql::statement::{Statement, query};
use crate::traits::{DeliveryQueue, DeliveryRoom, Result};

const OPERATION: &str = "send deliveries";

/// A webhook is disabled when every attempt has failed for so long, of at least so many deliveries.
const FAILING_MICROS: i64 = 5 * 86_400_000_000;
const FAILING_DELIVERIES: i64 = 20;

/// Webhooks with a delivery that is due. Steps from one with pending deliveries to the next by the index of these, because
/// most webhooks of an installation have none.
pub(crate) const DUE_WEBHOOKS: &str = "with recursive waiting (webhook) as ( \
     select * from (select webhook from webhook_delivery where state = 'pending' order by webhook limit 1) as first \
     union all select (select webhook from webhook_delivery where state = 'pending' \
     and webhook > waiting.webhook order by webhook limit 1) from waiting where waiting.webhook is not null) \
     select webhook.id, webhook.organization, webhook.mode, webhook.enabled \
     from waiting join webhook on webhook.id = waiting.webhook \
     where exists (select 1 from webhook_delivery \
     where webhook_delivery.webhook = waiting.webhook and state = 'pending' and next_at <= $1)";

/// Of a webhook that is disabled its tests alone.
pub(crate) const DUE_DELIVERIES: Statement = Statement::PerDialect {
    sqlite: "select id from webhook_delivery where webhook = $1 and state = 'pending' and next_at <= $2 \
             and (event is null or exists (select 1 from webhook where id = $1 and enabled = 1)) \
             order by next_at limit $3",
    postgres: "select id from webhook_delivery where webhook = $1 and state = 'pending' and next_at <= $2 \
               and (event is null or exists (select 1 from webhook where id = $1 and enabled = 1)) \
               order by next_at limit $3 for update skip locked",
};

pub(crate) struct SqlDeliveryQueue {
    database: Database,
    master: Option<MasterSecret>,
}

/// A webhook with its organization and mode, and whether it is enabled.
type DueWebhook = (WebhookId, OrganizationId, String, i64);

#[derive(FromRow)]
struct SenderRow {
    organization: OrganizationId,
    mode: String,
    url: String,
    secret: Vec<u8>,
    old_secret: Option<Vec<u8>>,
    old_secret_until: i64,
}

/// Who sends deliveries, and what signs them.
struct Sender {
    webhook: WebhookId,
    tenant: Tenant,
    url: String,
    secrets: Vec<WebhookSecret>,
}

#[derive(FromRow)]
struct TakenRow {
    event_id: EventId,
    attempts: i64,
    first_attempt: i64,
}

impl SqlDeliveryQueue {
    pub(crate) fn new(database: Database, master: Option<MasterSecret>) -> Self {
        Self { database, master }
    }

    /// Returns who sends the deliveries of a webhook; an error of its secrets in the second `Result`.
    async fn load_sender(
        &self,
        transaction: &mut Transaction,
        webhook: WebhookId,
        now: i64,
    ) -> Result<Result<Sender>> {
        let sender =
            "select organization, mode, url, secret, old_secret, old_secret_until from webhook where id = $1";
        let row: SenderRow = query(OPERATION, sender).bind(webhook).fetch_one(transaction).await?;
        let old = row.old_secret.filter(|_| row.old_secret_until > now);
        let tenant = Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? };
        let sealed = [Some(row.secret), old].into_iter().flatten();
        let secrets: Result<_> = sealed.map(|sealed| self.open(webhook, &sealed)).collect();
        Ok(secrets.map(|secrets| Sender { webhook, tenant, url: row.url, secrets }))
    }

    /// Counts the attempt of a delivery that is locked, and returns what to send.
    async fn take(
        &self,
        transaction: &mut Transaction,
        sender: &Sender,
        id: DeliveryId,
        until: i64,
    ) -> Result<DueDelivery> {
        let take = "update webhook_delivery set attempts = attempts + 1, next_at = $2 where id = $1 \
                    returning event_id, attempts, first_attempt";
        let taken: TakenRow =
            query(OPERATION, take).bind(id).bind(until).fetch_one(&mut *transaction).await?;
        let content = "select d.event, d.type, d.created_at as delivery_created_at, e.data, \
                       e.created_at as event_created_at from webhook_delivery d \
                       left join event e on e.sequence = d.event where d.id = $1";
        let content: ContentRow = query(OPERATION, content).bind(id).fetch_one(transaction).await?;
        Ok(DueDelivery {
            id,
            webhook: sender.webhook,
            tenant: sender.tenant,
            url: sender.url.clone(),
            event: taken.event_id,
            content: content.into_content(sender.webhook)?,
            attempt: u32::try_from(taken.attempts - taken.first_attempt).unwrap_or(u32::MAX),
            number: u32::try_from(taken.attempts).unwrap_or(u32::MAX),
            secrets: sender.secrets.clone(),
        })
    }

    fn open(&self, webhook: WebhookId, sealed: &[u8]) -> Result<WebhookSecret> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        let master = self.master.as_ref().ok_or_else(missing)?;
        let opened = master.open(Purpose::Webhook, webhook.0, sealed)?;
        let corrupt = |_| StoreError::new(StoreErrorKind::Corrupt, "secret of a webhook");
        opened.secret.try_into().map_err(corrupt)
    }
}

#[async_trait]
impl DeliveryQueue for SqlDeliveryQueue {
    async fn is_due(&self) -> Result<bool> {
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let now = snapshot.read_clock(OPERATION).await?;
        let due: Option<DueWebhook> =
            query(OPERATION, DUE_WEBHOOKS).bind(now).fetch_optional(&mut snapshot).await?;
        Ok(due.is_some())
    }

    async fn lease(&self, limit: usize, ttl: Duration, room: &dyn DeliveryRoom) -> Result<Vec<DueDelivery>> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let mut webhooks: Vec<DueWebhook> =
            query(OPERATION, DUE_WEBHOOKS).bind(now).fetch_all(&mut transaction).await?;
        webhooks.sort_by_key(|(id, ..)| *id);
        // Beginning with another one each time: none is left out while there is room for some only.
        let first = now.unsigned_abs() as usize % webhooks.len().max(1);
        webhooks.rotate_left(first);
        let until = micros_after(now, ttl);
        let (mut taken, mut taken_of) = (Vec::new(), HashMap::<Tenant, usize>::new());
        for (webhook, organization, mode, enabled) in webhooks {
            if enabled == 0 {
                deliveries::cancel_of_disabled(&mut transaction, webhook).await?;
            }
            let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
            let taken_of = taken_of.entry(tenant).or_default();
            let of_tenant = room.of_tenant(&tenant).saturating_sub(*taken_of);
            let free = room.of_webhook(webhook).min(of_tenant).min(limit - taken.len());
            if free == 0 {
                continue;
            }
            let due: Vec<(DeliveryId,)> = query(OPERATION, DUE_DELIVERIES)
                .bind(webhook)
                .bind(now)
                .bind(free as i64)
                .fetch_all(&mut transaction)
                .await?;
            if due.is_empty() {
                // Another process has them, and nothing keeps the webhook from being deleted.
                continue;
            }
            let sender = match self.load_sender(&mut transaction, webhook, now).await? {
                Ok(sender) => sender,
                Err(error) => {
                    // The deliveries of others go on.
                    tracing::error!(webhook.id = %webhook, %error, "failed to open the secret of a webhook, its deliveries wait");
                    for (id,) in due {
                        let postpone = "update webhook_delivery set next_at = $2 where id = $1";
                        query(OPERATION, postpone).bind(id).bind(until).execute(&mut transaction).await?;
                    }
                    continue;
                }
            };
            *taken_of += due.len();
            for (id,) in due {
                taken.push(self.take(&mut transaction, &sender, id, until).await?);
            }
        }
        transaction.commit(OPERATION).await?;
        Ok(taken)
    }

    async fn create_test(&self, tenant: &Tenant, id: WebhookId, ttl: Duration) -> Result<DueDelivery> {
        let insert = "insert into webhook_delivery (id, webhook, event, event_id, type, state, next_at, created_at) \
                      select $2, id, null, $3, $4, 'pending', $5, $6 from webhook \
                      where id = $1 and organization = $7 and mode = $8";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let (until, delivery) = (micros_after(now, ttl), DeliveryId::generate());
        let inserted = query(OPERATION, insert)
            .bind(id)
            .bind(delivery)
            .bind(EventId::generate())
            .bind(TEST_TYPE)
            .bind(until)
            .bind(now)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .execute(&mut transaction)
            .await?;
        if inserted == 0 {
            return Err(StoreError::not_found(format!("webhook {id}")));
        }
        let sender = self.load_sender(&mut transaction, id, now).await??;
        let due = self.take(&mut transaction, &sender, delivery, until).await?;
        transaction.commit(OPERATION).await?;
        Ok(due)
    }

    async fn finish(
        &self,
        due: &DueDelivery,
        attempt: &Attempt,
        outcome: AttemptOutcome,
    ) -> Result<Delivery> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let mut finish = Finish { transaction: &mut transaction, due, attempt, now };
        let disable = finish.update_webhook(outcome).await?;
        finish.update_delivery(outcome).await?;
        finish.insert_attempt().await?;
        if let Some(reason) = disable {
            finish.disable(reason).await?;
        }
        let delivery = find(&mut transaction, due.webhook, due.id).await?;
        transaction.commit(OPERATION).await?;
        record_metrics(due, attempt, outcome, now);
        Ok(delivery)
    }
}

/// Records an attempt that ended at `now`, microseconds.
fn record_metrics(due: &DueDelivery, attempt: &Attempt, outcome: AttemptOutcome, now: i64) {
    metrics::counter!(metric_names::WEBHOOK_ATTEMPTS, "outcome" => outcome.as_str()).increment(1);
    metrics::histogram!(metric_names::WEBHOOK_ATTEMPT_SECONDS).record(attempt.duration.as_secs_f64());
    if let (AttemptOutcome::Delivered, Some(content)) = (outcome, &due.content) {
        // Not negative, whatever the clocks say.
        let lag = now.saturating_sub(to_micros(content.created_at)).max(0);
        metrics::histogram!(metric_names::WEBHOOK_LAG_SECONDS).record(lag as f64 / 1e6);
    }
}

/// The end of an attempt.
struct Finish<'f> {
    transaction: &'f mut Transaction,
    due: &'f DueDelivery,
    attempt: &'f Attempt,
    now: i64,
}

impl Finish<'_> {
    /// Locks the webhook, and returns why it is to be disabled.
    async fn update_webhook(&mut self, outcome: AttemptOutcome) -> Result<Option<DisableReason>> {
        if self.due.is_test() {
            return self.update_tested_webhook(outcome).await;
        }
        if outcome == AttemptOutcome::Delivered {
            let succeed = "update webhook set last_success_at = $2, failing_since = null, failing_deliveries = 0 \
                           where id = $1";
            query(OPERATION, succeed)
                .bind(self.due.webhook)
                .bind(self.now)
                .execute(&mut *self.transaction)
                .await?;
            return Ok(None);
        }
        let fail = "update webhook set last_failure_at = $2, failing_since = coalesce(failing_since, $2), \
                    failing_deliveries = failing_deliveries + $3 where id = $1 \
                    returning failing_since, failing_deliveries, enabled";
        let failing: Option<(i64, i64, i64)> = query(OPERATION, fail)
            .bind(self.due.webhook)
            .bind(self.now)
            .bind(i64::from(self.due.attempt == 1))
            .fetch_optional(&mut *self.transaction)
            .await?;
        Ok(match failing {
            Some((_, _, 1)) if outcome == AttemptOutcome::Gone => Some(DisableReason::Gone),
            Some((since, deliveries, 1))
                if self.now - since >= FAILING_MICROS && deliveries >= FAILING_DELIVERIES =>
            {
                Some(DisableReason::Failing)
            }
            _ => None,
        })
    }

    /// A test tells nothing of the deliveries: it neither counts as one that failed nor ends a time of failures. Only a
    /// receiver that says that it is gone is gone.
    async fn update_tested_webhook(&mut self, outcome: AttemptOutcome) -> Result<Option<DisableReason>> {
        let test = match outcome {
            AttemptOutcome::Delivered => {
                "update webhook set last_success_at = $2 where id = $1 returning enabled"
            }
            _ => "update webhook set last_failure_at = $2 where id = $1 returning enabled",
        };
        let tested: Option<(i64,)> = query(OPERATION, test)
            .bind(self.due.webhook)
            .bind(self.now)
            .fetch_optional(&mut *self.transaction)
            .await?;
        let is_gone = outcome == AttemptOutcome::Gone && tested == Some((1,));
        Ok(is_gone.then_some(DisableReason::Gone))
    }

    /// # Errors
    /// `Conflict` when a later attempt has begun, or the delivery was cancelled.
    async fn update_delivery(&mut self, outcome: AttemptOutcome) -> Result<()> {
        let (state, next_at) = match outcome {
            AttemptOutcome::Delivered => ("delivered", self.now),
            AttemptOutcome::Retry(after) => ("pending", micros_after(self.now, after)),
            AttemptOutcome::Failed | AttemptOutcome::Gone => ("failed", self.now),
        };
        let update = "update webhook_delivery set state = $3, next_at = $4, last_status = $5, last_error = $6, \
                      delivered_at = case when $3 = 'delivered' then $7 else delivered_at end \
                      where id = $1 and attempts = $2 and state = 'pending'";
        let updated = query(OPERATION, update)
            .bind(self.due.id)
            .bind(i64::from(self.due.number))
            .bind(state)
            .bind(next_at)
            .bind(self.attempt.status.map(i64::from))
            .bind(self.attempt.error.clone())
            .bind(self.now)
            .execute(&mut *self.transaction)
            .await?;
        if updated == 0 {
            let what = format!("delivery {} has gone on without this attempt", self.due.id);
            return Err(StoreError::new(StoreErrorKind::Conflict, what));
        }
        Ok(())
    }

    async fn insert_attempt(&mut self) -> Result<()> {
        let insert = "insert into webhook_attempt (delivery, number, at, duration_ms, status, error, answer) \
                      select id, attempts, $2, $3, $4, $5, $6 from webhook_delivery where id = $1";
        query(OPERATION, insert)
            .bind(self.due.id)
            .bind(to_micros(self.attempt.at))
            .bind(i64::try_from(self.attempt.duration.as_millis()).unwrap_or(i64::MAX))
            .bind(self.attempt.status.map(i64::from))
            .bind(self.attempt.error.clone())
            .bind(self.attempt.answer.as_str())
            .execute(&mut *self.transaction)
            .await
            .map(drop)
    }

    async fn disable(&mut self, reason: DisableReason) -> Result<()> {
        let disable = "update webhook set enabled = 0, disabled_reason = $2, updated_at = $3 where id = $1 \
                       returning organization, mode, album";
        let (organization, mode, album): (OrganizationId, String, Option<AlbumId>) =
            query(OPERATION, disable)
                .bind(self.due.webhook)
                .bind(reason.as_str())
                .bind(self.now)
                .fetch_one(&mut *self.transaction)
                .await?;
        cancel_pending(self.transaction, self.due.webhook).await?;
        let event = PendingEvent {
            tenant: Tenant { organization, mode: parse_key_mode(&mode)? },
            event_type: EventType::WebhookDisabled,
            album,
            data: serde_json::json!({ "webhookId": self.due.webhook, "reason": reason.as_str() }),
            created_at: self.now,
        };
        insert_pending_event(self.transaction, deliveries::OPERATION, &event).await
    }
}
