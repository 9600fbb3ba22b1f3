//! Why a selfie has no embedding.

use std::time::Duration;

/// Why a selfie has no embedding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeServiceError {
    /// No face was found.
    #[error("no face in the image")]
    NoFace,
    /// The file is not an image, is damaged, or exceeds the limits.
    #[error("not a readable image")]
    Unreadable,
    /// Examining it took longer than the time limit, for the second time in this process or while another one hung. It is taken
    /// to do so each time.
    #[error("examining the image takes too long")]
    TimedOut,
    /// All places of the organization are taken.
    #[error("busy, retry in {} s", retry_after.as_secs())]
    Busy {
        /// When a place should be free, in whole seconds, at least one.
        retry_after: Duration,
    },
    /// The models are not available, or the service has stopped.
    #[error("the models are not available")]
    Unavailable,
}

impl ProbeServiceError {
    /// Returns the value of the metric label `answer`, one of `PROBE_ANSWERS`.
    pub(super) fn as_label(&self) -> &'static str {
        match self {
            Self::NoFace => "no_face",
            Self::Unreadable => "unreadable",
            Self::TimedOut => "timed_out",
            Self::Busy { .. } => "busy",
            Self::Unavailable => "unavailable",
        }
    }
}
