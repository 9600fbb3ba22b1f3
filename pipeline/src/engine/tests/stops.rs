//! Stops count no attempt and wait for nothing that hangs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;

use super::{DONE_ONCE, SHAPE, TIMEOUT, photo_ids, wait_for};
use crate::engine::store_client::CALL_TIMEOUT;
use crate::engine::supervisor::SupervisorTimeouts;
use crate::testing::fault_plan::{FaultPlan, InjectedFault};
use crate::testing::faulty_pipeline::{FaultyPipeline, PipelineTimings, StageShape};
use crate::testing::memory_queue::{EntryState, MemoryQueue};

/// Issue 9: three stops while a photo was read for longer than the grace ended it as crashed.
#[test]
fn a_photo_that_outlasts_three_stops_counts_no_attempt_and_is_ready_in_the_end() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let by_run = (0..3).map(|run| ((1, run), InjectedFault::HangUntilOpened)).collect();
    let plan = Arc::new(FaultPlan { by_run, gate: Some(gate), ..FaultPlan::default() });
    let timeouts =
        SupervisorTimeouts { thread_exit_at_stop: Duration::from_secs(1), ..SupervisorTimeouts::SERVICE };
    let timings =
        PipelineTimings { timeouts, drain_grace: Duration::from_millis(50), ..PipelineTimings::default() };
    for stop in 1..=3 {
        let pipeline =
            FaultyPipeline::start_with(timings, &queue, &plan, StageShape { threads: 1, batch_size: 1 });
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
