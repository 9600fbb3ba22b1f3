//! A malformed request, and what may happen to it.

/// What may happen to a request.
#[derive(Clone, Debug)]
pub(super) enum Expectation {
    /// An answer with one of these statuses.
    Answer(&'static [u16]),
    /// Any answer that is no 5xx, or the end of the connection; nothing while the request is unfinished and this side has not
    /// ended.
    NoHarm,
}

/// A malformed request.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    pub(super) expectation: Expectation,
}

/// What valid requests are made of.
pub(super) struct Valid {
    pub(super) key: String,
    pub(super) album: String,
}

impl Case {
    pub(super) fn new(name: impl Into<String>, bytes: Vec<u8>, expectation: Expectation) -> Self {
        Self { name: name.into(), bytes, expectation }
    }
}
