//! The names of what the API counts. Labels come from the router's table and from status classes, never from input.

/// Requests answered; labels `operation` and `status` (`2xx`, `4xx`, .., `499` for a caller who went away).
pub const REQUESTS: &str = "photofinish_http_requests_total";
/// Seconds from the request's head to the answer's; label `operation`.
pub const REQUEST_SECONDS: &str = "photofinish_http_request_duration_seconds";
/// Requests being answered now.
pub const REQUESTS_IN_FLIGHT: &str = "photofinish_http_requests_in_flight";

/// Tells the recorder what the metrics mean; call once, after it is installed.
pub fn describe() {
    metrics::describe_counter!(REQUESTS, "Requests answered, by operation and status class");
    metrics::describe_histogram!(
        REQUEST_SECONDS,
        metrics::Unit::Seconds,
        "Seconds from a request's head to its answer's, by operation"
    );
    metrics::describe_gauge!(REQUESTS_IN_FLIGHT, "Requests being answered now");
}
