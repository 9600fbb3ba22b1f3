//! What the rows must do for a message queue: every queued photo is to be published until a message names it, a named one
//! is leased by one worker, and what neither side remembers is found again.

use std::collections::HashSet;
use std::time::Duration;

use time::OffsetDateTime;

use crate::Store;
use crate::conformance::fixture::{Event, LONG, finished};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sql::row_types::micros;
use crate::traits::{Finish, Lease, Named, PhotoRef, UnpublishedPhoto};

/// The rows of a message queue.
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

/// What of this album is to be published.
async fn unpublished(event: &Event) -> Vec<UnpublishedPhoto> {
    let all = event.store.work_rows.unpublished(1000).await.expect("looks");
    all.into_iter().filter(|unpublished| unpublished.photo.album == event.album).collect()
}

async fn note(event: &Event, photos: &[UnpublishedPhoto]) {
    event.store.work_rows.mark_published(photos).await.expect("notes them");
}

async fn named(event: &Event, photos: &[PhotoId], ttl: Duration) -> Vec<Named> {
    let refs: Vec<PhotoRef> =
        photos.iter().map(|photo| PhotoRef { album: event.album, photo: *photo }).collect();
    let answers = event.store.work_rows.lease_named(&refs, ttl).await.expect("leases");
    assert_eq!(answers.len(), photos.len());
    answers
}

#[track_caller]
fn leased(answer: &Named) -> Lease {
    match answer {
        Named::Leased(lease) => lease.clone(),
        other => panic!("not leased: {other:?}"),
    }
}

async fn a_queued_photo_is_unpublished_until_it_is_marked_published(store: &Store) {
    let event = Event::make(store).await;
    event.expected(1).await;
    assert_eq!(unpublished(&event).await, [], "nobody confirmed it");
    let photos = event.queued(3).await;
    let waiting = unpublished(&event).await;
    assert_eq!(waiting.iter().map(|waiting| waiting.photo.photo).collect::<Vec<_>>(), photos);
    note(&event, &waiting[..2]).await;
    assert_eq!(unpublished(&event).await, waiting[2..]);
    // Once more, and of a photo that does not exist: neither changes anything.
    let nowhere = PhotoRef { album: AlbumId::generate(), photo: PhotoId::generate() };
    note(&event, &[waiting[0], UnpublishedPhoto { photo: nowhere, ..waiting[0] }]).await;
    note(&event, &[]).await;
    assert_eq!(unpublished(&event).await, waiting[2..]);
    // A photo that is worked on without a message needs none.
    assert_eq!(event.leased(3, LONG).await.len(), 3);
    assert_eq!(unpublished(&event).await, []);
    assert_eq!(store.work_rows.unpublished(0).await.expect("looks"), []);
    event.end().await;
}

async fn a_requeued_photo_is_published_again(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    let first = unpublished(&event).await;
    note(&event, &first).await;
    let lease = leased(&named(&event, &[photo], LONG).await[0]);
    store.queue.release(&[lease.id]).await.expect("gives it back");
    let again = UnpublishedPhoto { confirmed_at: first[0].confirmed_at + 1, ..first[0] };
    assert_eq!(unpublished(&event).await, [again], "given back, it is another turn in its old place");
    // As by an outbox that was overtaken: the message of the first turn is gone.
    note(&event, &first).await;
    assert_eq!(unpublished(&event).await, [again]);
    note(&event, &[again]).await;
    let lease = leased(&named(&event, &[photo], LONG).await[0]);
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    assert_eq!(unpublished(&event).await, []);
    store.queue.retry(event.album, photo).await.expect("retries it");
    let second = unpublished(&event).await;
    assert_eq!(second.len(), 1);
    assert!(second[0].confirmed_at > first[0].confirmed_at);
    // The note of the first turn comes late: it is not about this one.
    note(&event, &first).await;
    assert_eq!(unpublished(&event).await, second);
    let lease = leased(&named(&event, &[photo], LONG).await[0]);
    assert_eq!(store.queue.finish(vec![finished(&lease)]).await.expect("finishes"), [Finish::Done]);
    assert_eq!(store.queue.reprocess(event.album).await.expect("queues"), 1);
    let third = unpublished(&event).await;
    assert!(third[0].confirmed_at > second[0].confirmed_at);
    event.end().await;
}

/// Its rows are on their way out, and whoever removes them need not wait for notes.
async fn a_photo_of_a_closed_album_is_not_marked_published(store: &Store) {
    let event = Event::make(store).await;
    event.queued(2).await;
    let waiting = unpublished(&event).await;
    assert_eq!(waiting.len(), 2);
    store.albums.close(&event.tenant, event.album).await.expect("closes it");
    note(&event, &waiting).await;
    let later = OffsetDateTime::now_utc() + time::Duration::hours(1);
    assert_eq!(store.work_rows.republish(micros(later)).await.expect("sweeps"), 0);
    event.end().await;
}

async fn a_large_album_does_not_keep_a_small_one_from_being_published(store: &Store) {
    let large = Event::make(store).await;
    let photos = large.queued(50).await;
    let small = Event::make(store).await;
    small.queued(2).await;
    let some = store.work_rows.unpublished(10).await.expect("looks");
    assert_eq!(some.len(), 10, "filled from the album that has more");
    let of = |album| some.iter().filter(move |some| some.photo.album == album).map(|some| some.photo.photo);
    assert_eq!(of(small.album).count(), 2);
    assert_eq!(of(large.album).collect::<Vec<_>>(), photos[..8]);
    large.end().await;
    small.end().await;
}

