//! `PUT` and `GET /storage/{key}`: presigned uploads and downloads where objects are on the local disk.
//!
//! They behave like presigned URLs of S3: no API key, 200 on success, 403 for a signature that is wrong, expired or made
//! for another request. In addition an upload has a deadline, an object has few uploads at once, and an upload for a photo
//! or a selfie that no longer exists is refused. CORS allows every origin, because galleries show pictures and send
//! selfies from pages of any site; the signature is the permission.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use photofinish_store::blobs::local::uploads::{PublishError, ReceiveError, ReceivedUpload};
use photofinish_store::blobs::local::{LocalFiles, LocalObject, SignatureError};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::traits::{ANY_IMAGE, UploadTarget};
use serde_json::json;
use tracing::Instrument;
use warp::Reply;
use warp::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH,
};
use warp::http::{HeaderMap, Method, StatusCode};
use warp::reply::Response;

use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::operation::body::{RequestBody, content_length};
use crate::operation::{self, ApiRequest};
use crate::reply;

/// The path under which presigned URLs of the local disk are.
pub(crate) const STORAGE_PREFIX: &str = "/storage/";

/// The methods of a presigned URL.
const ALLOW: &str = "GET, HEAD, PUT, OPTIONS";

/// A cached picture may be used as long as its URL is usually valid. Only the browser may cache it.
const PICTURE_CACHING: HeaderValue = HeaderValue::from_static("private, max-age=3600");

/// An upload that sends nothing for this long is aborted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// When an object that has as many uploads as it may have at once is likely to have fewer.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A presigned URL as the request contains it.
#[derive(Clone, Copy)]
pub(crate) struct ObjectUrl<'a> {
    /// The path after [`STORAGE_PREFIX`], not decoded.
    pub(crate) key: &'a str,
    /// The raw query string, with the signature.
    pub(crate) query: &'a str,
}

