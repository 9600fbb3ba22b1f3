//! A socket that waits for its client only so long: for the head of a request, for the next request, and for the client to
//! read a response.
//!
//! It lies under the HTTP library, which has no time limit for writes, closes slow heads without a response, and answers
//! malformed ones without a body: what it writes while a head is awaited is replaced here. A client that sends the next
//! request before it has read a response may have a malformed one refused while the response is still being sent: what
//! the library adds to a response that was complete is such a refusal too.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::refusal::{LINGER, Refusal};
use crate::metrics::CloseReason;
use crate::seats::Activity;

/// What a client must read of a response within the time limit: less is a client that only pretends to read.
const PROGRESS_BYTES: usize = 16 << 10;
/// Bytes to discard after a refusal, so that the client can read it.
const LINGER_BYTES: usize = 256 << 10;

/// How long a connection waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketLimits {
    /// For a whole head, from its first byte on; for the first head from the connection on.
    pub(crate) head: Duration,
    /// For the next request, from the last response on.
    pub(crate) idle: Duration,
    /// For the client to read [`PROGRESS_BYTES`] of a response.
    pub(crate) stall: Duration,
}

/// A socket with time limits. Times out with an error.
pub(crate) struct GuardedSocket {
    socket: TcpStream,
    activity: Arc<Activity>,
    limits: SocketLimits,
    /// When the awaited head must be complete.
    head_deadline: Instant,
    /// Whether a byte of the awaited head has come.
    head_has_begun: bool,
    /// While a write waits for the client.
    stall: Option<Stall>,
    /// What the HTTP library has still to write; `None` while it may add to it.
    unwritten: Option<Unwritten>,
    /// The response in place of the one of the HTTP library.
    refusal: Option<RefusalResponse>,
    /// Fires at the earliest deadline or before; it is set only when it has fired too early or would too late.
    timer: Pin<Box<Sleep>>,
}

/// What is left of a response that is complete.
struct Unwritten {
    /// The number of the request.
    request: u64,
    bytes: usize,
}

struct Stall {
    deadline: Instant,
    written: usize,
}

struct RefusalResponse {
    bytes: Vec<u8>,
    written: usize,
    discarded: usize,
    /// When the client must have read the response; set when all is written.
    linger_until: Option<Instant>,
}

impl GuardedSocket {
    pub(crate) fn new(socket: TcpStream, activity: Arc<Activity>, limits: SocketLimits) -> Self {
        let head_deadline = Instant::now() + limits.head;
        let timer = Box::pin(tokio::time::sleep_until(head_deadline));
        Self {
            socket,
            activity,
            limits,
            head_deadline,
            head_has_begun: false,
            stall: None,
            unwritten: None,
            refusal: None,
            timer,
        }
    }

