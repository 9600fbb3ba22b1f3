//! The statistics of all stages of the pipeline, in one lane and in all of them: how busy they are, and which is the bottleneck.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::engine::metrics as names;
use crate::engine::stage_stats::{StageSample, StageStats};
use crate::engine::sync::lock;

/// The statistics of all stages of a lane, in the order of the stages. What is computed from them is of all lanes together.
#[derive(Debug)]
pub(crate) struct PipelineStats {
    stages: Vec<Arc<StageStats>>,
    all_lanes: Arc<Mutex<Vec<StageInLanes>>>,
    window: Arc<Mutex<SampleWindow>>,
}

/// The last samples, and the bottleneck found from them.
#[derive(Debug)]
struct SampleWindow {
    sampled_at: Instant,
    last_samples: Vec<StageSample>,
    bottleneck: Option<&'static str>,
    loads: Vec<StageLoad>,
}

impl SampleWindow {
    /// Whether the last sample says what is done now: none is taken while no generation runs.
    fn is_current(&self) -> bool {
        self.sampled_at.elapsed() < 3 * SAMPLE_INTERVAL
    }
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

/// The time between two samples: long enough for several photos, short enough for a progress bar.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A stage whose threads are busy for a smaller share of the time is not a bottleneck.
const MIN_BUSY_SHARE: f64 = 0.05;

/// A stage counts as slowed down by the next one if its threads were blocked for at least this share of the time.
const MIN_BLOCKED_SHARE: f64 = 0.05;

impl PipelineStats {
    /// The statistics of the first lane.
    pub(crate) fn new(stages: &[&'static str]) -> Self {
        let window = SampleWindow {
            sampled_at: Instant::now(),
            last_samples: vec![StageSample::default(); stages.len()],
            bottleneck: None,
            loads: Vec::new(),
        };
        let stages: Vec<_> = stages.iter().map(|name| Arc::new(StageStats::new(name))).collect();
        let all_lanes = stages.iter().map(|stage| StageInLanes(vec![Arc::clone(stage)])).collect();
        Self { stages, all_lanes: Arc::new(Mutex::new(all_lanes)), window: Arc::new(Mutex::new(window)) }
    }

    /// The statistics of another lane beside this one.
    pub(crate) fn for_another_lane(&self) -> Self {
        let stages: Vec<_> =
            self.stages.iter().map(|stage| Arc::new(StageStats::new(stage.name()))).collect();
        for (lanes, stage) in lock(&self.all_lanes).iter_mut().zip(&stages) {
            lanes.0.push(Arc::clone(stage));
        }
        Self { stages, all_lanes: Arc::clone(&self.all_lanes), window: Arc::clone(&self.window) }
    }

    /// Returns the statistics of a stage.
    ///
    /// # Panics
    /// When there is no such stage: the names are constants of this crate.
    pub(crate) fn stage(&self, name: &'static str) -> Arc<StageStats> {
        let found = self.stages.iter().find(|stage| stage.name() == name);
        Arc::clone(found.expect("stage names are constants given to `PipelineStats::new`"))
    }

    /// Returns the number of photos whose results the lane has written since the pipeline started.
    pub(crate) fn finished_count(&self) -> u64 {
        self.stages.iter().map(|stage| stage.finished.load(Ordering::Relaxed)).sum()
    }

    /// Records that all channels of the lane are empty, because its generation has ended.
    pub(crate) fn reset_depths(&self) {
        // The first stage, the feed, has no channel into it.
        self.stages.iter().skip(1).for_each(|stage| stage.reset_depth());
        // Other lanes, if there are any, tell again with their next sample.
        for stage in &self.stages {
            metrics::gauge!(names::STAGE_BOTTLENECK, "stage" => stage.name()).set(0.0);
        }
    }

    /// Records that the lane has no threads any more: those of other lanes are then all there are.
    pub(crate) fn remove_threads(&self) {
        self.stages.iter().for_each(|stage| stage.threads.store(0, Ordering::Relaxed));
    }

    /// Returns the stage that limited the throughput between the last two samples; `None` while little is done.
    pub(crate) fn bottleneck(&self) -> Option<&'static str> {
        let window = lock(&self.window);
        window.bottleneck.filter(|_| window.is_current())
    }

