//! What can go wrong in the store, by what the caller can do about it.

use std::sync::Arc;
use std::time::Duration;

/// What the caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The thing named does not exist, or belongs to somebody else.
    NotFound,
    /// The thing exists already, or the lease has passed to another worker.
    Conflict,
    /// The object is larger than the caller allows.
    TooLarge,
    /// The database or the storage does not answer now; the same call may work later.
    Unavailable,
    /// The row or object does not have the shape this version writes.
    Corrupt,
}

/// A failure of the store; `kind` decides, `source` explains.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{context}: {kind:?}")]
pub struct StoreError {
    /// What the caller can act on.
    pub kind: StoreErrorKind,
    /// The thing or call that failed, lowercase: "photo 0192..".
    pub context: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
    /// Whether it is the queue beside the database that failed, and not the database.
    pub is_from_queue: bool,
    /// See [`Self::is_of_the_value`].
    pub(crate) is_rejected_value: bool,
    /// The cause, kept whole.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error of `kind` about `what`, without a deeper cause.
    pub fn new(kind: StoreErrorKind, what: impl Into<String>) -> Self {
        let context = what.into();
        Self {
            kind,
            context,
            retry_after: None,
            is_from_queue: false,
            is_rejected_value: false,
            source: None,
        }
    }

    /// The named thing is not there.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::NotFound, what)
    }

    /// Whether the database refused the value that it was to keep: it does not fit, today and at every later time.
    /// Everything else may pass, however bad it is: a damaged index is mended, a missing table is made.
    pub fn is_rejected_value(&self) -> bool {
        self.is_rejected_value
    }

    /// The error and its causes in one line: for operators, never for partners.
    pub fn to_string_with_causes(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}
