//! Returns memory to the system when there is nothing to do. While photos are processed, the allocator reuses it.

use std::time::Duration;

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

/// Returns free memory whenever `is_idle` has held for [`IDLE_CHECKS`] looks and there was work before.
pub(super) async fn return_memory_forever(is_idle: impl Fn() -> bool) {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    let (mut idle_checks, mut returned_at) = (0, Duration::ZERO);
    loop {
        interval.tick().await;
        idle_checks = if is_idle() { idle_checks + 1 } else { 0 };
        if idle_checks < IDLE_CHECKS || process_cpu().saturating_sub(returned_at) < WORTHWHILE_CPU {
            continue;
        }
        if let Err(error) = tokio::task::spawn_blocking(return_free_memory).await {
            tracing::warn!(%error, "failed to return free memory");
        }
        returned_at = process_cpu();
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
