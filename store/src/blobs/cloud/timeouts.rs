//! Time limits for a storage that does not respond, responds with errors or stops sending. Every call of this crate ends,
//! whatever the storage does.

use std::time::Duration;

use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// Time limits of the calls to a storage.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For establishing a connection.
    pub connect: Duration,
    /// For the first byte of a response, and for each pause after it. Sending one part of an upload (8 MiB) must fit into
    /// it.
    pub read: Duration,
    /// From the first attempt until the last one may begin.
    pub retry: Duration,
    /// For a whole call with all its attempts; for the removal of an album, per thousand objects.
    pub total: Duration,
    /// For removing the parts of a failed upload, after the call.
    pub cleanup: Duration,
}

impl Timeouts {
    /// The limits of the service. `total` and `cleanup` together are shorter than the pipeline waits for the store, so
    /// that the pipeline gets an error of the storage instead of its own timeout.
    pub const SERVICE: Self = Self {
        connect: Duration::from_secs(3),
        read: Duration::from_secs(8),
        retry: Duration::from_secs(10),
        total: Duration::from_secs(26),
        cleanup: Duration::from_secs(2),
    };

    /// Limits the attempts of one request. Five attempts pause for 2 s at most: after that the caller should get the
    /// error and try again itself.
    pub(crate) fn retry_config(&self) -> RetryConfig {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        };
        RetryConfig { backoff, max_retries: 4, retry_timeout: self.retry }
    }

    /// Limits one attempt.
    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(self.connect)
            .with_read_timeout(self.read)
            .with_timeout(self.total)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::SERVICE
    }
}

/// Returns the result of `call`, or `Unavailable` if it takes longer than `limit`.
pub(crate) async fn with_timeout<T>(
    limit: Duration,
    path: &Path,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(elapsed) => {
            let what = format!("object {path}: no response for {:.1} s", limit.as_secs_f64());
            Err(StoreError::new(StoreErrorKind::Unavailable, what).with_source(elapsed))
        }
    }
}
