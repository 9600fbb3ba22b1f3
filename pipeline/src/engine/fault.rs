//! Two kinds of failure, two types, no overlap: a [`Poison`] is this photo's fault and ends it, an [`Outage`] is
//! nobody's photo's fault and ends the generation. Knows nothing of how either is handled.

use std::error::Error;
use std::time::Duration;

use photofinish_models::traits::ModelError;
use photofinish_store::error::StoreError;
use photofinish_store::model::photo::FailureReason;

/// This photo can never be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", reason.as_str())]
pub struct Poison {
    /// What the partner is told.
    pub reason: FailureReason,
    /// What an operator is told.
    pub detail: String,
}

impl Poison {
    /// A poison of `reason`, explained by `detail`.
    pub fn new(reason: FailureReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// No photo can be read right now.
#[derive(Debug, thiserror::Error)]
#[error("{component} is down: {}", format_with_causes(source.as_ref()))]
pub struct Outage {
    /// What does not serve.
    pub component: Component,
    /// Why.
    pub source: Box<dyn Error + Send + Sync>,
    /// When trying again makes sense, where the part says.
    pub retry_after: Option<Duration>,
    /// Whether the photos that were worked on may be the cause: theirs is an attempt that counts.
    pub counts_as_attempt: bool,
}

/// What can be out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// The rows, and the work queue where they are it.
    Database,
    /// The work queue beside the rows.
    Queue,
    /// The bytes.
    Storage,
    /// The networks, their runtime or their device.
    Models,
    /// A stage's thread ended by itself.
    Stage(&'static str),
}

/// What is down where it is not known which stage is.
pub(crate) const UNKNOWN_STAGE: Component = Component::Stage("pipeline");

impl Component {
    /// The name in health answers, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Queue => "queue",
            Self::Storage => "storage",
            Self::Models => "models",
            Self::Stage(name) => name,
        }
    }
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Outage {
    /// An outage of `part`, explained by a sentence.
    pub fn new(component: Component, sentence: impl Into<String>) -> Self {
        Self { component, source: sentence.into().into(), retry_after: None, counts_as_attempt: false }
    }

    /// An outage that keeps photos from being leased.
    pub fn from_queue_error(error: StoreError) -> Self {
        Self::from_store_error(
            if error.is_from_queue { Component::Queue } else { Component::Database },
            error,
        )
    }

    /// An outage of the store's `part`.
    pub fn from_store_error(component: Component, error: StoreError) -> Self {
        Self { component, retry_after: error.retry_after, source: Box::new(error), counts_as_attempt: false }
    }
}

impl From<ModelError> for Outage {
    fn from(error: ModelError) -> Self {
        Self {
            component: Component::Models,
            source: Box::new(error),
            retry_after: None,
            counts_as_attempt: false,
        }
    }
}

/// The error and its causes in one line.
fn format_with_causes(error: &(dyn Error + Send + Sync)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use photofinish_store::error::StoreErrorKind;

    use super::*;

    #[test]
    fn an_outage_shows_its_causes_in_one_line() {
        let disk = std::io::Error::other("disk full");
        let error = StoreError::new(StoreErrorKind::Unavailable, "finish").with_source(disk);
        let outage = Outage::from_store_error(Component::Database, error);
        assert_eq!(outage.to_string(), "database is down: finish: Unavailable: disk full");
    }
}
