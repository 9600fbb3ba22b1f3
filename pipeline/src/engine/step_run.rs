//! How many steps an organization takes in a row, where several have photos in a stage.

use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;

/// The steps of one organization that a stage took one after the other. Steps differ: a part of a small photo takes a tenth of
/// the time that a cell of a grid does. So an organization goes on until it has used as much time as the last step of the
/// one before it, which then waits for at most that and one step more.
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
        self.organization == Some(organization) && self.used < self.limit
    }
}
