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
use crate::supervision::restart_after_panic;

/// How often metrics are trimmed, and stalled deletions looked for.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two refreshes of the face index: faces that another process has deleted leave the memory of this one
/// within a minute.
const FACE_REFRESH_INTERVAL: Duration = Duration::from_secs(20);

/// Does all of it side by side until the service stops, each part as often as it needs; garbage collection where it is
/// configured.
pub async fn run(
    store: Store,
    gc: Option<GcOptions>,
    metrics: PrometheusHandle,
    is_idle: impl Fn() -> bool,
    stopped: watch::Receiver<bool>,
) {
    let (store, is_idle) = (&store, &is_idle);
    let parts = async {
        tokio::join!(
            restart_after_panic("metrics upkeep", stopped.clone(), |_| run_upkeep_forever(&metrics)),
            restart_after_panic("finish deletions", stopped.clone(), |_| finish_deletions_forever(store)),
            restart_after_panic("remove selfies", stopped.clone(), |_| remove_expired_forever(store)),
            restart_after_panic("refresh faces", stopped.clone(), |_| {
                store.refresh_faces_every(FACE_REFRESH_INTERVAL)
            }),
            restart_after_panic("measure queue", stopped.clone(), |_| measure_queue_forever(store)),
            restart_after_panic("return memory", stopped.clone(), |_| return_memory_forever(is_idle)),
            restart_after_panic("collect garbage", stopped.clone(), |_| collect_garbage(store, gc)),
        );
    };
    // Interrupts everything: a store that does not respond must not delay the stop.
    tokio::select! {
        () = wait_until_stopped(stopped.clone()) => {}
        () = parts => {}
    }
}

async fn collect_garbage(store: &Store, gc: Option<GcOptions>) {
    if let Some(options) = gc {
        run_daily_gc(store, options).await;
    }
}

async fn run_upkeep_forever(metrics: &PrometheusHandle) {
    let mut interval = tokio::time::interval(ROUND_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

async fn finish_deletions_forever(store: &Store) {
    let mut interval = tokio::time::interval(ROUND_INTERVAL);
    loop {
        interval.tick().await;
        finish_stalled_deletions(store).await;
    }
}
