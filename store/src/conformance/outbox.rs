//! The outbox: a queued photo is unpublished until a message names it, a named photo is leased by one worker, and a photo
//! whose message was lost is published again.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;

use crate::conformance::fixture::{AlbumFixture, LONG, empty_results};
use crate::model::encoding::to_micros;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::store::Store;
use crate::traits::{FinishOutcome, Lease, NamedLease, PhotoRef, UnpublishedPhoto};

/// Checks the backend of [`crate::traits::OutboxQueue`].
pub async fn outbox_suite(store: &Store) {
    a_queued_photo_is_unpublished_until_it_is_marked_published(store).await;
    a_requeued_photo_is_published_again(store).await;
    a_photo_of_a_closed_album_is_not_marked_published(store).await;
    a_large_album_does_not_keep_a_small_one_from_being_published(store).await;
    a_named_photo_is_leased_by_one_worker(store).await;
    a_named_photo_that_is_settled_or_deleted_is_obsolete(store).await;
    a_named_crash_suspect_is_not_leased_and_fails_at_its_limit(store).await;
    two_workers_given_the_same_names_share_the_photos(store).await;
    a_photo_whose_message_was_lost_is_found_again(store).await;
}

/// Returns the unpublished photos of the album.
async fn list_unpublished(fixture: &AlbumFixture) -> Vec<UnpublishedPhoto> {
    let all = fixture.store.outbox_queue.list_unpublished(1000).await.expect("reads").photos;
    all.into_iter().filter(|unpublished| unpublished.photo.album == fixture.album).collect()
}

async fn mark_published(fixture: &AlbumFixture, photos: &[UnpublishedPhoto]) {
    fixture.store.outbox_queue.mark_published(photos).await.expect("marks them");
}

async fn lease_named(fixture: &AlbumFixture, photos: &[PhotoId], ttl: Duration) -> Vec<NamedLease> {
    let refs: Vec<PhotoRef> =
        photos.iter().map(|photo| PhotoRef { album: fixture.album, photo: *photo }).collect();
    let answers = fixture.store.outbox_queue.lease_named(&refs, ttl).await.expect("leases");
    assert_eq!(answers.len(), photos.len());
    answers
}

#[track_caller]
fn expect_lease(answer: &NamedLease) -> Lease {
    match answer {
        NamedLease::Leased(lease) => lease.clone(),
        other => panic!("not leased: {other:?}"),
    }
}

async fn a_queued_photo_is_unpublished_until_it_is_marked_published(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.create_photos(1).await;
    assert_eq!(list_unpublished(&fixture).await, [], "nobody confirmed it");
    let photos = fixture.queue_photos(3).await;
    let waiting = list_unpublished(&fixture).await;
    assert_eq!(waiting.iter().map(|waiting| waiting.photo.photo).collect::<Vec<_>>(), photos);
    mark_published(&fixture, &waiting[..2]).await;
    assert_eq!(list_unpublished(&fixture).await, waiting[2..]);
    // Neither a second call nor an unknown photo changes anything.
    let nowhere = PhotoRef { album: AlbumId::generate(), photo: PhotoId::generate() };
    mark_published(&fixture, &[waiting[0], UnpublishedPhoto { photo: nowhere, ..waiting[0] }]).await;
    mark_published(&fixture, &[]).await;
    assert_eq!(list_unpublished(&fixture).await, waiting[2..]);
    // A photo that was leased without a message needs none.
    assert_eq!(fixture.lease_fresh(3, LONG).await.len(), 3);
    assert_eq!(list_unpublished(&fixture).await, []);
    assert_eq!(store.outbox_queue.list_unpublished(0).await.expect("reads").photos, []);
    fixture.delete().await;
}

