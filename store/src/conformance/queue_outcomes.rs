//! The second half of the queue's suite: how photos end, and how they begin again.

use std::time::Duration;

use super::refused;
use crate::Store;
use crate::conformance::fixture::{Event, LONG, bounding_box, face, finished, text};
use crate::error::StoreErrorKind;
use crate::model::ids::PhotoId;
use crate::model::photo::{
    DetectedFace, DetectedText, FailureReason, PhotoState, TextIndexState, UnindexedReason,
};
use crate::traits::{Finish, PhotoResults};

pub(super) async fn queue_outcomes_suite(store: &Store) {
    a_finished_photo_has_all_its_results(store).await;
    a_superseded_lease_cannot_write(store).await;
    one_deleted_photo_does_not_stop_the_others_of_a_batch(store).await;
    rejected_values_are_distinguished_from_an_outage(store).await;
    a_failed_photo_says_why_and_can_be_retried(store).await;
    a_reprocessed_album_shows_the_old_results_until_new_ones_are_written(store).await;
}

async fn a_finished_photo_has_all_its_results(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    let turned_away = DetectedFace {
        bounding_box: bounding_box(3),
        confidence: 0.5,
        unindexed: Some(UnindexedReason::ExtremePose),
        embedding: None,
    };
    let standing = |standing| DetectedText { index_state: standing, ..text("99", 0.625) };
    let reading = PhotoResults {
        faces: vec![face([0.0, 1.0, 0.0, 0.0]), turned_away],
        texts: vec![
            text("1234", 0.99),
            standing(TextIndexState::Candidate),
            standing(TextIndexState::Unindexed(UnindexedReason::NotABib)),
        ],
        ..finished(&lease)
    };
    let answers = store.queue.finish(vec![reading.clone()]).await.expect("finishes");
    assert_eq!(answers, [Finish::Done]);
    let kept = store.photos.get(event.album, photo).await.expect("gets it");
    assert_eq!((kept.state, kept.size), (PhotoState::Ready, Some(reading.size)));
    assert_eq!((kept.taken_at, &kept.camera), (reading.taken_at, &reading.camera));
    let seen = store.photos.get_detections(event.album, photo).await.expect("looks");
    assert_eq!(seen, (reading.faces.clone(), reading.texts.clone()));
    // The same again, as after a lost answer: refused, and nothing is there twice.
    let again = store.queue.finish(vec![reading.clone()]).await.expect("finishes");
    assert_eq!(again, [Finish::Superseded]);
    let seen = store.photos.get_detections(event.album, photo).await.expect("looks");
    assert_eq!(seen, (reading.faces, reading.texts));
    assert_eq!(store.queue.finish(Vec::new()).await.expect("finishes none"), []);
    event.end().await;
}

async fn a_superseded_lease_cannot_write(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    let slow = event.leased(1, Duration::ZERO).await.pop().expect("a photo waits");
    let quick = event.leased_suspect(LONG).await.expect("the lease lapsed");
    let slow_reading = PhotoResults { texts: vec![text("666", 0.99)], ..finished(&slow) };
    let answers = store.queue.finish(vec![slow_reading.clone()]).await.expect("finishes");
    assert_eq!(answers, [Finish::Superseded]);
    let answer = store.queue.fail(&slow, FailureReason::CorruptImage, "late").await.expect("fails");
    assert_eq!(answer, Finish::Superseded);
    store.queue.release(&[slow.id]).await.expect("gives back nothing");
    assert_eq!(store.queue.renew(&[slow.id, quick.id], LONG).await.expect("renews"), [quick.id]);
    let state = async || store.photos.get(event.album, photo).await.expect("gets it").state;
    assert_eq!(state().await, PhotoState::Processing);
    let quick_reading = PhotoResults { texts: vec![text("777", 0.99)], ..finished(&quick) };
    assert_eq!(store.queue.finish(vec![quick_reading]).await.expect("finishes"), [Finish::Done]);
    let answers = store.queue.finish(vec![slow_reading]).await.expect("finishes");
    assert_eq!(answers, [Finish::Superseded]);
    let (_, texts) = store.photos.get_detections(event.album, photo).await.expect("looks");
    assert_eq!(texts, [text("777", 0.99)]);
    assert_eq!(state().await, PhotoState::Ready);
    event.end().await;
}

