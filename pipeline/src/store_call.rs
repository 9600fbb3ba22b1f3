//! Asks the store from a thread of the pipeline: runs its futures on the runtime's handle, never for ever.

use std::future::Future;
use std::time::Duration;

use photofinish_store::error::StoreError;
use photofinish_store::remote::Patience;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::fault::{Outage, Part};

/// A store that does not answer for so long is down. Longer than any healthy call: 50 MB at 2 MB/s.
const PATIENCE: Duration = Duration::from_secs(30);

/// A bucket that does not answer is given up before, with a word about why.
const _: () = assert!(
    Patience::SERVICE.call.as_secs() + Patience::SERVICE.farewell.as_secs() < PATIENCE.as_secs(),
    "a call of the storage outlasts the pipeline's patience"
);

/// Ends a generation at once: threads look at it between batches, waits for the store end by it. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Kill(watch::Sender<bool>);

impl Kill {
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
pub(crate) struct StoreCalls {
    pub(crate) runtime: Handle,
    pub(crate) kill: Kill,
}

impl StoreCalls {
    /// The store's answer, awaited whatever happens: for calls that change rows, whose answer must not be lost.
    ///
    /// # Errors
    /// The outer one when there is no answer in time.
    pub(crate) fn ask<T>(
        &self,
        part: Part,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, call).await })
            .map_err(|_elapsed| silent(part))
    }

    /// The store's answer unless the generation ends first: for calls that can be repeated by anyone.
    ///
    /// # Errors
    /// The outer one when there is no answer in time, or the generation ends.
    pub(crate) fn ask_while_alive<T>(
        &self,
        part: Part,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Outage> {
        self.runtime.block_on(async {
            tokio::select! {
                answer = tokio::time::timeout(PATIENCE, call) => answer.map_err(|_elapsed| silent(part)),
                () = self.kill.wait() => Err(Outage::because(part, "stopped while waiting for an answer")),
            }
        })
    }
}

fn silent(part: Part) -> Outage {
    Outage::because(part, format!("no answer for {} s", PATIENCE.as_secs()))
}
