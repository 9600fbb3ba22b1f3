//! How many steps an organization takes in a row, where several have photos in a stage.

use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;

/// Steps of others that take less are not worth it.
const LEAST_LIMIT: Duration = Duration::from_millis(10);

/// The steps of one organization that a stage took one after the other. Steps differ: a part of a small photo takes a tenth of
/// the time that a cell of a grid does. So an organization goes on as long as another step like its last one fits into the
/// time of the last step of the one before it, which then waits no longer than if that had been one step.
#[derive(Default)]
pub(crate) struct StepRun {
    organization: Option<OrganizationId>,
    used: Duration,
    last_step: Duration,
    /// The last step of the organization before.
    limit: Duration,
}

impl StepRun {
    /// Adds a step.
    pub(crate) fn add(&mut self, organization: OrganizationId, step: Duration) {
        if self.organization != Some(organization) {
            *self = Self { organization: Some(organization), limit: self.last_step, ..Self::default() };
        }
        self.used += step;
        self.last_step = step;
    }

    /// Whether the organization has the next turn as well.
    pub(crate) fn goes_on(&self, organization: OrganizationId) -> bool {
        self.organization == Some(organization)
            && self.limit >= LEAST_LIMIT
            && self.used + self.last_step <= self.limit
    }
}
