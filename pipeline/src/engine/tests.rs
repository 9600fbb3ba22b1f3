//! Every photo ends exactly once, whatever dies: tests of tickets, runner, generations and supervisor together.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use photofinish_store::model::ids::{LeaseId, PhotoId};
use photofinish_store::model::photo::FailureReason;
use proptest::prelude::*;

use crate::engine::fault::Component;
use crate::engine::supervisor::{POLL_INTERVAL, PipelineStatus, SupervisorTimeouts, backoff};
use crate::engine::sync::lock;
use crate::testing::faulty_pipeline::{
    FaultPlan, FaultyPipeline, InjectedFault, PipelineTimings, StageShape,
};
use crate::testing::memory_queue::{EntryState, MemoryQueue};

const LONG: Duration = Duration::from_secs(60);
const SHAPE: StageShape = StageShape { threads: 2, batch_size: 4 };
const CRASHED: EntryState = EntryState::Failed(FailureReason::ProcessingCrashed);

fn photo_ids(count: usize) -> Vec<PhotoId> {
    (0..count).map(|_| PhotoId::generate()).collect()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn all_photos_are_processed_and_nothing_is_left() {
    let photos = photo_ids(100);
    let queue = MemoryQueue::with_photos(&photos);
    let rig = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert!(
        report.drained
            && report.unfinished == 0
            && report.given_back == 0
            && report.abandoned_threads.is_empty(),
        "{report:?}"
    );
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == (EntryState::Done, 1)));
}

#[test]
fn a_panic_fails_one_photo_and_not_its_batch() {
    let photos = photo_ids(60);
    let queue = MemoryQueue::with_photos(&photos);
    let cursed: HashSet<PhotoId> = photos[10..13].iter().copied().collect();
    let faults = Arc::new(FaultPlan { panicking: cursed.clone(), ..FaultPlan::default() });
    let rig = FaultyPipeline::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert!(report.drained, "no generation went down: {report:?}");
    for photo in photos {
        let end = if cursed.contains(&photo) { CRASHED } else { EntryState::Done };
        assert_eq!(queue.end_state(photo), (end, 1));
    }
}

#[test]
fn batches_form_when_photos_wait() {
    let photos = photo_ids(80);
    let queue = MemoryQueue::with_photos(&photos);
    let faults: Arc<FaultPlan> = Arc::default();
    let rig = FaultyPipeline::start(&queue, &faults, StageShape { threads: 1, batch_size: 2 });
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    let batches = faults.batches.lock().unwrap();
    assert!(batches.iter().all(|size| (1..=2).contains(size)));
    assert_eq!(batches.iter().sum::<usize>(), 80);
}

#[test]
fn an_outage_starts_a_new_generation_and_shows_in_the_status() {
    let photos = photo_ids(30);
    let queue = MemoryQueue::with_photos(&photos);
    let faults =
        Arc::new(FaultPlan { by_run: [((1, 3), InjectedFault::Outage)].into(), ..FaultPlan::default() });
    let rig = FaultyPipeline::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running again", || *lock(&rig.shared.status) == PipelineStatus::Running);
    assert!(photos.iter().all(|photo| queue.end_state(*photo) == (EntryState::Done, 1)));
    assert!(rig.stop().given_back > 0);
}

#[test]
fn the_pipeline_waits_for_a_queue_that_is_down() {
    let photos = photo_ids(10);
    let queue = MemoryQueue::with_photos(&photos);
    queue.failing_calls.store(usize::MAX, Ordering::Release);
    let rig = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    wait_for("down", || {
        matches!(*lock(&rig.shared.status), PipelineStatus::Down { component: Component::Database, .. })
    });
    queue.failing_calls.store(0, Ordering::Release);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running", || *lock(&rig.shared.status) == PipelineStatus::Running);
    assert!(rig.stop().drained);
}

