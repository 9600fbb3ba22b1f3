//! The names of this crate's metrics.

/// Histogram: calls of `confirm` that one transaction committed.
pub const CONFIRMATIONS_TOGETHER: &str = "photofinish_confirmations_together";
/// Gauge: bytes of vectors that the face index holds.
pub const FACE_INDEX_BYTES: &str = "photofinish_face_index_bytes";
/// Counter: albums loaded into the face index from nothing.
pub const FACE_INDEX_LOADS: &str = "photofinish_face_index_loads_total";
/// Counter: albums that left the face index because it was full.
pub const FACE_INDEX_EVICTIONS: &str = "photofinish_face_index_evictions_total";
/// Gauge: photos that wait, over all albums. Every process says the same.
pub const QUEUE_DEPTH: &str = "photofinish_queue_depth";
/// Gauge: seconds that the photo has waited which waits longest; 0 when none does. Every process says the same.
pub const QUEUE_AGE_SECONDS: &str = "photofinish_queue_age_seconds";

/// Tells the recorder what the metrics mean; call once, after it is installed.
pub fn describe() {
    metrics::describe_histogram!(CONFIRMATIONS_TOGETHER, "Calls of confirm that one transaction committed");
    metrics::describe_gauge!(FACE_INDEX_BYTES, "Bytes of vectors that the face index holds");
    metrics::describe_counter!(FACE_INDEX_LOADS, "Albums loaded into the face index from nothing");
    metrics::describe_counter!(FACE_INDEX_EVICTIONS, "Albums that left the face index because it was full");
    metrics::describe_gauge!(QUEUE_DEPTH, "Photos that wait, over all albums");
    metrics::describe_gauge!(
        QUEUE_AGE_SECONDS,
        metrics::Unit::Seconds,
        "Seconds that the photo has waited which waits longest"
    );
}
