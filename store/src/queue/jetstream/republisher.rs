//! The republisher: finds photos that are marked as published but have no message in the stream. Every replica runs one.
//!
//! Such photos are rare: the stream was lost with its disk or purged by hand, or a message exceeded its deliveries. They
//! are only returned to the outbox. A photo that was not lost after all is published twice and processed once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::settings::QueueSettings;
use super::stream::WorkStream;
use crate::metric_names;
use crate::model::encoding::now_micros;
use crate::traits::{OutboxQueue, Result};

/// The task.
pub(super) struct Republisher {
    pub(super) settings: QueueSettings,
    pub(super) database: Arc<dyn OutboxQueue>,
    pub(super) stream: Arc<WorkStream>,
    /// Wakes the outbox.
    pub(super) wakeup: Arc<Notify>,
}

impl Republisher {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut is_stream_new = false;
        loop {
            match self.republish_lost(is_stream_new).await {
                Ok(()) => is_stream_new = false,
                // For a new stream it is repeated until it succeeds.
                Err(error) => tracing::debug!(%error, "failed to look for lost messages"),
            }
            let interval =
                if is_stream_new { Duration::from_secs(1) } else { self.settings.republish_interval };
            let pause = tokio::time::sleep(interval);
            tokio::pin!(pause);
            tokio::select! {
                () = self.stream.wait_until_recreated() => is_stream_new = true,
                () = &mut pause => {}
            }
        }
    }

    async fn republish_lost(&self, is_stream_new: bool) -> Result<()> {
        // A stream that was just created has none of the photos, or drops their copies. No time is compared then,
        // because the clock of the database may differ.
        let before = if is_stream_new { i64::MAX } else { self.query_cutoff().await? };
        let republished = self.database.republish(before).await?;
        if republished > 0 {
            metrics::counter!(metric_names::QUEUE_SWEPT).increment(republished);
            tracing::warn!(photos = republished, "republishing photos whose messages were lost");
            self.wakeup.notify_one();
        }
        Ok(())
    }

    /// Returns the time before which a photo must have been published to count as lost if it still waits.
    async fn query_cutoff(&self) -> Result<i64> {
        let oldest = self.stream.oldest_timestamp().await?;
        Ok(compute_cutoff(&self.settings, now_micros(), oldest))
    }
}

/// Computes the cutoff; all times in microseconds. An empty stream contains no photo, another stream none older than its
/// oldest message. A message that is never removed does not hide lost photos: what has waited for long counts as lost,
/// and a surplus message costs little.
fn compute_cutoff(settings: &QueueSettings, now: i64, oldest: Option<i64>) -> i64 {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let oldest = oldest.map_or(now, |oldest| oldest.min(now));
    let older_than_stream = oldest.saturating_sub(micros(settings.grace()));
    older_than_stream.max(now.saturating_sub(micros(settings.republish_after())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_photo_is_lost_when_it_is_older_than_every_message_in_the_stream() {
        let settings = QueueSettings {
            url: "nats://one".into(),
            credentials: None,
            stream: "photofinish".into(),
            replicas: 1,
            ack_wait: Duration::from_secs(60),
            republish_interval: Duration::from_secs(60),
        };
        let now = 10_000 * SECOND;
        let age_of_cutoff = |oldest| (now - compute_cutoff(&settings, now, oldest)) / SECOND;
        assert_eq!(age_of_cutoff(None), 90, "an empty stream");
        assert_eq!(age_of_cutoff(Some(now - 100 * SECOND)), 190, "a backlog");
        assert_eq!(age_of_cutoff(Some(now - 5000 * SECOND)), 600, "a message that is never removed");
        assert_eq!(age_of_cutoff(Some(now + 300 * SECOND)), 90, "a server whose clock is ahead");
    }
}