    /// Returns what each stage did between the last two samples; nothing before the second sample, and while no generation runs.
    pub(crate) fn loads(&self) -> Vec<StageLoad> {
        let window = lock(&self.window);
        if window.is_current() { window.loads.clone() } else { Vec::new() }
    }

    /// Samples all stages if [`SAMPLE_INTERVAL`] has passed, and finds the bottleneck. The supervisor calls this
    /// several times a second.
    pub(crate) fn update_bottleneck(&self) {
        let mut window = lock(&self.window);
        let elapsed = window.sampled_at.elapsed();
        if elapsed < SAMPLE_INTERVAL {
            return;
        }
        let stages = lock(&self.all_lanes).clone();
        let samples: Vec<StageSample> = stages.iter().map(StageInLanes::sample).collect();
        window.bottleneck = find_bottleneck(&stages, &window.last_samples, &samples, elapsed);
        let pairs = stages.iter().zip(window.last_samples.iter().zip(&samples));
        window.loads = pairs.map(|(stage, (last, now))| stage.load_between(last, now, elapsed)).collect();
        for stage in &stages {
            let is_bottleneck = window.bottleneck == Some(stage.name());
            metrics::gauge!(names::STAGE_BOTTLENECK, "stage" => stage.name()).set(f64::from(is_bottleneck));
        }
        window.last_samples = samples;
        window.sampled_at = Instant::now();
    }
}

/// A stage in all lanes.
#[derive(Clone, Debug)]
struct StageInLanes(Vec<Arc<StageStats>>);

impl StageInLanes {
    fn name(&self) -> &'static str {
        self.0.first().map_or("", |stage| stage.name())
    }

    fn threads(&self) -> usize {
        self.0.iter().map(|stage| stage.threads.load(Ordering::Relaxed)).sum()
    }

    fn is_edge_full(&self) -> bool {
        self.0.iter().any(|stage| stage.is_edge_full())
    }

    fn sample(&self) -> StageSample {
        self.0.iter().map(|stage| stage.sample()).fold(StageSample::default(), |all, one| StageSample {
            busy_nanos: all.busy_nanos + one.busy_nanos,
            blocked_out_nanos: all.blocked_out_nanos + one.blocked_out_nanos,
            done: all.done + one.done,
        })
    }

    /// What the stage did between two samples.
    fn load_between(&self, last: &StageSample, now: &StageSample, elapsed: Duration) -> StageLoad {
        let threads = self.threads();
        let share = |before: u64, after: u64| {
            let nanos = elapsed.as_secs_f64() * 1e9 * threads.max(1) as f64;
            (after.saturating_sub(before) as f64 / nanos).min(1.0)
        };
        StageLoad {
            stage: self.name(),
            depth: self.0.iter().map(|stage| stage.depth.load(Ordering::Relaxed)).sum(),
            photos_per_second: now.done.saturating_sub(last.done) as f64 / elapsed.as_secs_f64(),
            busy: share(last.busy_nanos, now.busy_nanos),
            blocked: share(last.blocked_out_nanos, now.blocked_out_nanos),
        }
    }
}

