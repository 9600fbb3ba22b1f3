//! Measures where the time of a stage goes: the time it is busy, waits for photos, waits for space downstream, and its CPU
//! time and batch sizes. Knows nothing of what the stages do, nor of lanes but that a gauge is for all of them.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use photofinish_models::onnx::take_device_time;
use photofinish_store::model::cost::{Spent, thread_cpu_time};

use crate::engine::cpu_shares::wait_without_share;
use crate::engine::metrics as names;
use crate::engine::sync::lock;

thread_local! {
    /// The time that the stage running on this thread has waited for a budget: it is blocked then, not busy.
    static WAITED_FOR_BUDGET: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// Up to which CPU time of this thread photos were charged.
    static CPU_TAKEN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// CPU time of this thread that no photo of its last batch could be charged, and that the next one is.
    static CARRIED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs `wait`, whose time does not count as work of the stage that calls it, and which leaves its core to others. It must not
/// return with a lock.
pub(crate) fn exclude_from_busy_time<T>(wait: impl FnOnce() -> T) -> T {
    let started_at = Instant::now();
    let result = wait_without_share(wait);
    WAITED_FOR_BUDGET.set(WAITED_FOR_BUDGET.get() + started_at.elapsed());
    result
}

/// The statistics of one stage of a lane since the pipeline started, shared by its threads in all generations.
#[derive(Debug)]
pub(crate) struct StageStats {
    name: &'static str,
    pub(super) threads: AtomicUsize,
    /// The capacity of the channel into the stage.
    capacity: AtomicUsize,
    /// Whether that channel was full when the last batch was taken. Locked while its length is read, so that the last
    /// of several threads to read it is also the last to record it.
    was_edge_full: Mutex<bool>,
    pub(super) busy_nanos: AtomicU64,
    blocked_out_nanos: AtomicU64,
    /// Photos that ended in this stage with their results written.
    pub(super) finished: AtomicU64,
    /// Photos that the stage was done with.
    pub(super) done: AtomicU64,
    /// Photos in the channel into the stage.
    pub(super) depth: AtomicUsize,
}

/// The counters of one stage at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageSample {
    pub(super) busy_nanos: u64,
    pub(super) blocked_out_nanos: u64,
    pub(super) done: u64,
}

/// Measures one batch, from its creation to [`BatchTimer::finish`].
pub(crate) struct BatchTimer<'a> {
    stats: &'a StageStats,
    started_at: Instant,
    cpu_before: Duration,
    /// CPU time of the thread since its last batch.
    idle_cpu: Duration,
}

impl StageStats {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            threads: AtomicUsize::new(1),
            capacity: AtomicUsize::new(usize::MAX),
            was_edge_full: Mutex::new(false),
            busy_nanos: AtomicU64::new(0),
            blocked_out_nanos: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            done: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Sets the number of threads of the stage and the capacity of the channel into it.
    pub(crate) fn configure(&self, threads: usize, capacity: usize) {
        self.threads.store(threads.max(1), Ordering::Relaxed);
        self.capacity.store(capacity.max(1), Ordering::Relaxed);
    }

    /// Records a batch of `taken` photos, for which a thread waited `waited`. `depth` returns the number of photos left
    /// in the channel.
    pub(crate) fn record_received(&self, taken: usize, depth: impl FnOnce() -> usize, waited: Duration) {
        let mut was_edge_full = lock(&self.was_edge_full);
        let depth = depth();
        *was_edge_full = depth.saturating_add(taken) >= self.capacity.load(Ordering::Relaxed);
        self.publish_depth(depth);
        drop(was_edge_full);
        self.publish_blocked("in", waited);
    }

    /// Records that the channel into the stage is empty, because a thread of the stage has ended.
    pub(crate) fn reset_depth(&self) {
        let mut was_edge_full = lock(&self.was_edge_full);
        *was_edge_full = false;
        self.publish_depth(0);
    }

    /// Records a photo whose results were written.
    pub(crate) fn record_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a thread of the stage waited for space downstream or in a budget.
    pub(crate) fn record_blocked_out(&self, waited: Duration) {
        self.blocked_out_nanos.fetch_add(to_nanos(waited), Ordering::Relaxed);
        self.publish_blocked("out", waited);
    }

