//! Tracing spans of photos: one span from the lease of a photo to its end, with a child span for each stage that works
//! on it. They put `photo.id` and `album.id` on every log line about the photo, and traces are made from them. Nothing
//! here knows about an exporter.
//!
//! Stage spans have level debug: while that level is disabled they cost one check of a flag.

use std::time::Duration;

use photofinish_store::traits::Lease;
use time::OffsetDateTime;
use tracing::Span;
use tracing::field::Empty;
use tracing::span::Entered;

/// How the processing of a leased photo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhotoOutcome {
    /// Its results are written and searches find it.
    Ready,
    /// It failed and will not be retried.
    Failed,
    /// Its results were discarded: another worker has the photo, it waits again with other settings, or it was deleted.
    Superseded,
    /// It went back to the queue.
    GivenBack,
}

impl PhotoOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::GivenBack => "given_back",
        }
    }
}

/// Creates the span of a photo that was just leased. It is the root of a trace, because the request that confirmed the
/// photo ended long ago. `queued_ms` is the time the photo waited for a worker; [`record_outcome`] sets `outcome`.
pub(crate) fn photo_span(lease: &Lease) -> Span {
    tracing::info_span!(
        parent: None,
        "photo",
        photo.id = %lease.photo,
        album.id = %lease.album,
        attempt = lease.attempt,
        queued_ms = queued_ms(lease),
        outcome = Empty,
    )
}

/// Records how the photo ended. The span is entered for it, because exporters use the last exit of a span as its end.
pub(crate) fn record_outcome(photo: &Span, outcome: PhotoOutcome) {
    let _entered = photo.enter();
    photo.record("outcome", outcome.as_str());
}

/// Returns the milliseconds since the photo was confirmed; 0 if the clock of the confirming machine is ahead.
fn queued_ms(lease: &Lease) -> u64 {
    let waited = OffsetDateTime::now_utc() - lease.confirmed_at;
    u64::try_from(waited.whole_milliseconds()).unwrap_or(0)
}

/// The span of one stage's work on one photo or selfie. It ends when dropped.
pub(crate) struct StageSpan {
    photo: Span,
    stage: Span,
}

impl StageSpan {
    /// Starts the span of work in a batch of `batch_size`, for which the photo waited `waited`.
    pub(crate) fn new(photo: Span, stage: &'static str, batch_size: usize, waited: Duration) -> Self {
        let wait_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let stage = tracing::debug_span!(parent: &photo, "stage", stage, batch_size, wait_ms);
        Self { photo, stage }
    }

    /// Attributes what the thread logs to this photo until the guards are dropped. Both spans are entered, because
    /// subscribers that disable the stage's span see only spans that were entered themselves.
    pub(crate) fn enter(&self) -> [Entered<'_>; 2] {
        let photo = self.photo.enter();
        [self.stage.enter(), photo]
    }

    /// Enters the span of a batch of one photo. In a larger batch it is not known which photo the thread works on.
    pub(crate) fn enter_single(batch: &[Self]) -> Option<[Entered<'_>; 2]> {
        match batch {
            [single] => Some(single.enter()),
            _ => None,
        }
    }
}
