//! Where the time goes: per stage busy, waiting for photos, waiting for room, CPU, batch sizes. They name the
//! bottleneck. Knows nothing of what the stages do.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine::metrics as names;
use crate::engine::sync::lock;

thread_local! {
    /// Time that the running stage spent waiting for a budget: it is blocked then, not busy.
    static WAITED_FOR_BUDGET: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs `wait`, whose time does not count as work of the stage that calls it.
pub(crate) fn exclude_from_busy_time<T>(wait: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = wait();
    WAITED_FOR_BUDGET.set(WAITED_FOR_BUDGET.get() + began.elapsed());
    result
}

/// What one stage has done since the pipeline started; shared by its threads and their successors.
#[derive(Debug)]
pub(crate) struct StageStats {
    name: &'static str,
    threads: AtomicUsize,
    capacity: AtomicUsize,
    /// Whether the edge into it was full when the last batch was taken. Locked while the edge is looked at: of threads
    /// that take batches at once the last to look is believed.
    was_edge_full: Mutex<bool>,
    busy_nanos: AtomicU64,
    blocked_out_nanos: AtomicU64,
    photos: AtomicU64,
    /// Photos whose way ended in this stage with their results written.
    finished: AtomicU64,
}

/// A batch on the meter: made before it runs, settled after.
pub(crate) struct BatchTimer<'a> {
    stats: &'a StageStats,
    started_at: Instant,
    cpu_before: Duration,
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
            photos: AtomicU64::new(0),
            finished: AtomicU64::new(0),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Notes how many threads share the work and how many photos may wait for them.
    pub(crate) fn configure(&self, threads: usize, capacity: usize) {
        self.threads.store(threads.max(1), Ordering::Relaxed);
        self.capacity.store(capacity.max(1), Ordering::Relaxed);
    }

    /// Notes a batch of `taken` photos, for which a thread of the stage waited `waited`, and that `depth` photos wait in
    /// front of the stage once it is taken.
    pub(crate) fn record_received(&self, taken: usize, depth: impl FnOnce() -> usize, waited: Duration) {
        let mut was_full = lock(&self.was_edge_full);
        let depth = depth();
        *was_full = depth.saturating_add(taken) >= self.capacity.load(Ordering::Relaxed);
        self.publish_depth(depth);
        drop(was_full);
        self.publish_blocked("in", waited);
    }

    /// Notes that nothing waits in front of the stage any more: who would take it has ended.
    pub(crate) fn reset_depth(&self) {
        let mut was_full = lock(&self.was_edge_full);
        *was_full = false;
        self.publish_depth(0);
    }

    /// Notes a photo whose results are written.
    pub(crate) fn record_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    fn publish_depth(&self, depth: usize) {
        metrics::gauge!(names::EDGE_DEPTH, "stage" => self.name).set(depth as f64);
    }

    /// Notes that its thread waited `waited` for room downstream.
    pub(crate) fn record_blocked_out(&self, waited: Duration) {
        self.blocked_out_nanos.fetch_add(to_nanos(waited), Ordering::Relaxed);
        self.publish_blocked("out", waited);
    }

    /// Starts measuring a batch on the calling thread.
    pub(crate) fn start_batch(&self) -> BatchTimer<'_> {
        WAITED_FOR_BUDGET.set(Duration::ZERO);
        BatchTimer { stats: self, started_at: Instant::now(), cpu_before: thread_cpu_time() }
    }

    pub(crate) fn record_panic(&self) {
        metrics::counter!(names::STAGE_PANICS, "stage" => self.name).increment(1);
    }

    fn publish_blocked(&self, side: &'static str, waited: Duration) {
        metrics::gauge!(names::STAGE_BLOCKED_SECONDS, "stage" => self.name, "side" => side)
            .increment(waited.as_secs_f64());
    }
}

