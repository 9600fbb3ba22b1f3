//! The names and descriptions of this crate's metrics.

use crate::model::photo::FailureReason;
use crate::model::webhook::AttemptOutcome;

/// Counter, label `reason`: failed photos, reported by a worker or by the queue at their attempt limit.
pub const PHOTOS_FAILED: &str = "photofinish_photos_failed_total";
/// Histogram: calls of `confirm` per transaction.
pub const CONFIRMATIONS_PER_COMMIT: &str = "photofinish_confirmations_together";
/// Histogram: seconds until a transaction that writes to the database file may begin.
pub const WRITE_WAIT_SECONDS: &str = "photofinish_write_wait_seconds";
/// Gauge: bytes of embeddings in the face index.
pub const FACE_INDEX_BYTES: &str = "photofinish_face_index_bytes";
/// Histogram: seconds that loading a whole album into the face index took, without the wait for its turn.
pub const FACE_INDEX_LOAD_SECONDS: &str = "photofinish_face_index_load_seconds";
/// Counter: albums evicted from the full face index.
pub const FACE_INDEX_EVICTIONS: &str = "photofinish_face_index_evictions_total";
/// Counter, label `outcome`: passes over albums on a GPU, and those that failed there and were made on the CPU.
pub const FACE_DEVICE_PASSES: &str = "photofinish_face_device_passes_total";
/// Gauge: bytes of albums on a GPU.
pub const FACE_DEVICE_BYTES: &str = "photofinish_face_device_bytes";
/// Counter: messages published to the work stream, without duplicates.
pub const QUEUE_PUBLISHED: &str = "photofinish_queue_published_total";
/// Counter: messages delivered again, because another worker has leased the photo or a worker died.
pub const QUEUE_REDELIVERED: &str = "photofinish_queue_redelivered_total";
/// Counter: failed rounds of the outbox.
pub const QUEUE_PUBLISH_ERRORS: &str = "photofinish_queue_publish_errors_total";
/// Counter: photos that the republisher made unpublished again.
pub const QUEUE_SWEPT: &str = "photofinish_queue_swept_total";
/// Gauge: messages of the work stream that are not delivered yet.
pub const QUEUE_STREAM_LAG: &str = "photofinish_queue_stream_lag";
/// Gauge: messages of the work stream that are delivered and not acknowledged.
pub const QUEUE_STREAM_HELD: &str = "photofinish_queue_stream_held";
/// Gauge: waiting photos of all albums; NaN while the database does not say. Every process reports the same value.
pub const QUEUE_DEPTH: &str = "photofinish_queue_depth";
/// Gauge: seconds for which the oldest waiting photo has waited; 0 without one, NaN while the database does not say. Every
/// process reports the same value.
pub const QUEUE_AGE_SECONDS: &str = "photofinish_queue_age_seconds";

/// Gauge, label `organization`: credits that the live keys of an organization can still use, where credits are enforced. Every
/// process with an API reports the same value.
pub const CREDITS_AVAILABLE: &str = "photofinish_credits_available";

/// Counter: events that were published.
pub const EVENTS_PUBLISHED: &str = "photofinish_events_published_total";
/// Counter, label `outcome`: attempts to send an event to a webhook, by what came of them.
pub const WEBHOOK_ATTEMPTS: &str = "photofinish_webhook_attempts_total";
/// Histogram: seconds that an attempt to send an event to a webhook took.
pub const WEBHOOK_ATTEMPT_SECONDS: &str = "photofinish_webhook_attempt_duration_seconds";
/// Histogram: seconds from an event to its delivery.
pub const WEBHOOK_LAG_SECONDS: &str = "photofinish_webhook_lag_seconds";

/// Describes the metrics to the recorder. To be called once, after it is installed.
pub fn describe() {
    metrics::describe_counter!(PHOTOS_FAILED, "Failed photos");
    metrics::describe_histogram!(CONFIRMATIONS_PER_COMMIT, "Confirmation calls per transaction");
    metrics::describe_histogram!(
        WRITE_WAIT_SECONDS,
        metrics::Unit::Seconds,
        "Wait of a transaction that writes to the database file in seconds"
    );
    metrics::describe_gauge!(FACE_INDEX_BYTES, "Size of the embeddings in the face index in bytes");
    metrics::describe_histogram!(
        FACE_INDEX_LOAD_SECONDS,
        metrics::Unit::Seconds,
        "Duration of loading a whole album into the face index in seconds"
    );
    metrics::describe_counter!(FACE_INDEX_EVICTIONS, "Albums evicted from the full face index");
    metrics::describe_counter!(FACE_DEVICE_PASSES, "Passes over albums on a GPU, by outcome");
    metrics::describe_gauge!(FACE_DEVICE_BYTES, "Size of the albums on a GPU in bytes");
    metrics::describe_counter!(QUEUE_PUBLISHED, "Messages published to the work stream");
    metrics::describe_counter!(QUEUE_REDELIVERED, "Redelivered messages of the work stream");
    metrics::describe_counter!(QUEUE_PUBLISH_ERRORS, "Failed rounds of the outbox");
    metrics::describe_counter!(QUEUE_SWEPT, "Photos whose lost message is published again");
    metrics::describe_gauge!(QUEUE_STREAM_LAG, "Undelivered messages of the work stream, NaN if unknown");
    metrics::describe_gauge!(
        QUEUE_STREAM_HELD,
        "Delivered and unacknowledged messages of the work stream, NaN if unknown"
    );
    metrics::describe_gauge!(
        CREDITS_AVAILABLE,
        "Credits that live keys can still use, by organization, NaN if unknown"
    );
    metrics::describe_counter!(EVENTS_PUBLISHED, "Published events");
    metrics::describe_counter!(WEBHOOK_ATTEMPTS, "Attempts to send events to webhooks, by outcome");
    let seconds = metrics::Unit::Seconds;
    metrics::describe_histogram!(
        WEBHOOK_ATTEMPT_SECONDS,
        seconds,
        "Duration of attempts to send events in seconds"
    );
    metrics::describe_histogram!(
        WEBHOOK_LAG_SECONDS,
        seconds,
        "Time from an event to its delivery in seconds"
    );
    metrics::describe_gauge!(QUEUE_DEPTH, "Waiting photos of all albums, NaN if unknown");
    metrics::describe_gauge!(
        QUEUE_AGE_SECONDS,
        metrics::Unit::Seconds,
        "Age of the oldest waiting photo in seconds, NaN if unknown"
    );
}

/// Registers at 0 the counters whose increase alerts watch: to Prometheus a counter that begins at 1 has not increased, so
/// the first event would be missed. To be called once, after the recorder is installed.
pub fn register_counters() {
    for reason in FailureReason::ALL {
        metrics::counter!(PHOTOS_FAILED, "reason" => reason.as_str()).increment(0);
    }
    for outcome in AttemptOutcome::NAMES {
        metrics::counter!(WEBHOOK_ATTEMPTS, "outcome" => outcome).increment(0);
    }
}
