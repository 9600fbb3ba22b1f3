//! Reads JSON bodies within limits of size, time and memory.
//!
//! warp's own filters do not fit: `warp::body::json` has no limits and `content_length_limit` refuses chunked bodies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use warp::http::HeaderMap;
use warp::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};

use crate::body_budget::{BodyBudget, BodyPermit, BodySender};
use crate::context::ApiSettings;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::seats::{Activity, BodyWait};
use crate::validate::input::{self, BodySize, Input};
use crate::validate::shape::{self, Shape};

/// Bytes to read and discard of the body of a refused request. Many clients send the whole body before they read the
/// response, and report a closed connection as a network error.
const MAX_DISCARD_BYTES: usize = 128 << 20;
/// Time limit for discarding a body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A request body that is read chunk by chunk.
pub(crate) struct RequestBody {
    chunks: BoxStream<'static, Result<Bytes, warp::Error>>,
    /// What the connection is doing: while a chunk is awaited, it waits for its client.
    activity: Option<Arc<Activity>>,
    /// The client sends the body only after a `100 Continue`, which the first read causes.
    expects_continue: bool,
    started: bool,
    ended: bool,
    /// How long chunks were awaited in all.
    waited: Duration,
    /// Bytes of the chunks that have come.
    received: u64,
}

impl RequestBody {
    pub(crate) fn new<S, B>(headers: &HeaderMap, activity: Option<Arc<Activity>>, chunks: S) -> Self
    where
        S: Stream<Item = Result<B, warp::Error>> + Send + 'static,
        B: Buf,
    {
        let chunks =
            chunks.map(|chunk| chunk.map(|mut bytes| bytes.copy_to_bytes(bytes.remaining()))).boxed();
        let expects_continue = headers.contains_key(EXPECT);
        let (waited, received) = (Duration::ZERO, 0);
        Self { chunks, activity, expects_continue, started: false, ended: false, waited, received }
    }

    /// Returns the next chunk; `None` at the end. For the body of a client that has shown that it may send it.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, warp::Error>> {
        self.next_within(BodyWait::once_stalled(self.waited, self.received)).await
    }

    async fn next_within(&mut self, wait: BodyWait) -> Option<Result<Bytes, warp::Error>> {
        if self.ended {
            return None;
        }
        self.started = true;
        let begun = Instant::now();
        let next = self.chunks.next();
        let chunk = match &self.activity {
            Some(activity) => activity.wait_for_body(wait, next).await,
            None => next.await,
        };
        self.waited += begun.elapsed();
        match &chunk {
            Some(Ok(bytes)) => self.received += bytes.len() as u64,
            _ => self.ended = true,
        }
        chunk
    }

    /// Reads and discards the rest, within limits. Returns whether the connection can serve another request.
    pub(crate) async fn discard(&mut self) -> bool {
        if self.expects_continue && !self.started {
            return false;
        }
        let wait = BodyWait::from_now();
        let rest = async {
            let mut left = MAX_DISCARD_BYTES;
            while let Some(chunk) = self.next_within(wait).await {
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

/// Bodies of more bytes are parsed on a thread of their own: a batch takes milliseconds, in which the runtime's thread
/// would serve no other connection.
const PARSE_INLINE_BYTES: usize = 64 << 10;

/// Most bytes of a body with ids: 2,000 of 36 characters are 78 KB, and more with spaces between them.
const MAX_IDS_BYTES: u64 = 128 << 10;

/// The limits of a JSON body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    max_bytes: u64,
    timeout: Duration,
}

impl BodyLimits {
    pub(crate) fn new(settings: &ApiSettings, size: BodySize) -> Self {
        let max_bytes = match size {
            BodySize::Single => settings.max_body_bytes,
            BodySize::Ids => MAX_IDS_BYTES.min(settings.max_batch_bytes),
            BodySize::Batch => settings.max_batch_bytes,
        };
        Self { max_bytes, timeout: settings.body_timeout }
    }
}

/// A JSON body that was read.
pub(crate) struct ReadBody {
    /// All of it.
    pub(crate) bytes: Bytes,
    /// Its part of the budget, to be kept until the request is answered.
    pub(crate) permit: BodyPermit,
}

/// Reads a JSON body within its limits and the budget of its sender.
///
/// # Errors
/// 415 for another media type, 413 over the size limit, 408 over the time limit, 400 for a body that ends early, 429 and
/// 503 where the budget is used up.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut RequestBody,
    limits: BodyLimits,
    budget: &BodyBudget,
    sender: BodySender,
) -> Result<ReadBody, ApiError> {
    check_media_type(headers)?;
    let declared = content_length(headers);
    if declared.is_some_and(|length| length > limits.max_bytes) {
        return Err(ApiError::new(ErrorKind::PayloadTooLarge));
    }
    let most = usize::try_from(declared.unwrap_or(limits.max_bytes)).unwrap_or(usize::MAX);
    let mut permit = budget.acquire(sender, most).await?;
    let collected = tokio::time::timeout(limits.timeout, collect_bytes(body, limits, sender)).await;
    let bytes = collected.map_err(|_| ApiError::new(ErrorKind::Timeout).with_connection_close())??;
    permit.shrink_to(bytes.len());
    Ok(ReadBody { bytes, permit })
}

/// Parses a body as the input of an operation. What is built of the JSON is gone when this returns.
///
/// # Errors
/// 400 for malformed JSON and for invalid input.
pub(crate) async fn parse<I: Input + Send + 'static>(
    bytes: Bytes,
    shape: &Arc<Shape>,
    budget: &BodyBudget,
) -> Result<I, ApiError> {
    if bytes.len() <= PARSE_INLINE_BYTES {
        return parse_now(&bytes, shape);
    }
    let parser = budget.parser().await;
    let shape = Arc::clone(shape);
    let parse = move || {
        // Until it has ended, also where the client has left meanwhile.
        let _parser = parser;
        parse_now(&bytes, &shape)
    };
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.map_err(ApiError::internal)?
}

