//! Periodic work of every process: measures the queue, finishes stalled deletions, removes expired selfies, refreshes the
//! face index, trims the metrics recorder, returns memory to the system, removes what killed uploads left, and collects garbage
//! of the storage.

mod gc;
mod memory;
mod probes;
mod queue;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use photofinish_store::model::ids::ProcessId;
use photofinish_store::{GcOptions, Store};
use tokio::sync::watch;

use self::gc::{finish_stalled_deletions, remove_abandoned_uploads_forever, run_daily_gc};
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
    process: ProcessId,
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
            restart_after_panic("remove selfies", stopped.clone(), |_| {
                remove_expired_forever(store, process)
            }),
            restart_after_panic("refresh faces", stopped.clone(), |_| {
                store.refresh_faces_every(FACE_REFRESH_INTERVAL)
            }),
            restart_after_panic("measure queue", stopped.clone(), |_| measure_queue_forever(store)),
            restart_after_panic("remove abandoned uploads", stopped.clone(), |_| {
                remove_abandoned_uploads_forever(store)
            }),
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Instant, SystemTime};

    use metrics_exporter_prometheus::PrometheusBuilder;
    use photofinish_store::conformance::test_settings;

    use super::*;

    /// How long the test waits for what is done every hour, first at the start.
    const WAIT_LIMIT: Duration = Duration::from_secs(60);

    /// The folder was opened when the file was young: a service may be started again at once after a kill.
    #[tokio::test]
    async fn what_a_killed_upload_left_is_removed_while_the_service_runs() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let left = folder.path().join("objects/scratch/selfie.part");
        let file = File::create(&left).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(2)).unwrap();
        let (_stop, stopped) = watch::channel(false);
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let gone = async {
            let begun = Instant::now();
            while left.exists() {
                assert!(begun.elapsed() < WAIT_LIMIT, "it is still there");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = run(store, ProcessId::generate(), None, metrics, || false, stopped) => panic!("maintenance ended"),
            () = gone => {}
        }
    }
}
