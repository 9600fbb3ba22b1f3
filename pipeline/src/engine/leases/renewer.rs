//! The thread that renews the leases of a lane and releases those without a ticket.

use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use photofinish_store::traits::Lease;

use super::{LeaseStates, LeaseTable};
use crate::engine::fault::Component;
use crate::engine::metrics as names;
use crate::engine::store_client::{CALL_TIMEOUT, StoreClient};
use crate::engine::sync::lock;

/// How long the release of a lease may take that a thread still has. It waits for that thread's transaction, and the time of a
/// stop is for all of them.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after the queue failed to release leases.
const RELEASE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The same when the pipeline stops. Leases that are left when its time is over expire.
const RELEASE_RETRY_DELAY_AT_STOP: Duration = Duration::from_millis(200);

/// The thread that renews leases with a ticket and releases those without.
#[derive(Debug)]
pub(crate) struct LeaseRenewer {
    leases: Arc<LeaseTable>,
    thread: JoinHandle<()>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
}

impl LeaseRenewer {
    /// Starts the thread, which renews leases every third of `lease_ttl`.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub(crate) fn start(
        leases: Arc<LeaseTable>,
        store: StoreClient,
        lease_ttl: Duration,
    ) -> std::io::Result<Self> {
        let renewer = RenewerThread { leases: Arc::clone(&leases), store, lease_ttl };
        let (running, ended) = bounded::<()>(0);
        let work = move || {
            let _running = running;
            renewer.run();
        };
        let thread = std::thread::Builder::new().name("lease-renewer".into()).spawn(work)?;
        Ok(Self { leases, thread, ended })
    }

    /// Releases the leases that are left to release and ends the thread. Blocks for at most `timeout`, for which a database
    /// that is away is tried again; one that does not respond must not delay the end of the process.
    pub(crate) fn stop(self, timeout: Duration) {
        let stops_at = Instant::now() + timeout;
        self.leases.update(|states| states.stops_at = Some(stops_at));
        if self.ended.recv_deadline(stops_at) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                seconds = timeout.as_secs_f64(),
                "failed to release leases in time, they will expire"
            );
            return;
        }
        if self.thread.join().is_err() {
            tracing::error!("lease renewer panicked: leases in flight will expire");
        }
    }
}

struct RenewerThread {
    leases: Arc<LeaseTable>,
    store: StoreClient,
    lease_ttl: Duration,
}

/// What the renewer found to do.
struct PendingWork {
    to_release: Vec<Lease>,
    is_stopping: bool,
}

impl RenewerThread {
    fn run(&self) {
        let mut renew_at = Instant::now() + self.lease_ttl / 3;
        let mut failures = 0;
        loop {
            let PendingWork { to_release, is_stopping } = self.wait_for_work(renew_at);
            if !to_release.is_empty() {
                failures = if self.release_leases(&to_release, failures) { 0 } else { failures + 1 };
            } else if is_stopping {
                return;
            }
            if Instant::now() >= renew_at {
                let is_renewed = self.renew_leases();
                renew_at = Instant::now() + if is_renewed { self.lease_ttl / 3 } else { self.lease_ttl / 10 };
            }
            if failures > 0 && !self.wait_to_retry() {
                let leases = self.leases.unreleased_count();
                tracing::warn!(leases, "failed to release leases, they will expire");
                return;
            }
        }
    }

    /// Waits before leases are released again. Returns `false` when the pipeline stops and its time is over.
    fn wait_to_retry(&self) -> bool {
        let is_running = |states: &mut LeaseStates| states.stops_at.is_none();
        let states = lock(&self.leases.states);
        let waited = self.leases.changed.wait_timeout_while(states, RELEASE_RETRY_DELAY, is_running);
        let stops_at = waited.unwrap_or_else(PoisonError::into_inner).0.stops_at;
        let left = stops_at.map(|stops_at| stops_at.saturating_duration_since(Instant::now()));
        match left {
            None => true,
            Some(left) if left <= RELEASE_RETRY_DELAY_AT_STOP => false,
            Some(_) => {
                std::thread::sleep(RELEASE_RETRY_DELAY_AT_STOP);
                true
            }
        }
    }

    /// Waits for leases to release, for the stop of the pipeline or until it is time to renew.
    fn wait_for_work(&self, renew_at: Instant) -> PendingWork {
        let timeout = renew_at.saturating_duration_since(Instant::now());
        let is_idle =
            |states: &mut LeaseStates| states.next_to_release().is_empty() && states.stops_at.is_none();
        let (states, _timeout) = self
            .leases
            .changed
            .wait_timeout_while(lock(&self.leases.states), timeout, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        let to_release = states.next_to_release().iter().map(|lease| Lease::clone(lease)).collect();
        PendingWork { to_release, is_stopping: states.stops_at.is_some() }
    }

    /// Releases the leases and returns whether the queue did so. They stay in the table until it has.
    fn release_leases(&self, leases: &[Lease], previous_failures: u32) -> bool {
        let limit = if self.leases.has_only_withdrawals() { WITHDRAWAL_TIMEOUT } else { CALL_TIMEOUT };
        let release = self.leases.queue.release(leases);
        match self.store.call_within(Component::Database, limit, release) {
            Ok(Ok(())) => {
                metrics::counter!(names::PHOTOS_GIVEN_BACK).increment(self.leases.remove_released(leases));
                return true;
            }
            Ok(Err(error)) => log_first_failure(previous_failures, &error),
            Err(outage) => log_first_failure(previous_failures, &outage),
        }
        self.leases.postpone_withdrawal();
        false
    }

    /// Renews the active leases and returns whether the queue responded.
    fn renew_leases(&self) -> bool {
        let active = self.leases.active_leases();
        if active.is_empty() {
            return true;
        }
        let requested_at = Instant::now();
        match self.store.call(Component::Database, self.leases.queue.renew(&active, self.lease_ttl)) {
            Ok(Ok(renewed)) => {
                let lost = self.leases.note_renewal(&active, requested_at, &renewed);
                if lost > 0 {
                    metrics::counter!(names::LEASES_LOST).increment(lost as u64);
                    tracing::debug!(lost, "leases lost: other workers have the photos or they ended");
                }
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error, "failed to renew leases, retrying");
                false
            }
            Err(outage) => {
                tracing::warn!(error = %outage, "failed to renew leases, retrying");
                false
            }
        }
    }
}

/// Logs only the first of consecutive failures.
fn log_first_failure(previous_failures: u32, error: &dyn std::error::Error) {
    if previous_failures == 0 {
        tracing::warn!(error = %error, "failed to release leases, retrying");
    }
}
