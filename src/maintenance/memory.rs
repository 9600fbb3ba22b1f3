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

/// Returns free memory whenever a [`Schedule`] says so.
pub(super) async fn return_memory_forever(is_idle: impl Fn() -> bool) {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    let mut schedule = Schedule::new(Instant::now());
    loop {
        interval.tick().await;
        let begun = Instant::now();
        if !schedule.is_due(is_idle(), begun, process_cpu()) {
            continue;
        }
        if let Err(error) = tokio::task::spawn_blocking(return_free_memory).await {
            tracing::warn!(%error, "failed to return free memory");
        }
        schedule.note_return(begun, Instant::now(), process_cpu());
    }
}

/// When memory is returned.
struct Schedule {
    /// Looks in a row at which the process was idle.
    idle_checks: u32,
    /// When it was last returned.
    returned_at: Instant,
    /// How long that took.
    time: Duration,
    /// CPU time of the process by then.
    cpu: Duration,
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self { idle_checks: 0, returned_at: now, time: Duration::ZERO, cpu: Duration::ZERO }
    }

    /// Whether memory is to be returned: when the process has been idle for [`IDLE_CHECKS`] looks, and now and then while it is
    /// not, if there was work since the last time.
    fn is_due(&mut self, is_idle: bool, now: Instant, cpu: Duration) -> bool {
        self.idle_checks = if is_idle { self.idle_checks + 1 } else { 0 };
        let interval = BUSY_INTERVAL.max(self.time * BUSY_INTERVAL_TIMES);
        let is_time = match is_idle {
            true => self.idle_checks >= IDLE_CHECKS,
            false => now.saturating_duration_since(self.returned_at) >= interval,
        };
        is_time && cpu.saturating_sub(self.cpu) >= WORTHWHILE_CPU
    }

    fn note_return(&mut self, begun: Instant, now: Instant, cpu: Duration) {
        (self.returned_at, self.time, self.cpu) = (now, now.saturating_duration_since(begun), cpu);
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

    const WORK: Duration = Duration::from_secs(1);

    fn after(begin: Instant, milliseconds: u64) -> Instant {
        begin + Duration::from_millis(milliseconds)
    }

    #[test]
    fn while_photos_are_processed_returning_memory_takes_a_five_hundredth_of_the_time_at_most() {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin);
        assert!(!schedule.is_due(false, after(begin, 2_900), WORK));
        assert!(schedule.is_due(false, after(begin, 3_000), WORK));
        schedule.note_return(after(begin, 3_000), after(begin, 3_020), WORK);
        assert!(!schedule.is_due(false, after(begin, 13_000), 2 * WORK), "20 ms, 500 times");
        assert!(schedule.is_due(false, after(begin, 13_020), 2 * WORK));
    }

    #[test]
    fn a_process_that_is_idle_for_a_while_returns_memory_once_after_work() {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin);
        let looks =
            |schedule: &mut Schedule, cpu| (0..20).position(|_| schedule.is_due(true, after(begin, 0), cpu));
        assert_eq!(looks(&mut schedule, WORTHWHILE_CPU / 2), None, "there was no work");
        let mut schedule = Schedule::new(begin);
        assert_eq!(looks(&mut schedule, WORK), Some(7));
        schedule.note_return(begin, begin, WORK);
        assert_eq!(looks(&mut schedule, WORK), None, "nor any since");
    }
}
