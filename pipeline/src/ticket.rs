//! A ticket answers for one leased photo, whatever becomes of it. Knows nothing of stages.
//!
//! Settled by `finish` (see the stage `index`) or [`Ticket::fail`]; dropped unsettled, because a stage died, a channel
//! closed or the process drains, it notes its lease in the [`Book`], whose keeper gives it back to the queue.

use std::sync::Arc;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::meters;
use photofinish_store::traits::{Finish, Lease};

use crate::book::Book;
use crate::fault::{Outage, Part, Poison};
use crate::metric_names as names;
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
}

impl Ticket {
    /// Opens a ticket for a lease that was just taken.
    pub(crate) fn open(book: &Arc<Book>, lease: Arc<Lease>) -> Self {
        book.opened(lease.id);
        Self { lease, book: Arc::clone(book), settled: false }
    }

    /// The photo's results are written, or no longer wanted: nothing is left to do.
    pub(crate) fn settle(mut self) {
        self.settled = true;
        self.book.settled(self.lease.id);
    }

    /// Ends the photo for good.
    ///
    /// # Errors
    /// When the queue does not take it; the photo is given back then.
    pub(crate) fn fail(self, poison: &Poison, calls: &StoreCalls) -> Result<(), Outage> {
        let answer =
            calls.ask(Part::Database, self.book.queue().fail(&self.lease, poison.reason, &poison.detail))?;
        match answer {
            Ok(Finish::Done) => {
                metrics::counter!(meters::PHOTOS_FAILED, "reason" => poison.reason.as_str()).increment(1);
                tracing::info!(
                    photo.id = %self.lease.photo, album.id = %self.lease.album,
                    reason = poison.reason.as_str(), detail = poison.detail, "photo failed"
                );
            }
            Ok(Finish::Superseded | Finish::Gone) => metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1),
            Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Conflict) => {
                metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1);
            }
            Err(error) => return Err(Outage::of_store(Part::Database, error)),
        }
        self.settle();
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.book.returned(self.lease.id);
        }
    }
}
