//! Every photo ends exactly once, whatever fails: tests of tickets, runner, generations and supervisor together.

mod lanes;
mod stops;
mod suspects;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::FailureReason;
use proptest::prelude::*;

use crate::engine::fault::{Component, UNKNOWN_STAGE};
use crate::engine::status::PipelineStatus;
use crate::engine::supervisor::{POLL_INTERVAL, backoff};
use crate::engine::supervisor_timeouts::SupervisorTimeouts;
use crate::engine::sync::lock;
use crate::testing::fault_plan::{FaultPlan, InjectedFault, StageRun};
use crate::testing::faulty_pipeline::{FaultyPipeline, PipelineTimings, StageShape};
use crate::testing::memory_queue::{EntryState, MemoryQueue, new_lease};

const TIMEOUT: Duration = Duration::from_secs(60);
const SHAPE: StageShape = StageShape { threads: 2, batch_size: 4 };

const DONE_ONCE: (EntryState, u32) = (EntryState::Done, 1);
const CRASHED: EntryState = EntryState::Failed(FailureReason::ProcessingCrashed);
const CRASHED_ONCE: (EntryState, u32) = (CRASHED, 1);

fn photo_ids(count: usize) -> Vec<PhotoId> {
    (0..count).map(|_| PhotoId::generate()).collect()
}

fn wait_for(expected: &str, is_reached: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_reached() {
        assert!(Instant::now() < deadline, "timed out waiting for {expected}");
        std::thread::yield_now();
    }
}

impl FaultyPipeline {
    fn status(&self) -> PipelineStatus {
        lock(&self.shared.status).clone()
    }

    /// Returns the component that is down, if any.
    fn down_component(&self) -> Option<Component> {
        match self.status() {
            PipelineStatus::Down { component, .. } => Some(component),
            _ => None,
        }
    }

    fn wait_until_running(&self) {
        wait_for("status running", || self.status() == PipelineStatus::Running);
    }

    fn wait_until_down(&self, component: Component) {
        wait_for("status down", || self.down_component() == Some(component));
    }
}

#[test]
fn all_photos_are_processed_and_nothing_is_left() {
    let photos = photo_ids(100);
    let queue = MemoryQueue::with_photos(&photos);
    let pipeline = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    let report = pipeline.stop();
    assert!(report.drained && report.abandoned_threads.is_empty(), "{report:?}");
    assert_eq!((report.unfinished, report.given_back), (0, 0));
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == DONE_ONCE));
}

#[test]
fn a_panic_fails_one_photo_and_not_its_batch() {
    let photos = photo_ids(60);
    let queue = MemoryQueue::with_photos(&photos);
    let panicking: HashSet<PhotoId> = photos[10..13].iter().copied().collect();
    let plan = Arc::new(FaultPlan { panicking: panicking.clone(), ..FaultPlan::default() });
    let pipeline = FaultyPipeline::start(&queue, &plan, SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    let report = pipeline.stop();
    assert!(report.drained, "no generation failed: {report:?}");
    for photo in photos {
        let expected = if panicking.contains(&photo) { CRASHED_ONCE } else { DONE_ONCE };
        assert_eq!(queue.end_state(photo), expected);
    }
}

#[test]
fn batches_form_when_photos_wait() {
    let photos = photo_ids(80);
    let queue = MemoryQueue::with_photos(&photos);
    let plan: Arc<FaultPlan> = Arc::default();
    let pipeline = FaultyPipeline::start(&queue, &plan, StageShape { threads: 1, batch_size: 2 });
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.stop();
    let batches = plan.batches.lock().unwrap();
    assert!(batches.iter().all(|size| (1..=2).contains(size)));
    assert_eq!(batches.iter().sum::<usize>(), 80);
}

#[test]
fn an_outage_starts_a_new_generation_and_shows_in_the_status() {
    let photos = photo_ids(30);
    let queue = MemoryQueue::with_photos(&photos);
    let by_run = [((1, 3), InjectedFault::Outage)].into();
    let plan = Arc::new(FaultPlan { by_run, ..FaultPlan::default() });
    let pipeline = FaultyPipeline::start(&queue, &plan, SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.wait_until_running();
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == DONE_ONCE));
    assert!(pipeline.stop().given_back > 0);
}

