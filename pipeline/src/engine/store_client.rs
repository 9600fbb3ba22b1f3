//! Asks the store from a thread of the pipeline: runs its futures on the runtime's handle, never for ever.

use std::future::Future;
use std::time::Duration;

use photofinish_store::blobs::cloud::Timeouts;
use photofinish_store::error::StoreError;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::engine::fault::{Component, Outage};

/// A store that does not answer for so long is down. Longer than any healthy call: 50 MB at 2 MB/s.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A bucket that does not answer is given up before, with a word about why.
const _: () = assert!(
    Timeouts::SERVICE.total.as_secs() + Timeouts::SERVICE.cleanup.as_secs() < CALL_TIMEOUT.as_secs(),
    "a call of the storage outlasts the pipeline's patience"
);

/// Ends a generation at once: threads look at it between batches, waits for the store end by it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct KillSwitch(watch::Sender<bool>);

impl KillSwitch {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn set(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    async fn wait(&self) {
        // The sender lives in `self`, so the wait ends only by the flag.
        let mut flag = self.0.subscribe();
        let _set = flag.wait_for(|set| *set).await;
    }
}

/// Where calls of the store run, and what ends them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoreClient {
    pub(crate) runtime: Handle,
    pub(crate) kill_switch: KillSwitch,
}

impl StoreClient {
    /// The store's answer, awaited whatever happens: for calls that change rows, whose answer must not be lost.
    ///
    /// # Errors
    /// The outer one when there is no answer in time.
    pub(crate) fn call<T>(
        &self,
        part: Component,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.runtime.block_on(with_timeout(part, CALL_TIMEOUT, call))
    }

    /// The store's answer unless the generation ends first: for calls that can be repeated by anyone.
    ///
    /// # Errors
    /// The outer one when there is no answer in time, or the generation ends.
    pub(crate) fn call_cancellable<T>(
        &self,
        part: Component,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.run_cancellable(part, with_timeout(part, CALL_TIMEOUT, call))
    }

    /// What comes of many calls, each with a limit of its own ([`in_time`]), unless the generation ends first. Together
    /// they have no limit: a store that answers each in time is up, however many they are.
    ///
    /// # Errors
    /// Those of the calls, and when the generation ends.
    pub(crate) fn run_cancellable<T>(
        &self,
        part: Component,
        calls: impl Future<Output = Result<T, Outage>>,
    ) -> Result<T, Outage> {
        self.runtime.block_on(async {
            tokio::select! {
                answers = calls => answers,
                () = self.kill_switch.wait() => Err(Outage::new(part, "stopped while waiting for an answer")),
            }
        })
    }
}

/// The store's answer to one call.
///
/// # Errors
/// The outer one when there is none within `patience`.
pub(crate) async fn with_timeout<T>(
    part: Component,
    patience: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<Result<T, StoreError>, Outage> {
    let answer = tokio::time::timeout(patience, call).await;
    answer.map_err(|_elapsed| Outage::new(part, format!("no answer for {patience:?}")))
}
