//! Leases whose commit was not answered. They may be in the database, and no worker has them: left alone they would expire, and
//! healthy photos would count as crash suspects.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::traits::Lease;

/// The leases of transactions of which nobody knows whether they were committed.
#[derive(Default)]
pub(super) struct UnansweredLeases(Mutex<Vec<Lease>>);

impl UnansweredLeases {
    /// Keeps leases of which it is not known until [`WatchedLeases::end`] whether they are committed: also when the call is dropped.
    pub(super) fn watch(&self, leases: Vec<Lease>) -> WatchedLeases<'_> {
        WatchedLeases { unanswered: self, leases }
    }

    /// Takes all, to be looked at in a transaction: the rows of those that are still being committed are locked until then.
    pub(super) fn take(&self) -> WatchedLeases<'_> {
        let leases = std::mem::take(&mut *self.lock());
        self.watch(leases)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leases that are unanswered when this is dropped.
pub(super) struct WatchedLeases<'q> {
    unanswered: &'q UnansweredLeases,
    leases: Vec<Lease>,
}

impl WatchedLeases<'_> {
    pub(super) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Returns the leases, now that the commit was answered.
    pub(super) fn end(mut self) -> Vec<Lease> {
        std::mem::take(&mut self.leases)
    }
}

impl Drop for WatchedLeases<'_> {
    fn drop(&mut self) {
        if !self.leases.is_empty() {
            self.unanswered.lock().append(&mut self.leases);
        }
    }
}
