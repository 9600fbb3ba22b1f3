//! The names of all metrics of this crate. Labels come from enums and stage names, never from input.

use crate::engine::fault::{Component, UNKNOWN_STAGE};
use crate::engine::stage::STAGES;

/// Counter, label `stage`: seconds for which threads of the stage processed photos.
pub const STAGE_BUSY_SECONDS: &str = "photofinish_stage_busy_seconds_total";
/// Counter, label `stage`: CPU seconds of the threads of the stage in batches.
pub const STAGE_CPU_SECONDS: &str = "photofinish_stage_cpu_seconds_total";
/// Counter, label `stage`: CPU seconds of the threads of the stage between their batches, which the one before does not count.
pub const STAGE_OVERHEAD_CPU_SECONDS: &str = "photofinish_stage_overhead_cpu_seconds_total";
/// Counter, labels `stage` and `side`: seconds for which threads of the stage waited. Side `in` is for photos, `out` for
/// space in the next stage's channel or in a budget.
pub const STAGE_BLOCKED_SECONDS: &str = "photofinish_stage_blocked_seconds_total";
/// Counter, label `stage`: photos processed by the stage, including those that failed.
pub const STAGE_PHOTOS: &str = "photofinish_stage_photos_total";
/// Histogram, label `stage`: photos per batch.
pub const STAGE_BATCH_SIZE: &str = "photofinish_stage_batch_size";
/// Counter, label `stage`: panics caught.
pub const STAGE_PANICS: &str = "photofinish_stage_panics_total";
/// Gauge, label `stage`: 1 for the stage that limits the throughput, 0 for the others.
pub const STAGE_BOTTLENECK: &str = "photofinish_stage_bottleneck";
/// Gauge, label `stage`: photos that waited for the stage after it took its last batch.
pub const EDGE_DEPTH: &str = "photofinish_edge_depth";
/// Gauge, label `budget` (`files` or `pixels`): bytes in use.
pub const BUDGET_USED_BYTES: &str = "photofinish_budget_used_bytes";
/// Gauge: photos being processed, without those abandoned in a thread that hangs.
pub const PHOTOS_IN_FLIGHT: &str = "photofinish_photos_in_flight";
/// Counter: photos whose results were written.
pub const PHOTOS_FINISHED: &str = "photofinish_photos_finished_total";
/// Histogram: seconds from the confirmation of a photo to the commit of its results, which makes it searchable.
pub const CONFIRM_TO_SEARCHABLE_SECONDS: &str = "photofinish_confirm_to_searchable_seconds";
/// Counter: photos whose results were discarded because another worker has the photo, it waits again with other settings, or it
/// was deleted.
pub const PHOTOS_SUPERSEDED: &str = "photofinish_photos_superseded_total";
/// Counter: photos given back to the queue.
pub const PHOTOS_GIVEN_BACK: &str = "photofinish_photos_given_back_total";
/// Counter: leases that expired while their photo was being processed.
pub const LEASES_LOST: &str = "photofinish_leases_lost_total";
/// Counter, label `part` (the component that is down): outages that ended a generation.
pub const OUTAGES: &str = "photofinish_outages_total";
/// Gauge, labels `device` and `work` (`photos` or `selfies`): 1 once this process cannot use the device any more until it is
/// replaced, 0 before.
pub const DEVICE_LOST: &str = "photofinish_device_lost";
/// Counter, label `outcome`: torsos of runners. `read`: text was detected there; `no_number`: the bib gate saw no number;
/// `too_many`: among the smallest of a photo with too many.
pub const TORSOS: &str = "photofinish_torsos_total";
/// Counter, label `album_kind`: vectors of faces that were computed. `faces`: for albums that recognise faces; `bibs_only`: for
/// others, which is always 0.
pub const FACES_EMBEDDED: &str = "photofinish_faces_embedded_total";
/// The values of the label `album_kind`.
pub(crate) const ALBUM_KINDS: [&str; 2] = ["faces", "bibs_only"];
/// Counter, label `answer`: selfies processed or refused.
pub const PROBES: &str = "photofinish_probes_total";
/// The values of the label `answer`.
pub(crate) const PROBE_ANSWERS: [&str; 6] =
    ["face", "no_face", "unreadable", "timed_out", "busy", "unavailable"];

