//! Where a stage sends its photos.

use std::sync::Arc;

use photofinish_store::model::ids::OrganizationId;

use crate::engine::edge::{EdgeSender, OnSpace, PhotoSender};
use crate::engine::spans::PhotoOutcome;

/// Where the results of a stage go.
pub(crate) enum Outlet<T> {
    /// To the next stage.
    Next(Arc<dyn PhotoSender<T>>),
    /// Nowhere: the stage has written them. The function says how the photo ended.
    Terminal(fn(&T) -> PhotoOutcome),
}

impl<T: Send + 'static> Outlet<T> {
    /// The outlet into an edge.
    pub(crate) fn to<P: Send + 'static>(sender: EdgeSender<T, P>) -> Self {
        Self::Next(Arc::new(sender))
    }
}

impl<T> Outlet<T> {
    /// Whether a photo of the organization can be sent on now.
    pub(crate) fn has_space(&self, organization: OrganizationId) -> bool {
        match self {
            Self::Next(sender) => sender.has_space(organization),
            Self::Terminal(_) => true,
        }
    }

    /// Calls `on_space` whenever there may be space again.
    pub(crate) fn call_on_space(&self, on_space: OnSpace) {
        if let Self::Next(sender) = self {
            sender.call_on_space(on_space);
        }
    }
}

impl<T> Clone for Outlet<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Next(sender) => Self::Next(Arc::clone(sender)),
            Self::Terminal(outcome) => Self::Terminal(*outcome),
        }
    }
}
