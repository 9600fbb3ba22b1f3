//! The sweeper: finds photos that the rows count as published and the stream does not have. Every replica runs one.
//!
//! Such photos are rare: a stream that was lost with its disk, purged by hand, or whose message ran out of deliveries.
//! They are only handed to the outbox again; a photo that was not lost after all is published twice and read once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::settings::QueueSettings;
use super::stream::WorkStream;
use crate::metric_names;
use crate::sql::row_types::now;
use crate::traits::{OutboxQueue, Result};

/// The task.
pub(crate) struct Republisher {
    pub(crate) settings: QueueSettings,
    pub(crate) database: Arc<dyn OutboxQueue>,
    pub(crate) stream: Arc<WorkStream>,
    /// The outbox's.
    pub(crate) wakeup: Arc<Notify>,
}

impl Republisher {
    /// Sweeps until it is dropped.
    pub(crate) async fn run(self) {
        let mut is_new = false;
        loop {
            match self.republish_lost(is_new).await {
                Ok(()) => is_new = false,
                // A new stream is swept for until that has worked.
                Err(error) => tracing::debug!(%error, "no sweep now"),
            }
            let pause = if is_new { Duration::from_secs(1) } else { self.settings.republish_interval };
            let pause = tokio::time::sleep(pause);
            tokio::pin!(pause);
            tokio::select! {
                () = self.stream.wait_until_recreated() => is_new = true,
                () = &mut pause => {}
            }
        }
    }

    async fn republish_lost(&self, is_new: bool) -> Result<()> {
        // Nothing that was published is in a stream that was just made, or the stream drops its copy; and no clock is
        // asked, for the rows may have another one.
        let before = if is_new { i64::MAX } else { self.query_cutoff().await? };
        let swept = self.database.republish(before).await?;
        if swept > 0 {
            metrics::counter!(metric_names::QUEUE_SWEPT).increment(swept);
            tracing::warn!(photos = swept, "photos that the stream does not have are published again");
            self.wakeup.notify_one();
        }
        Ok(())
    }

    /// Published before this moment and still waiting, a photo cannot be in the stream: an empty stream has none,
    /// another none that is older than its oldest message.
    async fn query_cutoff(&self) -> Result<i64> {
        let oldest = self.stream.oldest_timestamp().await?;
        Ok(compute_cutoff(&self.settings, now(), oldest))
    }
}

/// All in microseconds. A message that stays for ever does not make the sweeper blind: what waits for long is taken
/// for lost, and if it was not, a copy costs little.
fn compute_cutoff(settings: &QueueSettings, now: i64, oldest: Option<i64>) -> i64 {
    let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let oldest = oldest.map_or(now, |oldest| oldest.min(now));
    let not_there = oldest.saturating_sub(micros(settings.grace()));
    not_there.max(now.saturating_sub(micros(settings.republish_after())))
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
        let at = |oldest| (now - compute_cutoff(&settings, now, oldest)) / SECOND;
        assert_eq!(at(None), 90, "empty");
        assert_eq!(at(Some(now - 100 * SECOND)), 190, "behind a backlog");
        assert_eq!(at(Some(now - 5000 * SECOND)), 600, "a message that stays");
        assert_eq!(at(Some(now + 300 * SECOND)), 90, "a server whose clock is ahead");
    }
}
