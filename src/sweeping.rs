//! The storage swept once a day, for services that have nobody beside them to do it.

use std::time::Duration;

use photofinish_store::{Store, SweepTerms};
use time::OffsetDateTime;

use crate::config::Sweeping;

/// The first sweep after a start, so that a service that is restarted every night is swept too.
const FIRST: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An album whose deletion began so long ago is being deleted by nobody any more, most likely; two at it do no harm.
const GIVEN_UP: Duration = Duration::from_secs(600);

/// Sweeps until the end. Cut off anywhere: what a sweep did not get to is found by the next one.
pub async fn sweep_daily(store: Store, sweeping: Sweeping, end: impl Future<Output = ()>) {
    if !sweeping.is_daily {
        return;
    }
    tokio::select! {
        () = end => {}
        () = sweep_on(&store, sweeping) => {}
    }
}

async fn sweep_on(store: &Store, sweeping: Sweeping) {
    let terms = SweepTerms { older_than: sweeping.older_than, is_dry: false };
    let mut pause = FIRST;
    loop {
        // Several services that were started together do not sweep together.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.9..1.1))).await;
        match store.sweep(terms).await {
            Ok(swept) => tracing::info!(?swept, "the storage was swept"),
            Err(error) => tracing::warn!(%error, "the storage is swept at the next turn"),
        }
        pause = DAY;
    }
}

/// Finishes deletions of albums whose process died.
pub async fn finish_deletions(store: &Store) {
    if let Err(error) = store.finish_deletions(OffsetDateTime::now_utc() - GIVEN_UP).await {
        tracing::warn!(%error, "deletions that broke off stay until the next try");
    }
}