async fn a_requeued_photo_is_published_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let first = list_unpublished(&fixture).await;
    mark_published(&fixture, &first).await;
    let lease = expect_lease(&lease_named(&fixture, &[photo], LONG).await[0]);
    store.queue.release(std::slice::from_ref(&lease)).await.expect("releases it");
    let again = UnpublishedPhoto { confirmed_at: first[0].confirmed_at + 1, ..first[0] };
    assert_eq!(list_unpublished(&fixture).await, [again], "it is requeued in its old place");
    // As by a delayed outbox: marking the first stay in the queue does not affect the second.
    mark_published(&fixture, &first).await;
    assert_eq!(list_unpublished(&fixture).await, [again]);
    mark_published(&fixture, &[again]).await;
    let lease = expect_lease(&lease_named(&fixture, &[photo], LONG).await[0]);
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    assert_eq!(list_unpublished(&fixture).await, []);
    store.queue.retry(fixture.album, photo).await.expect("retries it");
    let second = list_unpublished(&fixture).await;
    assert_eq!(second.len(), 1);
    assert!(second[0].confirmed_at > first[0].confirmed_at);
    // Marking the first stay late does not affect the second.
    mark_published(&fixture, &first).await;
    assert_eq!(list_unpublished(&fixture).await, second);
    let lease = expect_lease(&lease_named(&fixture, &[photo], LONG).await[0]);
    assert_eq!(
        store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes"),
        [FinishOutcome::Done]
    );
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 1);
    let third = list_unpublished(&fixture).await;
    assert!(third[0].confirmed_at > second[0].confirmed_at);
    fixture.delete().await;
}

/// Its rows are being deleted, and the deletion need not wait for the outbox.
async fn a_photo_of_a_closed_album_is_not_marked_published(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(2).await;
    let waiting = list_unpublished(&fixture).await;
    assert_eq!(waiting.len(), 2);
    store.albums.close(&fixture.tenant, fixture.album).await.expect("closes it");
    mark_published(&fixture, &waiting).await;
    let later = OffsetDateTime::now_utc() + time::Duration::hours(1);
    assert_eq!(store.outbox_queue.republish(to_micros(later)).await.expect("republishes"), 0);
    fixture.delete().await;
}

async fn a_large_album_does_not_keep_a_small_one_from_being_published(store: &Store) {
    let large = AlbumFixture::create(store).await;
    let photos = large.queue_photos(50).await;
    let small = AlbumFixture::create(store).await;
    small.queue_photos(2).await;
    let some = store.outbox_queue.list_unpublished(10).await.expect("reads").photos;
    assert_eq!(some.len(), 10, "filled from the album that has more");
    let of = |album| some.iter().filter(move |some| some.photo.album == album).map(|some| some.photo.photo);
    assert_eq!(of(small.album).count(), 2);
    assert_eq!(of(large.album).collect::<Vec<_>>(), photos[..8]);
    large.delete().await;
    small.delete().await;
}

async fn a_named_photo_is_leased_by_one_worker(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.queue_photos(3).await;
    let answers = lease_named(&fixture, &[photos[2], photos[0], photos[2]], LONG).await;
    let (last, first) = (expect_lease(&answers[0]), expect_lease(&answers[1]));
    assert_eq!((last.photo, first.photo), (photos[2], photos[0]));
    assert_eq!((last.attempt, last.organization), (1, fixture.tenant.organization));
    assert!(matches!(answers[2], NamedLease::HeldElsewhere), "named twice, it is leased once");
    assert!(matches!(lease_named(&fixture, &photos[..1], LONG).await[0], NamedLease::HeldElsewhere));
    // It is a lease like any other: it can be renewed, and is refused once another worker has leased the photo.
    assert_eq!(store.queue.renew(&[first.id], Duration::ZERO).await.expect("renews"), [first.id]);
    assert!(matches!(lease_named(&fixture, &photos[..1], LONG).await[0], NamedLease::CrashSuspect));
    let again = fixture.lease_suspect(LONG).await.expect("its lease expired");
    assert_eq!(again.attempt, 2);
    let answers =
        store.queue.finish(vec![empty_results(&first), empty_results(&again)]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Superseded, FinishOutcome::Done]);
    assert_eq!(fixture.lease_fresh(10, LONG).await.len(), 1, "the one that nobody named");
    fixture.delete().await;
}