impl BatchTimer<'_> {
    /// Ends the measurement of a batch of `photos`.
    pub(crate) fn finish(self, photos: usize) {
        let meter = self.stats;
        let waited = WAITED_FOR_BUDGET.get();
        let busy = self.started_at.elapsed().saturating_sub(waited);
        let cpu = thread_cpu_time().saturating_sub(self.cpu_before);
        meter.busy_nanos.fetch_add(to_nanos(busy), Ordering::Relaxed);
        meter.photos.fetch_add(photos as u64, Ordering::Relaxed);
        meter.record_blocked_out(waited);
        metrics::gauge!(names::STAGE_BUSY_SECONDS, "stage" => meter.name).increment(busy.as_secs_f64());
        metrics::gauge!(names::STAGE_CPU_SECONDS, "stage" => meter.name).increment(cpu.as_secs_f64());
        metrics::counter!(names::STAGE_PHOTOS, "stage" => meter.name).increment(photos as u64);
        metrics::histogram!(names::STAGE_BATCH_SIZE, "stage" => meter.name).record(photos as f64);
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn to_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The meters of all stages, first stage first.
#[derive(Debug)]
pub(crate) struct PipelineStats {
    stages: Vec<Arc<StageStats>>,
    window: Mutex<SampleWindow>,
}

/// Two looks at the meters, a few seconds apart, and what follows from them.
#[derive(Debug)]
struct SampleWindow {
    sampled_at: Instant,
    last_samples: Vec<StageSample>,
    bottleneck: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StageSample {
    busy_nanos: u64,
    blocked_out_nanos: u64,
}

/// How far apart the looks are: long enough for several photos, short enough for a progress bar.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A stage whose threads work less than this part of the time holds nothing up.
const MIN_BUSY_SHARE: f64 = 0.05;

/// Its feeder counts as held up by it when it waited this part of the time.
const MIN_BLOCKED_SHARE: f64 = 0.05;

impl PipelineStats {
    pub(crate) fn new(stages: &[&'static str]) -> Self {
        Self {
            stages: stages.iter().map(|name| Arc::new(StageStats::new(name))).collect(),
            window: Mutex::new(SampleWindow {
                sampled_at: Instant::now(),
                last_samples: vec![StageSample::default(); stages.len()],
                bottleneck: None,
            }),
        }
    }

    /// The meter of a stage.
    ///
    /// # Panics
    /// When there is no such stage: the names are constants of this crate.
    pub(crate) fn stage(&self, name: &'static str) -> Arc<StageStats> {
        let found = self.stages.iter().find(|meter| meter.name == name);
        Arc::clone(found.expect("stage names are constants that `Meters::new` was given"))
    }

    /// Photos whose results were written since the pipeline started.
    pub(crate) fn finished_count(&self) -> u64 {
        self.stages.iter().map(|meter| meter.finished.load(Ordering::Relaxed)).sum()
    }

    /// Notes that a generation is gone, and with it all that waited in it.
    pub(crate) fn reset_depths(&self) {
        // Nothing ever waits in front of the first stage.
        self.stages.iter().skip(1).for_each(|meter| meter.reset_depth());
    }

    /// The stage that held the others up in the last window; `None` while little is done.
    pub(crate) fn bottleneck(&self) -> Option<&'static str> {
        lock(&self.window).bottleneck
    }

    /// Looks at the meters when it is time; called by the supervisor several times a second.
    pub(crate) fn update_bottleneck(&self) {
        let mut window = lock(&self.window);
        let elapsed = window.sampled_at.elapsed();
        if elapsed < SAMPLE_INTERVAL {
            return;
        }
        let now: Vec<StageSample> = self.stages.iter().map(|meter| meter.sample()).collect();
        window.bottleneck = self.find_bottleneck(&window.last_samples, &now, elapsed);
        for meter in &self.stages {
            let is_it = f64::from(window.bottleneck == Some(meter.name));
            metrics::gauge!(names::STAGE_BOTTLENECK, "stage" => meter.name).set(is_it);
        }
        window.last_samples = now;
        window.sampled_at = Instant::now();
    }

    /// The busiest stage among those that photos pile up in front of; where they pile up nowhere, the busiest of all.
    fn find_bottleneck(
        &self,
        last: &[StageSample],
        now: &[StageSample],
        elapsed: Duration,
    ) -> Option<&'static str> {
        let window = elapsed.as_secs_f64() * 1e9;
        let part =
            |from: u64, to: u64, threads: usize| (to.saturating_sub(from)) as f64 / (window * threads as f64);
        let mut best: Option<(bool, f64, &'static str)> = None;
        for (i, meter) in self.stages.iter().enumerate() {
            let threads = meter.threads.load(Ordering::Relaxed);
            let busy = part(last[i].busy_nanos, now[i].busy_nanos, threads);
            if busy < MIN_BUSY_SHARE {
                continue;
            }
            let feeder_blocked = i > 0 && {
                let feeder = &self.stages[i - 1];
                let threads = feeder.threads.load(Ordering::Relaxed);
                part(last[i - 1].blocked_out_nanos, now[i - 1].blocked_out_nanos, threads)
                    >= MIN_BLOCKED_SHARE
            };
            let candidate = (feeder_blocked || meter.is_edge_full(), busy, meter.name);
            if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, name)| name)
    }
}

impl StageStats {
    fn sample(&self) -> StageSample {
        StageSample {
            busy_nanos: self.busy_nanos.load(Ordering::Relaxed),
            blocked_out_nanos: self.blocked_out_nanos.load(Ordering::Relaxed),
        }
    }

    fn is_edge_full(&self) -> bool {
        *lock(&self.was_edge_full)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn sample(busy_ms: u64, blocked_ms: u64) -> StageSample {
        StageSample { busy_nanos: busy_ms * 1_000_000, blocked_out_nanos: blocked_ms * 1_000_000 }
    }

    #[test]
    fn the_stage_that_holds_up_the_others_is_the_bottleneck() {
        let meters = PipelineStats::new(&["decode", "read", "index"]);
        let start = [sample(0, 0); 3];
        let second = Duration::from_secs(1);
        // Decode is busier, but it waits for read.
        let held_up = [sample(950, 40), sample(0, 900), sample(0, 0)];
        assert_eq!(meters.find_bottleneck(&start, &held_up, second), Some("decode"));
        let held_up = [sample(500, 450), sample(490, 0), sample(100, 0)];
        assert_eq!(meters.find_bottleneck(&start, &held_up, second), Some("read"));
        assert_eq!(meters.find_bottleneck(&start, &start, second), None);
    }

    #[test]
    fn a_gauge_names_the_bottleneck() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let meters = PipelineStats::new(&["decode", "read"]);
        metrics::with_local_recorder(&recorder, || {
            meters.stage("read").busy_nanos.store(3_000_000_000, Ordering::Relaxed);
            lock(&meters.window).sampled_at -= 2 * SAMPLE_INTERVAL;
            meters.update_bottleneck();
        });
        let shown = recorder.handle().render();
        assert_eq!(meters.bottleneck(), Some("read"));
        for line in [
            "photofinish_stage_bottleneck{stage=\"read\"} 1",
            "photofinish_stage_bottleneck{stage=\"decode\"} 0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{shown}");
        }
    }

    #[test]
    fn an_edge_is_as_full_as_when_the_last_batch_was_taken() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let meters = PipelineStats::new(&["read", "index"]);
        let index = meters.stage("index");
        index.configure(1, 64);
        let shows = |depth: usize| {
            let line = format!("photofinish_edge_depth{{stage=\"index\"}} {depth}");
            recorder.handle().render().lines().any(|shown| shown == line)
        };
        metrics::with_local_recorder(&recorder, || {
            index.record_received(60, || 4, Duration::ZERO);
            assert!(index.is_edge_full() && shows(4));
            index.record_received(4, || 0, Duration::ZERO);
            assert!(!index.is_edge_full() && shows(0));
            index.record_received(64, || 29, Duration::ZERO);
            meters.reset_depths();
            assert!(!index.is_edge_full() && shows(0));
        });
    }

    #[test]
    fn the_cpu_clock_counts_work_and_not_sleep() {
        let before = thread_cpu_time();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(thread_cpu_time() > before);
    }
}
