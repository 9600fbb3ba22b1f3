//! Several lanes of one process, each with a supervisor, leases and threads of its own.

use std::sync::Arc;
use std::time::Duration;

use super::{DONE_ONCE, TIMEOUT, photo_ids};
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
