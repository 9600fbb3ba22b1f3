//! Every photo ends exactly once, whatever dies: tests of tickets, runner, generations and supervisor together.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use photofinish_store::ids::{LeaseId, PhotoId};
use photofinish_store::photo::FailureReason;
use proptest::prelude::*;

use crate::fault::Part;
use crate::supervisor::{LOOK, Status, Waits, pause};
use crate::sync::lock;
use crate::testing::faults::{Fault, Faults, Pace, Rig, Shape};
use crate::testing::memory_queue::{MemoryQueue, Place};

const LONG: Duration = Duration::from_secs(60);
const SHAPE: Shape = Shape { threads: 2, batch_size: 4 };
const CRASHED: Place = Place::Failed(FailureReason::ProcessingCrashed);

fn photos(count: usize) -> Vec<PhotoId> {
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
fn photos_go_through_and_nothing_is_left() {
    let photos = photos(100);
    let queue = MemoryQueue::with(&photos);
    let rig = Rig::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert!(
        report.drained && report.left == 0 && report.given_back == 0 && report.abandoned.is_empty(),
        "{report:?}"
    );
    assert!(photos.iter().all(|photo| queue.end_of(*photo) == (Place::Done, 1)));
}

#[test]
fn a_panic_costs_one_photo_and_not_its_mates() {
    let photos = photos(60);
    let queue = MemoryQueue::with(&photos);
    let cursed: HashSet<PhotoId> = photos[10..13].iter().copied().collect();
    let faults = Arc::new(Faults { cursed: cursed.clone(), ..Faults::default() });
    let rig = Rig::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert!(report.drained, "no generation went down: {report:?}");
    for photo in photos {
        let end = if cursed.contains(&photo) { CRASHED } else { Place::Done };
        assert_eq!(queue.end_of(photo), (end, 1));
    }
}

#[test]
fn batches_form_when_photos_wait() {
    let photos = photos(80);
    let queue = MemoryQueue::with(&photos);
    let faults: Arc<Faults> = Arc::default();
    let rig = Rig::start(&queue, &faults, Shape { threads: 1, batch_size: 2 });
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    let batches = faults.batches.lock().unwrap();
    assert!(batches.iter().all(|size| (1..=2).contains(size)));
    assert_eq!(batches.iter().sum::<usize>(), 80);
}

#[test]
fn an_outage_brings_a_new_generation_and_the_status_says_so() {
    let photos = photos(30);
    let queue = MemoryQueue::with(&photos);
    let faults = Arc::new(Faults { at: [((1, 3), Fault::Outage)].into(), ..Faults::default() });
    let rig = Rig::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running again", || *lock(&rig.shared.status) == Status::Running);
    assert!(photos.iter().all(|photo| queue.end_of(*photo) == (Place::Done, 1)));
    assert!(rig.stop().given_back > 0);
}

#[test]
fn a_queue_that_is_out_is_waited_for() {
    let photos = photos(10);
    let queue = MemoryQueue::with(&photos);
    queue.outage_calls.store(usize::MAX, Ordering::Release);
    let rig = Rig::start(&queue, &Arc::default(), SHAPE);
    wait_for("down", || matches!(*lock(&rig.shared.status), Status::Down { part: Part::Database, .. }));
    queue.outage_calls.store(0, Ordering::Release);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running", || *lock(&rig.shared.status) == Status::Running);
    assert!(rig.stop().drained);
}

/// Or all networks would be loaded again and again, only to fall with the feed's first lease.
#[test]
fn no_generation_is_started_while_nothing_can_be_leased() {
    let first = photos(10);
    let queue = MemoryQueue::with(&first);
    let faults: Arc<Faults> = Arc::default();
    let rig = Rig::start(&queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    queue.is_away.store(true, Ordering::Release);
    wait_for("down", || matches!(*lock(&rig.shared.status), Status::Down { part: Part::Queue, .. }));
    let asked = queue.checks.load(Ordering::Acquire);
    wait_for("some tries", || queue.checks.load(Ordering::Acquire) > asked + 5);
    assert_eq!(faults.generations.load(Ordering::Acquire), 1);
    let late = PhotoId::generate();
    queue.put(late, 0);
    queue.is_away.store(false, Ordering::Release);
    assert!(queue.wait_until_ended(LONG));
    wait_for("running", || *lock(&rig.shared.status) == Status::Running);
    assert_eq!(faults.generations.load(Ordering::Acquire), 2);
    assert!(rig.stop().drained);
    assert!(first.iter().chain([&late]).all(|photo| queue.end_of(*photo) == (Place::Done, 1)));
}

#[test]
fn a_suspect_is_worked_on_alone() {
    let fresh = photos(60);
    let queue = MemoryQueue::with(&fresh);
    let suspects = photos(3);
    suspects.iter().for_each(|photo| queue.put(*photo, 1));
    let rig = Rig::start(&queue, &Arc::default(), SHAPE);
    assert!(queue.wait_until_ended(LONG));
    // One that comes later is found as well.
    let late = PhotoId::generate();
    queue.put(late, 2);
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    assert_eq!(queue.most_beside_a_suspect(), 0);
    for photo in suspects.iter().chain([&late]).chain(&fresh) {
        assert_eq!(queue.end_of(*photo), (Place::Done, 1));
    }
}

#[test]
fn leases_in_flight_are_renewed() {
    let photos = photos(1);
    let queue = MemoryQueue::with(&photos);
    let cursed: Arc<Faults> = Arc::default();
    let rig = Rig::start(&queue, &cursed, SHAPE);
    assert!(queue.wait_until_ended(LONG));
    // A ticket that nobody settles for a while.
    let late = PhotoId::generate();
    queue.put(late, 0);
    let ticket = rig.shared.book.clone();
    ticket.opened(LeaseId::generate());
    wait_for("a renewal", || queue.renewals.load(Ordering::Acquire) > 1);
    assert!(queue.wait_until_ended(LONG));
    let report = rig.stop();
    assert_eq!(report.left, 1, "the lease without a ticket");
}

/// Time alone is a recovery, almost at once.
fn soon_recovered() -> Pace {
    let waits = Waits { recovered_after: Duration::from_millis(1), ..Waits::SERVICE };
    Pace { waits, ..Pace::default() }
}

/// Or the pauses between generations would never grow.
#[test]
fn what_hangs_before_it_breaks_has_not_recovered() {
    static FAILURES: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let photos = photos(1);
    let queue = MemoryQueue::with(&photos);
    let at = (0..3).map(|run| ((1, run), Fault::Hang)).collect();
    let faults = Arc::new(Faults { at, ..Faults::default() });
    let noted = |failures| {
        lock(&FAILURES).push(failures);
        Duration::from_millis(1)
    };
    let rig = Rig::start_at(Pace { pause: noted, ..soon_recovered() }, &queue, &faults, SHAPE);
    // Another photo that hangs, so that some are in flight at every look, however slow the feed is.
    rig.shared.book.opened(LeaseId::generate());
    assert!(queue.wait_until_ended(LONG));
    rig.stop();
    let pauses: Vec<u64> = lock(&FAILURES).iter().map(|failures| pause(*failures).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4]);
    assert_eq!(queue.end_of(photos[0]), (Place::Done, 1));
}

#[test]
fn a_photo_that_fails_is_no_recovery() {
    let photos = photos(1);
    let queue = MemoryQueue::with(&photos);
    let cursed = photos.iter().copied().collect();
    let faults = Arc::new(Faults { at: [((0, 0), Fault::Hang)].into(), cursed, ..Faults::default() });
    let rig = Rig::start_at(soon_recovered(), &queue, &faults, SHAPE);
    let hangs = LeaseId::generate();
    rig.shared.book.opened(hangs);
    assert!(queue.wait_until_ended(LONG));
    assert_eq!(queue.end_of(photos[0]), (CRASHED, 1));
    // Looked at several times since.
    std::thread::sleep(3 * LOOK);
    let status = lock(&rig.shared.status).clone();
    assert!(matches!(status, Status::Down { part: Part::Models, .. }), "{status:?}");
    rig.shared.book.settled(hangs);
    wait_for("recovery with nothing in flight", || *lock(&rig.shared.status) == Status::Running);
    assert!(rig.stop().drained);
}

/// Threads that do not end are soon given up, and leases that nobody renews lapse.
fn soon_abandoned(queue: &MemoryQueue) -> Pace {
    queue.lapses.store(true, Ordering::Release);
    Pace { waits: Waits { exits: Duration::from_millis(100), ..Waits::SERVICE }, ..Pace::default() }
}

#[test]
fn the_photo_of_a_thread_that_hangs_is_leased_again_and_its_generation_holds_nothing() {
    let photos = photos(1);
    let queue = MemoryQueue::with(&photos);
    let (open, gate) = bounded(0);
    let at = [((1, 0), Fault::Park)].into();
    let faults = Arc::new(Faults { at, gate: Some(gate), ..Faults::default() });
    let rig = Rig::start_at(soon_abandoned(&queue), &queue, &faults, SHAPE);
    let held = |bytes: u32| format!("photofinish_budget_used_bytes{{budget=\"files\"}} {bytes}");
    wait_for("the photo's bytes", || rig.shows(&held(10)));
    // The feed falls, and its generation with it; no other starts.
    queue.is_away.store(true, Ordering::Release);
    wait_for("no bytes without a generation", || rig.shows(&held(0)));
    assert_eq!(rig.shared.book.in_flight(), 0);
    queue.is_away.store(false, Ordering::Release);
    assert!(queue.wait_until_ended(LONG), "its lease is renewed for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_of(photos[0]), (Place::Done, 1));
    assert_eq!(rig.stop().left, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_photo_that_a_device_has_no_room_for_ends_and_the_others_are_read() {
    let photos = photos(20);
    let queue = MemoryQueue::with(&photos);
    let faults = Arc::new(Faults { too_large: [photos[7]].into(), ..Faults::default() });
    let rig = Rig::start_at(soon_abandoned(&queue), &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "one photo stops all others: {queue:?}, {:?}", rig.shared);
    rig.stop();
    for photo in &photos {
        let end = if *photo == photos[7] { CRASHED } else { Place::Done };
        assert_eq!(queue.end_of(*photo), (end, 1));
    }
}

#[test]
fn a_photo_that_hangs_where_no_other_waits_is_given_up_too() {
    let photos = photos(1);
    let queue = MemoryQueue::with(&photos);
    let (open, gate) = bounded(0);
    let at = [((1, 0), Fault::Park)].into();
    let faults = Arc::new(Faults { at, gate: Some(gate), ..Faults::default() });
    let pace = Pace { stalled: Duration::from_millis(500), ..soon_abandoned(&queue) };
    let rig = Rig::start_at(pace, &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "it is waited for for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_of(photos[0]), (Place::Done, 1));
    assert_eq!(rig.stop().left, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_suspect_that_hangs_is_given_up_and_tried_again() {
    let queue = MemoryQueue::with(&[]);
    let suspect = PhotoId::generate();
    queue.put(suspect, 1);
    let (open, gate) = bounded(0);
    let at = [((1, 0), Fault::Park)].into();
    let faults = Arc::new(Faults { at, gate: Some(gate), ..Faults::default() });
    let pace = Pace { stalled: Duration::from_millis(500), ..soon_abandoned(&queue) };
    let rig = Rig::start_at(pace, &queue, &faults, SHAPE);
    assert!(queue.wait_until_ended(LONG), "it is waited for for ever: {queue:?}, {:?}", rig.shared);
    assert_eq!(queue.end_of(suspect), (Place::Done, 1));
    assert_eq!(queue.most_beside_a_suspect(), 0);
    assert!(faults.generations.load(Ordering::Acquire) > 1);
    assert_eq!(rig.stop().left, 1, "the ticket that the thread still has");
    drop(open);
}

#[test]
fn a_suspect_that_waits_behind_a_photo_that_hangs_is_no_reason_to_stand_still() {
    let queue = MemoryQueue::with(&[]);
    let suspect = PhotoId::generate();
    queue.put(suspect, 1);
    // No generation starts before there is a photo that hangs.
    queue.is_away.store(true, Ordering::Release);
    let pace = Pace { stalled: Duration::from_millis(500), ..Pace::default() };
    let rig = Rig::start_at(pace, &queue, &Arc::default(), SHAPE);
    let hangs = LeaseId::generate();
    rig.shared.book.opened(hangs);
    queue.is_away.store(false, Ordering::Release);
    let is_told = || matches!(*lock(&rig.shared.status), Status::Down { part: Part::Stage("pipeline"), .. });
    wait_for("the stall is told", is_told);
    assert_ne!(queue.end_of(suspect).0, Place::Done, "a suspect is worked on alone");
    rig.shared.book.settled(hangs);
    assert!(queue.wait_until_ended(LONG));
    assert_eq!(queue.end_of(suspect), (Place::Done, 1));
    assert_eq!(rig.stop().left, 0);
}

fn fault() -> impl Strategy<Value = ((usize, usize), Fault)> {
    let kind = prop_oneof![Just(Fault::Panic), Just(Fault::Die), Just(Fault::Outage), Just(Fault::Lie)];
    ((0_usize..3, 0_usize..40), kind)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_photo_ends_exactly_once_whatever_dies(
        count in 1_usize..60,
        cursed in prop::collection::vec(0_usize..60, 0..4),
        faults in prop::collection::vec(fault(), 0..8),
        queue_outages in 0_usize..4,
        stops in prop::collection::vec(0_u64..30, 0..3),
        (threads, batch_size) in (1_usize..4, 1_usize..6),
    ) {
        let photos = photos(count);
        let queue = MemoryQueue::with(&photos);
        let cursed: HashSet<PhotoId> = cursed.iter().filter_map(|i| photos.get(*i)).copied().collect();
        // Panics and lies may hit the same photo twice, and are its end then.
        let unlucky = faults.iter().filter(|(_, fault)| *fault != Fault::Outage).count();
        let faults = Arc::new(Faults { at: faults.into_iter().collect(), cursed: cursed.clone(), ..Faults::default() });
        let shape = Shape { threads, batch_size };
        queue.outage_calls.store(queue_outages, Ordering::Release);
        for after in stops {
            let rig = Rig::start(&queue, &faults, shape);
            queue.wait_until_ended(Duration::from_millis(after));
            let report = rig.stop();
            prop_assert!(report.left == 0 && report.abandoned.is_empty(), "{:?}", report);
            prop_assert_eq!(queue.leased(), 0, "after a stop everything is given back");
        }
        let rig = Rig::start(&queue, &faults, shape);
        let all_ended = queue.wait_until_ended(LONG);
        prop_assert!(all_ended, "photos do not end: {queue:?}, {:?}", rig.shared);
        let report = rig.stop();
        prop_assert!(report.left == 0 && report.abandoned.is_empty(), "{:?}", report);
        let mut crashed = 0;
        for photo in &photos {
            let (place, ends) = queue.end_of(*photo);
            prop_assert_eq!(ends, 1);
            if cursed.contains(photo) {
                prop_assert_eq!(place, CRASHED);
            } else if place == CRASHED {
                crashed += 1;
            } else {
                prop_assert_eq!(place, Place::Done);
            }
        }
        prop_assert!(crashed <= unlucky, "{crashed} photos crashed by {unlucky} faults");
    }
}
