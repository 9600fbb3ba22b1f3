//! Measures where the time goes: for each stage the time it is busy, waits for photos, waits for space downstream, and
//! its CPU time and batch sizes. Finds the bottleneck from these. Knows nothing of what the stages do.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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

/// The statistics of one stage since the pipeline started, shared by its threads in all generations.
#[derive(Debug)]
pub(crate) struct StageStats {
    name: &'static str,
    threads: AtomicUsize,
    /// The capacity of the channel into the stage.
    capacity: AtomicUsize,
    /// Whether that channel was full when the last batch was taken. Locked while its length is read, so that the last
    /// of several threads to read it is also the last to record it.
    was_edge_full: Mutex<bool>,
    busy_nanos: AtomicU64,
    blocked_out_nanos: AtomicU64,
    /// Photos that ended in this stage with their results written.
    finished: AtomicU64,
    /// Photos that the stage was done with.
    done: AtomicU64,
    /// Photos in the channel into the stage.
    depth: AtomicUsize,
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
        self.depth.store(depth, Ordering::Relaxed);
        metrics::gauge!(names::EDGE_DEPTH, "stage" => self.name).set(depth as f64);
    }

    fn publish_blocked(&self, side: &'static str, waited: Duration) {
        metrics::gauge!(names::STAGE_BLOCKED_SECONDS, "stage" => self.name, "side" => side)
            .increment(waited.as_secs_f64());
    }

    fn sample(&self) -> StageSample {
        StageSample {
            busy_nanos: self.busy_nanos.load(Ordering::Relaxed),
            blocked_out_nanos: self.blocked_out_nanos.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
        }
    }

    /// What the stage did between two samples.
    fn load_between(&self, last: &StageSample, now: &StageSample, elapsed: Duration) -> StageLoad {
        let threads = self.threads.load(Ordering::Relaxed);
        let share = |before: u64, after: u64| {
            let nanos = elapsed.as_secs_f64() * 1e9 * threads as f64;
            (after.saturating_sub(before) as f64 / nanos).min(1.0)
        };
        StageLoad {
            stage: self.name,
            depth: self.depth.load(Ordering::Relaxed),
            photos_per_second: now.done.saturating_sub(last.done) as f64 / elapsed.as_secs_f64(),
            busy: share(last.busy_nanos, now.busy_nanos),
            blocked: share(last.blocked_out_nanos, now.blocked_out_nanos),
        }
    }

    fn is_edge_full(&self) -> bool {
        *lock(&self.was_edge_full)
    }
}

impl BatchTimer<'_> {
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

/// The statistics of all stages, in the order of the stages.
#[derive(Debug)]
pub(crate) struct PipelineStats {
    stages: Vec<Arc<StageStats>>,
    window: Mutex<SampleWindow>,
}

/// The last samples, and the bottleneck found from them.
#[derive(Debug)]
struct SampleWindow {
    sampled_at: Instant,
    last_samples: Vec<StageSample>,
    bottleneck: Option<&'static str>,
    loads: Vec<StageLoad>,
}

/// What one stage did between the last two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct StageLoad {
    /// The stage.
    pub stage: &'static str,
    /// Photos that wait for it.
    pub depth: usize,
    /// Photos that it was done with, per second.
    pub photos_per_second: f64,
    /// The share of its threads' time in which they worked, 0 to 1.
    pub busy: f64,
    /// The share in which they waited for space downstream or in a budget, 0 to 1.
    pub blocked: f64,
}

/// The counters of one stage at one time.
#[derive(Clone, Copy, Debug, Default)]
struct StageSample {
    busy_nanos: u64,
    blocked_out_nanos: u64,
    done: u64,
}

/// The time between two samples: long enough for several photos, short enough for a progress bar.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A stage whose threads are busy for a smaller share of the time is not a bottleneck.
const MIN_BUSY_SHARE: f64 = 0.05;

/// A stage counts as slowed down by the next one if its threads were blocked for at least this share of the time.
const MIN_BLOCKED_SHARE: f64 = 0.05;

impl PipelineStats {
    pub(crate) fn new(stages: &[&'static str]) -> Self {
        Self {
            stages: stages.iter().map(|name| Arc::new(StageStats::new(name))).collect(),
            window: Mutex::new(SampleWindow {
                sampled_at: Instant::now(),
                last_samples: vec![StageSample::default(); stages.len()],
                bottleneck: None,
                loads: Vec::new(),
            }),
        }
    }

    /// Returns the statistics of a stage.
    ///
    /// # Panics
    /// When there is no such stage: the names are constants of this crate.
    pub(crate) fn stage(&self, name: &'static str) -> Arc<StageStats> {
        let found = self.stages.iter().find(|stage| stage.name == name);
        Arc::clone(found.expect("stage names are constants given to `PipelineStats::new`"))
    }

    /// Returns the number of photos whose results were written since the pipeline started.
    pub(crate) fn finished_count(&self) -> u64 {
        self.stages.iter().map(|stage| stage.finished.load(Ordering::Relaxed)).sum()
    }

    /// Records that all channels are empty, because the generation has ended.
    pub(crate) fn reset_depths(&self) {
        // The first stage, the feed, has no channel into it.
        self.stages.iter().skip(1).for_each(|stage| stage.reset_depth());
    }

    /// Returns the stage that limited the throughput between the last two samples; `None` while little is done.
    pub(crate) fn bottleneck(&self) -> Option<&'static str> {
        lock(&self.window).bottleneck
    }

    /// Returns what each stage did between the last two samples; nothing before the second sample.
    pub(crate) fn loads(&self) -> Vec<StageLoad> {
        lock(&self.window).loads.clone()
    }

