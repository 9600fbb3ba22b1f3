//! Where the time goes: per stage busy, waiting for photos, waiting for room, CPU, batch sizes. They name the
//! bottleneck. Knows nothing of what the stages do.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::metric_names as names;
use crate::sync::lock;

thread_local! {
    /// Time that the running stage spent waiting for a budget: it is blocked then, not busy.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs `wait`, whose time does not count as work of the stage that calls it.
pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = wait();
    WAITED.set(WAITED.get() + began.elapsed());
    result
}

/// What one stage has done since the pipeline started; shared by its threads and their successors.
#[derive(Debug)]
pub(crate) struct StageMeter {
    name: &'static str,
    threads: AtomicUsize,
    capacity: AtomicUsize,
    /// Whether the edge into it was full when the last batch was taken. Locked while the edge is looked at: of threads
    /// that take batches at once the last to look is believed.
    was_full: Mutex<bool>,
    busy_nanos: AtomicU64,
    blocked_out_nanos: AtomicU64,
    photos: AtomicU64,
    /// Photos whose way ended in this stage with their results written.
    finished: AtomicU64,
}

/// A batch on the meter: made before it runs, settled after.
pub(crate) struct Measured<'a> {
    meter: &'a StageMeter,
    began: Instant,
    cpu: Duration,
}

impl StageMeter {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            threads: AtomicUsize::new(1),
            capacity: AtomicUsize::new(usize::MAX),
            was_full: Mutex::new(false),
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
    pub(crate) fn sized(&self, threads: usize, capacity: usize) {
        self.threads.store(threads.max(1), Ordering::Relaxed);
        self.capacity.store(capacity.max(1), Ordering::Relaxed);
    }

    /// Notes a batch of `taken` photos, for which a thread of the stage waited `waited`, and that `depth` photos wait in
    /// front of the stage once it is taken.
    pub(crate) fn received(&self, taken: usize, depth: impl FnOnce() -> usize, waited: Duration) {
        let mut was_full = lock(&self.was_full);
        let depth = depth();
        *was_full = depth.saturating_add(taken) >= self.capacity.load(Ordering::Relaxed);
        self.show_depth(depth);
        drop(was_full);
        self.blocked("in", waited);
    }

    /// Notes that nothing waits in front of the stage any more: who would take it has ended.
    pub(crate) fn emptied(&self) {
        let mut was_full = lock(&self.was_full);
        *was_full = false;
        self.show_depth(0);
    }

    /// Notes a photo whose results are written.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    fn show_depth(&self, depth: usize) {
        metrics::gauge!(names::EDGE_DEPTH, "stage" => self.name).set(depth as f64);
    }

    /// Notes that its thread waited `waited` for room downstream.
    pub(crate) fn passed_on(&self, waited: Duration) {
        self.blocked_out_nanos.fetch_add(nanos(waited), Ordering::Relaxed);
        self.blocked("out", waited);
    }

    /// Starts measuring a batch on the calling thread.
    pub(crate) fn measure(&self) -> Measured<'_> {
        WAITED.set(Duration::ZERO);
        Measured { meter: self, began: Instant::now(), cpu: thread_cpu() }
    }

    pub(crate) fn panicked(&self) {
        metrics::counter!(names::STAGE_PANICS, "stage" => self.name).increment(1);
    }

    fn blocked(&self, side: &'static str, waited: Duration) {
        metrics::gauge!(names::STAGE_BLOCKED_SECONDS, "stage" => self.name, "side" => side)
            .increment(waited.as_secs_f64());
    }
}