/// Registers the help texts with the recorder; call once, after the recorder is installed.
pub fn describe() {
    // Counters of fractional seconds are recorded as gauges, because the `metrics` crate counts only in integers. The
    // service declares them as counters on its metrics page.
    metrics::describe_gauge!(STAGE_BUSY_SECONDS, "Seconds for which threads of the stage processed photos");
    metrics::describe_gauge!(STAGE_CPU_SECONDS, "CPU seconds of the threads of the stage in batches");
    metrics::describe_gauge!(
        STAGE_OVERHEAD_CPU_SECONDS,
        "CPU seconds of the threads of the stage between their batches"
    );
    metrics::describe_gauge!(
        STAGE_BLOCKED_SECONDS,
        "Seconds for which threads of the stage waited: in for photos, out for space in a channel or a budget"
    );
    metrics::describe_gauge!(
        STAGE_BOTTLENECK,
        "1 for the stage that limits the throughput, 0 for the others"
    );
    metrics::describe_counter!(STAGE_PHOTOS, "Photos processed by the stage, including those that failed");
    metrics::describe_histogram!(STAGE_BATCH_SIZE, "Photos per batch");
    metrics::describe_counter!(STAGE_PANICS, "Panics caught in the stage");
    metrics::describe_gauge!(EDGE_DEPTH, "Photos waiting for the stage");
    metrics::describe_gauge!(BUDGET_USED_BYTES, "Bytes of memory in use by photos, by budget");
    metrics::describe_gauge!(PHOTOS_IN_FLIGHT, "Photos being processed");
    metrics::describe_counter!(PHOTOS_FINISHED, "Photos whose results were written");
    metrics::describe_histogram!(
        CONFIRM_TO_SEARCHABLE_SECONDS,
        metrics::Unit::Seconds,
        "Seconds from the confirmation of a photo to the commit of its results"
    );
    metrics::describe_counter!(
        PHOTOS_SUPERSEDED,
        "Photos whose results were discarded: another worker has them, they wait again with other settings, \
         or they were deleted"
    );
    metrics::describe_counter!(PHOTOS_GIVEN_BACK, "Photos given back to the queue");
    metrics::describe_counter!(LEASES_LOST, "Leases that expired while their photo was being processed");
    metrics::describe_counter!(OUTAGES, "Outages that ended a generation of the pipeline");
    metrics::describe_gauge!(DEVICE_LOST, "1 once this process cannot use the device any more, 0 before");
    metrics::describe_counter!(TORSOS, "Torsos of runners, by whether they were read for bibs");
    metrics::describe_counter!(FACES_EMBEDDED, "Vectors of faces that were computed, by the kind of album");
    metrics::describe_counter!(PROBES, "Selfies processed or refused");
}

/// Creates, with value 0, the counters whose increase alerts watch. Prometheus sees no increase in a counter that starts
/// at 1, so the first event would be missed. Call once in a process that runs the pipeline, after the recorder is
/// installed.
pub fn register_counters() {
    for stage in STAGES {
        metrics::counter!(STAGE_PANICS, "stage" => stage).increment(0);
        metrics::counter!(OUTAGES, "part" => stage).increment(0);
    }
    let components =
        [Component::Database, Component::Queue, Component::Storage, Component::Models, UNKNOWN_STAGE];
    for component in components {
        metrics::counter!(OUTAGES, "part" => component.as_str()).increment(0);
    }
    for kind in ALBUM_KINDS {
        metrics::counter!(FACES_EMBEDDED, "album_kind" => kind).increment(0);
    }
    metrics::counter!(LEASES_LOST).increment(0);
    metrics::counter!(PHOTOS_FINISHED).increment(0);
}

/// Creates the counters of selfies with value 0. Call once in a process that examines selfies, after the recorder is
/// installed.
pub fn init_probe_counters() {
    for answer in PROBE_ANSWERS {
        metrics::counter!(PROBES, "answer" => answer).increment(0);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn counters_that_alerts_watch_start_at_0() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, register_counters);
        let page = recorder.handle().render();
        for line in [
            "photofinish_stage_panics_total{stage=\"read\"} 0",
            "photofinish_outages_total{part=\"database\"} 0",
            "photofinish_outages_total{part=\"pipeline\"} 0",
            "photofinish_outages_total{part=\"index\"} 0",
            "photofinish_faces_embedded_total{album_kind=\"bibs_only\"} 0",
            "photofinish_leases_lost_total 0",
            "photofinish_photos_finished_total 0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "no {line} in {page}");
        }
    }
}
