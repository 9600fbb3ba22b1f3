//! Stops count no attempt and wait for nothing that hangs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;

use super::{DONE_ONCE, SHAPE, TIMEOUT, photo_ids, wait_for};
use crate::engine::store_client::CALL_TIMEOUT;
use crate::engine::supervisor_timeouts::SupervisorTimeouts;
use crate::engine::sync::lock;
use crate::testing::fault_plan::{FaultPlan, InjectedFault};
use crate::testing::faulty_pipeline::{FaultyPipeline, PipelineTimings, StageShape};
use crate::testing::memory_queue::{EntryState, MemoryQueue};

const ONE_THREAD: StageShape = StageShape { threads: 1, batch_size: 1 };

/// What a stop may take longer on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// Timings of a stop that leaves a hanging thread after a second.
fn with_short_grace() -> PipelineTimings {
    let timeouts =
        SupervisorTimeouts { thread_exit_at_stop: Duration::from_secs(1), ..SupervisorTimeouts::SERVICE };
    PipelineTimings { timeouts, drain_grace: Duration::from_millis(50), ..PipelineTimings::default() }
}

/// Issue 9: three stops while a photo was read for longer than the grace ended it as crashed.
#[test]
fn a_photo_that_outlasts_three_stops_counts_no_attempt_and_is_ready_in_the_end() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let by_run = (0..3).map(|run| ((1, run), InjectedFault::HangUntilOpened)).collect();
    let plan = Arc::new(FaultPlan { by_run, gate: Some(gate), ..FaultPlan::default() });
    for stop in 1..=3 {
        let pipeline = FaultyPipeline::start_with(with_short_grace(), &queue, &plan, ONE_THREAD);
        wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == stop);
        let report = pipeline.stop();
        assert_eq!((report.drained, report.given_back, report.unfinished), (false, 1, 0), "{report:?}");
        assert_eq!(report.abandoned_threads, ["two-0"], "only the thread that hangs");
        assert_eq!((queue.end_state(photos[0]), queue.attempts(photos[0])), ((EntryState::Waiting, 0), 0));
    }
    let pipeline = FaultyPipeline::start(&queue, &plan, SHAPE);
    // The threads that were left go on beside it, with leases that are over.
    drop(open);
    assert!(queue.wait_until_ended(TIMEOUT));
    let report = pipeline.stop();
    assert!(report.drained && report.abandoned_threads.is_empty(), "{report:?}");
    assert_eq!(queue.end_state(photos[0]), DONE_ONCE);
}

/// A component failed, and one of the threads that are told to end hangs for longer than a stop has.
#[test]
fn a_stop_while_a_failed_generation_ends_counts_no_attempt() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let pipeline = FaultyPipeline::start_with(with_short_grace(), &queue, &plan, ONE_THREAD);
    wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == 1);
    // The feed fails, which ends the generation.
    queue.is_stream_down.store(true, Ordering::Release);
    wait_for("the end of the generation", || lock(&pipeline.shared.wakeup).is_none());
    let report = pipeline.stop();
    assert_eq!((report.drained, report.given_back, report.unfinished), (false, 1, 0), "{report:?}");
    assert_eq!(report.abandoned_threads, ["two-0"], "only the thread that hangs");
    assert_eq!((queue.end_state(photos[0]), queue.attempts(photos[0])), ((EntryState::Waiting, 0), 0));
    drop(open);
}

/// A database that is started again takes longer than three calls that it refuses.
#[test]
fn a_stop_gives_photos_back_once_a_queue_that_is_away_returns() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let pipeline = FaultyPipeline::start_with(with_short_grace(), &queue, &plan, ONE_THREAD);
    wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == 1);
    queue.failing_releases.store(8, Ordering::Release);
    let report = pipeline.stop();
    assert_eq!((report.given_back, report.unfinished), (1, 0), "{report:?}");
    assert_eq!((queue.end_state(photos[0]), queue.attempts(photos[0])), ((EntryState::Waiting, 0), 0));
    drop(open);
}

/// A stop that takes longer than its grace is killed, before it has closed the store.
#[test]
fn a_stop_ends_within_its_grace_while_a_queue_stays_away() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let short = with_short_grace();
    let timeouts = SupervisorTimeouts { release_at_stop: Duration::from_secs(1), ..short.timeouts };
    // Most of the time is used up by the thread that hangs.
    let timings = PipelineTimings { timeouts, drain_grace: 2 * SLACK, ..short };
    let pipeline = FaultyPipeline::start_with(timings, &queue, &plan, ONE_THREAD);
    wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == 1);
    queue.failing_releases.store(usize::MAX, Ordering::Release);
    let (stopped_at, report) = (Instant::now(), pipeline.stop());
    let grace = timings.drain_grace + timeouts.thread_exit_at_stop + timeouts.release_at_stop;
    assert!(stopped_at.elapsed() < grace + SLACK, "{:?}", stopped_at.elapsed());
    assert_eq!((report.given_back, report.unfinished), (0, 1), "{report:?}");
    assert_eq!(queue.attempts(photos[0]), 1, "its lease expires");
    drop(open);
}

/// Otherwise a stop would take as long as the queue needs to time out.
#[test]
fn a_stop_does_not_wait_for_a_queue_that_does_not_respond() {
    let queue = MemoryQueue::with_photos(&photo_ids(1));
    queue.is_silent.store(true, Ordering::Release);
    let timeouts =
        SupervisorTimeouts { release_at_stop: Duration::from_millis(100), ..SupervisorTimeouts::SERVICE };
    let timings = PipelineTimings { timeouts, ..PipelineTimings::default() };
    let pipeline = FaultyPipeline::start_with(timings, &queue, &Arc::default(), SHAPE);
    wait_for("a check", || queue.check_count.load(Ordering::Acquire) > 0);
    // Far less than the timeout of the call that the supervisor has begun.
    let stopped_at = Instant::now();
    pipeline.stop();
    assert!(stopped_at.elapsed() < CALL_TIMEOUT / 2);
}
