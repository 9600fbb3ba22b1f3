//! Periodic work of every process: measures the queue, finishes stalled deletions, removes expired selfies, refreshes the
//! face index, trims the metrics recorder, returns memory to the system, and collects garbage of the storage.

mod gc;
mod memory;
mod probes;
mod queue;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use photofinish_store::{GcOptions, Store};
use tokio::sync::watch;

use self::gc::{finish_stalled_deletions, run_daily_gc};
use self::memory::return_memory_forever;
use self::probes::remove_expired_forever;
use self::queue::measure_queue_forever;
use crate::shutdown::wait_until_stopped;

/// Time between the starts of two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two refreshes of the face index: faces that another process has deleted leave the memory of this one
/// within a minute.
const FACE_REFRESH_INTERVAL: Duration = Duration::from_secs(20);

/// Runs a round every [`ROUND_INTERVAL`], beside it what may take longer (measuring the queue, removing selfies, refreshing
/// the face index), what depends on whether photos are processed (returning memory), and garbage
/// collection where it is configured, until the service stops.
pub async fn run(
    store: Store,
    gc: Option<GcOptions>,
    metrics: PrometheusHandle,
    is_idle: impl Fn() -> bool,
    stopped: watch::Receiver<bool>,
) {
    if let Some(options) = gc {
        tokio::spawn(run_daily_gc(store.clone(), options, wait_until_stopped(stopped.clone())));
    }
    // Interrupts everything: a store that does not respond must not delay the stop.
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = run_rounds(&store, &metrics) => {}
        () = remove_expired_forever(&store) => {}
        () = store.refresh_faces_every(FACE_REFRESH_INTERVAL) => {}
        () = measure_queue_forever(&store) => {}
        () = return_memory_forever(is_idle) => {}
    }
}

async fn run_rounds(store: &Store, metrics: &PrometheusHandle) {
    let mut interval = tokio::time::interval(ROUND_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
        finish_stalled_deletions(store).await;
    }
}
