//! How long a storage that does not answer, answers wrongly or falls silent is waited for. Everything ends: a call of
//! this crate never hangs, whatever the other side does.

use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// How long what is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the first byte of an answer, and for each one after. An upload of [`super::PART_BYTES`] must fit into it.
    pub read: Duration,
    /// From the first attempt on, for another attempt to begin.
    pub retry: Duration,
    /// For a whole call with all its attempts; of an album's removal, for each thousand objects.
    pub call: Duration,
    /// For parts of a broken upload to be removed, after the call.
    pub cleanup: Duration,
}

impl Timeouts {
    /// What the service has. `call` and `farewell` together are shorter than the pipeline's patience, so that what it
    /// hears of is a storage that is down and not a store that is silent.
    pub const SERVICE: Self = Self {
        connect: Duration::from_secs(3),
        read: Duration::from_secs(8),
        retry: Duration::from_secs(10),
        call: Duration::from_secs(26),
        cleanup: Duration::from_secs(2),
    };

    /// Attempts of one request. Five make 2 s of pauses at most: who waits longer is better told so, and comes again.
    pub(crate) fn retry_config(&self) -> RetryConfig {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        };
        RetryConfig { backoff, max_retries: 4, retry_timeout: self.retry }
    }

    /// Limits of one attempt.
    pub(crate) fn client_options(&self) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(self.connect)
            .with_read_timeout(self.read)
            .with_timeout(self.call)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::SERVICE
    }
}
