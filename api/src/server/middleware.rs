//! What every request gets, whatever it asks for: an id, a span, its place in the metrics, and an answer even when a
//! handler panics.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use uuid::Uuid;
use warp::http::header::HeaderValue;
use warp::http::{HeaderMap, Request};
use warp::reply::Response;

use crate::context::{Context, TraceHook};
use crate::errors::ApiError;
use crate::metrics as names;
use crate::operation::catalog;
use crate::server::admin::AdminEndpoint;
use crate::server::router;

/// The header that carries a request's id, both ways.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";
/// The longest id taken from a caller.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// What meets every request.
pub(crate) struct RequestMiddleware {
    labels: RouteLabels,
    trace_hook: TraceHook,
}

/// What requests are counted as.
struct RouteLabels(HashMap<String, &'static str>);

impl RouteLabels {
    /// By the paths of all operations.
    fn from_operations() -> Self {
        let operations = catalog::all_operations();
        Self(
            operations
                .iter()
                .map(|o| (format!("{}{}", router::BASE_PATH, o.info.path()), o.info.id))
                .collect(),
        )
    }

    fn get(&self, path: &str) -> &'static str {
        let plain = path.strip_suffix('/').unwrap_or(path);
        match self.0.get(plain) {
            Some(name) => name,
            None if path.starts_with(router::STORAGE_PREFIX) => "storage",
            None if AdminEndpoint::from_path(path).is_some() => "admin",
            None => "other",
        }
    }
}

impl RequestMiddleware {
    pub(crate) fn new(ctx: &Context) -> Self {
        Self { labels: RouteLabels::from_operations(), trace_hook: Arc::clone(&ctx.trace_hook) }
    }

    /// The answer to a request, with its id.
    pub(crate) async fn handle<B, F, Fut>(&self, request: Request<B>, respond: F) -> Response
    where
        F: FnOnce(Request<B>) -> Fut,
        Fut: Future<Output = Result<Response, Infallible>>,
    {
        let id = request_id(request.headers());
        let operation = self.labels.get(request.uri().path());
        let span = request_span(&request, &id, operation);
        (self.trace_hook)(&span, request.headers());
        let mut count = RequestRecorder::start(operation);
        let answered = async {
            let answered = AssertUnwindSafe(respond(request)).catch_unwind().await;
            let response = answered.unwrap_or_else(|panic| Ok(panic_response(&*panic)));
            let Ok(response) = response;
            let status = response.status().as_u16();
            Span::current().record("status", status);
            tracing::debug!(status, duration_ms = count.started.elapsed().as_millis(), "answered");
            response
        };
        let mut response = answered.instrument(span).await;
        count.set_status(status_class(response.status().as_u16()));
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
        response
    }
}

/// What follows a request: its id is on every line that is logged while it is answered.
fn request_span<B>(request: &Request<B>, id: &HeaderValue, operation: &'static str) -> Span {
    let id = id.to_str().unwrap_or_default();
    tracing::info_span!("request", request.id = id, operation, method = %request.method(), status = Empty)
}

/// The caller's id when it is one that can be echoed and logged, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(REQUEST_ID_HEADER);
    let fit = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= MAX_REQUEST_ID_BYTES
            && bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
    };
    match sent.filter(fit) {
        Some(id) => id.clone(),
        None => HeaderValue::from_str(&Uuid::now_v7().to_string()).expect("a uuid is printable"),
    }
}

fn panic_response(panic: &(dyn std::any::Any + Send)) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ApiError::internal(format!("a handler panicked: {}", text.unwrap_or("no message"))).into_response()
}

fn status_class(status: u16) -> &'static str {
    match status {
        0..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// Counts a request once, also when its caller goes away before the answer: hyper drops the future then.
struct RequestRecorder {
    operation: &'static str,
    started: Instant,
    status: &'static str,
}

impl RequestRecorder {
    fn start(operation: &'static str) -> Self {
        metrics::gauge!(names::REQUESTS_IN_FLIGHT).increment(1.0);
        Self { operation, started: Instant::now(), status: "499" }
    }

    fn set_status(&mut self, status: &'static str) {
        self.status = status;
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        metrics::gauge!(names::REQUESTS_IN_FLIGHT).decrement(1.0);
        metrics::counter!(names::REQUESTS, "operation" => self.operation, "status" => self.status)
            .increment(1);
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!(names::REQUEST_SECONDS, "operation" => self.operation).record(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_echoed(id: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID_HEADER, HeaderValue::from_bytes(id.as_bytes()).unwrap());
        request_id(&headers) == id
    }

    #[test]
    fn only_ids_that_can_be_logged_are_echoed() {
        assert!(is_echoed("partner-42 / retry 1"));
        assert!(is_echoed(&"x".repeat(MAX_REQUEST_ID_BYTES)));
        assert!(!is_echoed(&"x".repeat(MAX_REQUEST_ID_BYTES + 1)));
        assert!(!is_echoed("tab\there"));
        assert!(!is_echoed("r\u{e9}sum\u{e9}"));
    }

    #[test]
    fn requests_are_counted_by_operation_and_not_by_path() {
        let names = RouteLabels::from_operations();
        assert_eq!(names.get("/openapi/albums/create"), "albums.create");
        assert_eq!(names.get("/openapi/albums/create/"), "albums.create");
        assert_eq!(names.get("/storage/o/x"), "storage");
        assert_eq!(names.get("/readyz"), "admin");
        assert_eq!(names.get("/anything/else"), "other");
    }
}
