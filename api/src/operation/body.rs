//! Reads JSON bodies under limits of size and time. In place of `warp::body::json`, which is unbounded, and of
//! `content_length_limit`, which refuses chunked bodies.

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

/// What is read of a body that nobody wants. Many clients send all of it before they read the answer, and would take
/// a connection closed under them for a failure of the network.
const MAX_DISCARD_BYTES: usize = 128 << 20;
/// How long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A request body as it arrives.
pub(crate) struct RequestBody {
    chunks: BoxStream<'static, Result<Bytes, warp::Error>>,
    /// The client sends nothing until it is told to go on, which the first read does.
    expects_continue: bool,
    started: bool,
    ended: bool,
}

impl RequestBody {
    /// The body of a filter.
    pub(crate) fn new<S, B>(headers: &HeaderMap, chunks: S) -> Self
    where
        S: Stream<Item = Result<B, warp::Error>> + Send + 'static,
        B: Buf,
    {
        let chunks =
            chunks.map(|chunk| chunk.map(|mut bytes| bytes.copy_to_bytes(bytes.remaining()))).boxed();
        Self { chunks, expects_continue: headers.contains_key(EXPECT), started: false, ended: false }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, warp::Error>> {
        if self.ended {
            return None;
        }
        self.started = true;
        let chunk = self.chunks.next().await;
        self.ended = !matches!(chunk, Some(Ok(_)));
        chunk
    }

    /// Reads what is left, within limits; answers whether the connection can serve another request.
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

/// What a JSON body may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    max_bytes: u64,
    timeout: Duration,
}

impl BodyLimits {
    /// The operator's limits.
    pub(crate) fn from_settings(settings: &ApiSettings) -> Self {
        Self { max_bytes: settings.max_body_bytes, timeout: settings.body_timeout }
    }
}

/// The JSON of a body; `None` when there is no body.
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

/// The length that a request declares.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A missing type is read as JSON.
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
    // `utf8` is no registered name, and what many clients write.
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
