//! `PUT` and `GET /storage/{key}`: presigned uploads and downloads where objects are on the local disk.
//!
//! They behave like presigned URLs of S3: no API key, 200 on success, 403 for a signature that is wrong, expired or made
//! for another request. CORS allows every origin, because galleries show pictures and send selfies from pages of any
//! site; the signature is the permission.

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

/// The path under which presigned URLs of the local disk are.
pub(crate) const STORAGE_PREFIX: &str = "/storage/";

/// The methods of a presigned URL.
const ALLOW: &str = "GET, HEAD, PUT, OPTIONS";

/// An upload that sends nothing for this long is aborted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A presigned URL as the request contains it.
#[derive(Clone, Copy)]
pub(crate) struct ObjectUrl<'a> {
    /// The path after [`STORAGE_PREFIX`].
    pub(crate) key: &'a str,
    /// The raw query string, with the signature.
    pub(crate) query: &'a str,
}

/// Responds to an upload, a download or a preflight request.
pub(crate) async fn handle(local: &LocalFiles, url: ObjectUrl<'_>, mut request: ApiRequest) -> Response {
    let result = match request.method {
        Method::PUT => receive_upload(local, url, &mut request).await,
        Method::GET => send_object(local, url, Content::Full).await,
        Method::HEAD => send_object(local, url, Content::HeadersOnly).await,
        Method::OPTIONS => Ok(preflight_response()),
        _ => Err(ApiError::method_not_allowed(ALLOW)),
    };
    let mut response = match result {
        Ok(response) => response,
        Err(error) => operation::respond_with_error(error, &mut request.body).await,
    };
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

async fn receive_upload(
    local: &LocalFiles,
    url: ObjectUrl<'_>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let content_type = signed_content_type(url.query, &request.headers);
    let grant = local.verify_upload(url.key, url.query, content_type).map_err(signature_error)?;
    let too_large = || ApiError::new(ErrorKind::PayloadTooLarge);
    if content_length(&request.headers).is_some_and(|length| length > grant.max_bytes()) {
        return Err(too_large());
    }
    match local.receive_upload(grant, read_chunks(&mut request.body)).await {
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

/// Returns the content type that the signature covers: [`ANY_IMAGE`] for any image type if the URL was signed with it,
/// else the type as it was sent.
fn signed_content_type<'a>(query: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let sent = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let accepts_any_image = url::form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "type" && value == ANY_IMAGE);
    if accepts_any_image && sent.to_ascii_lowercase().starts_with("image/") {
        Some(ANY_IMAGE)
    } else {
        Some(sent)
    }
}

/// Why the body of an upload was not received completely.
enum UploadInterrupted {
    Stalled,
    Truncated,
}

/// Returns the chunks of the body, each received within [`IDLE_TIMEOUT`].
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

/// What a download contains.
enum Content {
    Full,
    HeadersOnly,
}

async fn send_object(local: &LocalFiles, url: ObjectUrl<'_>, content: Content) -> Result<Response, ApiError> {
    let grant = local.verify_download(url.key, url.query).map_err(signature_error)?;
    let object = local.open_object(&grant).await?;
    let mut response = match content {
        Content::Full => warp::reply::stream(make_sync(object.body)).into_response(),
        Content::HeadersOnly => Response::new(Bytes::new().into()),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(object.content_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(object.size_bytes));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    // A cached picture may be used as long as its URL is usually valid. Only the browser may cache it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
    Ok(response)
}

/// Makes a stream `Sync`, which warp requires of bodies although it polls them from one thread at a time.
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
