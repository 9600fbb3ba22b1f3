//! Reads JSON bodies within limits of size and time.
//!
//! warp's own filters do not fit: `warp::body::json` has no limits and `content_length_limit` refuses chunked bodies.

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use serde_json::Value;
use warp::http::HeaderMap;
use warp::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};

use crate::context::ApiSettings;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// Bytes to read and discard of the body of a refused request. Many clients send the whole body before they read the
/// response, and report a closed connection as a network error.
const MAX_DISCARD_BYTES: usize = 128 << 20;
/// Time limit for discarding a body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A request body that is read chunk by chunk.
pub(crate) struct RequestBody {
    chunks: BoxStream<'static, Result<Bytes, warp::Error>>,
    /// The client sends the body only after a `100 Continue`, which the first read causes.
    expects_continue: bool,
    started: bool,
    ended: bool,
}

impl RequestBody {
    pub(crate) fn new<S, B>(headers: &HeaderMap, chunks: S) -> Self
    where
        S: Stream<Item = Result<B, warp::Error>> + Send + 'static,
        B: Buf,
    {
        let chunks =
            chunks.map(|chunk| chunk.map(|mut bytes| bytes.copy_to_bytes(bytes.remaining()))).boxed();
        Self { chunks, expects_continue: headers.contains_key(EXPECT), started: false, ended: false }
    }

    /// Returns the next chunk; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, warp::Error>> {
        if self.ended {
            return None;
        }
        self.started = true;
        let chunk = self.chunks.next().await;
        self.ended = !matches!(chunk, Some(Ok(_)));
        chunk
    }

    /// Reads and discards the rest, within limits. Returns whether the connection can serve another request.
    pub(crate) async fn discard(&mut self) -> bool {
        if self.expects_continue && !self.started {
            return false;
        }
        let rest = async {
            let mut left = MAX_DISCARD_BYTES;
            while let Some(chunk) = self.next().await {
                let length = chunk.map_or(usize::MAX, |chunk| chunk.len());
                match left.checked_sub(length) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        tokio::time::timeout(DISCARD_TIMEOUT, rest).await.unwrap_or(false)
    }
}

/// The limits of a JSON body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    max_bytes: u64,
    timeout: Duration,
}

impl BodyLimits {
    pub(crate) fn from_settings(settings: &ApiSettings) -> Self {
        Self { max_bytes: settings.max_body_bytes, timeout: settings.body_timeout }
    }
}

/// Reads a body as JSON; `None` if it is empty.
///
/// # Errors
/// 415 for another media type, 413 over the size limit, 408 over the time limit, 400 for malformed JSON.
pub(crate) async fn read_json(
    headers: &HeaderMap,
    body: &mut RequestBody,
    limits: BodyLimits,
) -> Result<Option<Value>, ApiError> {
    check_media_type(headers)?;
    if content_length(headers).is_some_and(|length| length > limits.max_bytes) {
        return Err(ApiError::new(ErrorKind::PayloadTooLarge));
    }
    let collected = tokio::time::timeout(limits.timeout, collect_bytes(body, limits.max_bytes)).await;
    let bytes = collected.map_err(|_| ApiError::new(ErrorKind::Timeout).with_connection_close())??;
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| ApiError::malformed(format!("Malformed JSON: {error}")))
}

/// Returns the declared length of the body.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Accepts JSON in UTF-8 and a missing content type.
fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let unsupported = || ApiError::new(ErrorKind::UnsupportedMediaType);
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(unsupported());
    }
    let Some(declared) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let declared: mime::Mime =
        declared.to_str().ok().and_then(|text| text.parse().ok()).ok_or_else(unsupported)?;
    // `utf8` is not a registered name, but many clients send it.
    let utf8 =
        declared.get_param(mime::CHARSET).is_none_or(|charset| charset == mime::UTF_8 || charset == "utf8");
    if declared.essence_str() == "application/json" && utf8 { Ok(()) } else { Err(unsupported()) }
}

async fn collect_bytes(body: &mut RequestBody, max_bytes: u64) -> Result<Vec<u8>, ApiError> {
    let mut collected = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|_| ApiError::malformed("The body ended early"))?;
        if (collected.len() + chunk.len()) as u64 > max_bytes {
            return Err(ApiError::new(ErrorKind::PayloadTooLarge));
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected)
}