/// Returns the busiest of the stages for which photos wait, or the busiest of all if photos wait for none.
fn find_bottleneck(
    stages: &[StageInLanes],
    last: &[StageSample],
    now: &[StageSample],
    elapsed: Duration,
) -> Option<&'static str> {
    let elapsed_nanos = elapsed.as_secs_f64() * 1e9;
    let share = |before: u64, after: u64, threads: usize| {
        after.saturating_sub(before) as f64 / (elapsed_nanos * threads.max(1) as f64)
    };
    let mut best: Option<(bool, f64, &'static str)> = None;
    for (i, stage) in stages.iter().enumerate() {
        let threads = stage.threads();
        let busy = share(last[i].busy_nanos, now[i].busy_nanos, threads);
        if busy < MIN_BUSY_SHARE {
            continue;
        }
        let is_previous_blocked = i > 0 && {
            let threads = stages[i - 1].threads();
            let (last, now) = (last[i - 1].blocked_out_nanos, now[i - 1].blocked_out_nanos);
            share(last, now, threads) >= MIN_BLOCKED_SHARE
        };
        let candidate = (is_previous_blocked || stage.is_edge_full(), busy, stage.name());
        if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, name)| name)
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
        let stages = lock(&PipelineStats::new(&["decode", "read", "index"]).all_lanes).clone();
        let start = [sample(0, 0); 3];
        let second = Duration::from_secs(1);
        // Only decode is busy.
        let samples = [sample(950, 40), sample(0, 900), sample(0, 0)];
        assert_eq!(find_bottleneck(&stages, &start, &samples, second), Some("decode"));
        // Decode is busier than read, but it is blocked by read.
        let samples = [sample(500, 450), sample(490, 0), sample(100, 0)];
        assert_eq!(find_bottleneck(&stages, &start, &samples, second), Some("read"));
        assert_eq!(find_bottleneck(&stages, &start, &start, second), None);
    }

    #[test]
    fn the_load_of_a_stage_is_per_thread_and_second() {
        let stats = Arc::new(StageStats::new("read"));
        stats.configure(2, 8);
        stats.record_received(1, || 5, Duration::ZERO);
        let (last, now) = (sample(100, 0), StageSample { done: 30, ..sample(1_100, 500) });
        let load = StageInLanes(vec![stats]).load_between(&last, &now, Duration::from_secs(1));
        let expected =
            StageLoad { stage: "read", depth: 5, photos_per_second: 30.0, busy: 0.5, blocked: 0.25 };
        assert_eq!(load, expected);
    }

    #[test]
    fn the_load_of_a_stage_is_that_of_all_lanes() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let first = PipelineStats::new(&["decode", "read"]);
        let second = first.for_another_lane();
        metrics::with_local_recorder(&recorder, || {
            for (stats, depth) in [(&first, 5), (&second, 2)] {
                stats.stage("read").configure(2, 8);
                stats.stage("read").record_received(1, || depth, Duration::ZERO);
                stats.stage("read").busy_nanos.store(3_000_000_000, Ordering::Relaxed);
                stats.stage("read").done.store(20, Ordering::Relaxed);
            }
            lock(&first.window).sampled_at -= 2 * SAMPLE_INTERVAL;
            second.update_bottleneck();
        });
        let loads = first.loads();
        let [_, read] = &loads[..] else { panic!("{loads:?}") };
        let expected = "photofinish_edge_depth{stage=\"read\"} 7";
        let page = recorder.handle().render();
        assert!(page.lines().any(|line| line == expected), "{page}");
        assert_eq!((read.depth, first.bottleneck()), (7, Some("read")));
        // At least four seconds of four threads: more where this machine is busy.
        assert!(
            (0.01..=0.375).contains(&read.busy) && (0.3..=10.0).contains(&read.photos_per_second),
            "{read:?}"
        );
        second.remove_threads();
        let stages = lock(&first.all_lanes).clone();
        assert_eq!(stages[1].threads(), 2, "threads of a lane that has ended count");
        first.remove_threads();
        let idle = stages[1].load_between(&sample(0, 0), &sample(0, 0), SAMPLE_INTERVAL);
        assert_eq!((idle.busy, idle.blocked), (0.0, 0.0));
        // What one lane finishes or loses is not the other's.
        second.stage("read").record_finished();
        assert_eq!((first.finished_count(), second.finished_count()), (0, 1));
        metrics::with_local_recorder(&recorder, || first.reset_depths());
        assert!(recorder.handle().render().lines().any(|line| line == expected.replace('7', "2")));
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
        // No generation runs any more.
        lock(&stats.window).sampled_at -= 3 * SAMPLE_INTERVAL;
        metrics::with_local_recorder(&recorder, || stats.reset_depths());
        assert_eq!((stats.bottleneck(), stats.loads()), (None, Vec::new()));
        let expected = "photofinish_stage_bottleneck{stage=\"read\"} 0";
        assert!(recorder.handle().render().lines().any(|line| line == expected));
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
}
