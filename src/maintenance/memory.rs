//! Returns memory to the system: all that is free when there is nothing to do, and every few seconds while photos are processed.
//! What the allocators keep between tensors of photos of all sizes is only partly reused.

use std::time::{Duration, Instant};

use photofinish_allocators::return_free_memory;
use photofinish_pipeline::IDLE_LIFETIME;
use rustix::time::{ClockId, clock_gettime};

/// Between two looks whether the process is idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Idle for so many looks in a row: between two photos of a slow uploader nothing is returned. Longer than the pipeline and the
/// examination of selfies keep buffers that nobody uses, so that these are free by then.
const IDLE_CHECKS: u32 = 8;
/// After less work than this there is nothing to return: half a dozen selfies, or a few photos.
const WORTHWHILE_CPU: Duration = Duration::from_millis(500);

/// Least time between two times that memory is returned while photos are processed. By hand, on photos of 24 megapixels with two
/// threads, the peak is 16 of 609 MB lower than where it is returned only when idle.
const BUSY_INTERVAL: Duration = Duration::from_secs(3);
/// Returning takes longer where there is more memory, and holds up who allocates meanwhile: the time between two is at least so
/// many times what the last took.
const BUSY_INTERVAL_TIMES: u32 = 500;

/// Returns free memory whenever `is_idle` has held for [`IDLE_CHECKS`] looks, and now and then while it does not hold, if there was
/// work since the last time.
pub(super) async fn return_memory_forever(is_idle: impl Fn() -> bool) {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    let mut idle_checks = 0;
    let mut last = Return { ended_at: Instant::now(), time: Duration::ZERO, cpu: Duration::ZERO };
    loop {
        interval.tick().await;
        let is_busy = !is_idle();
        idle_checks = if is_busy { 0 } else { idle_checks + 1 };
        let is_due = if is_busy { last.permits_busy(Instant::now()) } else { idle_checks >= IDLE_CHECKS };
        if !is_due || process_cpu().saturating_sub(last.cpu) < WORTHWHILE_CPU {
            continue;
        }
        let begun = Instant::now();
        if let Err(error) = tokio::task::spawn_blocking(return_free_memory).await {
            tracing::warn!(%error, "failed to return free memory");
        }
        last = Return { ended_at: Instant::now(), time: begun.elapsed(), cpu: process_cpu() };
    }
}

/// The last time that memory was returned.
struct Return {
    ended_at: Instant,
    /// How long that took.
    time: Duration,
    /// CPU time of the process by then.
    cpu: Duration,
}

impl Return {
    /// Whether it is long enough ago for another while photos are processed.
    fn permits_busy(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended_at) >= BUSY_INTERVAL.max(self.time * BUSY_INTERVAL_TIMES)
    }
}

const _: () = assert!(
    CHECK_INTERVAL.as_secs() * IDLE_CHECKS as u64 > IDLE_LIFETIME.as_secs() + 1,
    "memory is returned before the buffers are free"
);

/// CPU time of this process.
fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_photos_are_processed_returning_takes_a_five_hundredth_of_the_time_at_most() {
        let ended_at = Instant::now();
        let permits = |took: u64, seconds: u64| {
            let last = Return { ended_at, time: Duration::from_millis(took), cpu: Duration::ZERO };
            last.permits_busy(ended_at + Duration::from_secs(seconds))
        };
        assert_eq!([permits(1, 2), permits(1, 3)], [false, true]);
        assert_eq!([permits(20, 9), permits(20, 10)], [false, true]);
    }
}
