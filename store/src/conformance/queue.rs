//! The work queue: photos are confirmed once, each lease counts an attempt, and only the running lease may finish.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;

use crate::conformance::fair_shares::fair_shares_suite;
use crate::conformance::fixture::{AlbumFixture, LONG, album_config, empty_results};
use crate::conformance::queue_outcomes::queue_outcomes_suite;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::store::Store;
use crate::traits::{FinishOutcome, LeaseKind, LeaseRequest};

/// Checks a queue that leases directly from the database.
pub async fn queue_suite(store: &Store) {
    queue_suite_with_lead(store, 0).await;
    fair_shares_suite(store, 0).await;
}

/// Checks a queue that publishes up to `lead` photos ahead of the workers: these are already in order when another album
/// is confirmed, and are not shared fairly. `lead` is for idle workers; it may grow with the photos that they lease. Fair
/// shares are for [`fair_shares_suite`]: leases here are left without an end.
pub async fn queue_suite_with_lead(store: &Store, lead: usize) {
    confirming_twice_queues_once(store).await;
    concurrent_callers_confirm_photos(store).await;
    a_lease_counts_its_attempt_and_carries_what_a_worker_needs(store).await;
    a_released_photo_waits_as_before(store).await;
    an_expired_lease_makes_a_crash_suspect_that_is_leased_alone(store).await;
    a_crash_suspect_that_was_released_waits_once(store).await;
    a_photo_that_crashes_its_workers_fails(store).await;
    a_renewed_lease_does_not_expire(store).await;
    two_workers_never_lease_the_same_photo(store).await;
    a_small_album_does_not_wait_for_a_large_one(store, lead).await;
    photos_leave_the_queue_in_the_order_they_came(store).await;
    the_queue_tells_of_other_organizations_that_wait(store).await;
    the_queue_reports_since_when_its_oldest_photo_waits(store).await;
    photos_of_an_album_that_is_being_deleted_do_not_wait(store).await;
    queue_outcomes_suite(store).await;
}

async fn confirming_twice_queues_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(3).await;
    let foreign = other.create_photos(1).await[0];
    let asked = [photos[0], foreign, PhotoId::generate(), photos[1]];
    for _ in 0..2 {
        let confirmed = store.queue.confirm(fixture.album, &asked).await.expect("confirms");
        assert_eq!(confirmed, [photos[0], photos[1]]);
    }
    assert_eq!(store.queue.depth().await.expect("counts"), 2);
    let unknown = store.queue.confirm(AlbumId::generate(), &photos).await.expect("confirms none");
    assert_eq!(unknown, []);
    let leases = fixture.lease_fresh(10, LONG).await;
    assert_eq!(leases.iter().map(|lease| lease.photo).collect::<Vec<_>>(), photos[..2]);
    // Confirming a photo in processing does not requeue it.
    let confirmed = store.queue.confirm(fixture.album, &photos[..1]).await.expect("confirms");
    assert_eq!(confirmed, photos[..1]);
    assert!(fixture.lease_fresh(10, LONG).await.is_empty());
    fixture.delete().await;
    other.delete().await;
}

async fn concurrent_callers_confirm_photos(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(100).await;
    let calls = photos.chunks(3).map(|some| store.queue.confirm(fixture.album, some));
    let answers = futures_util::future::join_all(calls).await;
    let confirmed: Vec<PhotoId> = answers.into_iter().flat_map(|answer| answer.expect("confirms")).collect();
    assert_eq!(confirmed, photos);
    assert_eq!(store.queue.depth().await.expect("counts"), 100);
    fixture.delete().await;
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
}

async fn a_lease_counts_its_attempt_and_carries_what_a_worker_needs(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!((lease.photo, lease.album, lease.attempt), (photo, fixture.album, 1));
    assert_eq!((lease.organization, lease.config.as_ref()), (fixture.tenant.organization, &album_config()));
    let state = store.photos.get(fixture.album, photo).await.expect("gets it").state;
    assert_eq!(state, PhotoState::Processing);
    assert!(fixture.lease_fresh(1, LONG).await.is_empty());
    assert!(fixture.lease_suspect(LONG).await.is_none());
    let none = LeaseRequest { limit: 0, ttl: LONG, kind: LeaseKind::Fresh };
    assert!(store.queue.lease(none).await.expect("leases none").is_empty());
    fixture.delete().await;
}

