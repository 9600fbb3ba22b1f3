//! Measures the queue for those who scale workers by it. Beside all other maintenance: while that deletes a large album, the
//! measures must not become old.

use std::time::Duration;

use photofinish_store::Store;

/// Time between two measurements.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn measure_queue_forever(store: &Store) {
    let mut interval = tokio::time::interval(MEASURE_INTERVAL);
    loop {
        interval.tick().await;
        if let Err(error) = store.measure_queue().await {
            tracing::warn!(%error, "failed to measure the queue, retrying in 10 s");
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::config::tests::config;
    use crate::store::open_store;

    #[test]
    fn a_queue_that_cannot_be_measured_has_no_old_measures() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let exported = |value: &str| {
            let page = page.render();
            for gauge in ["photofinish_queue_depth", "photofinish_queue_age_seconds"] {
                assert!(page.lines().any(|line| line == format!("{gauge} {value}")), "{value}: {page}");
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data").display().to_string();
        let config = config(&[("PHOTOFINISH_DATA_DIR", data_dir)]).unwrap();
        // On this thread alone, whose recorder it is.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        metrics::with_local_recorder(&recorder, || {
            let store = runtime.block_on(open_store(&config)).unwrap();
            runtime.block_on(store.measure_queue()).unwrap();
            exported("0");
            runtime.block_on(store.close());
            runtime.block_on(store.measure_queue()).unwrap_err();
            exported("NaN");
        });
    }
}
