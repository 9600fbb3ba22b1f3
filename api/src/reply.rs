//! Builds successful responses: JSON, other bodies, and the response to OPTIONS.

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use warp::http::{HeaderMap, StatusCode};
use warp::reply::Response;

/// The header with the request id, in requests and responses.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";

/// Returns a 200 with a JSON body.
pub(crate) fn json_response<T: Serialize>(body: &T) -> serde_json::Result<Response> {
    Ok(json_text_response(200, serde_json::to_string(body)?))
}

/// Returns a JSON response of any status. It must not be cached: responses contain presigned URLs.
pub(crate) fn json_text_response(status: u16, text: String) -> Response {
    let mut response = body_response(HeaderValue::from_static("application/json"), text.into());
    *response.status_mut() =
        StatusCode::from_u16(status).expect("statuses come from the error table or are 200");
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns a 200 with a body of one media type. `nosniff` keeps browsers from guessing another.
pub(crate) fn body_response(media_type: HeaderValue, body: Bytes) -> Response {
    let mut response = Response::new(body.into());
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns a 204 with the methods that a path supports.
pub(crate) fn options_response(allow: &'static str) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(warp::http::header::ALLOW, HeaderValue::from_static(allow));
    response
}
/// Makes a stream `Sync`, which warp requires of bodies although it polls them from one thread at a time.
pub(crate) fn make_sync(
    body: stream::BoxStream<'static, std::io::Result<Bytes>>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + Sync {
    let body = std::sync::Mutex::new(body);
    stream::poll_fn(move |cx| {
        body.lock().unwrap_or_else(std::sync::PoisonError::into_inner).poll_next_unpin(cx)
    })
}
