//! The outbox: publishes queued photos, a bounded lead ahead of the workers. Every replica runs one.
//!
//! A photo is confirmed in the rows alone, which the outbox follows: it publishes what no message names yet and then
//! notes it in the rows. When it dies in between, the next one publishes again; the stream drops the copy by its id,
//! and a copy that comes later than the stream remembers finds its photo held or over. So there may be any number of
//! outboxes, and they need not know of each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::stream::{Lag, WorkStream};
use crate::error::StoreError;
use crate::metric_names;
use crate::traits::{OutboxQueue, Result};

/// The least lead: what keeps a worker busy while the next round is on its way.
const MIN_LEAD: usize = 64;

/// The largest: enough for a hundred workers, and no query too long.
const MAX_LEAD: usize = 4096;

/// How many photos are published at once and noted in one transaction.
const BATCH_SIZE: usize = 512;

/// How often the outbox looks when nobody rings: what a photo waits whose publisher died, or that another process
/// confirmed while there was no room.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The task.
pub(crate) struct Outbox {
    pub(crate) database: Arc<dyn OutboxQueue>,
    pub(crate) stream: Arc<WorkStream>,
    /// Rings when photos were queued, and when workers took some.
    pub(crate) wakeup: Arc<Notify>,
}

impl Outbox {
    /// Publishes until it is dropped.
    pub(crate) async fn run(self) {
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
            // A ring is not lost while the task is busy. After an error nobody's ring makes it try sooner.
            let tick = tokio::time::sleep(POLL_INTERVAL);
            tokio::pin!(tick);
            tokio::select! {
                () = self.wakeup.notified(), if !is_failing => {}
                () = &mut tick => {}
            }
        }
    }

    /// Publishes until the stream is as far ahead as it may be, or nothing is left.
    async fn publish_pending(&self) -> Result<()> {
        loop {
            let lag = self.stream.lag().await?;
            metrics::gauge!(metric_names::QUEUE_STREAM_LAG).set(lag.waiting as f64);
            metrics::gauge!(metric_names::QUEUE_STREAM_HELD).set(lag.unacknowledged as f64);
            let room = publish_quota(lag).min(BATCH_SIZE);
            if room == 0 {
                return Ok(());
            }
            let photos = self.database.unpublished(room).await?;
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
            // Nothing new in it: another outbox is at the same photos and goes on with them.
            if fresh == 0 {
                return Ok(());
            }
        }
    }
}

/// How many photos may be published: the stream may hold as many as the workers have, so that it is worked off in the
/// time that a photo spends in a worker. Not before a quarter is free: a round is a transaction.
fn publish_quota(lag: Lag) -> usize {
    let lead = lag.unacknowledged.clamp(MIN_LEAD, MAX_LEAD);
    let room = lead.saturating_sub(lag.waiting);
    if room < lead / 4 { 0 } else { room }
}

fn log_failure(is_failing: bool, error: &StoreError) {
    let cause = error.source.as_ref().map(ToString::to_string);
    if is_failing {
        tracing::debug!(%error, cause, "photos are still not published");
    } else {
        tracing::warn!(%error, cause, "photos are not published until the queue is back; they wait in the rows");
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
    fn a_stream_that_is_nearly_full_is_left_alone() {
        assert_eq!(publish_quota(Lag { waiting: 49, unacknowledged: 0 }), 0);
        assert_eq!(publish_quota(Lag { waiting: 48, unacknowledged: 0 }), 16);
        assert_eq!(publish_quota(Lag { waiting: 5000, unacknowledged: 100 }), 0);
    }
}
