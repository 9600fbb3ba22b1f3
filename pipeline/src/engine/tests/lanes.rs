//! Several lanes of one process, each with a supervisor, leases and threads of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::bounded;
use photofinish_store::model::ids::PhotoId;

use super::{DONE_ONCE, TIMEOUT, photo_ids, wait_for};
use crate::testing::fault_plan::FaultPlan;
use crate::testing::faulty_pipeline::{FaultyPipeline, StageShape};
use crate::testing::memory_queue::MemoryQueue;

const SHAPE: StageShape = StageShape { threads: 2, batch_size: 1 };

#[test]
fn lanes_take_what_they_have_room_for_and_every_photo_ends_once() {
    let queue = MemoryQueue::with_photos(&[]);
    let plan = Arc::new(FaultPlan { delay: Duration::from_millis(10), ..FaultPlan::default() });
    let lanes = FaultyPipeline::start_lanes(2, &queue, &plan, SHAPE);
    lanes.iter().for_each(FaultyPipeline::wait_until_running);
    let photos = photo_ids(300);
    photos.iter().for_each(|photo| queue.add_photo(*photo, 0));
    assert!(queue.wait_until_ended(TIMEOUT));
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == DONE_ONCE));
    // A photo is counted after it has ended: all are when the threads have stopped.
    let shared: Vec<_> = lanes.iter().map(|lane| Arc::clone(&lane.shared)).collect();
    assert!(lanes.into_iter().all(|lane| lane.stop().drained));
    let finished: Vec<u64> = shared.iter().map(|shared| shared.stats.finished_count()).collect();
    assert!(finished.iter().sum::<u64>() == 300 && finished.iter().all(|count| *count > 0), "{finished:?}");
}

/// A full lane looks for photos of further organizations. It must keep none of those that it finds in their place from others,
/// nor count their attempts.
#[test]
fn what_a_full_lane_has_no_room_for_goes_back_and_counts_no_attempt() {
    const MOST_IN_FLIGHT: usize = 9;
    let photos = photo_ids(60);
    let queue = MemoryQueue::with_photos(&photos);
    queue.says_others_wait.store(true, Ordering::Release);
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let shape = StageShape { threads: 1, batch_size: 1 };
    let full = FaultyPipeline::start(&queue, &plan, shape);
    wait_for("two photos that went back", || queue.release_count.load(Ordering::Acquire) >= 2);
    // The first edge has room for 4, and each of two stages has one photo and room for another; one more is looked at.
    let in_flight = full.shared.leases.in_flight();
    assert!(in_flight <= MOST_IN_FLIGHT, "{in_flight} photos in flight");
    let other = FaultyPipeline::start(&queue, &Arc::default(), shape);
    let is_open = |photo: &&PhotoId| queue.end_state(**photo) != DONE_ONCE;
    wait_for("the photos for which there is no room", || {
        photos.iter().filter(is_open).count() <= MOST_IN_FLIGHT
    });
    drop(open);
    assert!(queue.wait_until_ended(TIMEOUT));
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == DONE_ONCE && queue.attempts(*photo) == 1));
    for report in [full, other].map(FaultyPipeline::stop) {
        assert_eq!((report.given_back, report.unfinished), (0, 0), "no stage had what went back");
    }
}
