//! The names of the API's metrics. Label values come from the list of operations and from status classes, never from
//! requests.

/// HTTP requests; labels `operation` and `status` (`2xx`, `4xx`, .., `499` if the client disconnected).
pub const REQUESTS: &str = "photofinish_http_requests_total";
/// Seconds from the request head to the response head; label `operation`.
pub const REQUEST_SECONDS: &str = "photofinish_http_request_duration_seconds";
/// Requests in flight.
pub const REQUESTS_IN_FLIGHT: &str = "photofinish_http_requests_in_flight";

/// Describes the metrics to the recorder. Must be called once, after the recorder is installed.
pub fn describe() {
    metrics::describe_counter!(REQUESTS, "HTTP requests by operation and status class");
    metrics::describe_histogram!(
        REQUEST_SECONDS,
        metrics::Unit::Seconds,
        "Duration of HTTP requests until the response head, in seconds, by operation"
    );
    metrics::describe_gauge!(REQUESTS_IN_FLIGHT, "HTTP requests in flight");
}
