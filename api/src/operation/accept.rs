//! Negotiates the response format from the `accept` header. Lenient: only a header that clearly excludes every format of
//! the operation leads to a 406.

use warp::http::HeaderMap;
use warp::http::header::ACCEPT;

/// The response format that a caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptedFormat {
    /// JSON; also if the header is missing or accepts anything.
    Json,
    /// A stream of server-sent events.
    Events,
    /// Neither JSON nor events.
    Neither,
}

/// Chooses the format of the response. Events are chosen only if the operation has them and the header names them with at
/// least the weight of JSON; a wildcard means JSON.
pub(crate) fn negotiate_format(headers: &HeaderMap, has_events: bool) -> AcceptedFormat {
    let mut has_ranges = false;
    let (mut json, mut events) = (0.0_f32, 0.0_f32);
    for range in headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for range in range.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            has_ranges = true;
            let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
            let media_type = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| parse_weight(&part)).unwrap_or(1.0);
            match media_type.as_str() {
                "text/event-stream" => events = events.max(weight),
                "*/*" | "application/*" | "application/json" => json = json.max(weight),
                // Not a media range. Some clients send `*` or similar text and mean any type.
                other if !other.contains('/') => json = json.max(weight),
                other if other.ends_with("+json") => json = json.max(weight),
                _ => {}
            }
        }
    }
    if has_events && events > 0.0 && events >= json {
        AcceptedFormat::Events
    } else if json > 0.0 || !has_ranges {
        AcceptedFormat::Json
    } else {
        AcceptedFormat::Neither
    }
}

/// Parses a `q=` parameter; `None` if it is another parameter or not a finite number.
fn parse_weight(parameter: &str) -> Option<f32> {
    parameter.strip_prefix("q=")?.parse().ok().filter(|weight: &f32| weight.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &'static str) -> AcceptedFormat {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        negotiate_format(&headers, true)
    }

    #[test]
    fn only_a_plain_exclusion_is_not_acceptable() {
        assert_eq!(negotiate_format(&HeaderMap::new(), true), AcceptedFormat::Json);
        assert_eq!(negotiate("*/*"), AcceptedFormat::Json);
        assert_eq!(negotiate("text/html, application/*;q=0.5"), AcceptedFormat::Json);
        assert_eq!(negotiate("application/vnd.api+json"), AcceptedFormat::Json);
        assert_eq!(negotiate(""), AcceptedFormat::Json);
        assert_eq!(negotiate("image/png"), AcceptedFormat::Neither);
        assert_eq!(negotiate("application/json;q=0"), AcceptedFormat::Neither);
        assert_eq!(negotiate("text/event-stream"), AcceptedFormat::Events);
        assert_eq!(negotiate("application/json, text/event-stream"), AcceptedFormat::Events);
        assert_eq!(negotiate("application/json, text/event-stream;q=0.5"), AcceptedFormat::Json);
        assert_eq!(negotiate("text/event-stream;q=0"), AcceptedFormat::Neither);
        assert_eq!(negotiate("application/json;q=high"), AcceptedFormat::Json);
    }

    #[test]
    fn an_operation_without_events_returns_json_to_callers_that_accept_both() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, "application/json, text/event-stream".parse().unwrap());
        assert_eq!(negotiate_format(&headers, false), AcceptedFormat::Json);
        headers.insert(ACCEPT, "text/event-stream".parse().unwrap());
        assert_eq!(negotiate_format(&headers, false), AcceptedFormat::Neither);
    }
}
