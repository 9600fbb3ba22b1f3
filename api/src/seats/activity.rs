//! What one connection is doing, kept by the connection itself and read when another one needs its seat.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A client that has read nothing, or sent nothing of a body, for this long has stalled; networks pause for less.
const STALL: Duration = Duration::from_secs(5);
/// For how long a client may let us wait for a body in all, and a second longer for each so many bytes that it has sent: a
/// quarter of the pace at which an upload must come. What trickles in is behind that soon, and does not keep its seat.
const BODY_PAUSES: Duration = Duration::from_secs(10);
const BODY_BYTES_PER_SECOND: u64 = 8_000;

/// The activity of one connection. Its lock is taken a few times per request, nearly always by the connection alone. An
/// atomic would not do: whether the connection waits and whether it has to leave must change together, or a request that
/// comes at the last moment would be begun and then dropped half done.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    leave: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Since when the client reads nothing of the response.
    stalled_since: Option<Instant>,
    /// How many requests there were so far.
    requests: u64,
    /// Whether the seat was given to another connection.
    has_to_leave: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of the next request is awaited.
    AwaitsHead { since: Instant },
    /// A request is being answered, and bytes of its body are awaited.
    AwaitsBody(BodyWait),
    /// A request is being answered.
    Answering,
    /// All of the response is in a buffer.
    Flushing,
}

/// From when on a connection that waits for bytes of a body counts as one that waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyWait(Instant);

impl BodyWait {
    /// At once, as for a head: the client has shown no permission, or its request is refused already. For a whole body it
    /// is one wait, so that bytes that trickle in do not renew it.
    pub(crate) fn from_now() -> Self {
        Self(Instant::now())
    }

    /// Once the client has stalled: it has a key, a session or a signature. It has let us wait for so long for the bytes that it
    /// has sent so far of this body. Each chunk begins another wait, so that a body that makes progress keeps its seat, and one
    /// that does not is still ahead of those of anybody.
    pub(crate) fn once_stalled(waited: Duration, bytes: u64) -> Self {
        let permitted = BODY_PAUSES + Duration::from_secs(bytes / BODY_BYTES_PER_SECOND);
        Self(Instant::now() + permitted.saturating_sub(waited).min(STALL))
    }
}

impl State {
    /// Since when the connection has waited for its client; `None` while it has work to do.
    fn waiting_since(&self, now: Instant) -> Option<Instant> {
        let for_request = match self.phase {
            Phase::AwaitsHead { since } | Phase::AwaitsBody(BodyWait(since)) => Some(since),
            Phase::Answering | Phase::Flushing => None,
        };
        let for_reader = self.stalled_since.map(|since| since + STALL);
        for_request.into_iter().chain(for_reader).min().filter(|since| *since <= now)
    }
}

impl Activity {
    /// Creates the activity of a new connection, whose first head is awaited.
    pub(crate) fn new() -> Arc<Self> {
        let phase = Phase::AwaitsHead { since: Instant::now() };
        let state = State { phase, stalled_since: None, requests: 0, has_to_leave: false };
        Arc::new(Self { state: Mutex::new(state), leave: Notify::new() })
    }