impl Measured<'_> {
    /// Ends the measurement of a batch of `photos`.
    pub(crate) fn settle(self, photos: usize) {
        let meter = self.meter;
        let waited = WAITED.get();
        let busy = self.began.elapsed().saturating_sub(waited);
        let cpu = thread_cpu().saturating_sub(self.cpu);
        meter.busy_nanos.fetch_add(nanos(busy), Ordering::Relaxed);
        meter.photos.fetch_add(photos as u64, Ordering::Relaxed);
        meter.passed_on(waited);
        metrics::gauge!(names::STAGE_BUSY_SECONDS, "stage" => meter.name).increment(busy.as_secs_f64());
        metrics::gauge!(names::STAGE_CPU_SECONDS, "stage" => meter.name).increment(cpu.as_secs_f64());
        metrics::counter!(names::STAGE_PHOTOS, "stage" => meter.name).increment(photos as u64);
        metrics::histogram!(names::STAGE_BATCH_SIZE, "stage" => meter.name).record(photos as f64);
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The meters of all stages, first stage first.
#[derive(Debug)]
pub(crate) struct Meters {
    stages: Vec<Arc<StageMeter>>,
    window: Mutex<Window>,
}

/// Two looks at the meters, a few seconds apart, and what follows from them.
#[derive(Debug)]
struct Window {
    looked_at: Instant,
    last: Vec<Look>,
    bottleneck: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Look {
    busy_nanos: u64,
    blocked_out_nanos: u64,
}

/// How far apart the looks are: long enough for several photos, short enough for a progress bar.
const WINDOW: Duration = Duration::from_secs(2);

/// A stage whose threads work less than this part of the time holds nothing up.
const LEAST_BUSY: f64 = 0.05;

/// Its feeder counts as held up by it when it waited this part of the time.
const LEAST_BLOCKED: f64 = 0.05;

impl Meters {
    pub(crate) fn new(stages: &[&'static str]) -> Self {
        Self {
            stages: stages.iter().map(|name| Arc::new(StageMeter::new(name))).collect(),
            window: Mutex::new(Window {
                looked_at: Instant::now(),
                last: vec![Look::default(); stages.len()],
                bottleneck: None,
            }),
        }
    }

    /// The meter of a stage.
    ///
    /// # Panics
    /// When there is no such stage: the names are constants of this crate.
    pub(crate) fn of(&self, name: &'static str) -> Arc<StageMeter> {
        let found = self.stages.iter().find(|meter| meter.name == name);
        Arc::clone(found.expect("stage names are constants that `Meters::new` was given"))
    }

    /// Photos whose results were written since the pipeline started.
    pub(crate) fn finished_count(&self) -> u64 {
        self.stages.iter().map(|meter| meter.finished.load(Ordering::Relaxed)).sum()
    }

    /// Notes that a generation is gone, and with it all that waited in it.
    pub(crate) fn emptied(&self) {
        // Nothing ever waits in front of the first stage.
        self.stages.iter().skip(1).for_each(|meter| meter.emptied());
    }

    /// The stage that held the others up in the last window; `None` while little is done.
    pub(crate) fn bottleneck(&self) -> Option<&'static str> {
        lock(&self.window).bottleneck
    }

    /// Looks at the meters when it is time; called by the supervisor several times a second.
    pub(crate) fn look(&self) {
        let mut window = lock(&self.window);
        let elapsed = window.looked_at.elapsed();
        if elapsed < WINDOW {
            return;
        }
        let now: Vec<Look> = self.stages.iter().map(|meter| meter.look()).collect();
        window.bottleneck = self.judge(&window.last, &now, elapsed);
        for meter in &self.stages {
            let is_it = f64::from(window.bottleneck == Some(meter.name));
            metrics::gauge!(names::STAGE_BOTTLENECK, "stage" => meter.name).set(is_it);
        }
        window.last = now;
        window.looked_at = Instant::now();
    }

    /// The busiest stage among those that photos pile up in front of; where they pile up nowhere, the busiest of all.
    fn judge(&self, last: &[Look], now: &[Look], elapsed: Duration) -> Option<&'static str> {
        let window = elapsed.as_secs_f64() * 1e9;
        let part =
            |from: u64, to: u64, threads: usize| (to.saturating_sub(from)) as f64 / (window * threads as f64);
        let mut best: Option<(bool, f64, &'static str)> = None;
        for (i, meter) in self.stages.iter().enumerate() {
            let threads = meter.threads.load(Ordering::Relaxed);
            let busy = part(last[i].busy_nanos, now[i].busy_nanos, threads);
            if busy < LEAST_BUSY {
                continue;
            }
            let feeder_blocked = i > 0 && {
                let feeder = &self.stages[i - 1];
                let threads = feeder.threads.load(Ordering::Relaxed);
                part(last[i - 1].blocked_out_nanos, now[i - 1].blocked_out_nanos, threads) >= LEAST_BLOCKED
            };
            let candidate = (feeder_blocked || meter.is_full(), busy, meter.name);
            if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, name)| name)
    }
}

impl StageMeter {
    fn look(&self) -> Look {
        Look {
            busy_nanos: self.busy_nanos.load(Ordering::Relaxed),
            blocked_out_nanos: self.blocked_out_nanos.load(Ordering::Relaxed),
        }
    }

    fn is_full(&self) -> bool {
        *lock(&self.was_full)
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    fn look(busy_ms: u64, blocked_ms: u64) -> Look {
        Look { busy_nanos: busy_ms * 1_000_000, blocked_out_nanos: blocked_ms * 1_000_000 }
    }

    #[test]
    fn the_stage_that_the_others_wait_for_is_named() {
        let meters = Meters::new(&["decode", "read", "index"]);
        let start = [look(0, 0); 3];
        let second = Duration::from_secs(1);
        // Decode is busier, but it waits for read.
        let held_up = [look(950, 40), look(0, 900), look(0, 0)];
        assert_eq!(meters.judge(&start, &held_up, second), Some("decode"));
        let held_up = [look(500, 450), look(490, 0), look(100, 0)];
        assert_eq!(meters.judge(&start, &held_up, second), Some("read"));
        assert_eq!(meters.judge(&start, &start, second), None);
    }

    #[test]
    fn a_gauge_names_the_bottleneck() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let meters = Meters::new(&["decode", "read"]);
        metrics::with_local_recorder(&recorder, || {
            meters.of("read").busy_nanos.store(3_000_000_000, Ordering::Relaxed);
            lock(&meters.window).looked_at -= 2 * WINDOW;
            meters.look();
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
    fn an_edge_is_as_full_as_the_last_batch_found_it() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let meters = Meters::new(&["read", "index"]);
        let index = meters.of("index");
        index.sized(1, 64);
        let shows = |depth: usize| {
            let line = format!("photofinish_edge_depth{{stage=\"index\"}} {depth}");
            recorder.handle().render().lines().any(|shown| shown == line)
        };
        metrics::with_local_recorder(&recorder, || {
            index.received(60, || 4, Duration::ZERO);
            assert!(index.is_full() && shows(4));
            index.received(4, || 0, Duration::ZERO);
            assert!(!index.is_full() && shows(0));
            index.received(64, || 29, Duration::ZERO);
            meters.emptied();
            assert!(!index.is_full() && shows(0));
        });
    }

    #[test]
    fn the_cpu_clock_counts_work_and_not_sleep() {
        let before = thread_cpu();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(thread_cpu() > before);
    }
}