async fn a_released_photo_waits_as_before(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    for _ in 0..10 {
        let lease = fixture.lease_fresh(1, LONG).await.pop().expect("the photo waits again");
        assert_eq!((lease.photo, lease.attempt), (photo, 1));
        store.queue.release(std::slice::from_ref(&lease)).await.expect("releases it");
        // A second call changes nothing.
        store.queue.release(std::slice::from_ref(&lease)).await.expect("releases it");
    }
    assert_eq!(store.queue.depth().await.expect("counts"), 1);
    fixture.delete().await;
}

async fn an_expired_lease_makes_a_crash_suspect_that_is_leased_alone(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(3).await;
    let lapsed = fixture.lease_fresh(2, Duration::ZERO).await;
    assert_eq!(store.queue.depth().await.expect("counts"), 3);
    assert_eq!(fixture.lease_fresh(10, LONG).await.len(), 1, "suspects do not come with fresh photos");
    let first = fixture.lease_suspect(LONG).await.expect("a crash suspect waits");
    let second = fixture.lease_suspect(LONG).await.expect("another crash suspect waits");
    assert!(fixture.lease_suspect(LONG).await.is_none());
    assert_eq!((first.attempt, second.attempt), (2, 2));
    assert_ne!(first.photo, second.photo);
    // A released crash suspect is still one: its first lease expired.
    store.queue.release(std::slice::from_ref(&first)).await.expect("releases it");
    assert!(fixture.lease_fresh(10, LONG).await.is_empty());
    let again = fixture.lease_suspect(LONG).await.expect("the crash suspect waits again");
    assert_eq!((again.photo, again.attempt), (first.photo, 2));
    // The expired leases may not write any more.
    let answers = store.queue.finish(lapsed.iter().map(empty_results).collect()).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Superseded; 2]);
    fixture.delete().await;
}

async fn a_crash_suspect_that_was_released_waits_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(3).await;
    assert_eq!(fixture.lease_fresh(1, Duration::ZERO).await.len(), 1);
    let suspect = fixture.lease_suspect(LONG).await.expect("a crash suspect waits");
    assert_eq!(store.queue.depth().await.expect("counts"), 2, "beside the one that is processed");
    store.queue.release(std::slice::from_ref(&suspect)).await.expect("releases it");
    assert_eq!(store.queue.depth().await.expect("counts"), 3, "beside fresh photos");
    assert_eq!(fixture.lease_fresh(2, LONG).await.len(), 2);
    assert_eq!(store.queue.depth().await.expect("counts"), 1, "alone");
    fixture.delete().await;
}

async fn a_photo_that_crashes_its_workers_fails(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    assert_eq!(fixture.lease_fresh(1, Duration::ZERO).await.len(), 1);
    let mut attempts = 1;
    while let Some(lease) = fixture.lease_suspect(Duration::ZERO).await {
        attempts += 1;
        assert_eq!(lease.attempt, attempts);
        assert!(attempts < 100, "the attempts have a limit");
    }
    let failed = store.photos.get(fixture.album, photo).await.expect("gets it");
    assert_eq!(failed.state, PhotoState::Failed);
    assert_eq!(failed.failure, Some(FailureReason::ProcessingCrashed));
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
    // A retry resets the attempts.
    store.queue.retry(fixture.album, photo).await.expect("retries it");
    assert_eq!(fixture.lease_fresh(1, LONG).await[0].attempt, 1);
    fixture.delete().await;
}

async fn a_renewed_lease_does_not_expire(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(2).await;
    let leases = fixture.lease_fresh(2, Duration::ZERO).await;
    let ids = [leases[0].id, leases[1].id];
    assert_eq!(store.queue.renew(&ids, LONG).await.expect("renews"), ids);
    assert!(fixture.lease_suspect(LONG).await.is_none());
    store.queue.release(&leases[..1]).await.expect("releases one");
    assert_eq!(store.queue.renew(&ids, Duration::ZERO).await.expect("renews"), ids[1..]);
    let taken = fixture.lease_suspect(LONG).await.expect("the other expired");
    assert_eq!(taken.photo, leases[1].photo);
    assert_eq!(store.queue.renew(&ids, LONG).await.expect("renews"), []);
    fixture.delete().await;
}

async fn two_workers_never_lease_the_same_photo(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.queue_photos(60).await;
    let worker = || async {
        let mut held = Vec::new();
        loop {
            let leases = fixture.lease_fresh(4, LONG).await;
            if leases.is_empty() {
                return held;
            }
            held.extend(leases.into_iter().map(|lease| lease.photo));
        }
    };
    let held = futures_util::future::join_all((0..4).map(|_| worker())).await.concat();
    assert_eq!(held.len(), photos.len());
    assert_eq!(held.into_iter().collect::<HashSet<_>>(), photos.into_iter().collect());
    fixture.delete().await;
}

