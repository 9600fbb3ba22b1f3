//! Garbage collection of the storage: once a day in role `all`, for installations without a timer that runs
//! `photofinish sweep`. What killed uploads left in a folder is removed every hour, by every process.

use std::time::Duration;

use photofinish_store::{GcOptions, Store};
use time::OffsetDateTime;

/// Delay of the first run after a start: short, so that a service restarted every night is collected too.
const FIRST_RUN_DELAY: Duration = Duration::from_secs(3600);
const RUN_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How often it is looked for what uploads left whose process was killed: a selfie is not to stay for a day.
const ABANDONED_INTERVAL: Duration = Duration::from_hours(1);

/// A deletion that began this long ago has probably lost its process. Two processes may delete the same album safely.
const STALLED_DELETION_AGE: Duration = Duration::from_secs(600);

/// Collects garbage every day until it is dropped, which may be at any point: the next run finds the rest.
pub async fn run_daily_gc(store: &Store, options: GcOptions) {
    let mut pause = FIRST_RUN_DELAY;
    loop {
        // Random, so that services started together do not run together.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.9..1.1))).await;
        match store.collect_garbage(options).await {
            Ok(report) => tracing::info!(
                listed = report.listed,
                removed = report.removed,
                removed_bytes = report.removed_bytes,
                unrecognised = report.unrecognised,
                finished_albums = report.finished_albums,
                "collected garbage of the storage"
            ),
            Err(error) => tracing::warn!(%error, "failed to collect garbage, retrying in a day"),
        }
        pause = RUN_INTERVAL;
    }
}

/// Removes what killed uploads left in the storage's folder, until it is dropped. A bucket keeps nothing of an upload that did not
/// end.
pub async fn remove_abandoned_uploads_forever(store: &Store) {
    let Some(files) = &store.local else { return };
    let mut interval = tokio::time::interval(ABANDONED_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = files.remove_abandoned_uploads().await {
            tracing::warn!(%error, "failed to remove what killed uploads left, retrying in an hour");
        }
    }
}

/// Finishes deletions of albums that a dead process began.
pub async fn finish_stalled_deletions(store: &Store) {
    if let Err(error) = store.finish_deletions(OffsetDateTime::now_utc() - STALLED_DELETION_AGE).await {
        tracing::warn!(%error, "failed to finish deletions of albums, retrying in 10 s");
    }
}
