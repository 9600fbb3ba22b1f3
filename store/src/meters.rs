//! The names of this crate's metrics.

/// Histogram: calls of `confirm` that one transaction committed.
pub const CONFIRMATIONS_TOGETHER: &str = "photofinish_confirmations_together";
/// Gauge: bytes of vectors that the face index holds.
pub const FACE_INDEX_BYTES: &str = "photofinish_face_index_bytes";
/// Counter: albums loaded into the face index from nothing.
pub const FACE_INDEX_LOADS: &str = "photofinish_face_index_loads_total";
/// Counter: albums that left the face index because it was full.
pub const FACE_INDEX_EVICTIONS: &str = "photofinish_face_index_evictions_total";

/// Tells the recorder what the metrics mean; call once, after it is installed.
pub fn describe() {
    metrics::describe_histogram!(CONFIRMATIONS_TOGETHER, "Calls of confirm that one transaction committed");
    metrics::describe_gauge!(FACE_INDEX_BYTES, "Bytes of vectors that the face index holds");
    metrics::describe_counter!(FACE_INDEX_LOADS, "Albums loaded into the face index from nothing");
    metrics::describe_counter!(FACE_INDEX_EVICTIONS, "Albums that left the face index because it was full");
}