    /// Samples all stages if [`SAMPLE_INTERVAL`] has passed, and finds the bottleneck. The supervisor calls this
    /// several times a second.
    pub(crate) fn update_bottleneck(&self) {
        let mut window = lock(&self.window);
        let elapsed = window.sampled_at.elapsed();
        if elapsed < SAMPLE_INTERVAL {
            return;
        }
        let samples: Vec<StageSample> = self.stages.iter().map(|stage| stage.sample()).collect();
        window.bottleneck = self.find_bottleneck(&window.last_samples, &samples, elapsed);
        let pairs = self.stages.iter().zip(window.last_samples.iter().zip(&samples));
        window.loads = pairs.map(|(stage, (last, now))| stage.load_between(last, now, elapsed)).collect();
        for stage in &self.stages {
            let is_bottleneck = window.bottleneck == Some(stage.name);
            metrics::gauge!(names::STAGE_BOTTLENECK, "stage" => stage.name).set(f64::from(is_bottleneck));
        }
        window.last_samples = samples;
        window.sampled_at = Instant::now();
    }

    /// Returns the busiest of the stages for which photos wait, or the busiest of all if photos wait for none.
    fn find_bottleneck(
        &self,
        last: &[StageSample],
        now: &[StageSample],
        elapsed: Duration,
    ) -> Option<&'static str> {
        let elapsed_nanos = elapsed.as_secs_f64() * 1e9;
        let share = |before: u64, after: u64, threads: usize| {
            after.saturating_sub(before) as f64 / (elapsed_nanos * threads as f64)
        };
        let mut best: Option<(bool, f64, &'static str)> = None;
        for (i, stage) in self.stages.iter().enumerate() {
            let threads = stage.threads.load(Ordering::Relaxed);
            let busy = share(last[i].busy_nanos, now[i].busy_nanos, threads);
            if busy < MIN_BUSY_SHARE {
                continue;
            }
            let is_previous_blocked = i > 0 && {
                let threads = self.stages[i - 1].threads.load(Ordering::Relaxed);
                let (last, now) = (last[i - 1].blocked_out_nanos, now[i - 1].blocked_out_nanos);
                share(last, now, threads) >= MIN_BLOCKED_SHARE
            };
            let candidate = (is_previous_blocked || stage.is_edge_full(), busy, stage.name);
            if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn sample(busy_ms: u64, blocked_ms: u64) -> StageSample {
        StageSample { busy_nanos: busy_ms * 1_000_000, blocked_out_nanos: blocked_ms * 1_000_000, done: 0 }
    }

    #[test]
    fn the_stage_that_holds_up_the_others_is_the_bottleneck() {
        let stats = PipelineStats::new(&["decode", "read", "index"]);
        let start = [sample(0, 0); 3];
        let second = Duration::from_secs(1);
        // Only decode is busy.
        let samples = [sample(950, 40), sample(0, 900), sample(0, 0)];
        assert_eq!(stats.find_bottleneck(&start, &samples, second), Some("decode"));
        // Decode is busier than read, but it is blocked by read.
        let samples = [sample(500, 450), sample(490, 0), sample(100, 0)];
        assert_eq!(stats.find_bottleneck(&start, &samples, second), Some("read"));
        assert_eq!(stats.find_bottleneck(&start, &start, second), None);
    }

    #[test]
    fn the_load_of_a_stage_is_per_thread_and_second() {
        let stats = StageStats::new("read");
        stats.configure(2, 8);
        stats.record_received(1, || 5, Duration::ZERO);
        let (last, now) = (sample(100, 0), StageSample { done: 30, ..sample(1_100, 500) });
        let load = stats.load_between(&last, &now, Duration::from_secs(1));
        let expected =
            StageLoad { stage: "read", depth: 5, photos_per_second: 30.0, busy: 0.5, blocked: 0.25 };
        assert_eq!(load, expected);
    }

    #[test]
    fn a_gauge_names_the_bottleneck() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let stats = PipelineStats::new(&["decode", "read"]);
        metrics::with_local_recorder(&recorder, || {
            stats.stage("read").busy_nanos.store(3_000_000_000, Ordering::Relaxed);
            lock(&stats.window).sampled_at -= 2 * SAMPLE_INTERVAL;
            stats.update_bottleneck();
        });
        let page = recorder.handle().render();
        assert_eq!(stats.bottleneck(), Some("read"));
        for expected in [
            "photofinish_stage_bottleneck{stage=\"read\"} 1",
            "photofinish_stage_bottleneck{stage=\"decode\"} 0",
        ] {
            assert!(page.lines().any(|line| line == expected), "{page}");
        }
    }

    #[test]
    fn an_edge_is_as_full_as_when_the_last_batch_was_taken() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let stats = PipelineStats::new(&["read", "index"]);
        let index = stats.stage("index");
        index.configure(1, 64);
        let shows_depth = |depth: usize| {
            let expected = format!("photofinish_edge_depth{{stage=\"index\"}} {depth}");
            recorder.handle().render().lines().any(|line| line == expected)
        };
        metrics::with_local_recorder(&recorder, || {
            index.record_received(60, || 4, Duration::ZERO);
            assert!(index.is_edge_full() && shows_depth(4));
            index.record_received(4, || 0, Duration::ZERO);
            assert!(!index.is_edge_full() && shows_depth(0));
            index.record_received(64, || 29, Duration::ZERO);
            stats.reset_depths();
            assert!(!index.is_edge_full() && shows_depth(0));
        });
    }

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
