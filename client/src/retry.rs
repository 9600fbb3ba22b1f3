//! When a request is sent again, and how long the client waits before it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::ClientError;

/// When requests are sent again. All operations of the contract may be: one whose response was lost may leave an unused
/// ticket or album behind, never a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all; 1 never sends again.
    pub max_attempts: u32,
    /// No attempt begins later than this after the first.
    pub give_up_after: Duration,
    /// The wait before the second attempt. Each further wait is twice as long.
    pub first_delay: Duration,
    /// The longest wait, even if the service requests a longer one (`Retry-After`).
    pub max_delay: Duration,
    /// Which refused uploads are sent again.
    pub upload_statuses: RetriedUploadStatuses,
}

/// Which statuses of a storage lead to another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriedUploadStatuses {
    /// Those of calls: 408, 429, 500, 502, 503 and 504.
    Transient,
    /// All but 200: a storage may respond with 400 or 403 to a body that a broken connection cut off.
    All,
}

impl RetryPolicy {
    /// Sends everything once.
    pub const NEVER: Self = Self {
        max_attempts: 1,
        give_up_after: Duration::MAX,
        first_delay: Duration::ZERO,
        max_delay: Duration::ZERO,
        upload_statuses: RetriedUploadStatuses::Transient,
    };

    /// The waits between the attempts, where the service names none.
    pub fn delays(self) -> impl Iterator<Item = Duration> {
        let next = move |delay: &Duration| Some((*delay * 2).min(self.max_delay));
        std::iter::successors(Some(self.first_delay), next).take(self.max_attempts as usize - 1)
    }
}

/// What is sent: it decides which statuses are transient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// A call of the API.
    Call,
    /// A PUT to a presigned URL.
    Upload,
}

/// How often requests were sent again.
#[derive(Debug, Default)]
pub(crate) struct RetryCounters {
    /// For any reason.
    pub(crate) retries: AtomicUsize,
    /// For a reason other than a timeout of this client.
    pub(crate) refusals: AtomicUsize,
}

/// Sends until it succeeds, fails for good, or the policy gives up.
pub(crate) fn retry<T>(
    policy: RetryPolicy,
    counters: &RetryCounters,
    exchange: Exchange,
    mut send: impl FnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let begun = Instant::now();
    for delay in policy.delays() {
        let error = match send() {
            Err(error) if is_transient(&error, policy, exchange) => error,
            result => return result,
        };
        if begun.elapsed() > policy.give_up_after {
            return Err(error);
        }
        counters.retries.fetch_add(1, Ordering::SeqCst);
        if !error.is_timeout() {
            counters.refusals.fetch_add(1, Ordering::SeqCst);
        }
        std::thread::sleep(requested_delay(&error).unwrap_or(delay).min(policy.max_delay));
    }
    send()
}

fn is_transient(error: &ClientError, policy: RetryPolicy, exchange: Exchange) -> bool {
    match error {
        ClientError::Transport { .. } => true,
        ClientError::Refused { .. }
            if exchange == Exchange::Upload && policy.upload_statuses == RetriedUploadStatuses::All =>
        {
            true
        }
        ClientError::Refused { error, .. } => matches!(error.status, 408 | 429 | 500 | 502 | 503 | 504),
        ClientError::InvalidResponse { .. } | ClientError::File { .. } | ClientError::Stalled { .. } => false,
    }
}

fn requested_delay(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Refused { retry_after, .. } => *retry_after,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorBody;

    fn refused(status: u16) -> ClientError {
        let error = Box::new(ErrorBody { status, ..ErrorBody::default() });
        ClientError::Refused { operation: "albums/list".to_owned(), error, retry_after: None }
    }

    fn quick(max_attempts: u32) -> RetryPolicy {
        RetryPolicy { max_attempts, ..RetryPolicy::NEVER }
    }

    /// The attempts that a request with these responses needs, and whether it succeeds.
    fn attempts(policy: RetryPolicy, exchange: Exchange, statuses: &[u16]) -> (usize, bool) {
        let mut sent = 0;
        let outcome = retry(policy, &RetryCounters::default(), exchange, || {
            sent += 1;
            match statuses.get(sent - 1) {
                Some(status) => Err(refused(*status)),
                None => Ok(()),
            }
        });
        (sent, outcome.is_ok())
    }

    #[test]
    fn transient_statuses_are_sent_again_until_the_attempts_are_used_up() {
        assert_eq!(attempts(quick(4), Exchange::Call, &[503, 429, 500]), (4, true));
        assert_eq!(attempts(quick(3), Exchange::Call, &[503, 429, 500]), (3, false));
        assert_eq!(attempts(quick(4), Exchange::Call, &[404]), (1, false));
        assert_eq!(attempts(RetryPolicy::NEVER, Exchange::Call, &[503]), (1, false));
    }

    #[test]
    fn a_refused_upload_is_sent_again_where_the_policy_says_so() {
        let all = RetryPolicy { upload_statuses: RetriedUploadStatuses::All, ..quick(2) };
        assert_eq!(attempts(all, Exchange::Upload, &[403]), (2, true));
        assert_eq!(attempts(all, Exchange::Call, &[403]), (1, false));
        assert_eq!(attempts(quick(2), Exchange::Upload, &[403]), (1, false));
    }

    #[test]
    fn no_attempt_begins_after_the_policy_gives_up() {
        let policy = RetryPolicy { give_up_after: Duration::ZERO, ..quick(u32::MAX) };
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(attempts(policy, Exchange::Call, &[503; 3]), (1, false));
    }
}
