//! A ticket guards the lease of one photo, so that every leased photo ends exactly once. It knows nothing of stages.
//!
//! A ticket ends by [`Ticket::finish`] or [`Ticket::fail`]. If it is dropped before that, because a stage died, a channel
//! closed or the process drains, it puts its lease into the [`LeaseTable`] for release, and the lease renewer gives the
//! photo back to the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::metric_names;
use photofinish_store::model::cost::Spent;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::traits::{FinishOutcome, Lease};
use tracing::Span;

use crate::engine::cpu_shares::CpuShare;
use crate::engine::fault::{Component, Outage, Poison};
use crate::engine::leases::LeaseTable;
use crate::engine::metrics as names;
use crate::engine::spans::{self, PhotoOutcome};
use crate::engine::store_client::StoreClient;

/// A photo in the pipeline with its ticket. Dropping it anywhere gives the photo back to the queue.
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
    /// Of a long photo; taken until the ticket ends.
    seat: Option<Seat>,
    /// Taken along to the next stage.
    share: Option<CpuShare>,
}

/// One of a number of seats for photos in flight, free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// Takes one of the seats that `taken` counts; the caller has checked that one is free.
    pub(crate) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(taken))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ticket {
    /// Opens a ticket for a lease that was just acquired.
    pub(crate) fn open(leases: &Arc<LeaseTable>, lease: Arc<Lease>) -> Self {
        leases.insert(&lease);
        let span = spans::photo_span(&lease);
        let waiting_since = Instant::now();
        let leases = Arc::clone(leases);
        Self { lease, leases, is_settled: false, span, waiting_since, seat: None, share: None }
    }

    /// Keeps a seat until the ticket ends.
    pub(crate) fn hold(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    /// Takes a share of the cores along to the next stage.
    pub(crate) fn carry(&mut self, share: CpuShare) {
        self.share = Some(share);
    }

    /// Returns the share that came along.
    pub(crate) fn take_share(&mut self) -> Option<CpuShare> {
        self.share.take()
    }

    /// Adds what a stage spent on the photo.
    pub(crate) fn charge(&self, stage: &'static str, spent: Spent) {
        self.lease.spent.add(stage, spent);
    }

    /// The owner of the photo.
    pub(crate) fn organization(&self) -> OrganizationId {
        self.lease.organization
    }

    /// Returns the span of the photo, in which everything about it is logged.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Records that a stage is done with the photo and that it now waits for the next stage.
    pub(crate) fn mark_waiting(&mut self) {
        self.waiting_since = Instant::now();
        self.leases.record_progress();
    }

    /// Returns how long the photo has waited for its next stage.
    pub(crate) fn waiting_time(&self) -> Duration {
        self.waiting_since.elapsed()
    }

    /// Ends the ticket without releasing the lease, which then expires, so that the attempt counts. For photos that
    /// may have caused an outage.
    pub(crate) fn leave_to_expire(self) {
        self.finish(PhotoOutcome::GivenBack);
    }

    /// Gives back a photo that was leased in vain: no stage has had it.
    pub(crate) fn return_unused(mut self) {
        self.is_settled = true;
        spans::record_outcome(&self.span, PhotoOutcome::GivenBack);
        self.leases.schedule_release_unused(self.lease.id);
    }

    /// Ends the ticket of a photo for which nothing is left to do: its results are written or discarded.
    pub(crate) fn finish(mut self, outcome: PhotoOutcome) {
        self.is_settled = true;
        spans::record_outcome(&self.span, outcome);
        self.leases.remove(self.lease.id);
    }

    /// Marks the photo as failed in the queue and ends the ticket.
    ///
    /// # Errors
    /// When the queue cannot record the failure; the photo is then given back.
    pub(crate) fn fail(self, poison: &Poison, store: &StoreClient) -> Result<(), Outage> {
        let span = self.span.clone();
        let _entered = span.enter();
        let result = store.call(
            Component::Database,
            self.leases.queue().fail(&self.lease, poison.reason, &poison.detail),
        )?;
        let is_superseded =
            |error: &StoreError| matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Conflict);
        match result {
            Ok(FinishOutcome::Done) => {
                metrics::counter!(metric_names::PHOTOS_FAILED, "reason" => poison.reason.as_str())
                    .increment(1);
                tracing::info!(reason = poison.reason.as_str(), detail = poison.detail, "photo failed");
                self.finish(PhotoOutcome::Failed);
            }
            Err(error) if !is_superseded(&error) => {
                return Err(Outage::from_store_error(Component::Database, error));
            }
            Ok(FinishOutcome::Superseded | FinishOutcome::Gone) | Err(_) => {
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
            self.leases.schedule_release(self.lease.id);
        }
    }
}
