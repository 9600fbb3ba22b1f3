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
use crate::traits::{OutboxQueue, Result, UnpublishedPhotos};

/// The smallest lead, in cost (photos of 24 megapixels without a grid): keeps a worker busy while the next batch is
/// published.
const MIN_LEAD: u64 = 64;

/// The largest lead, in cost: enough for a hundred workers without long queries.
const MAX_LEAD: u64 = 4096;

/// The cost of the photos that are published at once and marked in one transaction.
const BATCH_COST: u64 = 512;

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
        let mut message_cost = 1;
        loop {
            match self.publish_pending(&mut message_cost).await {
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

    /// Publishes until the lead is exhausted or no photo is left. `message_cost` is the estimated cost of a message in the
    /// stream: the average of those that were published last.
    async fn publish_pending(&self, message_cost: &mut u64) -> Result<()> {
        loop {
            let lag = self.stream.lag().await;
            // NaN: a dashboard must not show what was there before an outage.
            let (waiting, held) = lag
                .as_ref()
                .map_or((f64::NAN, f64::NAN), |lag| (lag.waiting as f64, lag.unacknowledged as f64));
            metrics::gauge!(metric_names::QUEUE_STREAM_LAG).set(waiting);
            metrics::gauge!(metric_names::QUEUE_STREAM_HELD).set(held);
            let lag = lag?;
            let quota = publish_quota(lag, *message_cost).min(BATCH_COST);
            if quota == 0 {
                return Ok(());
            }
            let UnpublishedPhotos { photos, cost } = self.database.list_unpublished(quota).await?;
            if photos.is_empty() {
                return Ok(());
            }
            *message_cost = cost.div_ceil(photos.len() as u64);
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

/// Returns what the photos that may be published now may cost. The stream may contain as much work as the workers have, so
/// that it is empty after the time that a photo spends in a worker: others wait behind it, however fair the outbox is.
/// Returns 0 until a quarter is free, because each batch is a transaction.
fn publish_quota(lag: Lag, message_cost: u64) -> u64 {
    let cost = |messages: usize| (messages as u64).saturating_mul(message_cost);
    let lead = cost(lag.unacknowledged).clamp(MIN_LEAD, MAX_LEAD);
    let quota = lead.saturating_sub(cost(lag.waiting));
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
        let quota = |waiting, unacknowledged| publish_quota(Lag { waiting, unacknowledged }, 1);
        assert_eq!(quota(0, 0), MIN_LEAD);
        assert_eq!(quota(40, 10), 24);
        assert_eq!(quota(0, 1000), 1000);
        assert_eq!(quota(0, 1_000_000), MAX_LEAD);
    }

    #[test]
    fn nothing_is_published_while_the_stream_is_nearly_full() {
        let quota = |waiting, unacknowledged| publish_quota(Lag { waiting, unacknowledged }, 1);
        assert_eq!(quota(49, 0), 0);
        assert_eq!(quota(48, 0), 16);
        assert_eq!(quota(5000, 100), 0);
    }

    /// A photo of another organization waits behind the lead.
    #[test]
    fn of_costly_photos_the_stream_is_ahead_by_few() {
        let quota = |waiting, unacknowledged| publish_quota(Lag { waiting, unacknowledged }, 33);
        assert_eq!(quota(0, 0), MIN_LEAD);
        assert_eq!(quota(1, 0), MIN_LEAD - 33);
        assert_eq!(quota(2, 0), 0);
        assert_eq!(quota(2, 10), 264);
    }
}
