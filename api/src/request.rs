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

use crate::admin::Page;
use crate::context::{Arrived, Context};
use crate::error::ApiError;
use crate::{metrics as names, operations, routes};

/// The header that carries a request's id, both ways.
pub(crate) const ID_HEADER: &str = "x-request-id";
/// The longest id taken from a caller.
const ID_LIMIT: usize = 128;

/// What meets every request.
pub(crate) struct Reception {
    names: Names,
    arrived: Arrived,
}

/// What requests are counted as.
struct Names(HashMap<String, &'static str>);

impl Names {
    /// By the paths of all operations.
    fn of_operations() -> Self {
        let operations = operations::all();
        Self(operations.iter().map(|o| (format!("{}{}", routes::BASE, o.about.path()), o.about.id)).collect())
    }

    fn of(&self, path: &str) -> &'static str {
        let plain = path.strip_suffix('/').unwrap_or(path);
        match self.0.get(plain) {
            Some(name) => name,
            None if path.starts_with(routes::STORAGE) => "storage",
            None if Page::at(path).is_some() => "admin",
            None => "other",
        }
    }
}

impl Reception {
    pub(crate) fn of(ctx: &Context) -> Self {
        Self { names: Names::of_operations(), arrived: Arc::clone(&ctx.arrived) }
    }

    /// The answer to a request, with its id.
    pub(crate) async fn answer<B, F, Fut>(&self, request: Request<B>, respond: F) -> Response
    where
        F: FnOnce(Request<B>) -> Fut,
        Fut: Future<Output = Result<Response, Infallible>>,
    {
        let id = id_of(request.headers());
        let operation = self.names.of(request.uri().path());
        let span = span(&request, &id, operation);
        (self.arrived)(&span, request.headers());
        let mut count = Count::start(operation);
        let answered = async {
            let answered = AssertUnwindSafe(respond(request)).catch_unwind().await;
            let response = answered.unwrap_or_else(|panic| Ok(panicked(&*panic)));
            let Ok(response) = response;
            let status = response.status().as_u16();
            Span::current().record("status", status);
            tracing::debug!(status, duration_ms = count.started.elapsed().as_millis(), "answered");
            response
        };
        let mut response = answered.instrument(span).await;
        count.end(status_class(response.status().as_u16()));
        response.headers_mut().insert(ID_HEADER, id);
        response
    }
}

/// What follows a request: its id is on every line that is logged while it is answered.
fn span<B>(request: &Request<B>, id: &HeaderValue, operation: &'static str) -> Span {
    let id = id.to_str().unwrap_or_default();
    tracing::info_span!("request", request.id = id, operation, method = %request.method(), status = Empty)
}

/// The caller's id when it is one that can be echoed and logged, else a new one.
fn id_of(headers: &HeaderMap) -> HeaderValue {
    let sent = headers.get(ID_HEADER);
    let fit = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        !bytes.is_empty() && bytes.len() <= ID_LIMIT && bytes.iter().all(|byte| (b' '..=b'~').contains(byte))
    };
    match sent.filter(fit) {
        Some(id) => id.clone(),
        None => HeaderValue::from_str(&Uuid::now_v7().to_string()).expect("a uuid is printable"),
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Response {
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
struct Count {
    operation: &'static str,
    started: Instant,
    status: &'static str,
}

impl Count {
    fn start(operation: &'static str) -> Self {
        metrics::gauge!(names::REQUESTS_IN_FLIGHT).increment(1.0);
        Self { operation, started: Instant::now(), status: "499" }
    }

    fn end(&mut self, status: &'static str) {
        self.status = status;
    }
}

impl Drop for Count {
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

    fn echoed(id: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ID_HEADER, HeaderValue::from_bytes(id.as_bytes()).unwrap());
        id_of(&headers) == id
    }

    #[test]
    fn only_ids_that_can_be_logged_are_echoed() {
        assert!(echoed("partner-42 / retry 1"));
        assert!(echoed(&"x".repeat(ID_LIMIT)));
        assert!(!echoed(&"x".repeat(ID_LIMIT + 1)));
        assert!(!echoed("tab\there"));
        assert!(!echoed("r\u{e9}sum\u{e9}"));
    }

    #[test]
    fn requests_are_counted_by_operation_and_not_by_path() {
        let names = Names::of_operations();
        assert_eq!(names.of("/openapi/albums/create"), "albums.create");
        assert_eq!(names.of("/openapi/albums/create/"), "albums.create");
        assert_eq!(names.of("/storage/o/x"), "storage");
        assert_eq!(names.of("/readyz"), "admin");
        assert_eq!(names.of("/anything/else"), "other");
    }
}
