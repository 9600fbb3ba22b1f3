//! Names of every metric of this crate. Labels come from enums and stage names, never from input.

use crate::engine::fault::{Component, UNKNOWN_STAGE};
use crate::engine::stage::STAGES;

/// Gauge that only grows, label `stage`: seconds in which a thread of the stage worked on photos.
pub const STAGE_BUSY_SECONDS: &str = "photofinish_stage_busy_seconds_total";
/// Gauge that only grows, label `stage`: seconds of CPU of the stage's threads.
pub const STAGE_CPU_SECONDS: &str = "photofinish_stage_cpu_seconds_total";
/// Gauge that only grows, labels `stage` and `side`: seconds in which a thread of the stage waited, `in` for photos,
/// `out` for room downstream or in a budget.
pub const STAGE_BLOCKED_SECONDS: &str = "photofinish_stage_blocked_seconds_total";
/// Counter, label `stage`: photos that passed the stage, bad ones too.
pub const STAGE_PHOTOS: &str = "photofinish_stage_photos_total";
/// Histogram, label `stage`: photos a batch.
pub const STAGE_BATCH_SIZE: &str = "photofinish_stage_batch_size";
/// Counter, label `stage`: panics caught.
pub const STAGE_PANICS: &str = "photofinish_stage_panics_total";
/// Gauge, label `stage`: 1 for the stage that holds the others up, 0 for the others.
pub const STAGE_BOTTLENECK: &str = "photofinish_stage_bottleneck";
/// Gauge, label `stage`: photos that waited in front of the stage when it had taken its last batch.
pub const EDGE_DEPTH: &str = "photofinish_edge_depth";
/// Gauge, label `budget`, `files` or `pixels`: bytes held.
pub const BUDGET_USED_BYTES: &str = "photofinish_budget_used_bytes";
/// Gauge: photos leased and not settled, but for those that a thread that hangs still has.
pub const PHOTOS_IN_FLIGHT: &str = "photofinish_photos_in_flight";
/// Counter: photos whose results were written.
pub const PHOTOS_FINISHED: &str = "photofinish_photos_finished_total";
/// Histogram: seconds from a photo's confirmation to the commit of its results, from when on searches find it.
pub const CONFIRM_TO_SEARCHABLE_SECONDS: &str = "photofinish_confirm_to_searchable_seconds";
/// Counter: photos whose results came too late: another worker had taken over, or the photo was deleted.
pub const PHOTOS_SUPERSEDED: &str = "photofinish_photos_superseded_total";
/// Counter: photos given back unharmed.
pub const PHOTOS_GIVEN_BACK: &str = "photofinish_photos_given_back_total";
/// Counter: leases that passed away while their photo was worked on.
pub const LEASES_LOST: &str = "photofinish_leases_lost_total";
/// Counter, label `part`: outages that brought a generation down.
pub const OUTAGES: &str = "photofinish_outages_total";
/// Counter, label `answer`: selfies embedded and refused.
pub const PROBES: &str = "photofinish_probes_total";

/// Tells the recorder what the metrics mean; call once, after it is installed.
pub fn describe() {
    metrics::describe_gauge!(STAGE_BUSY_SECONDS, "Seconds in which a thread of the stage worked on photos");
    metrics::describe_gauge!(STAGE_BOTTLENECK, "1 for the stage that holds the others up");
    metrics::describe_gauge!(STAGE_CPU_SECONDS, "Seconds of CPU of the stage's threads");
    metrics::describe_gauge!(
        STAGE_BLOCKED_SECONDS,
        "Seconds in which a thread of the stage waited: in for photos, out for room downstream or in a budget"
    );
    metrics::describe_counter!(STAGE_PHOTOS, "Photos that passed the stage, bad ones too");
    metrics::describe_histogram!(STAGE_BATCH_SIZE, "Photos a batch");
    metrics::describe_counter!(STAGE_PANICS, "Panics caught");
    metrics::describe_gauge!(EDGE_DEPTH, "Photos that wait in front of the stage");
    metrics::describe_gauge!(BUDGET_USED_BYTES, "Bytes of photos in memory, by budget");
    metrics::describe_gauge!(PHOTOS_IN_FLIGHT, "Photos leased and not settled");
    metrics::describe_counter!(PHOTOS_FINISHED, "Photos whose results were written");
    metrics::describe_histogram!(
        CONFIRM_TO_SEARCHABLE_SECONDS,
        metrics::Unit::Seconds,
        "Seconds from a photo's confirmation to the commit of its results"
    );
    metrics::describe_counter!(
        PHOTOS_SUPERSEDED,
        "Photos whose results came too late: another worker took over, or they were deleted"
    );
    metrics::describe_counter!(PHOTOS_GIVEN_BACK, "Photos given back unharmed");
    metrics::describe_counter!(LEASES_LOST, "Leases that passed away while their photo was worked on");
    metrics::describe_counter!(OUTAGES, "Outages that brought a generation down");
    metrics::describe_counter!(PROBES, "Selfies embedded and refused");
}

/// Shows at 0 what alerts watch the increase of: to Prometheus a counter that begins at 1 has not increased, so the first
/// event would be missed. Call once, where photos are worked on, after the recorder is installed.
pub fn init_counters() {
    for stage in STAGES {
        metrics::counter!(STAGE_PANICS, "stage" => stage).increment(0);
        metrics::counter!(OUTAGES, "part" => stage).increment(0);
    }
    for part in [Component::Database, Component::Queue, Component::Storage, Component::Models, UNKNOWN_STAGE]
    {
        metrics::counter!(OUTAGES, "part" => part.as_str()).increment(0);
    }
    metrics::counter!(LEASES_LOST).increment(0);
    metrics::counter!(PHOTOS_FINISHED).increment(0);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn counters_that_alerts_watch_start_at_0() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, init_counters);
        let page = recorder.handle().render();
        for line in [
            "photofinish_stage_panics_total{stage=\"read\"} 0",
            "photofinish_outages_total{part=\"database\"} 0",
            "photofinish_outages_total{part=\"pipeline\"} 0",
            "photofinish_outages_total{part=\"index\"} 0",
            "photofinish_leases_lost_total 0",
            "photofinish_photos_finished_total 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "no {line} in {page}");
        }
    }
}
