//! The names of the API's metrics. Label values come from the list of operations and from status classes, never from
//! requests.

use photofinish_store::model::rate::RateClass;

/// HTTP requests; labels `operation` and `status` (`2xx`, `4xx`, .., `499` if the client disconnected).
pub const REQUESTS: &str = "photofinish_http_requests_total";
/// Seconds from the request head to the response head; label `operation`.
pub const REQUEST_SECONDS: &str = "photofinish_http_request_duration_seconds";
/// Requests in flight.
pub const REQUESTS_IN_FLIGHT: &str = "photofinish_http_requests_in_flight";
/// Connections of the API.
pub const CONNECTIONS: &str = "photofinish_http_connections";
/// Seats for connections of the API.
pub const CONNECTION_SEATS: &str = "photofinish_http_connection_seats";
/// Connections that the service closed or refused; label `reason` ([`CloseReason`]).
pub const CONNECTIONS_CLOSED: &str = "photofinish_http_connections_closed_total";
/// Bytes of the request bodies in flight.
pub const BODY_BYTES: &str = "photofinish_http_body_bytes";

/// Requests that were refused because their key has spent its limit; label `class`.
pub const RATE_LIMITED: &str = "photofinish_rate_limited_total";
/// What was declined because the balance does not cover it; label `what`.
pub const CREDITS_DECLINED: &str = "photofinish_credits_declined_total";

/// What was declined, for the metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declined {
    Ticket,
    Confirmation,
    Retry,
    FaceSearch,
    TextSearch,
    Download,
}

impl Declined {
    /// Every kind.
    pub(crate) const ALL: [Self; 6] =
        [Self::Ticket, Self::Confirmation, Self::Retry, Self::FaceSearch, Self::TextSearch, Self::Download];

    /// The value of the label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ticket => "ticket",
            Self::Confirmation => "confirmation",
            Self::Retry => "retry",
            Self::FaceSearch => "face_search",
            Self::TextSearch => "text_search",
            Self::Download => "download",
        }
    }

    /// Counts one of them.
    pub(crate) fn count(self) {
        metrics::counter!(CREDITS_DECLINED, "what" => self.as_str()).increment(1);
    }
}

/// Why the service closed or refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// All seats were taken by connections at work.
    NoSeat,
    /// It waited for its client, and another one needed its seat.
    GaveWay,
    /// No request came.
    Idle,
    /// The head of a request did not come in time.
    SlowHead,
    /// The head of a request was too large.
    LargeHead,
    /// The head of a request was malformed.
    MalformedHead,
    /// The client did not read the response.
    Stalled,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::NoSeat,
        Self::GaveWay,
        Self::Idle,
        Self::SlowHead,
        Self::LargeHead,
        Self::MalformedHead,
        Self::Stalled,
    ];

    /// The value of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSeat => "no_seat",
            Self::GaveWay => "gave_way",
            Self::Idle => "idle",
            Self::SlowHead => "slow_head",
            Self::LargeHead => "large_head",
            Self::MalformedHead => "malformed_head",
            Self::Stalled => "stalled",
        }
    }

    /// Counts a connection that is closed for this reason.
    pub(crate) fn count(self) {
        metrics::counter!(CONNECTIONS_CLOSED, "reason" => self.as_str()).increment(1);
    }
}

/// Describes the metrics to the recorder. Must be called once, after the recorder is installed.
pub fn describe() {
    metrics::describe_counter!(REQUESTS, "HTTP requests by operation and status class");
    metrics::describe_histogram!(
        REQUEST_SECONDS,
        metrics::Unit::Seconds,
        "Duration of HTTP requests until the response head, in seconds, by operation"
    );
    metrics::describe_gauge!(REQUESTS_IN_FLIGHT, "HTTP requests in flight");
    metrics::describe_gauge!(CONNECTIONS, "Connections of the API");
    metrics::describe_gauge!(CONNECTION_SEATS, "Seats for connections of the API");
    metrics::describe_counter!(
        CONNECTIONS_CLOSED,
        "Connections that the service closed or refused, by reason"
    );
    for reason in CloseReason::ALL {
        metrics::counter!(CONNECTIONS_CLOSED, "reason" => reason.as_str()).increment(0);
    }
    metrics::describe_counter!(RATE_LIMITED, "Requests above the limit of their key, by class");
    for class in RateClass::ALL {
        metrics::counter!(RATE_LIMITED, "class" => class.as_str()).increment(0);
    }
    metrics::describe_counter!(CREDITS_DECLINED, "What balances did not cover, by kind");
    for declined in Declined::ALL {
        metrics::counter!(CREDITS_DECLINED, "what" => declined.as_str()).increment(0);
    }
    metrics::describe_gauge!(BODY_BYTES, metrics::Unit::Bytes, "Bytes of the request bodies in flight");
    metrics::gauge!(BODY_BYTES).set(0.0);
}
