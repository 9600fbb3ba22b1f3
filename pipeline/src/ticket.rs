//! A ticket answers for one leased photo, whatever becomes of it. Knows nothing of stages.
//!
//! Settled by `finish` (see the stage `index`) or [`Ticket::fail`]; dropped unsettled, because a stage died, a channel
//! closed or the process drains, it notes its lease in the [`Book`], whose keeper gives it back to the queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::meters;
use photofinish_store::traits::{Finish, Lease};
use tracing::Span;

use crate::book::Book;
use crate::fault::{Outage, Part, Poison};
use crate::metric_names as names;
use crate::spans::{self, Outcome};
use crate::store_call::StoreCalls;

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
    book: Arc<Book>,
    settled: bool,
    /// Ends with the ticket.
    span: Span,
    waits_since: Instant,
}

impl Ticket {
    /// Opens a ticket for a lease that was just taken.
    pub(crate) fn open(book: &Arc<Book>, lease: Arc<Lease>) -> Self {
        book.opened(lease.id);
        let span = spans::of_photo(&lease);
        Self { lease, book: Arc::clone(book), settled: false, span, waits_since: Instant::now() }
    }

    /// What follows the photo: whatever is logged about it is logged in here.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// A stage is done with the photo; from now on it waits for the next.
    pub(crate) fn waits(&mut self) {
        self.waits_since = Instant::now();
        self.book.goes_on();
    }

    /// Leaves the lease to lapse, so that the attempt counts: the photo may be the cause of an outage.
    pub(crate) fn suspect(mut self) {
        self.settled = true;
        spans::end(&self.span, Outcome::GivenBack);
        self.book.settled(self.lease.id);
    }

    /// How long the photo has waited for its next stage.
    pub(crate) fn waited(&self) -> Duration {
        self.waits_since.elapsed()
    }

    /// The photo's results are written, or no longer wanted: nothing is left to do.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.settled = true;
        spans::end(&self.span, outcome);
        self.book.settled(self.lease.id);
    }

    /// Ends the photo for good.
    ///
    /// # Errors
    /// When the queue does not take it; the photo is given back then.
    pub(crate) fn fail(self, poison: &Poison, calls: &StoreCalls) -> Result<(), Outage> {
        let span = self.span.clone();
        let _entered = span.enter();
        let answer =
            calls.ask(Part::Database, self.book.queue().fail(&self.lease, poison.reason, &poison.detail))?;
        let is_over =
            |error: &StoreError| matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Conflict);
        match answer {
            Ok(Finish::Done) => {
                metrics::counter!(meters::PHOTOS_FAILED, "reason" => poison.reason.as_str()).increment(1);
                tracing::info!(reason = poison.reason.as_str(), detail = poison.detail, "photo failed");
                self.settle(Outcome::Failed);
            }
            Err(error) if !is_over(&error) => return Err(Outage::of_store(Part::Database, error)),
            Ok(Finish::Superseded | Finish::Gone) | Err(_) => {
                metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1);
                self.settle(Outcome::Superseded);
            }
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            spans::end(&self.span, Outcome::GivenBack);
            self.book.returned(self.lease.id);
        }
    }
}
