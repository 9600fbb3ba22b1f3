//! The names of this crate's metrics.

use crate::model::photo::FailureReason;

/// Counter, label `reason`: photos that failed for good, told by their worker or found dead by the queue.
pub const PHOTOS_FAILED: &str = "photofinish_photos_failed_total";
/// Histogram: calls of `confirm` that one transaction committed.
pub const CONFIRMATIONS_PER_COMMIT: &str = "photofinish_confirmations_together";
/// Gauge: bytes of vectors that the face index holds.
pub const FACE_INDEX_BYTES: &str = "photofinish_face_index_bytes";
/// Counter: albums loaded into the face index from nothing.
pub const FACE_INDEX_LOADS: &str = "photofinish_face_index_loads_total";
/// Counter: albums that left the face index because it was full.
pub const FACE_INDEX_EVICTIONS: &str = "photofinish_face_index_evictions_total";
/// Counter: messages that name a photo, published to the stream; those it had already are not counted.
pub const QUEUE_PUBLISHED: &str = "photofinish_queue_published_total";
/// Counter: messages delivered that had been delivered before: held by another worker, or by one that ended.
pub const QUEUE_REDELIVERED: &str = "photofinish_queue_redelivered_total";
/// Counter: rounds of the outbox that ended in an error.
pub const QUEUE_PUBLISH_ERRORS: &str = "photofinish_queue_publish_errors_total";
/// Counter: photos that the sweeper let be published again.
pub const QUEUE_SWEPT: &str = "photofinish_queue_swept_total";
/// Gauge: messages in the stream that no worker has yet.
pub const QUEUE_STREAM_LAG: &str = "photofinish_queue_stream_lag";
/// Gauge: messages of the stream that workers have.
pub const QUEUE_STREAM_HELD: &str = "photofinish_queue_stream_held";
/// Gauge: photos that wait, over all albums. Every process says the same.
pub const QUEUE_DEPTH: &str = "photofinish_queue_depth";
/// Gauge: seconds that the photo has waited which waits longest; 0 when none does. Every process says the same.
pub const QUEUE_AGE_SECONDS: &str = "photofinish_queue_age_seconds";

/// Tells the recorder what the metrics mean; call once, after it is installed.
pub fn describe() {
    metrics::describe_counter!(PHOTOS_FAILED, "Photos that failed for good");
    metrics::describe_histogram!(CONFIRMATIONS_PER_COMMIT, "Calls of confirm that one transaction committed");
    metrics::describe_gauge!(FACE_INDEX_BYTES, "Bytes of vectors that the face index holds");
    metrics::describe_counter!(FACE_INDEX_LOADS, "Albums loaded into the face index from nothing");
    metrics::describe_counter!(FACE_INDEX_EVICTIONS, "Albums that left the face index because it was full");
    metrics::describe_counter!(QUEUE_PUBLISHED, "Messages published to the work stream");
    metrics::describe_counter!(QUEUE_REDELIVERED, "Messages delivered that had been delivered before");
    metrics::describe_counter!(QUEUE_PUBLISH_ERRORS, "Rounds of the outbox that ended in an error");
    metrics::describe_counter!(QUEUE_SWEPT, "Photos that the sweeper let be published again");
    metrics::describe_gauge!(QUEUE_STREAM_LAG, "Messages in the work stream that no worker has yet");
    metrics::describe_gauge!(QUEUE_STREAM_HELD, "Messages of the work stream that workers have");
    metrics::describe_gauge!(QUEUE_DEPTH, "Photos that wait, over all albums");
    metrics::describe_gauge!(
        QUEUE_AGE_SECONDS,
        metrics::Unit::Seconds,
        "Seconds that the photo has waited which waits longest"
    );
}

/// Shows at 0 what alerts watch the increase of: to Prometheus a counter that begins at 1 has not increased, so the first
/// event would be missed. Call once, after the recorder is installed.
pub fn register_counters() {
    for reason in FailureReason::ALL {
        metrics::counter!(PHOTOS_FAILED, "reason" => reason.as_str()).increment(0);
    }
}
