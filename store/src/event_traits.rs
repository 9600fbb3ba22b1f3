//! Events: who reads them and who publishes them. The traits are part of [`crate::traits`].

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::error::StoreError;
use crate::model::album::Tenant;
use crate::model::event::{Event, EventLoss, EventPage, EventQuery, KeptChanges, PublishedEvents};
use crate::model::process::TaskLease;

type Result<T> = std::result::Result<T, StoreError>;

/// Published events. An event with a smaller sequence than one that is visible is visible too.
#[async_trait]
pub trait Events: Send + Sync {
    /// Returns a page of a tenant's events, oldest first. A position behind the newest event, which only a restored
    /// database can have forgotten, counts as that of the newest.
    async fn list(&self, tenant: &Tenant, query: EventQuery) -> Result<EventPage>;
    /// Returns the events of all tenants after a sequence, oldest first.
    async fn read_after(&self, sequence: i64, limit: u32) -> Result<Vec<Event>>;
    /// Returns the sequence of the newest event of all tenants; 0 if there is none.
    async fn newest(&self) -> Result<i64>;
    /// Returns what a tenant has missed that asks for its events after a sequence; `None` if nothing.
    async fn find_loss(&self, tenant: &Tenant, after: i64) -> Result<Option<EventLoss>>;
}

/// Makes events of what happened. Only the holder of the task may.
#[async_trait]
pub trait EventPublisher: Send + Sync {
    /// Whether there is something to publish now. Costs a few index probes and no write.
    async fn is_due(&self) -> Result<bool>;
    /// Publishes some of what is due, in one transaction. `Conflict` when another process has the task.
    async fn publish(&self, lease: TaskLease) -> Result<PublishedEvents>;
    /// Whether the oldest event is from before a time.
    async fn has_expired(&self, before: OffsetDateTime) -> Result<bool>;
    /// Deletes some of the events from before a time, the oldest; returns how many. One with a pending delivery keeps itself and
    /// those after it, for 3 days at most. `Conflict` when another process has the task.
    async fn remove_expired(&self, lease: TaskLease, before: OffsetDateTime) -> Result<u64>;
    /// Whether an album has changes that were published and are not kept.
    async fn has_prunable_changes(&self, kept: &KeptChanges) -> Result<bool>;
    /// Deletes some of these changes of albums; returns how many rows. A face index that has not read them reads the album
    /// again. `Conflict` when another process has the task.
    async fn prune_changes(&self, lease: TaskLease, kept: &KeptChanges) -> Result<u64>;
}
