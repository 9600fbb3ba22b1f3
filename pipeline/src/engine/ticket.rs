//! A ticket answers for one leased photo, whatever becomes of it. Knows nothing of stages.
//!
//! Settled by `finish` (see the stage `index`) or [`Ticket::fail`]; dropped unsettled, because a stage died, a channel
//! closed or the process drains, it notes its lease in the [`Book`], whose keeper gives it back to the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::metric_names;
use photofinish_store::traits::{Finish, Lease};
use tracing::Span;

use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::leases::LeaseTable;
use crate::engine::metrics as names;
use crate::engine::spans::{self, PhotoOutcome};
use crate::engine::store_client::StoreClient;

/// A photo on its way, with its ticket. Dropping it anywhere gives the photo back.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    pub(crate) ticket: Ticket,
    pub(crate) item: T,
}

/// The guard of one lease.
#[derive(Debug)]
pub(crate) struct Ticket {
    lease: Arc<Lease>,
    leases: Arc<LeaseTable>,
    is_settled: bool,
    /// Ends with the ticket.
    span: Span,
    waiting_since: Instant,
}

impl Ticket {
    /// Opens a ticket for a lease that was just taken.
    pub(crate) fn open(book: &Arc<LeaseTable>, lease: Arc<Lease>) -> Self {
        book.insert(lease.id);
        let span = spans::photo_span(&lease);
        Self { lease, leases: Arc::clone(book), is_settled: false, span, waiting_since: Instant::now() }
    }

    /// What follows the photo: whatever is logged about it is logged in here.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// A stage is done with the photo; from now on it waits for the next.
    pub(crate) fn mark_waiting(&mut self) {
        self.waiting_since = Instant::now();
        self.leases.record_progress();
    }

    /// Leaves the lease to lapse, so that the attempt counts: the photo may be the cause of an outage.
    pub(crate) fn leave_to_expire(mut self) {
        self.is_settled = true;
        spans::record_outcome(&self.span, PhotoOutcome::GivenBack);
        self.leases.remove(self.lease.id);
    }

    /// How long the photo has waited for its next stage.
    pub(crate) fn waiting_time(&self) -> Duration {
        self.waiting_since.elapsed()
    }

    /// The photo's results are written, or no longer wanted: nothing is left to do.
    pub(crate) fn finish(mut self, outcome: PhotoOutcome) {
        self.is_settled = true;
        spans::record_outcome(&self.span, outcome);
        self.leases.remove(self.lease.id);
    }

    /// Ends the photo for good.
    ///
    /// # Errors
    /// When the queue does not take it; the photo is given back then.
    pub(crate) fn fail(self, poison: &Poison, calls: &StoreClient) -> Result<(), Outage> {
        let span = self.span.clone();
        let _entered = span.enter();
        let answer = calls.call(
            Component::Database,
            self.leases.queue().fail(&self.lease, poison.reason, &poison.detail),
        )?;
        let is_over =
            |error: &StoreError| matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Conflict);
        match answer {
            Ok(Finish::Done) => {
                metrics::counter!(metric_names::PHOTOS_FAILED, "reason" => poison.reason.as_str())
                    .increment(1);
                tracing::info!(reason = poison.reason.as_str(), detail = poison.detail, "photo failed");
                self.finish(PhotoOutcome::Failed);
            }
            Err(error) if !is_over(&error) => {
                return Err(Outage::from_store_error(Component::Database, error));
            }
            Ok(Finish::Superseded | Finish::Gone) | Err(_) => {
                metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1);
                self.finish(PhotoOutcome::Superseded);
            }
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_settled {
            spans::record_outcome(&self.span, PhotoOutcome::GivenBack);
            self.leases.schedule_give_back(self.lease.id);
        }
    }
}