/// Or all networks would be loaded again and again, only to fall with the feed's first lease.
#[test]
fn no_generation_is_started_while_nothing_can_be_leased() {
    let first = photo_ids(10);
    let queue = MemoryQueue::with_photos(&first);
    let faults: Arc<FaultPlan> = Arc::default();
    let rig = FaultyPipeline::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    queue.is_stream_down.store(true, Ordering::Release);
    wait_for("down", || {
        matches!(*lock(&rig.shared.status), PipelineStatus::Down { component: Component::Queue, .. })
    });
    let asked = queue.check_count.load(Ordering::Acquire);
    wait_for("some tries", || queue.check_count.load(Ordering::Acquire) > asked + 5);
    assert_eq!(faults.generations.load(Ordering::Acquire), 1);
    let late = PhotoId::generate();
    queue.add_photo(late, 0);
    queue.is_stream_down.store(false, Ordering::Release);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running", || *lock(&rig.shared.status) == PipelineStatus::Running);
    assert_eq!(faults.generations.load(Ordering::Acquire), 2);
    assert!(rig.stop().drained);
    assert!(first.iter().chain([&late]).all(|photo| queue.end_state(*photo) == (EntryState::Done, 1)));
}

#[test]
fn a_crash_suspect_is_processed_alone() {
    let fresh = photo_ids(60);
    let queue = MemoryQueue::with_photos(&fresh);
    let suspects = photo_ids(3);
    suspects.iter().for_each(|photo| queue.add_photo(*photo, 1));
    let rig = FaultyPipeline::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(LONG));
    // One that comes later is found as well.
    let late = PhotoId::generate();
    queue.add_photo(late, 2);
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    for photo in suspects.iter().chain([&late]).chain(&fresh) {
        assert_eq!(queue.end_state(*photo), (EntryState::Done, 1));
    }
}

#[test]
fn leases_in_flight_are_renewed() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let cursed: Arc<FaultPlan> = Arc::default();
    let rig = FaultyPipeline::start(&queue, &cursed, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    // A ticket that nobody settles for a while.
    let late = PhotoId::generate();
    queue.add_photo(late, 0);
    let ticket = rig.shared.leases.clone();
    ticket.insert(LeaseId::generate());
    wait_for("a renewal", || queue.renewal_count.load(Ordering::Acquire) > 1);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert_eq!(report.unfinished, 1, "the lease without a ticket");
}

/// Time alone is a recovery, almost at once.
fn with_quick_recovery() -> PipelineTimings {
    let waits =
        SupervisorTimeouts { recovered_after: Duration::from_millis(1), ..SupervisorTimeouts::SERVICE };
    PipelineTimings { timeouts: waits, ..PipelineTimings::default() }
}

/// Or the pauses between generations would never grow.
#[test]
fn a_generation_that_hangs_before_it_fails_has_not_recovered() {
    static FAILURES: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let at = (0..3).map(|run| ((1, run), InjectedFault::SlowOutage)).collect();
    let faults = Arc::new(FaultPlan { by_run: at, ..FaultPlan::default() });
    let noted = |failures| {
        lock(&FAILURES).push(failures);
        Duration::from_millis(1)
    };
    let rig = FaultyPipeline::start_with(
        PipelineTimings { backoff: noted, ..with_quick_recovery() },
        &queue,
        &faults,
        SHAPE,
    );
    // Another photo that hangs, so that some are in flight at every look, however slow the feed is.
    rig.shared.leases.insert(LeaseId::generate());
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    let pauses: Vec<u64> = lock(&FAILURES).iter().map(|failures| backoff(*failures).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
    assert_eq!(queue.end_state(photos[0]), (EntryState::Done, 1));
}

#[test]
fn a_failed_photo_does_not_prove_recovery() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let cursed = photos.iter().copied().collect();
    let faults = Arc::new(FaultPlan {
        by_run: [((0, 0), InjectedFault::SlowOutage)].into(),
        panicking: cursed,
        ..FaultPlan::default()
    });
    let rig = FaultyPipeline::start_with(with_quick_recovery(), &queue, &faults, SHAPE);
    let hangs = LeaseId::generate();
    rig.shared.leases.insert(hangs);
    assert!(queue.wait_until_ended(LONG));
    assert_eq!(queue.end_state(photos[0]), (CRASHED, 1));
    // Looked at several times since.
    std::thread::sleep(3 * POLL_INTERVAL);
    let status = lock(&rig.shared.status).clone();
    assert!(matches!(status, PipelineStatus::Down { component: Component::Models, .. }), "{status:?}");
    rig.shared.leases.remove(hangs);
    wait_for("recovery with nothing in flight", || *lock(&rig.shared.status) == PipelineStatus::Running);
    assert!(rig.stop().drained);
}

