//! What every queue must do: confirm once, lease with a counted attempt, settle by the lease that holds.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;

use crate::Store;
use crate::conformance::fixture::{Event, LONG, config, finished};
use crate::conformance::queue_outcomes::queue_outcomes_suite;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::traits::{Finish, LeaseRequest};

/// The work queue, where the rows themselves are leased.
pub async fn queue_suite(store: &Store) {
    queue_suite_with_lead(store, 0).await;
}

/// The work queue, where up to `lead` photos stand in front of those that are dealt fairly: already on their way when
/// another album is confirmed. The lead is that of idle workers; it may grow with what they have.
pub async fn queue_suite_with_lead(store: &Store, lead: usize) {
    confirming_twice_queues_once(store).await;
    concurrent_callers_confirm_photos(store).await;
    a_lease_counts_its_attempt_and_carries_what_a_worker_needs(store).await;
    a_released_photo_waits_as_before(store).await;
    an_expired_lease_makes_a_crash_suspect_that_is_leased_alone(store).await;
    a_photo_that_crashes_its_workers_fails(store).await;
    a_renewed_lease_does_not_expire(store).await;
    two_workers_never_lease_the_same_photo(store).await;
    a_small_album_does_not_wait_for_a_large_one(store, lead).await;
    photos_leave_the_queue_in_the_order_they_came(store).await;
    the_queue_reports_since_when_its_oldest_photo_waits(store).await;
    queue_outcomes_suite(store).await;
}

async fn confirming_twice_queues_once(store: &Store) {
    let event = Event::make(store).await;
    let other = Event::make(store).await;
    let photos = event.expected(3).await;
    let foreign = other.expected(1).await[0];
    let asked = [photos[0], foreign, PhotoId::generate(), photos[1]];
    for _ in 0..2 {
        let confirmed = store.queue.confirm(event.album, &asked).await.expect("confirms");
        assert_eq!(confirmed, [photos[0], photos[1]]);
    }
    assert_eq!(store.queue.depth().await.expect("counts"), 2);
    let unknown = store.queue.confirm(AlbumId::generate(), &photos).await.expect("confirms none");
    assert_eq!(unknown, []);
    let leases = event.leased(10, LONG).await;
    assert_eq!(leases.iter().map(|lease| lease.photo).collect::<Vec<_>>(), photos[..2]);
    // Confirming a photo that is worked on does not queue it again.
    let confirmed = store.queue.confirm(event.album, &photos[..1]).await.expect("confirms");
    assert_eq!(confirmed, photos[..1]);
    assert!(event.leased(10, LONG).await.is_empty());
    event.end().await;
    other.end().await;
}

async fn concurrent_callers_confirm_photos(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.expected(100).await;
    let calls = photos.chunks(3).map(|some| store.queue.confirm(event.album, some));
    let answers = futures_util::future::join_all(calls).await;
    let confirmed: Vec<PhotoId> = answers.into_iter().flat_map(|answer| answer.expect("confirms")).collect();
    assert_eq!(confirmed, photos);
    assert_eq!(store.queue.depth().await.expect("counts"), 100);
    event.end().await;
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
}

async fn a_lease_counts_its_attempt_and_carries_what_a_worker_needs(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    assert_eq!((lease.photo, lease.album, lease.attempt), (photo, event.album, 1));
    assert_eq!((lease.organization, lease.config.as_ref()), (event.tenant.organization, &config()));
    let state = store.photos.get(event.album, photo).await.expect("gets it").state;
    assert_eq!(state, PhotoState::Processing);
    assert!(event.leased(1, LONG).await.is_empty());
    assert!(event.leased_suspect(LONG).await.is_none());
    let none = LeaseRequest { limit: 0, ttl: LONG, suspects: false };
    assert!(store.queue.lease(none).await.expect("leases none").is_empty());
    event.end().await;
}

async fn a_released_photo_waits_as_before(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    for _ in 0..10 {
        let lease = event.leased(1, LONG).await.pop().expect("the photo waits again");
        assert_eq!((lease.photo, lease.attempt), (photo, 1));
        store.queue.release(&[lease.id]).await.expect("gives it back");
        // Once more changes nothing.
        store.queue.release(&[lease.id]).await.expect("gives it back");
    }
    assert_eq!(store.queue.depth().await.expect("counts"), 1);
    event.end().await;
}

async fn an_expired_lease_makes_a_crash_suspect_that_is_leased_alone(store: &Store) {
    let event = Event::make(store).await;
    event.queued(3).await;
    let lapsed = event.leased(2, Duration::ZERO).await;
    assert_eq!(store.queue.depth().await.expect("counts"), 3);
    assert_eq!(event.leased(10, LONG).await.len(), 1, "suspects do not come with fresh photos");
    let first = event.leased_suspect(LONG).await.expect("a suspect waits");
    let second = event.leased_suspect(LONG).await.expect("another suspect waits");
    assert!(event.leased_suspect(LONG).await.is_none());
    assert_eq!((first.attempt, second.attempt), (2, 2));
    assert_ne!(first.photo, second.photo);
    // Given back, it is still a suspect: its first lease ended without a word.
    store.queue.release(&[first.id]).await.expect("gives it back");
    assert!(event.leased(10, LONG).await.is_empty());
    let again = event.leased_suspect(LONG).await.expect("the suspect waits again");
    assert_eq!((again.photo, again.attempt), (first.photo, 2));
    // The leases that lapsed have no say any more.
    let answers = store.queue.finish(lapsed.iter().map(finished).collect()).await.expect("finishes");
    assert_eq!(answers, [Finish::Superseded; 2]);
    event.end().await;
}

