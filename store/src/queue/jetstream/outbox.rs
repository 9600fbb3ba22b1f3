//! The outbox: publishes queued photos to the stream, a bounded lead ahead of the workers. Every replica runs one.
//!
//! A photo is confirmed in the database alone. The outbox publishes the photos without a message and then marks them as
//! published. If it dies in between, the next one publishes them again: the stream drops the copy by its id, and a copy
//! that arrives after the stream has forgotten the first finds its photo leased or finished. Any number of outboxes can
//! run without knowing of each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::stream::{Lag, WorkStream};
use crate::error::StoreError;
use crate::metric_names;
use crate::traits::{OutboxQueue, Result};

/// The smallest lead, in photos: keeps a worker busy while the next batch is published.
const MIN_LEAD: usize = 64;

/// The largest lead, in photos: enough for a hundred workers without long queries.
const MAX_LEAD: usize = 4096;

/// How many photos are published at once and marked in one transaction.
const BATCH_SIZE: usize = 512;

/// How often the outbox runs without a wakeup. A photo waits this long if its publisher died, or if another process
/// confirmed it while the lead was exhausted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The task.
pub(super) struct Outbox {
    pub(super) database: Arc<dyn OutboxQueue>,
    pub(super) stream: Arc<WorkStream>,
    /// Notified when photos were queued, and when workers have pulled some.
    pub(super) wakeup: Arc<Notify>,
}

impl Outbox {
    /// Publishes until it is dropped.
    pub(super) async fn run(self) {
        let mut is_failing = false;
        loop {
            match self.publish_pending().await {
                Ok(()) => is_failing = false,
                Err(error) => {
                    metrics::counter!(metric_names::QUEUE_PUBLISH_ERRORS).increment(1);
                    log_failure(is_failing, &error);
                    is_failing = true;
                }
            }
            // A notification is not lost while the task is busy. After an error notifications do not shorten the pause.
            let pause = tokio::time::sleep(POLL_INTERVAL);
            tokio::pin!(pause);
            tokio::select! {
                () = self.wakeup.notified(), if !is_failing => {}
                () = &mut pause => {}
            }
        }
    }

    /// Publishes until the lead is exhausted or no photo is left.
    async fn publish_pending(&self) -> Result<()> {
        loop {
            let lag = self.stream.lag().await?;
            metrics::gauge!(metric_names::QUEUE_STREAM_LAG).set(lag.waiting as f64);
            metrics::gauge!(metric_names::QUEUE_STREAM_HELD).set(lag.unacknowledged as f64);
            let quota = publish_quota(lag).min(BATCH_SIZE);
            if quota == 0 {
                return Ok(());
            }
            let photos = self.database.list_unpublished(quota).await?;
            if photos.is_empty() {
                return Ok(());
            }
            let published = self.stream.publish(&photos).await?;
            let fresh = published.stored.len() - published.duplicates;
            metrics::counter!(metric_names::QUEUE_PUBLISHED).increment(fresh as u64);
            self.database.mark_published(&published.stored).await?;
            if let Some(error) = published.error {
                return Err(error);
            }
            // Only duplicates: another outbox is publishing the same photos and goes on with them.
            if fresh == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns how many photos may be published. The stream may contain as many as the workers have, so that it is empty
/// after the time that a photo spends in a worker. Returns 0 until a quarter is free, because each batch is a transaction.
fn publish_quota(lag: Lag) -> usize {
    let lead = lag.unacknowledged.clamp(MIN_LEAD, MAX_LEAD);
    let quota = lead.saturating_sub(lag.waiting);
    if quota < lead / 4 { 0 } else { quota }
}

/// Logs the first failure of an outage as a warning.
fn log_failure(is_failing: bool, error: &StoreError) {
    let cause = error.source.as_ref().map(ToString::to_string);
    if is_failing {
        tracing::debug!(%error, cause, "failed to publish photos again");
    } else {
        tracing::warn!(%error, cause, "failed to publish photos, retrying every second");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_ahead_by_what_the_workers_have() {
        assert_eq!(publish_quota(Lag { waiting: 0, unacknowledged: 0 }), MIN_LEAD);
        assert_eq!(publish_quota(Lag { waiting: 40, unacknowledged: 10 }), 24);
        assert_eq!(publish_quota(Lag { waiting: 0, unacknowledged: 1000 }), 1000);
        assert_eq!(publish_quota(Lag { waiting: 0, unacknowledged: 1_000_000 }), MAX_LEAD);
    }

    #[test]
    fn nothing_is_published_while_the_stream_is_nearly_full() {
        assert_eq!(publish_quota(Lag { waiting: 49, unacknowledged: 0 }), 0);
        assert_eq!(publish_quota(Lag { waiting: 48, unacknowledged: 0 }), 16);
        assert_eq!(publish_quota(Lag { waiting: 5000, unacknowledged: 100 }), 0);
    }
}