    /// Records that a head is complete; the request is being answered as long as the guard lives. `None` if the connection
    /// has to leave: the request must not be begun.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Option<AnswerGuard> {
        let mut state = self.lock();
        if state.has_to_leave {
            return None;
        }
        state.phase = Phase::Answering;
        state.requests += 1;
        Some(AnswerGuard(Arc::clone(self)))
    }

    /// Waits for the next bytes of the body of the request that is being answered. Does not return if the connection has to
    /// leave: it is dropped, and nothing that the body would cause must begin before.
    pub(crate) async fn wait_for_body<F: Future>(&self, wait: BodyWait, bytes: F) -> F::Output {
        let mut bytes = pin!(bytes);
        let mut awaited = None;
        let received = poll_fn(|cx| {
            let polled = bytes.as_mut().poll(cx);
            if polled.is_pending() {
                // Not before: nobody waits for what is there already. Between two chunks that may be a moment too.
                awaited.get_or_insert_with(|| AwaitedBody::begin(self, wait));
            }
            polled
        })
        .await;
        drop(awaited);
        if self.has_to_leave() {
            pending::<()>().await;
        }
        received
    }

    /// Records that everything was handed to the operating system. Returns whether that was the end of a response, so
    /// that the next head is awaited from now on.
    pub(crate) fn end_flush(&self) -> bool {
        let mut state = self.lock();
        state.stalled_since = None;
        let has_ended = state.phase == Phase::Flushing;
        if has_ended {
            state.phase = Phase::AwaitsHead { since: Instant::now() };
        }
        has_ended
    }

    /// Whether the head of a request is awaited, and no response is being sent.
    pub(crate) fn awaits_head(&self) -> bool {
        matches!(self.lock().phase, Phase::AwaitsHead { .. })
    }

    /// Returns the number of the request whose response is complete and being sent; `None` in other phases.
    pub(crate) fn flushing_request(&self) -> Option<u64> {
        let state = self.lock();
        (state.phase == Phase::Flushing).then_some(state.requests)
    }

    /// Records that the client reads nothing from now on.
    pub(crate) fn begin_stall(&self) {
        self.lock().stalled_since = Some(Instant::now());
    }

    /// Records that the client reads again.
    pub(crate) fn end_stall(&self) {
        self.lock().stalled_since = None;
    }

    /// Since when the connection has waited for its client; `None` while it has work to do.
    pub(super) fn waiting_since(&self, now: Instant) -> Option<Instant> {
        self.lock().waiting_since(now)
    }

    /// Makes the connection close, if it has waited for its client since `since`. Returns whether it does: its client may
    /// have sent or read something meanwhile. From then on it begins no request.
    pub(super) fn ask_to_leave(&self, since: Instant) -> bool {
        let mut state = self.lock();
        if state.waiting_since(Instant::now()) != Some(since) {
            return false;
        }
        state.has_to_leave = true;
        self.leave.notify_one();
        true
    }

    /// Waits until another connection needs the seat.
    pub(crate) async fn wait_until_asked_to_leave(&self) {
        self.leave.notified().await;
    }

    fn has_to_leave(&self) -> bool {
        self.lock().has_to_leave
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a request as being answered. It is dropped with the body of the response, when all of it is in a buffer.
#[derive(Debug)]
pub(crate) struct AnswerGuard(Arc<Activity>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.lock().phase = Phase::Flushing;
    }
}

/// Marks bytes of a body as awaited. It is dropped when they have come, and when nobody waits for them any more.
struct AwaitedBody<'a>(&'a Activity);

impl<'a> AwaitedBody<'a> {
    fn begin(activity: &'a Activity, wait: BodyWait) -> Self {
        let mut state = activity.lock();
        if state.phase == Phase::Answering {
            state.phase = Phase::AwaitsBody(wait);
        }
        Self(activity)
    }
}

impl Drop for AwaitedBody<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(state.phase, Phase::AwaitsBody(_)) {
            state.phase = Phase::Answering;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    fn waits(activity: &Activity) -> bool {
        activity.waiting_since(Instant::now()).is_some()
    }

    #[test]
    fn a_connection_waits_before_a_head_and_after_a_response_was_sent() {
        let activity = Activity::new();
        assert!(activity.awaits_head() && waits(&activity));
        let answer = activity.begin_request().unwrap();
        assert!(!activity.end_flush() && !waits(&activity));
        drop(answer);
        assert!(!activity.awaits_head() && !waits(&activity));
        assert!(activity.end_flush() && activity.awaits_head() && !activity.end_flush());
    }