async fn a_small_album_does_not_wait_for_a_large_one(store: &Store, lead: usize) {
    let large = AlbumFixture::create(store).await;
    // Far more than are leased here, so that the small album is not served because the large one has run out.
    large.queue_photos(200 + 16 * lead).await;
    let small = AlbumFixture::create(store).await;
    small.queue_photos(4).await;
    let mut of_small = 0;
    for _ in 0..4 + lead {
        let leases = large.lease_fresh(2, LONG).await;
        of_small += leases.iter().filter(|lease| lease.album == small.album).count();
    }
    assert_eq!(of_small, 4, "of the first 8 photos behind the lead");
    assert_eq!(large.lease_fresh(8, LONG).await.len(), 8, "a lease is filled from the album that has more");
    // With more albums than places in a lease, they take turns.
    let third = AlbumFixture::create(store).await;
    third.queue_photos(1).await;
    let mut served = HashSet::new();
    for _ in 0..2 + 4 * lead {
        served.extend(large.lease_fresh(1, LONG).await.iter().map(|lease| lease.album));
    }
    assert_eq!(served, HashSet::from([large.album, third.album]));
    for fixture in [large, small, third] {
        fixture.delete().await;
    }
}

async fn photos_leave_the_queue_in_the_order_they_came(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.create_photos(3).await;
    for photo in [photos[2], photos[0], photos[1]] {
        store.queue.confirm(fixture.album, &[photo]).await.expect("confirms");
    }
    let leases = fixture.lease_fresh(3, LONG).await;
    let order: Vec<PhotoId> = leases.iter().map(|lease| lease.photo).collect();
    assert_eq!(order, [photos[2], photos[0], photos[1]]);
    fixture.delete().await;
}

async fn the_queue_tells_of_other_organizations_that_wait(store: &Store) {
    let (one, other) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    let (first, second) = (one.tenant.organization, other.tenant.organization);
    let others_wait =
        async |than: &[OrganizationId]| store.queue.has_waiting_beside(than).await.expect("looks");
    assert!(!others_wait(&[]).await);
    one.queue_photos(3).await;
    assert_eq!((others_wait(&[]).await, others_wait(&[first]).await), (true, false));
    other.queue_photos(1).await;
    for (than, expected) in [(vec![first], true), (vec![second], true), (vec![first, second], false)] {
        assert_eq!(others_wait(&than).await, expected, "{than:?}");
    }
    one.lease_fresh(4, LONG).await;
    assert!(!others_wait(&[]).await, "all are leased");
    one.delete().await;
    other.delete().await;
}

async fn the_queue_reports_since_when_its_oldest_photo_waits(store: &Store) {
    let waiting_since = || async { store.queue.waiting_since().await.expect("says since when") };
    assert_eq!(waiting_since().await, None);
    let (early, late) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    let before = OffsetDateTime::now_utc();
    early.queue_photos(1).await;
    let between = OffsetDateTime::now_utc();
    late.queue_photos(2).await;
    // The database stores microseconds.
    let since = waiting_since().await.expect("three wait");
    assert!(
        before - since < time::Duration::milliseconds(1) && since <= between,
        "{before} {since} {between}"
    );
    let lease = early.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(lease.confirmed_at, since);
    let since = waiting_since().await.expect("two wait");
    assert!(between - since < time::Duration::milliseconds(1), "{between} {since}");
    // A released photo keeps its place, apart from the microsecond that distinguishes its stays in the queue.
    store.queue.release(std::slice::from_ref(&lease)).await.expect("releases it");
    assert_eq!(waiting_since().await, Some(lease.confirmed_at + time::Duration::microseconds(1)));
    early.delete().await;
    late.delete().await;
    assert_eq!(waiting_since().await, None);
}

/// Nobody leases them: counted, they would start workers that find nothing to do.
async fn photos_of_an_album_that_is_being_deleted_do_not_wait(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(3).await;
    // One of them is a crash suspect.
    assert_eq!(fixture.lease_fresh(1, Duration::ZERO).await.len(), 1);
    assert_eq!(store.queue.depth().await.expect("counts"), 3);
    store.albums.close(&fixture.tenant, fixture.album).await.expect("closes it");
    assert_eq!(store.queue.depth().await.expect("counts"), 0);
    assert_eq!(store.queue.waiting_since().await.expect("says since when"), None);
    fixture.delete().await;
}
