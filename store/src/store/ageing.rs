//! Time that passes at once, for tests of schedules of minutes and days, and what another process does at the same moment.

use std::time::Duration;

use super::Store;
use crate::error::StoreError;
use crate::model::ids::{AlbumId, OrganizationId, WebhookId};
use crate::sql;

impl Store {
    /// Lets time pass for accounts: their links and sessions are so much older.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn age_accounts(&self, by: Duration) -> Result<(), StoreError> {
        sql::age_accounts(&self.database, by).await
    }

    /// Lets time pass for webhooks: what is due or has failed is so much older.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn age_webhooks(&self, by: Duration) -> Result<(), StoreError> {
        sql::age_webhooks(&self.database, by).await
    }

    /// Makes what was cancelled of a webhook pending, as a publisher leaves it that commits just after the webhook was disabled.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn publish_late(&self, webhook: WebhookId) -> Result<(), StoreError> {
        sql::publish_late(&self.database, webhook).await
    }

    /// Lets time pass for the events of an album: what happened to its photos, and what was told, is so much older.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn age_events(&self, album: AlbumId, by: Duration) -> Result<(), StoreError> {
        sql::age_events(&self.database, album, by).await
    }

    /// Lets days pass for the credits of an organization: its grants and refills are so much older, also those that this
    /// process remembers.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn age_credits(&self, organization: OrganizationId, days: i64) -> Result<(), StoreError> {
        sql::age_credits(&self.database, self.sql_queue.ledger(), organization, days).await
    }
}