    #[test]
    fn a_stalled_response_counts_as_waiting_after_a_while() {
        let activity = Activity::new();
        let _answer = activity.begin_request().unwrap();
        activity.begin_stall();
        assert!(!waits(&activity));
        assert!(activity.waiting_since(Instant::now() + STALL).is_some());
        activity.end_stall();
        assert_eq!(activity.waiting_since(Instant::now() + STALL), None);
    }

    #[test]
    fn a_body_is_awaited_at_once_of_anybody_and_after_a_while_of_a_known_client() {
        let activity = Activity::new();
        let _answer = activity.begin_request().unwrap();
        let begin = |wait| Box::pin(activity.wait_for_body(wait, pending::<()>()));
        let anybody = BodyWait::from_now();
        for _ in 0..2 {
            let mut body = begin(anybody);
            assert!(!waits(&activity), "the body may be there already");
            assert!(body.as_mut().now_or_never().is_none());
            assert_eq!(activity.waiting_since(Instant::now()), Some(anybody.0));
            drop(body);
            assert!(!waits(&activity));
        }
        let later = Instant::now() + 2 * STALL;
        let mut body = begin(BodyWait::once_stalled(Duration::ZERO, 0));
        assert!(body.as_mut().now_or_never().is_none());
        let first = activity.waiting_since(later).unwrap();
        assert!(!waits(&activity) && first >= anybody.0 + STALL);
        drop(body);
        let mut body = begin(BodyWait::once_stalled(Duration::ZERO, 0));
        assert!(body.as_mut().now_or_never().is_none());
        assert!(activity.waiting_since(later).unwrap() >= first);
    }

    #[test]
    fn a_body_that_trickles_in_is_awaited_at_once_when_it_is_behind() {
        let activity = Activity::new();
        let _answer = activity.begin_request().unwrap();
        let is_awaited = |waited, bytes| {
            let mut body =
                Box::pin(activity.wait_for_body(BodyWait::once_stalled(waited, bytes), pending::<()>()));
            assert!(body.as_mut().now_or_never().is_none());
            waits(&activity)
        };
        assert!(!is_awaited(Duration::ZERO, 0));
        assert!(is_awaited(BODY_PAUSES, 3), "a byte every four seconds");
        assert!(!is_awaited(BODY_PAUSES, 40_000), "slow, and not too slow");
        // What was fast for long has stalled as soon as anything else.
        let fast = BodyWait::once_stalled(Duration::ZERO, 1 << 30);
        let mut body = Box::pin(activity.wait_for_body(fast, pending::<()>()));
        assert!(body.as_mut().now_or_never().is_none());
        assert!(activity.waiting_since(Instant::now() + STALL).is_some());
    }

    #[test]
    fn a_body_that_comes_too_late_reaches_no_handler() {
        for has_to_leave in [false, true] {
            let activity = Activity::new();
            let _answer = activity.begin_request().unwrap();
            let (sender, receiver) = oneshot::channel();
            let mut body = Box::pin(activity.wait_for_body(BodyWait::from_now(), receiver));
            assert!(body.as_mut().now_or_never().is_none());
            let since = activity.waiting_since(Instant::now()).unwrap();
            assert!(!has_to_leave || activity.ask_to_leave(since));
            sender.send("bytes").unwrap();
            assert_eq!(body.as_mut().now_or_never().is_none(), has_to_leave);
        }
    }

    #[test]
    fn a_connection_whose_request_has_come_does_not_leave() {
        let activity = Activity::new();
        let since = activity.waiting_since(Instant::now()).unwrap();
        let answer = activity.begin_request().unwrap();
        assert!(!activity.ask_to_leave(since), "its request would be left half done");
        drop(answer);
        assert!(activity.end_flush() && !activity.ask_to_leave(since), "others have waited longer");
        let since = activity.waiting_since(Instant::now()).unwrap();
        assert!(activity.ask_to_leave(since) && activity.begin_request().is_none());
    }
}