    /// Starts measuring a batch on the calling thread.
    pub(crate) fn start_batch(&self) -> BatchTimer<'_> {
        WAITED_FOR_BUDGET.set(Duration::ZERO);
        let cpu_before = thread_cpu_time();
        let idle_cpu = take_cpu_time_until(cpu_before);
        // What came before was for no photo: networks were created.
        take_device_time();
        BatchTimer { stats: self, started_at: Instant::now(), cpu_before, idle_cpu }
    }

    pub(crate) fn record_panic(&self) {
        metrics::counter!(names::STAGE_PANICS, "stage" => self.name).increment(1);
    }

    fn publish_depth(&self, depth: usize) {
        let before = self.depth.swap(depth, Ordering::Relaxed);
        // The gauge is the sum of all lanes.
        metrics::gauge!(names::EDGE_DEPTH, "stage" => self.name).increment(depth as f64 - before as f64);
    }

    fn publish_blocked(&self, side: &'static str, waited: Duration) {
        metrics::gauge!(names::STAGE_BLOCKED_SECONDS, "stage" => self.name, "side" => side)
            .increment(waited.as_secs_f64());
    }

    pub(super) fn sample(&self) -> StageSample {
        StageSample {
            busy_nanos: self.busy_nanos.load(Ordering::Relaxed),
            blocked_out_nanos: self.blocked_out_nanos.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_edge_full(&self) -> bool {
        *lock(&self.was_edge_full)
    }
}

impl BatchTimer<'_> {
    /// Begins the step, whose core was waited for since the batch was taken; returns when.
    pub(crate) fn begin_step(&mut self) -> Instant {
        self.started_at = Instant::now();
        self.started_at
    }

    /// Returns what the thread spent between its last batch and this one, and what is left of that one.
    pub(crate) fn take_overhead(&mut self) -> Duration {
        let idle = std::mem::take(&mut self.idle_cpu);
        metrics::gauge!(names::STAGE_OVERHEAD_CPU_SECONDS, "stage" => self.stats.name)
            .increment(idle.as_secs_f64());
        idle + CARRIED.take()
    }

    /// Ends the measurement of a batch of `photos`.
    pub(crate) fn finish(self, photos: usize) -> Spent {
        self.finish_step(photos, photos)
    }

    /// Ends the measurement of a step of `photos`; the stage is done with `done` of them. Returns what was spent: the CPU time
    /// that was not taken before by [`take_cpu_time`], and the time of calls of a device.
    pub(crate) fn finish_step(self, photos: usize, done: usize) -> Spent {
        let stats = self.stats;
        let waited = WAITED_FOR_BUDGET.get();
        let busy = self.started_at.elapsed().saturating_sub(waited);
        let now = thread_cpu_time();
        let cpu = now.saturating_sub(self.cpu_before);
        // What follows is overhead of the next batch.
        let not_taken = take_cpu_time_until(now);
        stats.busy_nanos.fetch_add(to_nanos(busy), Ordering::Relaxed);
        stats.record_blocked_out(waited);
        metrics::gauge!(names::STAGE_BUSY_SECONDS, "stage" => stats.name).increment(busy.as_secs_f64());
        metrics::gauge!(names::STAGE_CPU_SECONDS, "stage" => stats.name).increment(cpu.as_secs_f64());
        metrics::counter!(names::STAGE_PHOTOS, "stage" => stats.name).increment(done as u64);
        stats.done.fetch_add(done as u64, Ordering::Relaxed);
        // No step was taken of photos that wait for memory.
        if photos > 0 {
            metrics::histogram!(names::STAGE_BATCH_SIZE, "stage" => stats.name).record(photos as f64);
        }
        Spent { cpu: not_taken, device: take_device_time(), ..Spent::default() }
    }
}

/// Begins the overhead of the calling thread: what it has spent before was for no photo.
pub(crate) fn begin_overhead() {
    take_cpu_time();
    CARRIED.set(Duration::ZERO);
}

/// Leaves what could be charged to no photo of this batch to the next one.
pub(crate) fn carry_overhead(cpu: Duration) {
    CARRIED.set(CARRIED.get() + cpu);
}

/// Returns the CPU time of the calling thread since its batch began or this was last called.
pub(crate) fn take_cpu_time() -> Duration {
    take_cpu_time_until(thread_cpu_time())
}

fn take_cpu_time_until(now: Duration) -> Duration {
    now.saturating_sub(CPU_TAKEN.replace(now))
}

fn to_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_clock_counts_work_and_not_sleep() {
        let before = thread_cpu_time();
        let started_at = Instant::now();
        while started_at.elapsed() < Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(thread_cpu_time() > before);
    }
}
