//! Responses that are streams of server-sent events.

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;
use warp::Reply;
use warp::http::HeaderMap;
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

use crate::errors::ApiError;

/// Events that a slow client may leave unread before the stream waits for it.
const EVENT_BUFFER: usize = 4;

/// The end of a stream into which the events are written. Closed once the client has disconnected.
pub(crate) type EventSender = mpsc::Sender<Bytes>;

/// Returns a response that sends what is written to the sender, and ends with it.
pub(crate) fn open_stream() -> (EventSender, Response) {
    let (sender, mut unread) = mpsc::channel::<Bytes>(EVENT_BUFFER);
    let body =
        stream::poll_fn(move |cx| unread.poll_recv(cx).map(|event| event.map(Ok::<_, std::io::Error>)));
    let mut response = warp::reply::stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Tells nginx and others not to buffer the response.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (sender, response)
}

/// Sends one event. `json` has no line breaks, so it is one `data` line.
pub(crate) async fn send_event(sender: &EventSender, name: &str, json: &str) {
    send_text(sender, format!("event: {name}\ndata: {json}\n\n")).await;
}

/// Sends lines as they are; they must end with an empty one.
pub(crate) async fn send_text(sender: &EventSender, lines: String) {
    // Fails only when the client has disconnected, which the loop of the stream notices.
    drop(sender.send(lines.into()).await);
}

/// Runs `sending` until it has sent everything or fails, `end` says why the stream ends, or the client disconnects. The reason
/// is the last event.
///
/// `end` is awaited beside the sending, and first: a client that is far behind or does not read keeps that busy for long.
pub(crate) async fn send_until_end(
    sender: &EventSender,
    sending: impl Future<Output = Option<ApiError>>,
    end: impl Future<Output = ApiError>,
) {
    let error = tokio::select! {
        biased;
        () = sender.closed() => return,
        error = end => Some(error),
        error = sending => error,
    };
    if let Some(error) = error {
        error.log();
        send_event(sender, "error", &error.to_json()).await;
    }
}

/// The id of the last event that a client has got of a stream that it resumes: the header `last-event-id`.
pub(crate) struct LastEventId(pub(crate) Option<String>);

impl LastEventId {
    /// What is no text is no id either: it is refused as one that no stream has sent.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        Self(headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::table::ErrorKind;

    /// Sends events for ever.
    async fn send_events(sender: &EventSender) -> Option<ApiError> {
        loop {
            send_event(sender, "message", "{}").await;
        }
    }

    #[tokio::test]
    async fn a_stream_that_its_client_does_not_read_ends_with_the_reason() {
        let (sender, mut unread) = mpsc::channel(EVENT_BUFFER);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let stream = tokio::spawn(async move {
            let end = async {
                ended.await.unwrap();
                ApiError::new(ErrorKind::Unauthorized)
            };
            send_until_end(&sender, send_events(&sender), end).await;
        });
        while unread.len() < EVENT_BUFFER {
            tokio::task::yield_now().await;
        }
        end.send(()).unwrap();
        let mut events = Vec::new();
        while let Some(event) = unread.recv().await {
            events.push(String::from_utf8(event.to_vec()).unwrap());
        }
        stream.await.unwrap();
        // What was sent before, and at most one more that waited for room.
        let (reason, sent) = events.split_last().unwrap();
        assert!(sent.len() <= EVENT_BUFFER + 1, "{events:?}");
        assert!(reason.starts_with("event: error\n"), "{events:?}");
    }

    #[tokio::test]
    async fn a_stream_ends_when_its_client_has_gone() {
        let (sender, unread) = mpsc::channel(EVENT_BUFFER);
        drop(unread);
        send_until_end(&sender, std::future::pending(), std::future::pending()).await;
    }
}
