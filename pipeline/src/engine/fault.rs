//! The two kinds of failure. A [`Poison`] is caused by one photo and fails that photo; an [`Outage`] is caused by a
//! component that the pipeline depends on and ends the generation. How either is handled is not decided here.

use std::error::Error;
use std::time::Duration;

use photofinish_models::traits::ModelError;
use photofinish_store::error::StoreError;
use photofinish_store::model::photo::FailureReason;

/// The failure of one photo, which can never be processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", reason.as_str())]
pub struct Poison {
    /// The reason reported to the partner.
    pub reason: FailureReason,
    /// The details for the operator.
    pub detail: String,
}

impl Poison {
    /// Creates a poison from the partner's `reason` and the operator's `detail`.
    pub fn new(reason: FailureReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// The failure of a component, without which no photo can be processed now.
#[derive(Debug, thiserror::Error)]
#[error("{component} is down: {}", format_with_causes(source.as_ref()))]
pub struct Outage {
    /// The component that is down.
    pub component: Component,
    /// Why it is down.
    pub source: Box<dyn Error + Send + Sync>,
    /// When to try again, if the component said so.
    pub retry_after: Option<Duration>,
    /// Whether the photos being processed may have caused the outage. If so, their current attempt counts towards
    /// the limit of attempts.
    pub counts_as_attempt: bool,
}

/// A part of the service that can be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// The database, and the work queue if it is in the database.
    Database,
    /// The work queue, if it is a separate service.
    Queue,
    /// The object storage.
    Storage,
    /// The models, their runtime or their device.
    Models,
    /// A stage of the pipeline, whose thread ended unexpectedly.
    Stage(&'static str),
}

/// The component of an outage for which the stage at fault is not known.
pub(crate) const UNKNOWN_STAGE: Component = Component::Stage("pipeline");

impl Component {
    /// Returns the name used in health responses, logs and metrics.
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
    /// Creates an outage of `component`, explained by `reason`.
    pub fn new(component: Component, reason: impl Into<String>) -> Self {
        Self { component, source: reason.into().into(), retry_after: None, counts_as_attempt: false }
    }

    /// Creates an outage from an error of a queue operation, which may come from the queue or from the database.
    pub fn from_queue_error(error: StoreError) -> Self {
        let component = if error.is_from_queue { Component::Queue } else { Component::Database };
        Self::from_store_error(component, error)
    }

    /// Creates an outage of `component` from an error of the store.
    pub fn from_store_error(component: Component, error: StoreError) -> Self {
        Self { component, retry_after: error.retry_after, source: Box::new(error), counts_as_attempt: false }
    }

    /// Whether the device of the networks is lost, or cannot be opened.
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(self.source.downcast_ref(), Some(ModelError::Device { .. }))
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

/// Formats an error and all its causes in one line.
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
        assert_eq!(outage.to_string(), "database is down: finish: unavailable: disk full");
    }
}
