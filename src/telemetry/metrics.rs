//! The Prometheus recorder: histogram buckets, descriptions and initial values of every metric.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use photofinish_pipeline::metrics as pipeline_metrics;
use photofinish_store::metric_names as store_metrics;

use crate::role::Role;

/// Seconds: from a search in a cached album to an upload over a phone connection.
const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Seconds: from a photo that finds an idle worker to one behind half a million others.
const QUEUE_WAIT_BUCKETS: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0];

/// Seconds: from a webhook that is sent to at once to one whose receiver was away for a day.
const DELIVERY_BUCKETS: [f64; 12] =
    [0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0];

/// Items processed together: powers of two up to the largest batch.
const BATCH_BUCKETS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Panics of tasks that run as long as the process, by task.
pub const TASK_PANICS: &str = "photofinish_task_panics_total";

/// Installs the recorder of the process. Histograms have buckets and no quantiles, so that those of several processes can
/// be added up.
///
/// # Errors
/// When a recorder is installed already.
pub fn install(role: Role) -> Result<PrometheusHandle, BuildError> {
    let handle = configure_recorder()?.install_recorder()?;
    photofinish_api::metrics::describe();
    pipeline_metrics::describe();
    store_metrics::describe();
    metrics::describe_counter!(TASK_PANICS, "Panics of tasks of the process, which began again");
    // In every role: any process may find a photo whose worker died and count it as failed.
    store_metrics::register_counters();
    if role.has_pipeline() {
        pipeline_metrics::register_counters();
    }
    if role.has_api() {
        pipeline_metrics::init_probe_counters();
    }
    Ok(handle)
}

/// Sets the buckets of every histogram.
fn configure_recorder() -> Result<PrometheusBuilder, BuildError> {
    let full = |name: &str| Matcher::Full(name.to_owned());
    let suffix = |name: &str| Matcher::Suffix(name.to_owned());
    PrometheusBuilder::new()
        .set_buckets_for_metric(suffix("_seconds"), &LATENCY_BUCKETS)?
        .set_buckets_for_metric(full(pipeline_metrics::CONFIRM_TO_SEARCHABLE_SECONDS), &QUEUE_WAIT_BUCKETS)?
        .set_buckets_for_metric(full(store_metrics::WEBHOOK_LAG_SECONDS), &DELIVERY_BUCKETS)?
        .set_buckets_for_metric(suffix("_batch_size"), &BATCH_BUCKETS)?
        .set_buckets_for_metric(suffix("_together"), &BATCH_BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_that_took_hours_is_told_from_one_that_took_a_minute() {
        let recorder = configure_recorder().unwrap().build_recorder();
        let page = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!(store_metrics::WEBHOOK_LAG_SECONDS).record(50_000.0);
        });
        let page = page.render();
        for bucket in ["le=\"43200\"} 0", "le=\"86400\"} 1"] {
            let line = format!("{}_bucket{{{bucket}", store_metrics::WEBHOOK_LAG_SECONDS);
            assert!(page.lines().any(|found| found == line), "no {line} in {page}");
        }
    }
}