fn parse_now<I: Input>(bytes: &[u8], shape: &Shape) -> Result<I, ApiError> {
    let malformed = |error: &dyn std::fmt::Display| ApiError::malformed(format!("Malformed JSON: {error}"));
    let value = if bytes.is_empty() {
        None
    } else {
        let text = std::str::from_utf8(bytes).map_err(|error| malformed(&error))?;
        Some(shape::read_json(text, shape).map_err(|error| malformed(&error))?)
    };
    input::parse(value.as_ref()).map_err(|issues| ApiError::invalid(&issues))
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

/// Collects the chunks of a body. Most bodies are one chunk, which is not copied.
async fn collect_bytes(
    body: &mut RequestBody,
    limits: BodyLimits,
    sender: BodySender,
) -> Result<Bytes, ApiError> {
    let begun = BodyWait::from_now();
    let mut first = Bytes::new();
    let mut collected = BytesMut::new();
    loop {
        let next = match sender {
            BodySender::Organization(_) => body.next().await,
            // Anybody can be one, with a link that does not exist too.
            BodySender::Visitor(_) => body.next_within(begun).await,
        };
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|_| ApiError::malformed("The body ended early"))?;
        if (first.len() + collected.len() + chunk.len()) as u64 > limits.max_bytes {
            return Err(ApiError::new(ErrorKind::PayloadTooLarge));
        }
        if first.is_empty() && collected.is_empty() {
            first = chunk;
            continue;
        }
        collected.extend_from_slice(&std::mem::take(&mut first));
        collected.extend_from_slice(&chunk);
    }
    Ok(if collected.is_empty() { first } else { collected.freeze() })
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use futures_util::{FutureExt, stream};
    use serde_json::{Value, json};

    use super::*;
    use crate::seats::{SeatLimits, Seats};
    use crate::validate::input::Fields;

    /// The thread that parsed a body.
    #[derive(Debug, PartialEq, Eq)]
    struct ParsedOn(ThreadId);

    impl Input for ParsedOn {
        const NAME: &'static str = "ParsedOn";

        fn read(_: &mut Fields<'_>) -> Option<Self> {
            Some(Self(thread::current().id()))
        }

        fn example() -> Value {
            json!({})
        }
    }

    #[tokio::test]
    async fn a_body_that_trickles_in_gives_its_seat_to_a_new_connection() {
        let seats = Seats::new(SeatLimits { total: 1, per_address: 1, patience: Duration::ZERO });
        for (waited, has_to_leave) in [(Duration::ZERO, false), (Duration::from_secs(16), true)] {
            let seat = seats.take_seat(None).unwrap();
            let _answer = seat.activity().begin_request().unwrap();
            let chunks = stream::iter([Ok::<_, warp::Error>(Bytes::from_static(b"a"))]);
            let chunks = chunks.chain(stream::pending());
            let mut body = RequestBody::new(&HeaderMap::new(), Some(Arc::clone(seat.activity())), chunks);
            assert_eq!(body.next().await.unwrap().unwrap(), "a");
            body.waited += waited;
            let mut next = Box::pin(body.next());
            assert!(next.as_mut().now_or_never().is_none());
            assert_eq!(seats.take_seat(None).is_some(), has_to_leave);
        }
    }

    /// Parses a body of so many bytes.
    async fn parse_bytes(bytes: usize, budget: &BodyBudget) -> ParsedOn {
        let frame = r#"{"unknown":""}"#.len();
        let body = format!(r#"{{"unknown":"{}"}}"#, "x".repeat(bytes - frame));
        parse(body.into(), &Arc::new(ParsedOn::shape()), budget).await.unwrap()
    }

    #[tokio::test]
    async fn large_bodies_are_parsed_off_the_threads_of_the_runtime() {
        let budget = BodyBudget::new(4 << 20, Duration::ZERO);
        // The only thread of this runtime is that of the test.
        let runtime = ParsedOn(thread::current().id());
        assert_eq!(parse_bytes(PARSE_INLINE_BYTES, &budget).await, runtime);
        assert_ne!(parse_bytes(PARSE_INLINE_BYTES + 1, &budget).await, runtime);
    }
}
