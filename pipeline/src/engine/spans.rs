//! The spans that follow a photo: one from its lease to its end, a child for each stage's work on it. They put its ids on
//! every log line about it, whichever thread writes it, and are what traces are made of. Knows no exporter.
//!
//! A stage's span is of level debug: where nobody asks for it, it costs a look at a flag.

use std::time::Duration;

use photofinish_store::traits::Lease;
use time::OffsetDateTime;
use tracing::Span;
use tracing::field::Empty;
use tracing::span::Entered;

/// How a photo's way through the pipeline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhotoOutcome {
    /// Its results are written: searches find it.
    Ready,
    /// It can never be read.
    Failed,
    /// Another worker has it, or it was deleted: its results are not wanted any more.
    Superseded,
    /// It goes back to the queue unharmed.
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

/// The span of a photo that was just leased: a trace of its own, for who confirmed it has long had an answer.
/// `queued_ms` is how long it waited for a worker; `outcome` is told by [`end`].
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

/// Notes how the photo's way ended. Inside of its span: traces take the moment at which a span was last left for its end.
pub(crate) fn record_outcome(photo: &Span, outcome: PhotoOutcome) {
    let _entered = photo.enter();
    photo.record("outcome", outcome.as_str());
}

/// The clock of the machine that took the confirmation may be ahead of this one.
fn queued_ms(lease: &Lease) -> u64 {
    let waited = OffsetDateTime::now_utc() - lease.confirmed_at;
    u64::try_from(waited.whole_milliseconds()).unwrap_or(0)
}

/// A stage's work on one photo or selfie, from its making to its drop.
pub(crate) struct StageSpan {
    photo: Span,
    stage: Span,
}

impl StageSpan {
    /// Work that begins now, together with `batch_size - 1` others, after the photo waited `waited` for it.
    pub(crate) fn new(photo: Span, stage: &'static str, (batch_size, waited): (usize, Duration)) -> Self {
        let wait_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let stage = tracing::debug_span!(parent: &photo, "stage", stage, batch_size, wait_ms);
        Self { photo, stage }
    }

    /// Until the guards are dropped, what the thread logs is about this photo. Both spans: who does not ask for the
    /// stage's sees only those that were entered themselves.
    pub(crate) fn enter(&self) -> [Entered<'_>; 2] {
        let of = self.photo.enter();
        [self.stage.enter(), of]
    }

    /// The same for a batch: only where it is one photo is it known what the thread is at.
    pub(crate) fn enter_single(batch: &[Self]) -> Option<[Entered<'_>; 2]> {
        match batch {
            [alone] => Some(alone.enter()),
            _ => None,
        }
    }
}
