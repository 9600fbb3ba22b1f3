//! A crash suspect is processed with nothing else in flight in the process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::bounded;
use photofinish_store::model::ids::PhotoId;

use super::{DONE_ONCE, SHAPE, TIMEOUT, photo_ids, wait_for, with_short_exit_timeout};
use crate::engine::suspect_gate::SuspectGate;
use crate::stages::feed::SuspectPatience;
use crate::testing::fault_plan::FaultPlan;
use crate::testing::faulty_pipeline::{FaultyPipeline, PipelineTimings, StageShape};
use crate::testing::memory_queue::{EntryState, MemoryQueue};

/// Stages that take their time for each photo.
const SLOW_SHAPE: StageShape = StageShape { threads: 2, batch_size: 1 };

#[test]
fn a_crash_suspect_is_processed_alone() {
    let fresh = photo_ids(60);
    let queue = MemoryQueue::with_photos(&fresh);
    let suspects = photo_ids(3);
    suspects.iter().for_each(|photo| queue.add_photo(*photo, 1));
    let pipeline = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    // A suspect that is added later is found too.
    let late = PhotoId::generate();
    queue.add_photo(late, 2);
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.stop();
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    for photo in suspects.iter().chain([&late]).chain(&fresh) {
        assert_eq!(queue.end_state(*photo), DONE_ONCE);
    }
}

#[test]
fn a_crash_suspect_is_alone_in_all_lanes() {
    let fresh = photo_ids(400);
    let queue = MemoryQueue::with_photos(&fresh);
    let plan = Arc::new(FaultPlan { delay: Duration::from_millis(20), ..FaultPlan::default() });
    let gate = Arc::<SuspectGate>::default();
    let busy = FaultyPipeline::start_lane(&gate, PipelineTimings::default(), &queue, &plan, SLOW_SHAPE);
    wait_for("photos in flight", || busy.shared.leases.in_flight() > 0);
    let suspects = photo_ids(3);
    suspects.iter().for_each(|photo| queue.add_photo(*photo, 1));
    // Its feed looks for crash suspects first, and finds these beside photos of the other lane.
    let other = FaultyPipeline::start_lane(&gate, PipelineTimings::default(), &queue, &plan, SLOW_SHAPE);
    wait_for("the end of the suspects", || {
        suspects.iter().all(|photo| queue.end_state(*photo).0 == EntryState::Done)
    });
    let is_open = |photo: &PhotoId| queue.end_state(*photo).0 != EntryState::Done;
    assert!(fresh.iter().any(is_open), "nothing was kept from them");
    assert!(queue.wait_until_ended(TIMEOUT));
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    assert!(fresh.iter().chain(&suspects).all(|photo| queue.end_state(*photo) == DONE_ONCE));
    assert!(busy.stop().drained && other.stop().drained);
}

/// Otherwise it would hang in one lane and crash the process with photos of the others.
#[test]
fn lanes_wait_until_a_hanging_suspect_is_given_up() {
    let queue = MemoryQueue::with_photos(&[]);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    let (open, opened) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(opened);
    let gate = Arc::<SuspectGate>::default();
    let timings =
        PipelineTimings { stall_timeout: Duration::from_secs(5), ..with_short_exit_timeout(&queue) };
    let hanging = FaultyPipeline::start_lane(&gate, timings, &queue, &plan, SLOW_SHAPE);
    wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == 1);
    let fresh = photo_ids(20);
    fresh.iter().for_each(|photo| queue.add_photo(*photo, 0));
    let other = FaultyPipeline::start_lane(&gate, PipelineTimings::default(), &queue, &plan, SLOW_SHAPE);
    // Neither waits forever, although the thread still hangs.
    assert!(queue.wait_until_ended(TIMEOUT), "{queue:?}, {:?}, {:?}", hanging.shared, other.shared);
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    assert!(fresh.iter().chain([&suspect]).all(|photo| queue.end_state(*photo) == DONE_ONCE));
    assert_eq!(
        (hanging.stop().unfinished, other.stop().unfinished),
        (1, 0),
        "the ticket in the hanging thread"
    );
    drop(open);
}

/// Without a limit it would keep photos from all lanes for as long as the hang lasts.
#[test]
fn a_suspect_does_not_keep_photos_from_others_while_a_lane_hangs() {
    let hanging_photo = photo_ids(1);
    let queue = MemoryQueue::with_photos(&hanging_photo);
    let (open, opened) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(opened);
    let gate = Arc::<SuspectGate>::default();
    let suspect_patience = SuspectPatience::from_least(Duration::from_millis(200));
    let timings = PipelineTimings { suspect_patience, ..PipelineTimings::default() };
    // With its one thread in that call it ends no photo.
    let one_thread = StageShape { threads: 1, ..SLOW_SHAPE };
    let hanging = FaultyPipeline::start_lane(&gate, timings, &queue, &plan, one_thread);
    wait_for("the hanging run", || plan.runs[1].load(Ordering::Acquire) == 1);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    let other = FaultyPipeline::start_lane(&gate, timings, &queue, &plan, SLOW_SHAPE);
    let fresh = photo_ids(60);
    fresh.iter().for_each(|photo| queue.add_photo(*photo, 0));
    let count_done = || fresh.iter().filter(|photo| queue.end_state(**photo).0 == EntryState::Done).count();
    // The others wait behind the one that hangs.
    let are_others_done =
        || count_done() > 0 && count_done() + hanging.shared.leases.in_flight() > fresh.len();
    wait_for("photos of the other lane", are_others_done);
    assert_ne!(queue.end_state(suspect).0, EntryState::Done, "it was not alone");
    drop(open);
    assert!(queue.wait_until_ended(TIMEOUT));
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    assert!(
        fresh
            .iter()
            .chain([&suspect])
            .chain(&hanging_photo)
            .all(|photo| queue.end_state(*photo) == DONE_ONCE)
    );
    hanging.stop();
    other.stop();
}
