//! Webhooks in the database; their deliveries are in [`deliveries`] and [`sending`].

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod ageing;
pub(crate) mod deliveries;
mod rows;
pub(crate) mod sealed;
pub(crate) mod sending;

use std::time::Duration;

use async_trait::async_trait;

use self::rows::{WebhookRow, webhook_columns};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::encoding::{micros_after, now_micros};
use crate::model::event::EventType;
use crate::model::ids::{DeliveryId, WebhookId};
use crate::model::webhook::{
    DeliveryDetail, DeliveryPage, DeliveryQuery, NewWebhook, Redelivery, Webhook, WebhookChange,
    WebhookSecret,
};
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::{convert_rows, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{Result, Webhooks};

const OPERATION: &str = "change a webhook";

/// Locks a webhook, so that it is not disabled meanwhile, and returns whether it is enabled.
const LOCK_WEBHOOK: Statement = Statement::PerDialect {
    sqlite: "select enabled from webhook where id = $1 and organization = $2 and mode = $3",
    postgres: "select enabled from webhook where id = $1 and organization = $2 and mode = $3 for no key update",
};

pub(crate) struct SqlWebhooks {
    database: Database,
    master: Option<MasterSecret>,
}

impl SqlWebhooks {
    pub(crate) fn new(database: Database, master: Option<MasterSecret>) -> Self {
        Self { database, master }
    }

    fn master(&self) -> Result<&MasterSecret> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        self.master.as_ref().ok_or_else(missing)
    }

    async fn find(&self, tenant: &Tenant, id: WebhookId) -> Result<Webhook> {
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        let find =
            concat!("select ", webhook_columns!(), " where id = $1 and organization = $2 and mode = $3");
        let row: Option<WebhookRow> = query(OPERATION, find)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(&mut reader)
            .await?;
        row.ok_or_else(|| webhook_not_found(id))?.try_into()
    }
}

#[async_trait]
impl Webhooks for SqlWebhooks {
    fn can_seal(&self) -> bool {
        self.master.is_some()
    }

    /// Counts and inserts in one statement; two at the same moment may both be the last, which costs nothing.
    async fn create(&self, webhook: NewWebhook, limit: u32) -> Result<Webhook> {
        let id = WebhookId::generate();
        let secret = self.master()?.seal(Purpose::Webhook, id.0, &webhook.secret)?;
        let insert = "insert into webhook (id, organization, mode, created_by, url, label, types, album, enabled, \
                      secret, created_at, updated_at) select $1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $10, $10 \
                      where (select count(*) from webhook where organization = $2 and mode = $3) < $11";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let inserted = query(OPERATION, insert)
            .bind(id)
            .bind(webhook.tenant.organization)
            .bind(webhook.tenant.mode.as_str())
            .bind(webhook.created_by)
            .bind(webhook.url)
            .bind(webhook.label)
            .bind(types_to_json(&webhook.types)?)
            .bind(webhook.album)
            .bind(secret)
            .bind(now_micros())
            .bind(i64::from(limit))
            .execute(&mut transaction)
            .await?;
        if inserted == 0 {
            return Err(StoreError::new(StoreErrorKind::Conflict, format!("{limit} webhooks of one tenant")));
        }
        transaction.commit(OPERATION).await?;
        self.find(&webhook.tenant, id).await
    }

    async fn get(&self, tenant: &Tenant, id: WebhookId) -> Result<Webhook> {
        self.find(tenant, id).await
    }

    async fn list(&self, tenant: &Tenant) -> Result<Vec<Webhook>> {
        let list =
            concat!("select ", webhook_columns!(), " where organization = $1 and mode = $2 order by id");
        let rows: Vec<WebhookRow> = query(OPERATION, list)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        convert_rows(rows)
    }

