//! Reads the `accept` header. Lenient: only a header that plainly excludes every answer leads to a 406.

use warp::http::HeaderMap;
use warp::http::header::ACCEPT;

/// What a caller wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// JSON, or anything.
    Json,
    /// A stream of events.
    Events,
    /// Neither.
    Neither,
}

/// What the headers ask for. Events must be named; a wildcard means JSON.
pub(crate) fn wanted(headers: &HeaderMap) -> Wanted {
    let mut named = false;
    let mut json = false;
    for range in headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()) {
        for range in range.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            named = true;
            let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
            let kind = parts.next().unwrap_or_default();
            let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(is_zero));
            match kind.as_str() {
                _ if refused => {}
                "text/event-stream" => return Wanted::Events,
                "*/*" | "application/*" | "application/json" => json = true,
                // Not a media range: some clients send `*` or worse, and mean anything.
                other if !other.contains('/') => json = true,
                other if other.ends_with("+json") => json = true,
                _ => {}
            }
        }
    }
    if json || !named { Wanted::Json } else { Wanted::Neither }
}

fn is_zero(weight: &str) -> bool {
    weight.parse::<f32>() == Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &'static str) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        wanted(&headers)
    }

    #[test]
    fn only_a_plain_exclusion_is_not_acceptable() {
        assert_eq!(wanted(&HeaderMap::new()), Wanted::Json);
        assert_eq!(of("*/*"), Wanted::Json);
        assert_eq!(of("text/html, application/*;q=0.5"), Wanted::Json);
        assert_eq!(of("application/vnd.api+json"), Wanted::Json);
        assert_eq!(of(""), Wanted::Json);
        assert_eq!(of("image/png"), Wanted::Neither);
        assert_eq!(of("application/json;q=0"), Wanted::Neither);
        assert_eq!(of("text/event-stream"), Wanted::Events);
        assert_eq!(of("application/json, text/event-stream"), Wanted::Events);
    }
}