#[test]
fn the_pipeline_waits_for_a_queue_that_is_down() {
    let photos = photo_ids(10);
    let queue = MemoryQueue::with_photos(&photos);
    queue.failing_calls.store(usize::MAX, Ordering::Release);
    let pipeline = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    pipeline.wait_until_down(Component::Database);
    queue.failing_calls.store(0, Ordering::Release);
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.wait_until_running();
    assert!(pipeline.stop().drained);
}

/// Otherwise all models would be loaded again and again, only for the generation to fail at the feed's first lease.
#[test]
fn no_generation_is_started_while_nothing_can_be_leased() {
    let first = photo_ids(10);
    let queue = MemoryQueue::with_photos(&first);
    let plan: Arc<FaultPlan> = Arc::default();
    let pipeline = FaultyPipeline::start(&queue, &plan, SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    queue.is_stream_down.store(true, Ordering::Release);
    pipeline.wait_until_down(Component::Queue);
    let checks_before = queue.check_count.load(Ordering::Acquire);
    wait_for("more checks", || queue.check_count.load(Ordering::Acquire) > checks_before + 5);
    assert_eq!(plan.generations.load(Ordering::Acquire), 1);
    let late = PhotoId::generate();
    queue.add_photo(late, 0);
    queue.is_stream_down.store(false, Ordering::Release);
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.wait_until_running();
    assert_eq!(plan.generations.load(Ordering::Acquire), 2);
    assert!(pipeline.stop().drained);
    assert!(first.iter().chain([&late]).all(|photo| queue.end_state(*photo) == DONE_ONCE));
}

#[test]
fn leases_in_flight_are_renewed() {
    let queue = MemoryQueue::with_photos(&photo_ids(1));
    let pipeline = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT));
    queue.add_photo(PhotoId::generate(), 0);
    // A lease that stays in flight, because it has no ticket that ends.
    pipeline.shared.leases.insert(&Arc::new(new_lease(PhotoId::generate())));
    wait_for("renewals", || queue.renewal_count.load(Ordering::Acquire) > 1);
    assert!(queue.wait_until_ended(TIMEOUT));
    assert_eq!(pipeline.stop().unfinished, 1, "the lease without a ticket");
}

/// Timings with which an idle generation recovers from an outage almost at once.
fn with_quick_recovery() -> PipelineTimings {
    let timeouts =
        SupervisorTimeouts { recovered_after: Duration::from_millis(1), ..SupervisorTimeouts::SERVICE };
    PipelineTimings { timeouts, ..PipelineTimings::default() }
}

/// Otherwise the pauses between generations would never grow.
#[test]
fn a_generation_that_hangs_before_it_fails_has_not_recovered() {
    static FAILURES: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let by_run = (0..3).map(|run| ((1, run), InjectedFault::SlowOutage)).collect();
    let plan = Arc::new(FaultPlan { by_run, ..FaultPlan::default() });
    let record_failures = |failures| {
        lock(&FAILURES).push(failures);
        Duration::from_millis(1)
    };
    let timings = PipelineTimings { backoff: record_failures, ..with_quick_recovery() };
    let pipeline = FaultyPipeline::start_with(timings, &queue, &plan, SHAPE);
    // Another lease keeps the pipeline from being idle at any poll, however slow the feed is.
    pipeline.shared.leases.insert(&Arc::new(new_lease(PhotoId::generate())));
    assert!(queue.wait_until_ended(TIMEOUT));
    pipeline.stop();
    let pauses: Vec<u64> = lock(&FAILURES).iter().map(|failures| backoff(*failures).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
    assert_eq!(queue.end_state(photos[0]), DONE_ONCE);
}

#[test]
fn a_failed_photo_does_not_prove_recovery() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let plan = Arc::new(FaultPlan {
        by_run: [((0, 0), InjectedFault::SlowOutage)].into(),
        panicking: photos.iter().copied().collect(),
        ..FaultPlan::default()
    });
    let pipeline = FaultyPipeline::start_with(with_quick_recovery(), &queue, &plan, SHAPE);
    let in_flight = Arc::new(new_lease(PhotoId::generate()));
    pipeline.shared.leases.insert(&in_flight);
    assert!(queue.wait_until_ended(TIMEOUT));
    assert_eq!(queue.end_state(photos[0]), CRASHED_ONCE);
    // The supervisor polls several times in this period.
    std::thread::sleep(3 * POLL_INTERVAL);
    assert_eq!(pipeline.down_component(), Some(Component::Models));
    pipeline.shared.leases.remove(in_flight.id);
    // With nothing in flight the generation recovers.
    pipeline.wait_until_running();
    assert!(pipeline.stop().drained);
}

