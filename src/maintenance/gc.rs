//! The storage swept once a day, for services that have nobody beside them to do it.

use std::time::Duration;

use photofinish_store::{GcOptions, Store};
use time::OffsetDateTime;

use crate::config::GcSettings;

/// The first sweep after a start, so that a service that is restarted every night is swept too.
const FIRST_RUN_DELAY: Duration = Duration::from_secs(3600);
const RUN_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// An album whose deletion began so long ago is being deleted by nobody any more, most likely; two at it do no harm.
const STALLED_DELETION_AGE: Duration = Duration::from_secs(600);

/// Sweeps until the end. Cut off anywhere: what a sweep did not get to is found by the next one.
pub async fn run_daily_gc(store: Store, sweeping: GcSettings, end: impl Future<Output = ()>) {
    if !sweeping.is_daily {
        return;
    }
    tokio::select! {
        () = end => {}
        () = run_gc_forever(&store, sweeping) => {}
    }
}

async fn run_gc_forever(store: &Store, sweeping: GcSettings) {
    let terms = GcOptions { min_age: sweeping.min_age, is_dry_run: false };
    let mut pause = FIRST_RUN_DELAY;
    loop {
        // Several services that were started together do not sweep together.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.9..1.1))).await;
        match store.collect_garbage(terms).await {
            Ok(swept) => tracing::info!(?swept, "the storage was swept"),
            Err(error) => tracing::warn!(%error, "the storage is swept at the next turn"),
        }
        pause = RUN_INTERVAL;
    }
}

/// Finishes deletions of albums whose process died.
pub async fn finish_stalled_deletions(store: &Store) {
    if let Err(error) = store.finish_deletions(OffsetDateTime::now_utc() - STALLED_DELETION_AGE).await {
        tracing::warn!(%error, "deletions that broke off stay until the next try");
    }
}