/// Responds to an upload, a download or a preflight request.
pub(crate) async fn handle(
    ctx: &Context,
    local: &Arc<LocalFiles>,
    url: ObjectUrl<'_>,
    mut request: ApiRequest,
) -> Response {
    let result = match request.method {
        Method::PUT => receive_upload(ctx, local, url, &mut request).await,
        Method::GET => send_object(local, url, Content::Full, &request.headers).await,
        Method::HEAD => send_object(local, url, Content::HeadersOnly, &request.headers).await,
        Method::OPTIONS => Ok(preflight_response(&mut request.body).await),
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
    ctx: &Context,
    local: &Arc<LocalFiles>,
    url: ObjectUrl<'_>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let content_type = signed_content_type(url.query, &request.headers);
    let grant = local.verify_upload(url.key, url.query, content_type).map_err(signature_error)?;
    let declared_bytes = content_length(&request.headers);
    if declared_bytes.is_some_and(|length| length > grant.max_bytes()) {
        return Err(ApiError::new(ErrorKind::PayloadTooLarge));
    }
    let key = grant.key().clone();
    let upload =
        local.begin_upload(grant, declared_bytes, ctx.settings.upload_pace).map_err(|_| busy_error())?;
    check_target(ctx, &key).await?;
    let received =
        local.receive_upload(upload, read_chunks(&mut request.body)).await.map_err(receive_error)?;
    check_target(ctx, &key).await?;
    // A task: if the client leaves now, the object is stored nevertheless, and what follows must be done too. If the process
    // ends in between, garbage collection does it.
    let storing = store_upload(ctx.clone(), Arc::clone(local), key, received);
    tokio::spawn(storing.in_current_span()).await.map_err(ApiError::internal)??;
    Ok(Response::new(Bytes::new().into()))
}

async fn store_upload(
    ctx: Context,
    local: Arc<LocalFiles>,
    key: ObjectKey,
    received: ReceivedUpload,
) -> Result<(), ApiError> {
    let stored = local.publish_upload(received).await.map_err(publish_error);
    let checked = check_target(&ctx, &key).await;
    // Deleted since the last check. The deletion may have removed the objects before this one was stored, if with an error only
    // after that.
    if checked.as_ref().is_err_and(|error| error.kind().status() < 500) {
        ctx.store.blobs.delete(&key).await?;
    }
    stored.and(checked)
}

/// Checks that the photo or the selfie for which an object is uploaded exists and may have it.
async fn check_target(ctx: &Context, key: &ObjectKey) -> Result<(), ApiError> {
    match ctx.store.find_upload_target(key).await? {
        UploadTarget::Open => Ok(()),
        UploadTarget::UsedProbe => Err(ApiError::new(ErrorKind::Conflict).with_code("SELFIE_USED")),
        UploadTarget::Missing => Err(ApiError::not_found()),
    }
}

fn busy_error() -> ApiError {
    let data = json!({ "code": "UPLOAD_IN_PROGRESS", "tryAgainIn": BUSY_RETRY_AFTER.as_secs() });
    ApiError::rate_limited(BUSY_RETRY_AFTER).with_data(data)
}

fn receive_error(error: ReceiveError<UploadInterrupted>) -> ApiError {
    match error {
        ReceiveError::TooLarge { .. } => ApiError::new(ErrorKind::PayloadTooLarge),
        ReceiveError::TooSlow | ReceiveError::Body(UploadInterrupted::Stalled) => {
            ApiError::new(ErrorKind::Timeout).with_connection_close()
        }
        ReceiveError::Expired => expired_error().with_connection_close(),
        ReceiveError::Body(UploadInterrupted::Truncated) => {
            ApiError::malformed("The body ended early").with_connection_close()
        }
        ReceiveError::Store(error) => error.into(),
    }
}

fn publish_error(error: PublishError) -> ApiError {
    match error {
        PublishError::Expired => expired_error(),
        PublishError::Store(error) => error.into(),
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

async fn send_object(
    local: &LocalFiles,
    url: ObjectUrl<'_>,
    content: Content,
    asked: &HeaderMap,
) -> Result<Response, ApiError> {
    let grant = local.verify_download(url.key, url.query).map_err(signature_error)?;
    let object = local.open_object(&grant).await?;
    let tag = entity_tag(&object);
    if asked.get(IF_NONE_MATCH).is_some_and(|known| *known == tag) {
        return Ok(not_modified(tag));
    }
    let mut response = match content {
        Content::Full => warp::reply::stream(reply::make_sync(object.body)).into_response(),
        Content::HeadersOnly => Response::new(Bytes::new().into()),
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, tag);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(object.content_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(object.size_bytes));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, PICTURE_CACHING);
    Ok(response)
}

/// Returns what tells one content of an object from another: when it was written, and its size.
fn entity_tag(object: &LocalObject) -> HeaderValue {
    let written = object.written_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    HeaderValue::from_str(&format!("\"{written:x}-{:x}\"", object.size_bytes)).expect("hexadecimal digits")
}

fn not_modified(tag: HeaderValue) -> Response {
    let mut response = Response::new(Bytes::new().into());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, tag);
    response.headers_mut().insert(CACHE_CONTROL, PICTURE_CACHING);
    response
}

async fn preflight_response(body: &mut RequestBody) -> Response {
    let mut response = operation::respond_to_options(ALLOW, body).await;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, PUT"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    response
}

fn signature_error(error: SignatureError) -> ApiError {
    let code = match error {
        SignatureError::Malformed | SignatureError::Wrong => "SIGNATURE_MISMATCH",
        SignatureError::Expired => return expired_error(),
        SignatureError::ContentType => "CONTENT_TYPE_MISMATCH",
    };
    ApiError::new(ErrorKind::Forbidden).with_code(code)
}

fn expired_error() -> ApiError {
    ApiError::new(ErrorKind::Forbidden).with_code("URL_EXPIRED")
}
