//! One update of an album at a time, as a task of its own: every search that needs it awaits the same outcome, and it
//! goes on when they have gone. Knows neither faces nor the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// How long an update keeps its place in the queue after its last search has gone: clients with a short timeout, which
/// ask again, find it further ahead. Short in tests.
const ABANDONED_GRACE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 10_000 });

/// The outcome of an update; `None` while it runs.
type Outcome = watch::Sender<Option<Result<()>>>;

/// The updates of one album: the running one, if there is one.
#[derive(Default)]
pub(super) struct AlbumUpdates {
    running: Mutex<Option<RunningUpdate>>,
}

struct RunningUpdate {
    started_at: Instant,
    outcome: Arc<Outcome>,
}

impl RunningUpdate {
    fn await_outcome(&self) -> PendingUpdate {
        PendingUpdate { started_at: self.started_at, outcome: self.outcome.subscribe() }
    }
}

/// The outcome of an update, to be awaited by one search. Dropping it does not end the update.
pub(super) struct PendingUpdate {
    started_at: Instant,
    outcome: watch::Receiver<Option<Result<()>>>,
}

impl PendingUpdate {
    /// Whether the update sees everything that was committed before `time`.
    pub(super) fn began_after(&self, time: Instant) -> bool {
        self.started_at >= time
    }

    /// Waits for the end of the update.
    pub(super) async fn wait(mut self) -> Result<()> {
        match self.outcome.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The task panicked or its runtime has stopped.
            _ => Err(StoreError::new(StoreErrorKind::Unavailable, "update the faces of an album")),
        }
    }
}

impl AlbumUpdates {
    /// Returns the running update, or starts one: `start` is called with what its task must keep until its end.
    pub(super) fn join_or_start(self: &Arc<Self>, start: impl FnOnce(UpdateTicket)) -> PendingUpdate {
        let mut running = self.lock();
        let (update, ticket) = match running.take() {
            Some(update) => (update, None),
            None => {
                let outcome = Arc::new(watch::Sender::new(None));
                let update = RunningUpdate { started_at: Instant::now(), outcome: Arc::clone(&outcome) };
                (update, Some(UpdateTicket { updates: Arc::clone(self), outcome }))
            }
        };
        let pending = update.await_outcome();
        *running = Some(update);
        drop(running);
        if let Some(ticket) = ticket {
            start(ticket);
        }
        pending
    }

    /// Returns the running update, if there is one.
    pub(super) fn join(&self) -> Option<PendingUpdate> {
        self.lock().as_ref().map(RunningUpdate::await_outcome)
    }

    /// Whether an update is running.
    pub(super) fn is_running(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningUpdate>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the task of an update; ends the update when it is dropped.
pub(super) struct UpdateTicket {
    updates: Arc<AlbumUpdates>,
    outcome: Arc<Outcome>,
}

impl UpdateTicket {
    /// Ends the update: the next search starts another one. Returns whether any search awaited the outcome.
    pub(super) fn finish(self, outcome: Result<()>) -> bool {
        let mut running = self.updates.lock();
        self.remove_from(&mut running);
        // Nobody can join any more, so nobody misses it.
        drop(running);
        self.outcome.send(Some(outcome)).is_ok()
    }

    /// Waits until no search has awaited the update for [`ABANDONED_GRACE`], and takes it back: a search that comes now
    /// starts another one.
    pub(super) async fn wait_until_abandoned(&self) {
        loop {
            self.outcome.closed().await;
            tokio::time::sleep(ABANDONED_GRACE).await;
            let mut running = self.updates.lock();
            if self.outcome.receiver_count() == 0 {
                self.remove_from(&mut running);
                return;
            }
        }
    }

    fn remove_from(&self, running: &mut Option<RunningUpdate>) {
        if running.as_ref().is_some_and(|update| Arc::ptr_eq(&update.outcome, &self.outcome)) {
            *running = None;
        }
    }
}

impl Drop for UpdateTicket {
    fn drop(&mut self) {
        let mut running = self.updates.lock();
        self.remove_from(&mut running);
    }
}
