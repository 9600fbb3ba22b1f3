//! Builds the answers that are not errors. Knows nothing of what they say.

use bytes::Bytes;
use serde::Serialize;
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use warp::http::{HeaderMap, StatusCode};
use warp::reply::Response;

use crate::errors::ApiError;

/// 200 with a JSON body.
pub(crate) fn json_response<T: Serialize>(body: &T) -> Result<Response, ApiError> {
    let text = serde_json::to_string(body).map_err(ApiError::internal)?;
    Ok(json_text_response(200, text))
}

/// JSON of any status. Answers of the API are nobody's to cache: they hold presigned URLs.
pub(crate) fn json_text_response(status: u16, text: String) -> Response {
    let mut response = body_response(HeaderValue::from_static("application/json"), text.into());
    *response.status_mut() =
        StatusCode::from_u16(status).expect("statuses come from the error table or are 200");
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 200 with a body of one media type, which the browser is told to believe.
pub(crate) fn body_response(media_type: HeaderValue, body: Bytes) -> Response {
    let mut response = Response::new(body.into());
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// 204 with the methods that a path answers.
pub(crate) fn options_response(allow: &'static str) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(warp::http::header::ALLOW, HeaderValue::from_static(allow));
    response
}
