//! What a service does besides: removes expired selfies, measures the queue and keeps the metrics small, finishes
//! deletions, sweeps the storage.

pub(crate) mod gc;

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::{Store, StoreError};
use tokio::sync::watch;

use crate::config::GcSettings;
use crate::maintenance::gc::{finish_stalled_deletions, run_daily_gc};
use crate::run::wait_until_stopped;

/// How often.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// Does them until the service is stopped.
pub async fn run(of: (Store, GcSettings), metrics: PrometheusHandle, stopped: watch::Receiver<bool>) {
    let (store, sweeping) = of;
    tokio::spawn(run_daily_gc(store.clone(), sweeping, wait_until_stopped(stopped.clone())));
    let stop = wait_until_stopped(stopped);
    tokio::pin!(stop);
    let mut every = tokio::time::interval(ROUND_INTERVAL);
    loop {
        tokio::select! {
            () = &mut stop => return,
            _ = every.tick() => {}
        }
        metrics.run_upkeep();
        // A store that does not answer must not hold up the end.
        tokio::select! {
            () = &mut stop => return,
            () = run_round(&store) => {}
        }
    }
}

async fn run_round(store: &Store) {
    if let Err(error) = store.measure_queue().await {
        tracing::warn!(%error, "the queue is not measured until the next try");
    }
    finish_stalled_deletions(store).await;
    if let Err(error) = remove_expired_probes(store).await {
        tracing::warn!(%error, "expired selfies stay until the next try");
    }
}

/// Bytes first, then rows: whatever ends this, the next try finds what is left. Also those with a vector: deleting their
/// bytes may have failed when they were used, and a presigned URL can bring bytes again.
async fn remove_expired_probes(store: &Store) -> Result<(), StoreError> {
    let mut gone = Vec::new();
    let mut outcome = Ok(());
    for probe in store.probes.list_expired().await? {
        outcome = store.blobs.delete(&ObjectKey::probe(probe.organization, probe.album, probe.id)).await;
        if outcome.is_err() {
            break;
        }
        gone.push(probe.id);
    }
    store.probes.remove(&gone).await?;
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use photofinish_store::conformance::Event;
    use photofinish_store::model::photo::Embedding;

    use super::*;
    use crate::config::Config;
    use crate::config::settings::Settings;
    use crate::run::open_store;

    #[tokio::test]
    async fn an_expired_selfie_is_removed_whether_it_was_used_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data").display().to_string();
        let config = Config::from_settings(&Settings { data_dir: Some(data_dir), ..Settings::default() });
        let store = open_store(&config.unwrap()).await.unwrap();
        let event = Event::make(&store).await;
        let mut keys = Vec::new();
        // Only one that lives takes a vector: the one that is used and expires outlasts a commit of a busy disk.
        for (seconds, is_used) in [(2, false), (10, true), (3600, true)] {
            let probe = store.probes.create(event.album, Duration::from_secs(seconds)).await.unwrap();
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
            assert!(Instant::now() < deadline, "selfies do not expire");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        remove_expired_probes(&store).await.unwrap();
        let mut left = Vec::new();
        for (key, _) in &keys {
            left.push(store.blobs.head(key).await.unwrap().is_some());
        }
        assert_eq!(left, [false, false, true]);
        assert!(store.probes.get(event.album, keys[2].1).await.is_ok());
        assert!(store.probes.list_expired().await.unwrap().is_empty());
        store.close().await;
    }
}