async fn a_named_photo_that_is_settled_or_deleted_is_obsolete(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let ready = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let failed = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    let deleted = fixture.queue_photos(1).await[0];
    store.photos.delete(fixture.album, deleted).await.expect("deletes it");
    let awaited = fixture.create_photos(1).await[0];
    let waiting = fixture.queue_photos(1).await[0];
    let answers = lease_named(&fixture, &[ready, failed, deleted, awaited, waiting], LONG).await;
    assert!(answers[..4].iter().all(|answer| matches!(answer, NamedLease::Obsolete)), "{answers:?}");
    assert_eq!(expect_lease(&answers[4]).photo, waiting);
    assert!(lease_named(&fixture, &[], LONG).await.is_empty());
    fixture.delete().await;
}

async fn a_named_crash_suspect_is_not_leased_and_fails_at_its_limit(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let mut attempts = 1;
    assert_eq!(expect_lease(&lease_named(&fixture, &[photo], Duration::ZERO).await[0]).attempt, attempts);
    // However often it is named, it is not leased and no attempt is counted; leasing it alone counts the next one.
    while let NamedLease::CrashSuspect = lease_named(&fixture, &[photo, photo], LONG).await[1] {
        let Some(lease) = fixture.lease_suspect(Duration::ZERO).await else { break };
        attempts += 1;
        assert_eq!((lease.photo, lease.attempt), (photo, attempts));
        assert!(attempts < 100, "the attempts have a limit");
    }
    let failed = store.photos.get(fixture.album, photo).await.expect("gets it");
    assert_eq!(failed.state, PhotoState::Failed);
    assert_eq!(failed.failure, Some(FailureReason::ProcessingCrashed));
    assert!(matches!(lease_named(&fixture, &[photo], LONG).await[0], NamedLease::Obsolete));
    fixture.delete().await;
}

async fn two_workers_given_the_same_names_share_the_photos(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.queue_photos(40).await;
    let backwards: Vec<PhotoId> = photos.iter().rev().copied().collect();
    let (a, b) = tokio::join!(lease_named(&fixture, &photos, LONG), lease_named(&fixture, &backwards, LONG));
    let mut held = Vec::new();
    for answer in a.iter().chain(&b) {
        match answer {
            NamedLease::Leased(lease) => held.push(lease.photo),
            NamedLease::HeldElsewhere => {}
            NamedLease::CrashSuspect | NamedLease::Obsolete => panic!("no photo is settled or expired"),
        }
    }
    assert_eq!(held.len(), photos.len());
    assert_eq!(held.into_iter().collect::<HashSet<_>>(), photos.into_iter().collect());
    fixture.delete().await;
}

async fn a_photo_whose_message_was_lost_is_found_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = fixture.queue_photos(4).await;
    mark_published(&fixture, &list_unpublished(&fixture).await).await;
    let held = expect_lease(&lease_named(&fixture, &photos[..1], LONG).await[0]);
    let lapsed = expect_lease(&lease_named(&fixture, &photos[1..2], Duration::ZERO).await[0]);
    let done = expect_lease(&lease_named(&fixture, &photos[2..3], LONG).await[0]);
    store.queue.finish(vec![empty_results(&done)]).await.expect("finishes");
    let now = OffsetDateTime::now_utc();
    let sweep = async |before| store.outbox_queue.republish(to_micros(before)).await.expect("republishes");
    assert_eq!(sweep(now - time::Duration::hours(1)).await, 0, "published only just now");
    assert_eq!(list_unpublished(&fixture).await, []);
    assert_eq!(sweep(now + time::Duration::hours(1)).await, 2);
    let found: HashSet<PhotoId> =
        list_unpublished(&fixture).await.iter().map(|unpublished| unpublished.photo.photo).collect();
    assert_eq!(found, HashSet::from([photos[1], photos[3]]));
    // The expired lease may not write any more; the running one may.
    let answers =
        store.queue.finish(vec![empty_results(&lapsed), empty_results(&held)]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Superseded, FinishOutcome::Done]);
    assert!(matches!(lease_named(&fixture, &photos[1..2], LONG).await[0], NamedLease::CrashSuspect));
    let again = fixture.lease_suspect(LONG).await.expect("its first lease expired");
    assert_eq!((again.photo, again.attempt), (photos[1], 2), "its first lease stays counted");
    fixture.delete().await;
}
