//! Time limits for a storage that does not respond, responds with errors or stops sending. Every call of this crate ends,
//! whatever the storage does.

use std::time::Duration;

use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// The least bytes a second of a read that goes on: many share a slow link, and none would end if all were given up for it.
const MIN_READ_RATE: u64 = 64_000;

/// The longest time for a body, enough for a photo of 50 MB: less than the quarter of an hour after which a pipeline without any
/// progress is stalled.
const MAX_BODY_TIME: Duration = Duration::from_secs(800);

/// Time limits of the calls to a storage.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For establishing a connection.
    pub connect: Duration,
    /// For the first byte of a response, and for each pause after it. Sending one part of an upload (8 MiB) must fit into
    /// it.
    pub read: Duration,
    /// From the first attempt until the last one may begin. Reading an object goes on in another request where a connection breaks
    /// later.
    pub retry: Duration,
    /// For a whole call with all its attempts, beside the time to receive the body of a photo's file; for the removal of an
    /// album, per thousand objects.
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

    /// Returns for how long a body of at most so many bytes may be received while it goes on: each pause in it has the limit
    /// [`Self::read`].
    pub(crate) fn for_body(max_bytes: u64) -> Duration {
        Duration::from_secs(max_bytes / MIN_READ_RATE).min(MAX_BODY_TIME)
    }

    /// The limit of reading an object of at most so many bytes.
    pub(crate) fn for_read(&self, max_bytes: u64) -> Duration {
        self.total.saturating_add(Self::for_body(max_bytes))
    }

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

    /// Limits the pauses of one attempt; its whole time has the limit of the call.
    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(self.connect)
            .with_read_timeout(self.read)
            .with_timeout_disabled()
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