    async fn update(&self, tenant: &Tenant, id: WebhookId, change: WebhookChange) -> Result<Webhook> {
        // Enabling resets the failure counters: earlier failures do not disable it again.
        let update = "update webhook set url = coalesce($4, url), types = coalesce($5, types), \
                      label = coalesce($6, label), enabled = coalesce($7, enabled), \
                      disabled_reason = case when $7 = 1 then null else disabled_reason end, \
                      failing_since = case when $7 = 1 then null else failing_since end, \
                      failing_deliveries = case when $7 = 1 then 0 else failing_deliveries end, updated_at = $8 \
                      where id = $1 and organization = $2 and mode = $3";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let updated = query(OPERATION, update)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(change.url)
            .bind(change.types.as_deref().map(types_to_json).transpose()?)
            .bind(change.label)
            .bind(change.enabled.map(i64::from))
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        if updated == 0 {
            return Err(webhook_not_found(id));
        }
        if change.enabled == Some(false) {
            cancel_pending(&mut transaction, id).await?;
        }
        transaction.commit(OPERATION).await?;
        self.find(tenant, id).await
    }

    async fn delete(&self, tenant: &Tenant, id: WebhookId) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let delete = "delete from webhook where id = $1 and organization = $2 and mode = $3";
        let deleted = query(OPERATION, delete)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .execute(&mut transaction)
            .await?;
        if deleted == 0 {
            return Err(webhook_not_found(id));
        }
        transaction.commit(OPERATION).await
    }

    async fn rotate(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        secret: WebhookSecret,
        overlap: Duration,
    ) -> Result<()> {
        let sealed = self.master()?.seal(Purpose::Webhook, id.0, &secret)?;
        // Receivers have the secret of before the overlap; what was made since may not have come to them yet.
        let rotate = "update webhook set \
                      old_secret = case when old_secret_until > $7 then coalesce(old_secret, secret) else secret end, \
                      old_secret_until = $4, secret = $5, updated_at = $6 \
                      where id = $1 and organization = $2 and mode = $3";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let rotated = query(OPERATION, rotate)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(micros_after(now, overlap))
            .bind(sealed)
            .bind(now_micros())
            .bind(now)
            .execute(&mut transaction)
            .await?;
        if rotated == 0 {
            return Err(webhook_not_found(id));
        }
        transaction.commit(OPERATION).await
    }

    async fn list_deliveries(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        filter: DeliveryQuery,
    ) -> Result<DeliveryPage> {
        self.find(tenant, id).await?;
        let mut snapshot = self.database.begin_snapshot(deliveries::OPERATION).await?;
        deliveries::list(&mut snapshot, id, &filter).await
    }

    async fn get_delivery(
        &self,
        tenant: &Tenant,
        id: WebhookId,
        delivery: DeliveryId,
    ) -> Result<DeliveryDetail> {
        self.find(tenant, id).await?;
        let mut snapshot = self.database.begin_snapshot(deliveries::OPERATION).await?;
        deliveries::get(&mut snapshot, id, delivery).await
    }

    async fn redeliver(&self, tenant: &Tenant, id: WebhookId, redelivery: Redelivery) -> Result<u64> {
        let mut transaction = self.database.begin_write(deliveries::OPERATION).await?;
        let found: Option<(i64,)> = query(deliveries::OPERATION, LOCK_WEBHOOK)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(&mut transaction)
            .await?;
        let (enabled,) = found.ok_or_else(|| webhook_not_found(id))?;
        if enabled == 0 {
            return Err(StoreError::new(StoreErrorKind::Conflict, format!("webhook {id} is disabled")));
        }
        let queued = deliveries::redeliver(&mut transaction, id, redelivery).await?;
        transaction.commit(deliveries::OPERATION).await?;
        Ok(queued)
    }
}

/// Cancels what a webhook is still to be told. Its row is locked.
pub(crate) async fn cancel_pending(transaction: &mut Transaction, id: WebhookId) -> Result<()> {
    let cancel = "update webhook_delivery set state = 'cancelled' where webhook = $1 and state = 'pending'";
    query(OPERATION, cancel).bind(id).execute(transaction).await.map(drop)
}

fn types_to_json(types: &[EventType]) -> Result<String> {
    to_json(&types.iter().map(|event_type| event_type.as_str()).collect::<Vec<_>>())
}

fn webhook_not_found(id: WebhookId) -> StoreError {
    StoreError::not_found(format!("webhook {id}"))
}