async fn a_photo_that_crashes_its_workers_fails(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    assert_eq!(event.leased(1, Duration::ZERO).await.len(), 1);
    let mut attempts = 1;
    while let Some(lease) = event.leased_suspect(Duration::ZERO).await {
        attempts += 1;
        assert_eq!(lease.attempt, attempts);
        assert!(attempts < 100, "the attempts have a limit");
    }
    let failed = store.photos.get(event.album, photo).await.expect("gets it");
    assert_eq!(failed.state, PhotoState::Failed);
    assert_eq!(failed.failure, Some(FailureReason::ProcessingCrashed));
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
    // A retry begins to count anew.
    store.queue.retry(event.album, photo).await.expect("retries it");
    assert_eq!(event.leased(1, LONG).await[0].attempt, 1);
    event.end().await;
}

async fn a_renewed_lease_does_not_expire(store: &Store) {
    let event = Event::make(store).await;
    event.queued(2).await;
    let leases = event.leased(2, Duration::ZERO).await;
    let ids = [leases[0].id, leases[1].id];
    assert_eq!(store.queue.renew(&ids, LONG).await.expect("renews"), ids);
    assert!(event.leased_suspect(LONG).await.is_none());
    store.queue.release(&ids[..1]).await.expect("gives one back");
    assert_eq!(store.queue.renew(&ids, Duration::ZERO).await.expect("renews"), ids[1..]);
    let taken = event.leased_suspect(LONG).await.expect("the other lapsed");
    assert_eq!(taken.photo, leases[1].photo);
    assert_eq!(store.queue.renew(&ids, LONG).await.expect("renews"), []);
    event.end().await;
}

async fn two_workers_never_lease_the_same_photo(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.queued(60).await;
    let worker = || async {
        let mut held = Vec::new();
        loop {
            let leases = event.leased(4, LONG).await;
            if leases.is_empty() {
                return held;
            }
            held.extend(leases.into_iter().map(|lease| lease.photo));
        }
    };
    let held = futures_util::future::join_all((0..4).map(|_| worker())).await.concat();
    assert_eq!(held.len(), photos.len());
    assert_eq!(held.into_iter().collect::<HashSet<_>>(), photos.into_iter().collect());
    event.end().await;
}

async fn a_small_album_does_not_wait_for_a_large_one(store: &Store, lead: usize) {
    let large = Event::make(store).await;
    // Far more than are leased here: it is never the end of the large album that serves the others.
    large.queued(200 + 16 * lead).await;
    let small = Event::make(store).await;
    small.queued(4).await;
    let mut of_small = 0;
    for _ in 0..4 + lead {
        let leases = large.leased(2, LONG).await;
        of_small += leases.iter().filter(|lease| lease.album == small.album).count();
    }
    assert_eq!(of_small, 4, "of the first 8 photos behind the lead");
    assert_eq!(large.leased(8, LONG).await.len(), 8, "a lease is filled from the album that has more");
    // With more albums than a lease has places each gets its turn.
    let third = Event::make(store).await;
    third.queued(1).await;
    let mut served = HashSet::new();
    for _ in 0..2 + 4 * lead {
        served.extend(large.leased(1, LONG).await.iter().map(|lease| lease.album));
    }
    assert_eq!(served, HashSet::from([large.album, third.album]));
    for event in [large, small, third] {
        event.end().await;
    }
}

async fn photos_leave_the_queue_in_the_order_they_came(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.expected(3).await;
    for photo in [photos[2], photos[0], photos[1]] {
        store.queue.confirm(event.album, &[photo]).await.expect("confirms");
    }
    let leases = event.leased(3, LONG).await;
    let order: Vec<PhotoId> = leases.iter().map(|lease| lease.photo).collect();
    assert_eq!(order, [photos[2], photos[0], photos[1]]);
    event.end().await;
}

async fn the_queue_reports_since_when_its_oldest_photo_waits(store: &Store) {
    let waiting_since = || async { store.queue.waiting_since().await.expect("says since when") };
    assert_eq!(waiting_since().await, None);
    let (early, late) = (Event::make(store).await, Event::make(store).await);
    let before = OffsetDateTime::now_utc();
    early.queued(1).await;
    let between = OffsetDateTime::now_utc();
    late.queued(2).await;
    // Rows keep microseconds.
    let since = waiting_since().await.expect("three wait");
    assert!(
        before - since < time::Duration::milliseconds(1) && since <= between,
        "{before} {since} {between}"
    );
    let lease = early.leased(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(lease.confirmed_at, since);
    let since = waiting_since().await.expect("two wait");
    assert!(between - since < time::Duration::milliseconds(1), "{between} {since}");
    // A photo given back has waited all the time, but for the microsecond that tells its turns apart.
    store.queue.release(&[lease.id]).await.expect("gives it back");
    assert_eq!(waiting_since().await, Some(lease.confirmed_at + time::Duration::microseconds(1)));
    early.end().await;
    late.end().await;
    assert_eq!(waiting_since().await, None);
}