    /// Waits until `deadline`.
    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline);
        }
    }

    fn record_received(&mut self) {
        if self.activity.awaits_head() && !self.head_has_begun {
            self.head_has_begun = true;
            self.head_deadline = self.head_deadline.min(Instant::now() + self.limits.head);
        }
    }

    /// Ends the wait for a head. A client that has sent none is not told: it may be about to reuse the connection, and
    /// would take the response for that of its next request.
    fn give_up_head(&mut self, cx: &mut Context<'_>) -> io::Error {
        if self.head_has_begun {
            let response = Refusal::SlowHead.into_response();
            // Nothing else is being sent, so there is room for it; if not, the client is not told.
            drop(Pin::new(&mut self.socket).poll_write(cx, &response));
        } else {
            CloseReason::Idle.count();
        }
        timed_out("the head of a request did not come in time")
    }

    /// Whether the HTTP library writes a response of its own: no request is being answered.
    fn is_bare_response(&self) -> bool {
        self.refusal.is_some() || self.activity.awaits_head()
    }

    /// Takes a response of the HTTP library and prepares another in its place, to be sent after `rest`.
    fn replace(&mut self, head: &[u8], mut rest: Vec<u8>) {
        self.refusal.get_or_insert_with(|| {
            rest.extend(Refusal::from_bare_response(head).into_response());
            RefusalResponse { bytes: rest, written: 0, discarded: 0, linger_until: None }
        });
    }

    /// Takes everything that the HTTP library has to write, if a response of its own is in it. Returns its length.
    fn take_bare_response(&mut self, bufs: &[IoSlice<'_>]) -> Option<usize> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        // The library adds a head to the first buffer, which has what is left of earlier heads, also if parts of an
        // earlier body are in the buffers after it.
        let head = bufs.first().map_or(&[][..], |buf| &**buf);
        if self.is_bare_response() {
            self.replace(head, Vec::new());
            return Some(length);
        }
        let unwritten = self.unwritten.as_ref()?;
        if self.activity.flushing_request() != Some(unwritten.request) || length <= unwritten.bytes {
            return None;
        }
        let added = length - unwritten.bytes;
        let (first, bare) = head.split_at(head.len().checked_sub(added)?);
        let rest = bufs[1..].iter().fold(first.to_vec(), |mut rest, buf| {
            rest.extend_from_slice(buf);
            rest
        });
        self.replace(bare, rest);
        Some(length)
    }

    /// Remembers how much is left of a complete response after a write of `length` bytes.
    fn record_unwritten(&mut self, length: usize, written: &Poll<io::Result<usize>>) {
        let written = if let Poll::Ready(Ok(written)) = written { *written } else { 0 };
        let bytes = length.saturating_sub(written);
        self.unwritten = self.activity.flushing_request().map(|request| Unwritten { request, bytes });
    }

    /// Passes on the result of a write, or an error when the client has not read enough for too long.
    fn check_progress(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => {
                if let Some(stall) = &mut self.stall {
                    stall.written += bytes;
                    if stall.written >= PROGRESS_BYTES {
                        self.stall = None;
                        self.activity.end_stall();
                    }
                }
                written
            }
            Poll::Ready(Err(_)) => written,
            Poll::Pending => {
                if self.stall.is_none() {
                    self.activity.begin_stall();
                }
                let deadline = Instant::now() + self.limits.stall;
                let deadline = self.stall.get_or_insert(Stall { deadline, written: 0 }).deadline;
                ready!(self.poll_deadline(cx, deadline));
                CloseReason::Stalled.count();
                Poll::Ready(Err(timed_out("the client did not read the response in time")))
            }
        }
    }

    fn poll_write_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(refusal) = &self.refusal {
            let rest = &refusal.bytes[refusal.written..];
            if rest.is_empty() {
                break;
            }
            let written = Pin::new(&mut self.socket).poll_write(cx, rest);
            let written = ready!(self.check_progress(cx, written))?;
            if let Some(refusal) = &mut self.refusal {
                refusal.written += written;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards what the client still sends after a refusal. Closing a socket with unread bytes resets the
    /// connection, and the client may lose the response.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(refusal) = &mut self.refusal else { return Poll::Ready(()) };
        let until = *refusal.linger_until.get_or_insert_with(|| Instant::now() + LINGER);
        let mut unread = [0; 4096];
        while refusal.discarded < LINGER_BYTES {
            let mut unread = ReadBuf::new(&mut unread);
            match Pin::new(&mut self.socket).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {
                    refusal.discarded += unread.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.poll_deadline(cx, until),
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for GuardedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buf);
        match &read {
            Poll::Ready(Ok(())) if buf.filled().len() > before => this.record_received(),
            Poll::Pending if this.activity.awaits_head() => {
                ready!(this.poll_deadline(cx, this.head_deadline));
                return Poll::Ready(Err(this.give_up_head(cx)));
            }
            _ => {}
        }
        read
    }
}

impl AsyncWrite for GuardedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(taken) = this.take_bare_response(&[IoSlice::new(buf)]) {
            return Poll::Ready(Ok(taken));
        }
        let written = Pin::new(&mut this.socket).poll_write(cx, buf);
        this.record_unwritten(buf.len(), &written);
        this.check_progress(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(taken) = this.take_bare_response(bufs) {
            return Poll::Ready(Ok(taken));
        }
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, bufs);
        this.record_unwritten(bufs.iter().map(|buf| buf.len()).sum(), &written);
        this.check_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// The HTTP library flushes when it has written all that it has.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_refusal(cx))?;
        ready!(Pin::new(&mut this.socket).poll_flush(cx))?;
        (this.stall, this.unwritten) = (None, None);
        if this.activity.end_flush() {
            this.head_deadline = Instant::now() + this.limits.idle;
            this.head_has_begun = false;
            // The HTTP library may not read again until there is something to read, so the timer must be running now. The
            // deadline is checked when it reads.
            let _running = this.poll_deadline(cx, this.head_deadline);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_refusal(cx))?;
        ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
        ready!(this.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}

fn timed_out(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    /// What hyper writes of itself to a head that it cannot parse.
    const BARE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    /// Returns a socket that is sending a complete response, its client, which has read nothing, and the number of bytes
    /// that the system has taken.
    async fn begin_unread_response(response: &[u8]) -> (GuardedSocket, TcpStream, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let activity = Activity::new();
        let limits = SocketLimits { head: LONG, idle: LONG, stall: LONG };
        let mut guarded = GuardedSocket::new(socket, Arc::clone(&activity), limits);
        drop(activity.begin_request());
        let mut sent = 0;
        poll_fn(|cx| {
            loop {
                let bufs = [IoSlice::new(&response[sent..])];
                match Pin::new(&mut guarded).poll_write_vectored(cx, &bufs) {
                    Poll::Ready(written) => sent += written.unwrap(),
                    Poll::Pending => return Poll::Ready(()),
                }
            }
        })
        .await;
        assert!(sent < response.len(), "the client's buffers take the whole response");
        (guarded, client, sent)
    }

    async fn read_all(mut client: TcpStream) -> Vec<u8> {
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received
    }

    #[tokio::test]
    async fn a_bare_refusal_behind_an_unread_response_becomes_one_with_the_envelope() {
        let response: Vec<u8> = (0..32_u32 << 20).map(|i| (i % 251) as u8).collect();
        let (mut guarded, client, sent) = begin_unread_response(&response).await;
        // The library adds its head to the first buffer, which is before what is left of the body.
        let bufs = [IoSlice::new(BARE), IoSlice::new(&response[sent..])];
        let taken = poll_fn(|cx| Pin::new(&mut guarded).poll_write_vectored(cx, &bufs)).await.unwrap();
        assert_eq!(taken, BARE.len() + response.len() - sent);
        let received = tokio::spawn(read_all(client));
        guarded.shutdown().await.unwrap();
        drop(guarded);
        let received = received.await.unwrap();
        assert!(received.starts_with(&response), "the response arrives whole and in order");
        let refusal = String::from_utf8_lossy(&received[response.len()..]);
        assert!(
            refusal.starts_with("HTTP/1.1 400 Bad Request\r\ncontent-type: application/json"),
            "{refusal}"
        );
        assert!(refusal.contains("x-request-id: ") && refusal.ends_with('}'), "{refusal}");
    }

    #[tokio::test]
    async fn a_response_behind_an_unread_one_is_sent_as_it_is() {
        let response = vec![7; 32 << 20];
        let (mut guarded, client, sent) = begin_unread_response(&response).await;
        let next = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        drop(guarded.activity.begin_request());
        let rest = [&response[sent..], &next[..]].concat();
        let received = tokio::spawn(read_all(client));
        guarded.write_all(&rest).await.unwrap();
        guarded.shutdown().await.unwrap();
        drop(guarded);
        let received = received.await.unwrap();
        assert_eq!(received.len(), response.len() + next.len());
        assert!(received.ends_with(next));
    }
}
