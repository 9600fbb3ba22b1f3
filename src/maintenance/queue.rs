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
    use std::time::Duration;

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

    #[test]
    fn a_stream_that_cannot_be_measured_has_no_old_measures() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let gauges = ["photofinish_queue_stream_lag", "photofinish_queue_stream_held"];
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data").display().to_string();
        // Nobody listens there.
        let queue = ("PHOTOFINISH_QUEUE_URL", "nats://127.0.0.1:1");
        let config = config(&[("PHOTOFINISH_DATA_DIR", data_dir.as_str()), queue]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        metrics::with_local_recorder(&recorder, || {
            for gauge in gauges {
                metrics::gauge!(gauge).set(7.0);
            }
            let is_unknown = |gauge: &str| page.render().lines().any(|line| line == format!("{gauge} NaN"));
            let measured = async {
                let _store = open_store(&config).await.unwrap();
                while !gauges.iter().all(|gauge| is_unknown(gauge)) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let limit = Duration::from_secs(120);
            let ended = runtime.block_on(async { tokio::time::timeout(limit, measured).await });
            assert!(ended.is_ok(), "{}", page.render());
        });
    }
}
