//! Calls the store from the pipeline's threads: runs its futures on the tokio runtime, each with a time limit.

use std::future::Future;
use std::time::Duration;

use photofinish_models::traits::Interrupt;
use photofinish_store::blobs::cloud::Timeouts;
use photofinish_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::engine::fault::{Component, Outage};

/// The time limit of one call, after which the store counts as down. Longer than any healthy call takes but a read, which has
/// more time by its size: see [`StoreClient::read`].
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A cloud bucket times out earlier, so that its own error with the reason is reported.
const _: () = assert!(
    Timeouts::SERVICE.total.as_secs() + Timeouts::SERVICE.cleanup.as_secs() < CALL_TIMEOUT.as_secs(),
    "a storage call takes longer than the pipeline's timeout"
);

/// Ends a generation at once: threads check it between steps, networks between two runs, and cancellable store calls are
/// cancelled by it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KillSwitch {
    flag: watch::Sender<bool>,
    interrupt: Interrupt,
}

impl KillSwitch {
    pub(crate) fn new() -> Self {
        Self { flag: watch::Sender::new(false), interrupt: Interrupt::default() }
    }

    pub(crate) fn set(&self) {
        self.interrupt.set();
        self.flag.send_replace(true);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.interrupt.is_set()
    }

    /// What tells networks that the switch is set.
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    async fn wait(&self) {
        // `self` keeps the sender alive, so the wait ends only when the flag is set.
        let mut flag = self.flag.subscribe();
        let _set = flag.wait_for(|set| *set).await;
    }
}

/// Runs store calls on a runtime until a kill switch is set. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoreClient {
    pub(crate) runtime: Handle,
    pub(crate) kill_switch: KillSwitch,
}

impl StoreClient {
    /// Runs a call and waits for its result even if the generation ends: for calls that change the database, whose
    /// result must not be lost.
    ///
    /// # Errors
    /// The outer error when the call takes longer than [`CALL_TIMEOUT`].
    pub(crate) fn call<T>(
        &self,
        component: Component,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.call_within(component, CALL_TIMEOUT, call)
    }

    /// The same for at most `limit`. A transaction that is not over then is rolled back.
    ///
    /// # Errors
    /// The outer error when the call takes longer.
    pub(crate) fn call_within<T>(
        &self,
        component: Component,
        limit: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.runtime.block_on(with_timeout(component, limit, call))
    }

    /// Runs a call until the generation ends: for calls that can be repeated.
    ///
    /// # Errors
    /// The outer error when the call takes longer than [`CALL_TIMEOUT`] or the generation ends.
    pub(crate) fn call_cancellable<T>(
        &self,
        component: Component,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.run_cancellable(component, with_timeout(component, CALL_TIMEOUT, call))
    }

    /// Does the same with a read, for which the storage has `more_time`.
    ///
    /// # Errors
    /// The outer error when the read takes longer than the storage permits, or the generation ends.
    pub(crate) fn read<T>(
        &self,
        more_time: Duration,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        let limit = CALL_TIMEOUT.saturating_add(more_time);
        self.run_cancellable(Component::Storage, with_timeout(Component::Storage, limit, read))
    }

    /// Runs a sequence of calls, each with its own time limit ([`with_timeout`]), until the generation ends. Together
    /// they have no limit: a store that completes each call in time is up, however many calls there are.
    ///
    /// # Errors
    /// The errors of `calls`, and an outage when the generation ends.
    pub(crate) fn run_cancellable<T>(
        &self,
        component: Component,
        calls: impl Future<Output = Result<T, Outage>>,
    ) -> Result<T, Outage> {
        self.runtime.block_on(async {
            tokio::select! {
                results = calls => results,
                () = self.kill_switch.wait() => {
                    Err(Outage::new(component, "stopped while waiting for a response"))
                }
            }
        })
    }
}

/// Runs one call of the store.
///
/// # Errors
/// The outer error when the call takes longer than `timeout`.
pub(crate) async fn with_timeout<T>(
    component: Component,
    timeout: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<Result<T, StoreError>, Outage> {
    let result = tokio::time::timeout(timeout, call).await;
    result
        .map_err(|_elapsed| Outage::new(component, format!("no response within {} s", timeout.as_secs_f64())))
}
