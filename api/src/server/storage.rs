//! `PUT` and `GET /storage/{key}`: presigned transfers, where the bytes lie on the local disk. The semantics are S3's:
//! no key in a header, 200 on success, 403 for a signature that is wrong, expired or made for something else.
//! Browsers fetch pictures and send selfies from pages of any origin: the signature is what permits it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use photofinish_store::blobs::local::{LocalFiles, ReceiveError, SignatureError};
use photofinish_store::traits::ANY_IMAGE;
use warp::Reply;
use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue,
};
use warp::http::{HeaderMap, Method, StatusCode};
use warp::reply::Response;

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::operation::body::{RequestBody, content_length};
use crate::operation::{self, ApiRequest};
use crate::reply;

/// The methods of a storage path.
const ALLOW: &str = "GET, HEAD, PUT, OPTIONS";

/// A sender that says nothing for this long has gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer to a transfer: `key` is the path after `/storage/`, `query` the raw query string.
pub(crate) async fn handle(local: &LocalFiles, (key, query): (&str, &str), mut call: ApiRequest) -> Response {
    let answer = match call.method {
        Method::PUT => receive_upload(local, (key, query), &mut call).await,
        Method::GET => send_object(local, (key, query), true).await,
        Method::HEAD => send_object(local, (key, query), false).await,
        Method::OPTIONS => Ok(preflight_response()),
        _ => Err(ApiError::method_not_allowed(ALLOW)),
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(error) => operation::respond_with_error(error, &mut call.body).await,
    };
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

async fn receive_upload(
    local: &LocalFiles,
    (key, query): (&str, &str),
    call: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let content_type = signed_content_type(query, &call.headers);
    let grant = local.verify_upload(key, query, content_type).map_err(signature_error)?;
    let too_large = || ApiError::new(ErrorKind::PayloadTooLarge);
    if content_length(&call.headers).is_some_and(|length| length > grant.max_bytes()) {
        return Err(too_large());
    }
    match local.receive_upload(grant, read_chunks(&mut call.body)).await {
        Ok(_) => Ok(Response::new(Bytes::new().into())),
        Err(ReceiveError::TooLarge { .. }) => Err(too_large()),
        Err(ReceiveError::Body(UploadInterrupted::Stalled)) => {
            Err(ApiError::new(ErrorKind::Timeout).with_connection_close())
        }
        Err(ReceiveError::Body(UploadInterrupted::Truncated)) => {
            Err(ApiError::malformed("The body ended early").with_connection_close())
        }
        Err(ReceiveError::Store(error)) => Err(error.into()),
    }
}

/// The request's content type as the signature knows it: any image stands for [`ANY_IMAGE`] where the URL says so.
fn signed_content_type<'a>(query: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let sent = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let any_image = url::form_urlencoded::parse(query.as_bytes()).any(|(n, v)| n == "type" && v == ANY_IMAGE);
    if any_image && sent.to_ascii_lowercase().starts_with("image/") { Some(ANY_IMAGE) } else { Some(sent) }
}

enum UploadInterrupted {
    Stalled,
    Truncated,
}

/// The body's chunks, each within the limit of silence.
fn read_chunks(body: &mut RequestBody) -> impl Stream<Item = Result<Bytes, UploadInterrupted>> {
    stream::unfold(body, |body| async move {
        let chunk = match tokio::time::timeout(IDLE_TIMEOUT, body.next()).await {
            Err(_) => Err(UploadInterrupted::Stalled),
            Ok(None) => return None,
            Ok(Some(chunk)) => chunk.map_err(|_| UploadInterrupted::Truncated),
        };
        Some((chunk, body))
    })
}

async fn send_object(
    local: &LocalFiles,
    (key, query): (&str, &str),
    with_body: bool,
) -> Result<Response, ApiError> {
    let grant = local.verify_download(key, query).map_err(signature_error)?;
    let object = local.open_object(&grant).await?;
    let mut response = if with_body {
        warp::reply::stream(make_sync(object.body)).into_response()
    } else {
        Response::new(Bytes::new().into())
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(object.content_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(object.size_bytes));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    // The URL lives for an hour; so may the picture in the browser that was given it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    Ok(response)
}

/// A stream that may be shared between threads, which only ever polls it from one: what warp's bodies ask for.
fn make_sync(
    body: stream::BoxStream<'static, std::io::Result<Bytes>>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + Sync {
    let body = std::sync::Mutex::new(body);
    stream::poll_fn(move |cx| {
        body.lock().unwrap_or_else(std::sync::PoisonError::into_inner).poll_next_unpin(cx)
    })
}

fn preflight_response() -> Response {
    let mut response = reply::options_response(ALLOW);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, PUT"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    response
}

fn signature_error(error: SignatureError) -> ApiError {
    let code = match error {
        SignatureError::Malformed | SignatureError::Wrong => "SIGNATURE_MISMATCH",
        SignatureError::Expired => "URL_EXPIRED",
        SignatureError::ContentType => "CONTENT_TYPE_MISMATCH",
    };
    ApiError::new(ErrorKind::Forbidden).with_code(code)
}
