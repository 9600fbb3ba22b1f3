//! What can go wrong in the store, classified by what the caller can do about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The thing named does not exist, or belongs to another tenant.
    NotFound,
    /// The thing exists already, is in another state, or is locked by another process.
    Conflict,
    /// The object is larger than the caller allows.
    TooLarge,
    /// The database or the storage does not respond now; the same call may work later.
    Unavailable,
    /// A setting cannot be used: a URL, a credential, an endpoint.
    Invalid,
    /// The row or object does not have the shape that this version writes.
    Corrupt,
    /// The balance of the tenant does not cover the price.
    InsufficientCredits,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::TooLarge => "too large",
            Self::Unavailable => "unavailable",
            Self::Invalid => "invalid setting",
            Self::Corrupt => "corrupt",
            Self::InsufficientCredits => "insufficient credits",
        })
    }
}

/// A failure of the store: `kind` says what the caller can do, `source` why it happened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{context}: {kind}")]
pub struct StoreError {
    /// What the caller can act on.
    pub kind: StoreErrorKind,
    /// The thing or operation that failed, lower case: "photo 0192..", "confirm photos".
    pub context: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
    /// Whether the message queue beside the database failed, and not the database.
    pub is_from_queue: bool,
    /// See [`Self::is_rejected_value`].
    pub(crate) is_rejected_value: bool,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error of `kind` about `context`, without a cause.
    pub fn new(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        let context = context.into();
        Self {
            kind,
            context,
            retry_after: None,
            is_from_queue: false,
            is_rejected_value: false,
            source: None,
        }
    }

    /// An error of kind `NotFound`.
    pub fn not_found(context: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::NotFound, context)
    }

    /// Whether the database rejected a value that does not fit its column or breaks a constraint, as it will at every
    /// later attempt. Other errors may go away, even severe ones: a damaged index is repaired, a missing table created.
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

    /// Sets the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}
