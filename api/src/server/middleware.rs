//! Runs around every request: request id, tracing span, metrics, and a 500 if a handler panics.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use photofinish_store::panic_message;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use uuid::Uuid;
use warp::http::header::HeaderValue;
use warp::http::{HeaderMap, Request};
use warp::reply::Response;

use crate::context::{Context, TraceHook};
use crate::downloads::DOWNLOADS_PREFIX;
use crate::errors::ApiError;
use crate::metrics as names;
use crate::operation::console::console_operations;
use crate::operation::visitors::visitor_operations;
use crate::operation::{BASE_PATH, Operation, catalog};
use crate::reply::REQUEST_ID_HEADER;
use crate::server::admin::AdminEndpoint;
use crate::server::console::CONSOLE_API;
use crate::server::gallery::{self, GALLERY_PREFIX};
use crate::server::storage::STORAGE_PREFIX;

/// The longest request id that is accepted from a caller.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The middleware of all routes.
pub(crate) struct RequestMiddleware {
    labels: RouteLabels,
    trace_hook: TraceHook,
}

/// The metric label of each path; a fixed set, so that callers cannot create labels.
struct RouteLabels(HashMap<String, &'static str>);

impl RouteLabels {
    fn from_operations() -> Self {
        let partner = catalog::all_operations();
        let console = console_operations();
        let label = |base: &str, operation: &Operation| {
            (format!("{base}{}", operation.info.path()), operation.info.id)
        };
        let of_partners = partner.iter().map(|operation| label(BASE_PATH, operation));
        let of_console = partner.iter().chain(&console).map(|operation| label(CONSOLE_API, operation));
        let visitors = visitor_operations();
        let of_visitors = visitors.iter().map(|operation| label(&format!("{GALLERY_PREFIX}api"), operation));
        Self(of_partners.chain(of_console).chain(of_visitors).collect())
    }

    fn get(&self, path: &str) -> &'static str {
        let without_slash = path.strip_suffix('/').unwrap_or(path);
        match self.0.get(without_slash) {
            Some(label) => label,
            None if path.starts_with(STORAGE_PREFIX) => "storage",
            None if path.starts_with(DOWNLOADS_PREFIX) => "downloads",
            None if AdminEndpoint::from_path(path).is_some() => "admin",
            None if path.starts_with("/console") || path.starts_with("/assets/") => "console",
            None if path.starts_with(GALLERY_PREFIX) => {
                let call = gallery::path_without_link(without_slash);
                call.and_then(|path| self.0.get(&path).copied()).unwrap_or("gallery")
            }
            None => "other",
        }
    }
}

impl RequestMiddleware {
    pub(crate) fn new(ctx: &Context) -> Self {
        Self { labels: RouteLabels::from_operations(), trace_hook: Arc::clone(&ctx.trace_hook) }
    }

    /// Passes the request to `respond` and returns its response, with the request id added.
    pub(crate) async fn handle<B, F, Fut>(&self, request: Request<B>, respond: F) -> Response
    where
        F: FnOnce(Request<B>) -> Fut,
        Fut: Future<Output = Result<Response, Infallible>>,
    {
        let id = request_id(request.headers());
        let operation = self.labels.get(request.uri().path());
        let span = request_span(&request, &id, operation);
        (self.trace_hook)(&span, request.headers());
        let mut recorder = RequestRecorder::start(operation);
        let responded = async {
            let outcome = AssertUnwindSafe(respond(request)).catch_unwind().await;
            let Ok(response) = outcome.unwrap_or_else(|panic| Ok(panic_response(&*panic)));
            let status = response.status().as_u16();
            Span::current().record("status", status);
            tracing::debug!(status, duration_ms = recorder.started.elapsed().as_millis(), "request handled");
            response
        };
        let mut response = responded.instrument(span).await;
        recorder.set_status(status_class(response.status().as_u16()));
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
        response
    }
}

/// Creates the span of a request: every line logged while it is handled carries the request id.
fn request_span<B>(request: &Request<B>, id: &HeaderValue, operation: &'static str) -> Span {
    let id = id.to_str().unwrap_or_default();
    tracing::info_span!("request", request.id = id, operation, method = %request.method(), status = Empty)
}

/// Returns the caller's request id if it is short, printable ASCII, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(REQUEST_ID_HEADER);
    let is_valid = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= MAX_REQUEST_ID_BYTES
            && bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
    };
    match sent.filter(is_valid) {
        Some(id) => id.clone(),
        None => HeaderValue::from_str(&Uuid::now_v7().to_string()).expect("a uuid is printable"),
    }
}

fn panic_response(panic: &(dyn std::any::Any + Send)) -> Response {
    ApiError::internal(format!("a handler panicked: {}", panic_message(panic))).into_response()
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

/// Records the metrics of one request when dropped. hyper drops the future of a request whose client disconnects, so
/// that such a request is counted too, as 499.
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
        assert_eq!(names.get("/console/api/albums/create"), "albums.create");
        assert_eq!(names.get("/console/api/session/get"), "session.get");
        assert_eq!(names.get("/g/4fQ2aBc8/api/gallery/search/text"), "gallery.search.text");
        assert_eq!(names.get("/g/4fQ2aBc8/api/gallery/search/text/"), "gallery.search.text");
        assert_eq!(names.get("/g/4fQ2aBc8/api/4fQ2aBc8"), "gallery");
        assert_eq!(names.get("/g/4fQ2aBc8"), "gallery");
        assert_eq!(names.get("/anything/else"), "other");
    }
}
