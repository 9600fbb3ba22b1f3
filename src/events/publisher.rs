//! Publishes events, in one process at a time. Whoever finds something to publish takes the task, and keeps it while there is
//! more; where nothing happens nobody writes anything.

use std::time::Duration;

use photofinish_store::model::event::KeptChanges;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use time::OffsetDateTime;
use tokio::time::{Instant, MissedTickBehavior, sleep};

/// How often the publisher looks for something to publish.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a process has the task after it last took it, and how often it takes it again.
const LEASE_TTL: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// When a process asks again for a task that another has.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How often old events are deleted.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Publishes events until it is dropped.
pub async fn publish_forever(store: &Store, holder: ProcessId) {
    Publisher { store, holder }.publish_forever().await;
}

/// Deletes events older than `retention`, and the changes that nobody needs, until it is dropped.
pub async fn remove_old_forever(store: &Store, holder: ProcessId, retention: Duration) {
    Publisher { store, holder }.remove_old_forever(retention).await;
}

/// Gives the task back, so that another process goes on at once.
pub async fn release(store: &Store, holder: ProcessId) {
    if let Err(error) = store.tasks.release(TaskLease { task: Task::EventPublisher, holder }).await {
        tracing::warn!(%error, "failed to release the publishing of events");
    }
}

struct Publisher<'s> {
    store: &'s Store,
    holder: ProcessId,
}

impl Publisher<'_> {
    async fn publish_forever(&self) {
        let mut held: Option<HeldTask> = None;
        let mut is_failing = false;
        loop {
            sleep(POLL_INTERVAL).await;
            let published = self.publish_due(&mut held).await;
            match &published {
                Err(error) if error.kind == StoreErrorKind::Conflict => held = None,
                // Once per outage: four lines a second would bury all others.
                Err(error) if !is_failing => {
                    tracing::warn!(%error, "failed to publish events, retrying every 250 ms");
                }
                _ => {}
            }
            is_failing = published.is_err();
            if held.is_none() && published.is_ok_and(|is_due| is_due) {
                sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Publishes all that is due if this process has or gets the task; returns whether something was due.
    async fn publish_due(&self, held: &mut Option<HeldTask>) -> Result<bool, StoreError> {
        if !self.store.event_publisher.is_due().await? {
            return Ok(false);
        }
        loop {
            if held.as_ref().is_none_or(|held| held.taken_at.elapsed() >= RENEW_INTERVAL) {
                *held = self.take_task().await?;
            }
            let Some(HeldTask { lease, .. }) = held else { return Ok(true) };
            if !self.store.event_publisher.publish(*lease).await?.has_more {
                return Ok(true);
            }
        }
    }

    async fn take_task(&self) -> Result<Option<HeldTask>, StoreError> {
        let taken_at = Instant::now();
        let lease = self.store.tasks.take(Task::EventPublisher, self.holder, LEASE_TTL).await?;
        Ok(lease.map(|lease| HeldTask { lease, taken_at }))
    }

    async fn remove_old_forever(&self, retention: Duration) {
        let mut interval = tokio::time::interval(RETENTION_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            report_removed("events", self.remove_expired(retention).await);
            report_removed("changes of albums", self.prune_changes().await);
        }
    }

    /// Deletes events that are too old; returns how many.
    async fn remove_expired(&self, retention: Duration) -> Result<u64, StoreError> {
        let before = OffsetDateTime::now_utc() - retention;
        if !self.store.event_publisher.has_expired(before).await? {
            return Ok(0);
        }
        let mut removed = 0;
        while let Some(HeldTask { lease, .. }) = self.take_task().await? {
            let batch = self.store.event_publisher.remove_expired(lease, before).await?;
            removed += batch;
            if batch == 0 {
                break;
            }
        }
        Ok(removed)
    }

    /// Deletes changes of albums that nobody needs; returns how many.
    async fn prune_changes(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        while self.store.event_publisher.has_prunable_changes(&KeptChanges::OF_SERVICE).await? {
            let Some(HeldTask { lease, .. }) = self.take_task().await? else { break };
            removed += self.store.event_publisher.prune_changes(lease, &KeptChanges::OF_SERVICE).await?;
        }
        Ok(removed)
    }
}

/// Logs how many old rows were deleted.
fn report_removed(what: &'static str, removed: Result<u64, StoreError>) {
    match removed {
        Ok(0) => {}
        Ok(removed) => tracing::info!(what, removed, "deleted what is old"),
        // Another process has the task, and does this too.
        Err(error) if error.kind == StoreErrorKind::Conflict => {}
        Err(error) => tracing::warn!(what, %error, "failed to delete what is old, retrying in 60 s"),
    }
}

/// The task, and when this process took it.
struct HeldTask {
    lease: TaskLease,
    taken_at: Instant,
}

#[cfg(test)]
mod tests {
    use photofinish_store::conformance::{AlbumFixture, album_config, test_settings};
    use photofinish_store::model::event::EventQuery;

    use super::*;

    #[tokio::test]
    async fn events_are_deleted_once_they_are_older_than_they_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        fixture.create_album(album_config()).await.delete().await;
        let publisher = Publisher { store: &store, holder: ProcessId::generate() };
        assert!(publisher.publish_due(&mut None).await.unwrap(), "an album was deleted");
        let count = async || {
            let query = EventQuery { after: 0, types: Vec::new(), album: None, limit: 100 };
            store.events.list(&fixture.tenant, query).await.unwrap().events.len()
        };
        assert_eq!(count().await, 1);
        let week = Duration::from_hours(7 * 24);
        assert_eq!(publisher.remove_expired(week).await.unwrap(), 0);
        assert_eq!(count().await, 1);
        assert_eq!(publisher.remove_expired(Duration::ZERO).await.unwrap(), 1);
        assert_eq!(count().await, 0);
    }
}