/// Timings with which threads that hang are soon abandoned. Leases that are not renewed expire.
fn with_short_exit_timeout(queue: &MemoryQueue) -> PipelineTimings {
    queue.leases_expire.store(true, Ordering::Release);
    let timeouts =
        SupervisorTimeouts { thread_exit: Duration::from_millis(100), ..SupervisorTimeouts::SERVICE };
    PipelineTimings { timeouts, ..PipelineTimings::default() }
}

const SHORT_STALL_TIMEOUT: Duration = Duration::from_millis(500);

#[test]
fn the_photo_of_a_hanging_thread_is_leased_again_and_its_budget_is_reset() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let pipeline = FaultyPipeline::start_with(with_short_exit_timeout(&queue), &queue, &plan, SHAPE);
    let used = |bytes: u32| format!("photofinish_budget_used_bytes{{budget=\"files\"}} {bytes}");
    wait_for("the bytes of the photo", || pipeline.has_metric(&used(10)));
    // The feed fails, which ends the generation, and no other starts.
    queue.is_stream_down.store(true, Ordering::Release);
    wait_for("no bytes without a generation", || pipeline.has_metric(&used(0)));
    assert_eq!(pipeline.shared.leases.in_flight(), 0);
    queue.is_stream_down.store(false, Ordering::Release);
    assert!(
        queue.wait_until_ended(TIMEOUT),
        "its lease is renewed forever: {queue:?}, {:?}",
        pipeline.shared
    );
    assert_eq!(queue.end_state(photos[0]), DONE_ONCE);
    assert_eq!(pipeline.stop().unfinished, 1, "the ticket in the hanging thread");
    drop(open);
}

#[test]
fn a_photo_too_large_for_the_device_fails_and_the_others_finish() {
    let photos = photo_ids(20);
    let queue = MemoryQueue::with_photos(&photos);
    let plan = Arc::new(FaultPlan { too_large: [photos[7]].into(), ..FaultPlan::default() });
    let pipeline = FaultyPipeline::start_with(with_short_exit_timeout(&queue), &queue, &plan, SHAPE);
    assert!(queue.wait_until_ended(TIMEOUT), "one photo stops all others: {queue:?}, {:?}", pipeline.shared);
    pipeline.stop();
    for photo in &photos {
        let expected = if *photo == photos[7] { CRASHED_ONCE } else { DONE_ONCE };
        assert_eq!(queue.end_state(*photo), expected);
    }
}

/// Runs a pipeline in which the only photo hangs, and checks that it is abandoned, leased again and finished by another
/// generation.
fn assert_hanging_photo_is_retried(queue: &Arc<MemoryQueue>, photo: PhotoId) {
    let (open, gate) = bounded(0);
    let plan = FaultPlan::hanging_until_opened(gate);
    let timings = PipelineTimings { stall_timeout: SHORT_STALL_TIMEOUT, ..with_short_exit_timeout(queue) };
    let pipeline = FaultyPipeline::start_with(timings, queue, &plan, SHAPE);
    assert!(
        queue.wait_until_ended(TIMEOUT),
        "the pipeline waits for it forever: {queue:?}, {:?}",
        pipeline.shared
    );
    assert_eq!(queue.end_state(photo), DONE_ONCE);
    assert!(plan.generations.load(Ordering::Acquire) > 1);
    assert_eq!(pipeline.stop().unfinished, 1, "the ticket in the hanging thread");
    drop(open);
}

#[test]
fn a_hanging_photo_is_abandoned_even_when_nothing_else_waits() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    assert_hanging_photo_is_retried(&queue, photos[0]);
}

#[test]
fn a_crash_suspect_that_hangs_is_abandoned_and_retried() {
    let queue = MemoryQueue::with_photos(&[]);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    assert_hanging_photo_is_retried(&queue, suspect);
    assert_eq!(queue.max_leased_beside_suspect(), 0);
}