async fn one_deleted_photo_does_not_stop_the_others_of_a_batch(store: &Store) {
    let event = Event::make(store).await;
    let other = Event::make(store).await;
    event.queued(3).await;
    other.queued(1).await;
    let leases = event.leased(4, LONG).await;
    let gone = leases.iter().position(|lease| lease.album == event.album).expect("some are the event's");
    store.photos.delete(event.album, leases[gone].photo).await.expect("deletes one");
    let answers = store.queue.finish(leases.iter().map(finished).collect()).await.expect("finishes");
    let mut expected = [Finish::Done; 4];
    expected[gone] = Finish::Gone;
    assert_eq!(answers, expected);
    let answer = store.queue.fail(&leases[gone], FailureReason::CorruptImage, "late").await.expect("fails");
    assert_eq!(answer, Finish::Gone);
    event.end().await;
    other.end().await;
}

async fn rejected_values_are_distinguished_from_an_outage(store: &Store) {
    let event = Event::make(store).await;
    event.queued(1).await;
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    let neither = DetectedFace { embedding: None, ..face([1.0, 0.0, 0.0, 0.0]) };
    let unfit = PhotoResults { faces: vec![neither], ..finished(&lease) };
    let refused = store.queue.finish(vec![unfit]).await.expect_err("searchable without a vector");
    assert!(refused.is_rejected_value(), "{refused}: {:?}", refused.source);
    assert_eq!(store.queue.finish(vec![finished(&lease)]).await.expect("finishes"), [Finish::Done]);
    let unknown = store.photos.get(event.album, PhotoId::generate()).await.expect_err("there is none");
    assert!(!unknown.is_rejected_value());
    event.end().await;
}

async fn a_failed_photo_says_why_and_can_be_retried(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.queued(1).await[0];
    refused(store.queue.retry(event.album, photo).await, StoreErrorKind::Conflict);
    refused(store.queue.retry(event.album, PhotoId::generate()).await, StoreErrorKind::NotFound);
    for reason in FailureReason::ALL {
        let lease = event.leased(1, LONG).await.pop().expect("the photo waits");
        assert_eq!(lease.attempt, 1);
        let answer = store.queue.fail(&lease, reason, "as the test wants it").await.expect("fails");
        assert_eq!(answer, Finish::Done);
        let failed = store.photos.get(event.album, photo).await.expect("gets it");
        assert_eq!((failed.state, failed.failure), (PhotoState::Failed, Some(reason)));
        store.queue.retry(event.album, photo).await.expect("retries it");
        let queued = store.photos.get(event.album, photo).await.expect("gets it");
        assert_eq!((queued.state, queued.failure), (PhotoState::Queued, None));
    }
    event.end().await;
}

async fn a_reprocessed_album_shows_the_old_results_until_new_ones_are_written(store: &Store) {
    let event = Event::make(store).await;
    let photo = event.ready(Vec::new(), vec![text("1234", 0.99)]).await;
    event.queued(1).await;
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::MissingObject, "gone").await.expect("fails");
    event.expected(1).await;
    assert_eq!(store.queue.reprocess(event.album).await.expect("queues"), 2);
    let seen = async || store.photos.get_detections(event.album, photo).await.expect("looks").1;
    assert_eq!(seen().await, [text("1234", 0.99)]);
    let leases = event.leased(10, LONG).await;
    assert_eq!(leases.iter().map(|lease| lease.attempt).collect::<Vec<_>>(), [1, 1]);
    let readings: Vec<PhotoResults> = leases
        .iter()
        .map(|lease| PhotoResults { texts: vec![text("5678", 0.99)], ..finished(lease) })
        .collect();
    assert_eq!(store.queue.finish(readings).await.expect("finishes"), [Finish::Done; 2]);
    assert_eq!(seen().await, [text("5678", 0.99)]);
    // What can no longer be read is no longer shown.
    assert_eq!(store.queue.reprocess(event.album).await.expect("queues"), 2);
    for lease in event.leased(10, LONG).await {
        store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails");
    }
    assert_eq!(seen().await, []);
    event.end().await;
}