async fn a_named_photo_is_leased_by_one_worker(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.queued(3).await;
    let answers = named(&event, &[photos[2], photos[0], photos[2]], LONG).await;
    let (last, first) = (leased(&answers[0]), leased(&answers[1]));
    assert_eq!((last.photo, first.photo), (photos[2], photos[0]));
    assert_eq!((last.attempt, last.organization), (1, event.tenant.organization));
    assert!(matches!(answers[2], Named::HeldElsewhere), "named twice, it is leased once");
    assert!(matches!(named(&event, &photos[..1], LONG).await[0], Named::HeldElsewhere));
    // It is the same lease as any other: renewed, given back, and refused once another worker has the photo.
    assert_eq!(store.queue.renew(&[first.id], Duration::ZERO).await.expect("renews"), [first.id]);
    assert!(matches!(named(&event, &photos[..1], LONG).await[0], Named::Suspect));
    let again = event.leased_suspect(LONG).await.expect("its lease lapsed");
    assert_eq!(again.attempt, 2);
    let answers = store.queue.finish(vec![finished(&first), finished(&again)]).await.expect("finishes");
    assert_eq!(answers, [Finish::Superseded, Finish::Done]);
    assert_eq!(event.leased(10, LONG).await.len(), 1, "the one that nobody named");
    event.end().await;
}

async fn a_named_photo_that_is_settled_or_deleted_is_obsolete(store: &Store) {
    let event = Event::make(store).await;
    let ready = event.ready(Vec::new(), Vec::new()).await;
    let failed = event.queued(1).await[0];
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails it");
    let deleted = event.queued(1).await[0];
    store.photos.delete(event.album, deleted).await.expect("deletes it");
    let awaited = event.expected(1).await[0];
    let waiting = event.queued(1).await[0];
    let answers = named(&event, &[ready, failed, deleted, awaited, waiting], LONG).await;
    assert!(answers[..4].iter().all(|answer| matches!(answer, Named::Obsolete)), "{answers:?}");
    assert_eq!(leased(&answers[4]).photo, waiting);
    assert!(named(&event, &[], LONG).await.is_empty());
    event.end().await;
}

async fn a_named_crash_suspect_is_not_leased_and_fails_at_its_limit(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    let mut attempts = 1;
    assert_eq!(leased(&named(&event, &[photo], Duration::ZERO).await[0]).attempt, attempts);
    // Named as often as you like, it is not leased and no attempt counts: leased alone it has the next one.
    while let Named::Suspect = named(&event, &[photo, photo], LONG).await[1] {
        let Some(lease) = event.leased_suspect(Duration::ZERO).await else { break };
        attempts += 1;
        assert_eq!((lease.photo, lease.attempt), (photo, attempts));
        assert!(attempts < 100, "the attempts have a limit");
    }
    let failed = store.photos.get(event.album, photo).await.expect("gets it");
    assert_eq!(failed.state, PhotoState::Failed);
    assert_eq!(failed.failure, Some(FailureReason::ProcessingCrashed));
    assert!(matches!(named(&event, &[photo], LONG).await[0], Named::Obsolete));
    event.end().await;
}

async fn two_workers_given_the_same_names_share_the_photos(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.queued(40).await;
    let backwards: Vec<PhotoId> = photos.iter().rev().copied().collect();
    let (a, b) = tokio::join!(named(&event, &photos, LONG), named(&event, &backwards, LONG));
    let mut held = Vec::new();
    for answer in a.iter().chain(&b) {
        match answer {
            Named::Leased(lease) => held.push(lease.photo),
            Named::HeldElsewhere => {}
            Named::Suspect | Named::Obsolete => panic!("no photo is settled or lapsed"),
        }
    }
    assert_eq!(held.len(), photos.len());
    assert_eq!(held.into_iter().collect::<HashSet<_>>(), photos.into_iter().collect());
    event.end().await;
}

async fn a_photo_whose_message_was_lost_is_found_again(store: &Store) {
    let event = Event::make(store).await;
    let photos = event.queued(4).await;
    note(&event, &unpublished(&event).await).await;
    let held = leased(&named(&event, &photos[..1], LONG).await[0]);
    let lapsed = leased(&named(&event, &photos[1..2], Duration::ZERO).await[0]);
    let done = leased(&named(&event, &photos[2..3], LONG).await[0]);
    store.queue.finish(vec![finished(&done)]).await.expect("finishes");
    let now = OffsetDateTime::now_utc();
    let sweep = async |before| store.work_rows.republish(micros(before)).await.expect("sweeps");
    assert_eq!(sweep(now - time::Duration::hours(1)).await, 0, "published only just now");
    assert_eq!(unpublished(&event).await, []);
    assert_eq!(sweep(now + time::Duration::hours(1)).await, 2);
    let found: HashSet<PhotoId> =
        unpublished(&event).await.iter().map(|unpublished| unpublished.photo.photo).collect();
    assert_eq!(found, HashSet::from([photos[1], photos[3]]));
    // The lease that lapsed has no say any more; the one that runs has.
    let answers = store.queue.finish(vec![finished(&lapsed), finished(&held)]).await.expect("finishes");
    assert_eq!(answers, [Finish::Superseded, Finish::Done]);
    assert!(matches!(named(&event, &photos[1..2], LONG).await[0], Named::Suspect));
    let again = event.leased_suspect(LONG).await.expect("its first lease lapsed");
    assert_eq!((again.photo, again.attempt), (photos[1], 2), "its first lease stays counted");
    event.end().await;
}