#[test]
fn a_crash_suspect_behind_a_hanging_photo_does_not_stall_the_pipeline() {
    let queue = MemoryQueue::with_photos(&[]);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    // No generation starts before the hanging photo exists.
    queue.is_stream_down.store(true, Ordering::Release);
    let timings = PipelineTimings { stall_timeout: SHORT_STALL_TIMEOUT, ..PipelineTimings::default() };
    let pipeline = FaultyPipeline::start_with(timings, &queue, &Arc::default(), SHAPE);
    let hanging = Arc::new(new_lease(PhotoId::generate()));
    pipeline.shared.leases.insert(&hanging);
    queue.is_stream_down.store(false, Ordering::Release);
    pipeline.wait_until_down(UNKNOWN_STAGE);
    assert_ne!(queue.end_state(suspect).0, EntryState::Done, "a crash suspect is processed alone");
    pipeline.shared.leases.remove(hanging.id);
    assert!(queue.wait_until_ended(TIMEOUT));
    assert_eq!(queue.end_state(suspect), DONE_ONCE);
    assert_eq!(pipeline.stop().unfinished, 0);
}

fn any_fault() -> impl Strategy<Value = (StageRun, InjectedFault)> {
    let fault = prop_oneof![
        Just(InjectedFault::Panic),
        Just(InjectedFault::PanicOnRebuild),
        Just(InjectedFault::Outage),
        Just(InjectedFault::MissingResult)
    ];
    ((0_usize..3, 0_usize..40), fault)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_photo_ends_exactly_once_whatever_dies(
        count in 1_usize..60,
        panicking in prop::collection::vec(0_usize..60, 0..4),
        faults in prop::collection::vec(any_fault(), 0..8),
        queue_outages in 0_usize..4,
        stops_after_ms in prop::collection::vec(0_u64..30, 0..3),
        threads in 1_usize..4,
        batch_size in 1_usize..6,
        lanes in 1_usize..4,
    ) {
        let photos = photo_ids(count);
        let queue = MemoryQueue::with_photos(&photos);
        let panicking: HashSet<PhotoId> = panicking.iter().filter_map(|i| photos.get(*i)).copied().collect();
        // Two of these faults may hit the same photo and so fail it.
        let panics = faults.iter().filter(|(_, fault)| *fault != InjectedFault::Outage).count();
        let by_run = faults.into_iter().collect();
        let plan = Arc::new(FaultPlan { by_run, panicking: panicking.clone(), ..FaultPlan::default() });
        let shape = StageShape { threads, batch_size };
        queue.failing_calls.store(queue_outages, Ordering::Release);
        for stop_after_ms in stops_after_ms {
            let pipelines = FaultyPipeline::start_lanes(lanes, &queue, &plan, shape);
            queue.wait_until_ended(Duration::from_millis(stop_after_ms));
            for report in pipelines.into_iter().map(FaultyPipeline::stop) {
                prop_assert!(report.unfinished == 0 && report.abandoned_threads.is_empty(), "{:?}", report);
            }
            prop_assert_eq!(queue.leased_count(), 0, "a stop gives everything back");
        }
        let pipelines = FaultyPipeline::start_lanes(lanes, &queue, &plan, shape);
        let have_all_ended = queue.wait_until_ended(TIMEOUT);
        let states: Vec<_> = pipelines.iter().map(|pipeline| Arc::clone(&pipeline.shared)).collect();
        prop_assert!(have_all_ended, "photos do not end: {queue:?}, {states:?}");
        for report in pipelines.into_iter().map(FaultyPipeline::stop) {
            prop_assert!(report.unfinished == 0 && report.abandoned_threads.is_empty(), "{:?}", report);
        }
        let mut crashed = 0;
        for photo in &photos {
            let (state, end_count) = queue.end_state(*photo);
            prop_assert_eq!(end_count, 1);
            if panicking.contains(photo) {
                prop_assert_eq!(state, CRASHED);
            } else if state == CRASHED {
                crashed += 1;
            } else {
                prop_assert_eq!(state, EntryState::Done);
            }
        }
        prop_assert!(crashed <= panics, "{crashed} photos failed by {panics} faults");
    }
}
