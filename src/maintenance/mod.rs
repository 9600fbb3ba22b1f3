//! Periodic work of every process: measures the queue, finishes stalled deletions, removes expired selfies, trims the
//! metrics recorder, and collects garbage of the storage.

mod gc;
mod queue;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::{GcOptions, Store, StoreError};
use tokio::sync::watch;

use self::gc::{finish_stalled_deletions, run_daily_gc};
use self::queue::measure_queue_forever;
use crate::shutdown::wait_until_stopped;

/// Time between the starts of two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a round every [`ROUND_INTERVAL`], measures the queue beside it, and collects garbage where that is configured, until
/// the service stops.
pub async fn run(
    store: Store,
    gc: Option<GcOptions>,
    metrics: PrometheusHandle,
    stopped: watch::Receiver<bool>,
) {
    if let Some(options) = gc {
        tokio::spawn(run_daily_gc(store.clone(), options, wait_until_stopped(stopped.clone())));
    }
    // Interrupts everything: a store that does not respond must not delay the stop.
    tokio::select! {
        () = wait_until_stopped(stopped) => {}
        () = run_rounds(&store, &metrics) => {}
        () = measure_queue_forever(&store) => {}
    }
}

async fn run_rounds(store: &Store, metrics: &PrometheusHandle) {
    let mut interval = tokio::time::interval(ROUND_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
        run_round(store).await;
    }
}

async fn run_round(store: &Store) {
    finish_stalled_deletions(store).await;
    if let Err(error) = remove_expired_probes(store).await {
        tracing::warn!(%error, "failed to remove expired selfies, retrying in 10 s");
    }
}

/// Deletes the bytes first, then the rows, so that the next round finds what an interrupted one left. Includes selfies
/// that have their embedding: deleting their bytes may have failed then, or a presigned URL may have brought bytes again.
async fn remove_expired_probes(store: &Store) -> Result<(), StoreError> {
    let mut removed = Vec::new();
    let mut outcome = Ok(());
    for probe in store.probes.list_expired().await? {
        outcome = store.blobs.delete(&ObjectKey::probe(probe.organization, probe.album, probe.id)).await;
        if outcome.is_err() {
            break;
        }
        removed.push(probe.id);
    }
    store.probes.remove(&removed).await?;
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use photofinish_store::conformance::AlbumFixture;
    use photofinish_store::model::photo::Embedding;

    use super::*;
    use crate::config::tests::config;
    use crate::store::open_store;

    #[tokio::test]
    async fn an_expired_selfie_is_removed_whether_it_was_used_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data").display().to_string();
        let config = config(&[("PHOTOFINISH_DATA_DIR", data_dir)]);
        let store = open_store(&config.unwrap()).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        let mut keys = Vec::new();
        // A selfie stores an embedding only before it expires: 10 s outlast a commit on a busy disk.
        for (seconds, is_used) in [(2, false), (10, true), (3600, true)] {
            let probe = store.probes.create(fixture.album, Duration::from_secs(seconds)).await.unwrap();
            if is_used {
                let embedding = Embedding { model: "test@1".to_owned(), vector: vec![1.0, 0.0] };
                store.probes.set_embedding(probe.id, embedding).await.unwrap();
            }
            let key = ObjectKey::probe(probe.organization, probe.album, probe.id);
            store.blobs.write(&key, "image/jpeg", Bytes::from_static(b"a face")).await.unwrap();
            keys.push((key, probe.id));
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.probes.list_expired().await.unwrap().len() < 2 {
            assert!(Instant::now() < deadline, "the selfies do not expire");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        remove_expired_probes(&store).await.unwrap();
        let mut left = Vec::new();
        for (key, _) in &keys {
            left.push(store.blobs.head(key).await.unwrap().is_some());
        }
        assert_eq!(left, [false, false, true]);
        assert!(store.probes.get(fixture.album, keys[2].1).await.is_ok());
        assert!(store.probes.list_expired().await.unwrap().is_empty());
        store.close().await;
    }
}