/// Threads that do not end are soon given up, and leases that nobody renews lapse.
fn with_short_exit_timeout(queue: &MemoryQueue) -> PipelineTimings {
    queue.leases_expire.store(true, Ordering::Release);
    PipelineTimings {
        timeouts: SupervisorTimeouts {
            thread_exit: Duration::from_millis(100),
            ..SupervisorTimeouts::SERVICE
        },
        ..PipelineTimings::default()
    }
}

#[test]
fn the_photo_of_a_hanging_thread_is_leased_again_and_its_budget_is_reset() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let at = [((1, 0), InjectedFault::HangUntilOpened)].into();
    let faults = Arc::new(FaultPlan { by_run: at, gate: Some(gate), ..FaultPlan::default() });
    let rig = FaultyPipeline::start_with(with_short_exit_timeout(&queue), &queue, &faults, SHAPE);
    let held = |bytes: u32| format!("photofinish_budget_used_bytes{{budget=\"files\"}} {bytes}");
    wait_for("the photo's bytes", || rig.has_metric(&held(10)));
    // The feed falls, and its generation with it; no other starts.
    queue.is_stream_down.store(true, Ordering::Release);
    wait_for("no bytes without a generation", || rig.has_metric(&held(0)));
    assert_eq!(rig.shared.leases.in_flight(), 0);
    queue.is_stream_down.store(false, Ordering::Release);
    assert!(queue.wait_until_ended(LONG), "its lease is renewed for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_state(photos[0]), (EntryState::Done, 1));
    assert_eq!(rig.stop().unfinished, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_photo_too_large_for_the_device_fails_and_the_others_finish() {
    let photos = photo_ids(20);
    let queue = MemoryQueue::with_photos(&photos);
    let faults = Arc::new(FaultPlan { too_large: [photos[7]].into(), ..FaultPlan::default() });
    let rig = FaultyPipeline::start_with(with_short_exit_timeout(&queue), &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "one photo stops all others: {queue:?}, {:?}", rig.shared);
    rig.stop();
    for photo in &photos {
        let end = if *photo == photos[7] { CRASHED } else { EntryState::Done };
        assert_eq!(queue.end_state(*photo), (end, 1));
    }
}

#[test]
fn a_hanging_photo_is_abandoned_even_when_nothing_else_waits() {
    let photos = photo_ids(1);
    let queue = MemoryQueue::with_photos(&photos);
    let (open, gate) = bounded(0);
    let at = [((1, 0), InjectedFault::HangUntilOpened)].into();
    let faults = Arc::new(FaultPlan { by_run: at, gate: Some(gate), ..FaultPlan::default() });
    let pace =
        PipelineTimings { stall_timeout: Duration::from_millis(500), ..with_short_exit_timeout(&queue) };
    let rig = FaultyPipeline::start_with(pace, &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "it is waited for for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_state(photos[0]), (EntryState::Done, 1));
    assert_eq!(rig.stop().unfinished, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_crash_suspect_that_hangs_is_abandoned_and_retried() {
    let queue = MemoryQueue::with_photos(&[]);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    let (open, gate) = bounded(0);
    let at = [((1, 0), InjectedFault::HangUntilOpened)].into();
    let faults = Arc::new(FaultPlan { by_run: at, gate: Some(gate), ..FaultPlan::default() });
    let pace =
        PipelineTimings { stall_timeout: Duration::from_millis(500), ..with_short_exit_timeout(&queue) };
    let rig = FaultyPipeline::start_with(pace, &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "it is waited for for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_state(suspect), (EntryState::Done, 1));
    assert_eq!(queue.max_leased_beside_suspect(), 0);
    assert!(faults.generations.load(Ordering::Acquire) > 1);
    assert_eq!(rig.stop().unfinished, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_crash_suspect_behind_a_hanging_photo_does_not_stall_the_pipeline() {
    let queue = MemoryQueue::with_photos(&[]);
    let suspect = PhotoId::generate();
    queue.add_photo(suspect, 1);
    // No generation starts before there is a photo that hangs.
    queue.is_stream_down.store(true, Ordering::Release);
    let pace = PipelineTimings { stall_timeout: Duration::from_millis(500), ..PipelineTimings::default() };
    let rig = FaultyPipeline::start_with(pace, &queue, &Arc::default(), SHAPE);
    let hangs = LeaseId::generate();
    rig.shared.leases.insert(hangs);
    queue.is_stream_down.store(false, Ordering::Release);
    let is_told = || {
        matches!(
            *lock(&rig.shared.status),
            PipelineStatus::Down { component: Component::Stage("pipeline"), .. }
        )
    };
    wait_for("the stall is told", is_told);
    assert_ne!(queue.end_state(suspect).0, EntryState::Done, "a suspect is worked on alone");
    rig.shared.leases.remove(hangs);
    assert!(queue.wait_until_ended(LONG));
    assert_eq!(queue.end_state(suspect), (EntryState::Done, 1));
    assert_eq!(rig.stop().unfinished, 0);
}

fn any_fault() -> impl Strategy<Value = ((usize, usize), InjectedFault)> {
    let kind = prop_oneof![
        Just(InjectedFault::Panic),
        Just(InjectedFault::PanicOnRebuild),
        Just(InjectedFault::Outage),
        Just(InjectedFault::MissingResult)
    ];
    ((0_usize..3, 0_usize..40), kind)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_photo_ends_exactly_once_whatever_dies(
        count in 1_usize..60,
        cursed in prop::collection::vec(0_usize..60, 0..4),
        faults in prop::collection::vec(any_fault(), 0..8),
        queue_outages in 0_usize..4,
        stops in prop::collection::vec(0_u64..30, 0..3),
        (threads, batch_size) in (1_usize..4, 1_usize..6),
    ) {
        let photos = photo_ids(count);
        let queue = MemoryQueue::with_photos(&photos);
        let cursed: HashSet<PhotoId> = cursed.iter().filter_map(|i| photos.get(*i)).copied().collect();
        // Panics and lies may hit the same photo twice, and are its end then.
        let unlucky = faults.iter().filter(|(_, fault)| *fault != InjectedFault::Outage).count();
        let faults = Arc::new(FaultPlan { by_run: faults.into_iter().collect(), panicking: cursed.clone(), ..FaultPlan::default() });
        let shape = StageShape { threads, batch_size };
        queue.failing_calls.store(queue_outages, Ordering::Release);
        for after in stops {
            let rig = FaultyPipeline::start(&queue, &faults, shape);
            queue.wait_until_ended(Duration::from_millis(after));
            let report = rig.stop();
            prop_assert!(report.unfinished == 0 && report.abandoned_threads.is_empty(), "{:?}", report);
            prop_assert_eq!(queue.leased_count(), 0, "after a stop everything is given back");
        }
        let rig = FaultyPipeline::start(&queue, &faults, shape);
        let all_ended = queue.wait_until_ended(LONG);
        prop_assert!(all_ended, "photos do not end: {queue:?}, {:?}", rig.shared);
        let report = rig.stop();
        prop_assert!(report.unfinished == 0 && report.abandoned_threads.is_empty(), "{:?}", report);
        let mut crashed = 0;
        for photo in &photos {
            let (place, ends) = queue.end_state(*photo);
            prop_assert_eq!(ends, 1);
            if cursed.contains(photo) {
                prop_assert_eq!(place, CRASHED);
            } else if place == CRASHED {
                crashed += 1;
            } else {
                prop_assert_eq!(place, EntryState::Done);
            }
        }
        prop_assert!(crashed <= unlucky, "{crashed} photos crashed by {unlucky} faults");
    }
}
