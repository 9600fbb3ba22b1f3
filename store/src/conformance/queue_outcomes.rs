//! The second half of the queue suite: finishing, failing, retrying and reprocessing photos.

use std::time::Duration;

use super::assert_error_kind;
use crate::conformance::fixture::{
    AlbumFixture, LONG, album_config, bounding_box, empty_results, face, text,
};
use crate::error::StoreErrorKind;
use crate::model::album::{AlbumChange, AlbumConfig, Grid, RecognitionMode};
use crate::model::credit::Credits;
use crate::model::ids::PhotoId;
use crate::model::photo::{
    DetectedFace, DetectedText, FailureReason, PhotoState, TextIndexState, UnindexedReason,
};
use crate::store::Store;
use crate::traits::{FinishOutcome, Lease, PhotoResults};

pub(super) async fn queue_outcomes_suite(store: &Store) {
    a_finished_photo_has_all_its_results(store).await;
    a_superseded_lease_cannot_write(store).await;
    one_deleted_photo_does_not_stop_the_others_of_a_batch(store).await;
    rejected_values_are_distinguished_from_an_outage(store).await;
    a_failed_photo_says_why_and_can_be_retried(store).await;
    a_failed_photo_that_is_confirmed_again_is_queued_once(store).await;
    a_reprocessed_album_shows_the_old_results_until_new_ones_are_written(store).await;
    photos_that_are_being_processed_are_processed_again_with_other_settings(store).await;
    a_photo_that_is_being_processed_with_the_settings_of_now_is_not_processed_again(store).await;
}

async fn a_finished_photo_has_all_its_results(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    let turned_away = DetectedFace {
        bounding_box: bounding_box(3),
        confidence: 0.5,
        unindexed: Some(UnindexedReason::ExtremePose),
        embedding: None,
    };
    let standing = |standing| DetectedText { index_state: standing, ..text("99", 0.625) };
    let reading = PhotoResults {
        skipped_runners: 17,
        faces: vec![face([0.0, 1.0, 0.0, 0.0]), turned_away],
        texts: vec![
            text("1234", 0.99),
            standing(TextIndexState::Candidate),
            standing(TextIndexState::Unindexed(UnindexedReason::NotABib)),
        ],
        ..empty_results(&lease)
    };
    let answers = store.queue.finish(vec![reading.clone()]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Done]);
    let kept = store.photos.get(fixture.album, photo).await.expect("gets it");
    assert_eq!((kept.state, kept.size), (PhotoState::Ready, Some(reading.size)));
    assert_eq!((kept.taken_at, &kept.camera), (reading.taken_at, &reading.camera));
    assert_eq!(kept.skipped_runners, 17);
    let seen = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(seen, (reading.faces.clone(), reading.texts.clone()));
    // The same call again, as after a lost response: refused, and nothing is written twice.
    let again = store.queue.finish(vec![reading.clone()]).await.expect("finishes");
    assert_eq!(again, [FinishOutcome::Superseded]);
    let seen = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(seen, (reading.faces, reading.texts));
    assert_eq!(store.queue.finish(Vec::new()).await.expect("finishes none"), []);
    fixture.delete().await;
}

async fn a_superseded_lease_cannot_write(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let slow = fixture.lease_fresh(1, Duration::ZERO).await.pop().expect("a photo waits");
    let quick = fixture.lease_suspect(LONG).await.expect("the lease expired");
    let slow_reading = PhotoResults { texts: vec![text("666", 0.99)], ..empty_results(&slow) };
    let answers = store.queue.finish(vec![slow_reading.clone()]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Superseded]);
    let answer = store.queue.fail(&slow, FailureReason::CorruptImage, "late").await.expect("fails");
    assert_eq!(answer, FinishOutcome::Superseded);
    store.queue.release(std::slice::from_ref(&slow)).await.expect("releases nothing");
    assert_eq!(store.queue.renew(&[slow.id, quick.id], LONG).await.expect("renews"), [quick.id]);
    let state = async || store.photos.get(fixture.album, photo).await.expect("gets it").state;
    assert_eq!(state().await, PhotoState::Processing);
    let quick_reading = PhotoResults { texts: vec![text("777", 0.99)], ..empty_results(&quick) };
    assert_eq!(store.queue.finish(vec![quick_reading]).await.expect("finishes"), [FinishOutcome::Done]);
    let answers = store.queue.finish(vec![slow_reading]).await.expect("finishes");
    assert_eq!(answers, [FinishOutcome::Superseded]);
    let (_, texts) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(texts, [text("777", 0.99)]);
    assert_eq!(state().await, PhotoState::Ready);
    fixture.delete().await;
}

async fn one_deleted_photo_does_not_stop_the_others_of_a_batch(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    fixture.queue_photos(3).await;
    other.queue_photos(1).await;
    let leases = fixture.lease_fresh(4, LONG).await;
    let gone = leases.iter().position(|lease| lease.album == fixture.album).expect("some are of this album");
    store.photos.delete(fixture.album, leases[gone].photo).await.expect("deletes one");
    let answers = store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes");
    let mut expected = [FinishOutcome::Done; 4];
    expected[gone] = FinishOutcome::Gone;
    assert_eq!(answers, expected);
    let answer = store.queue.fail(&leases[gone], FailureReason::CorruptImage, "late").await.expect("fails");
    assert_eq!(answer, FinishOutcome::Gone);
    fixture.delete().await;
    other.delete().await;
}

async fn rejected_values_are_distinguished_from_an_outage(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    let neither = DetectedFace { embedding: None, ..face([1.0, 0.0, 0.0, 0.0]) };
    let unfit = PhotoResults { faces: vec![neither], ..empty_results(&lease) };
    let refused = store.queue.finish(vec![unfit]).await.expect_err("searchable without a vector");
    assert!(refused.is_rejected_value(), "{refused}: {:?}", refused.source);
    assert_eq!(
        store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes"),
        [FinishOutcome::Done]
    );
    let unknown = store.photos.get(fixture.album, PhotoId::generate()).await.expect_err("there is none");
    assert!(!unknown.is_rejected_value());
    fixture.delete().await;
}

async fn a_failed_photo_says_why_and_can_be_retried(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    assert_error_kind(store.queue.retry(fixture.album, photo).await, StoreErrorKind::Conflict);
    assert_error_kind(store.queue.retry(fixture.album, PhotoId::generate()).await, StoreErrorKind::NotFound);
    for reason in FailureReason::ALL {
        let lease = fixture.lease_fresh(1, LONG).await.pop().expect("the photo waits");
        assert_eq!(lease.attempt, 1);
        let answer = store.queue.fail(&lease, reason, "by the test").await.expect("fails");
        assert_eq!(answer, FinishOutcome::Done);
        let failed = store.photos.get(fixture.album, photo).await.expect("gets it");
        assert_eq!((failed.state, failed.failure), (PhotoState::Failed, Some(reason)));
        store.queue.retry(fixture.album, photo).await.expect("retries it");
        let queued = store.photos.get(fixture.album, photo).await.expect("gets it");
        assert_eq!((queued.state, queued.failure), (PhotoState::Queued, None));
    }
    fixture.delete().await;
}

async fn a_failed_photo_that_is_confirmed_again_is_queued_once(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.queue_photos(1).await[0];
    // It has used up its attempts.
    assert_eq!(fixture.lease_fresh(1, Duration::ZERO).await.len(), 1);
    while fixture.lease_suspect(Duration::ZERO).await.is_some() {}
    let state = async || store.photos.get(fixture.album, photo).await.expect("gets it");
    assert_eq!(state().await.failure, Some(FailureReason::ProcessingCrashed));
    let confirms = (0..4).map(|_| async {
        let confirmed = store.queue.confirm(fixture.album, &[photo, photo]).await.expect("confirms");
        assert_eq!(confirmed, [photo, photo]);
    });
    futures_util::future::join_all(confirms).await;
    assert_eq!((state().await.state, state().await.failure), (PhotoState::Queued, None));
    assert_eq!(store.queue.depth().await.expect("counts"), 1);
    let lease = fixture.lease_fresh(2, LONG).await;
    assert_eq!(lease.iter().map(|lease| (lease.photo, lease.attempt)).collect::<Vec<_>>(), [(photo, 1)]);
    // A repeated confirmation changes nothing while a worker has it, nor once it is ready.
    store.queue.confirm(fixture.album, &[photo]).await.expect("confirms");
    assert_eq!(
        store.queue.finish(vec![empty_results(&lease[0])]).await.expect("finishes"),
        [FinishOutcome::Done]
    );
    store.queue.confirm(fixture.album, &[photo]).await.expect("confirms");
    assert_eq!(state().await.state, PhotoState::Ready);
    assert_eq!(store.photos.count_settled_within(fixture.album, LONG).await.expect("counts"), 1);
    fixture.delete().await;
}

async fn a_reprocessed_album_shows_the_old_results_until_new_ones_are_written(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(Vec::new(), vec![text("1234", 0.99)]).await;
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::MissingObject, "gone").await.expect("fails");
    fixture.create_photos(1).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 2);
    let seen = async || store.photos.get_detections(fixture.album, photo).await.expect("reads").1;
    assert_eq!(seen().await, [text("1234", 0.99)]);
    let leases = fixture.lease_fresh(10, LONG).await;
    assert_eq!(leases.iter().map(|lease| lease.attempt).collect::<Vec<_>>(), [1, 1]);
    let readings: Vec<PhotoResults> = leases
        .iter()
        .map(|lease| PhotoResults { texts: vec![text("5678", 0.99)], ..empty_results(lease) })
        .collect();
    assert_eq!(store.queue.finish(readings).await.expect("finishes"), [FinishOutcome::Done; 2]);
    assert_eq!(seen().await, [text("5678", 0.99)]);
    // The results of a photo that fails now are removed.
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 2);
    for lease in fixture.lease_fresh(10, LONG).await {
        store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails");
    }
    assert_eq!(seen().await, []);
    fixture.delete().await;
}

/// Results in which this text was read.
fn reading(lease: &Lease, seen: &str) -> PhotoResults {
    PhotoResults { texts: vec![text(seen, 0.99)], ..empty_results(lease) }
}

/// Changes how bibs of the album are read; returns its configuration.
async fn read_in_cells(fixture: &AlbumFixture) -> AlbumConfig {
    let mut config = album_config();
    config.text.mode = RecognitionMode::Grid;
    config.text.grid = Some(Grid { rows: 2, columns: 2, cell_width: 640, cell_height: 640 });
    let change = AlbumChange { config: Some(config.clone()), ..AlbumChange::default() };
    fixture.store.albums.update(&fixture.tenant, fixture.album, change).await.expect("updates");
    config
}

async fn photos_that_are_being_processed_are_processed_again_with_other_settings(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let ready = fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    let photos = fixture.queue_photos(3).await;
    let before = fixture.lease_fresh(3, LONG).await;
    let config = read_in_cells(&fixture).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 1, "the ready one");
    let counts = fixture.check_counts().await;
    assert_eq!((counts.queued, counts.processing), (1, 3), "workers may be writing their pictures");

    // However the attempts end, their photos wait again.
    let old = before.iter().map(|lease| reading(lease, "666"));
    let ended = store.queue.finish(old.clone().take(1).collect()).await.expect("is refused");
    assert_eq!(ended, [FinishOutcome::Superseded]);
    let ended = store.queue.fail(&before[1], FailureReason::CorruptImage, "late").await.expect("is refused");
    assert_eq!(ended, FinishOutcome::Superseded);
    store.queue.release(&before[2..]).await.expect("releases it");
    assert_eq!(fixture.check_counts().await.queued, 4);
    let held = async || store.credits.balance(&fixture.tenant).await.expect("reads the balance").held;
    assert_eq!(held().await, Credits::whole(3), "what was held is held once");
    let late = store.queue.finish(old.collect()).await.expect("is refused");
    assert_eq!(late, [FinishOutcome::Superseded; 3]);

    let again = fixture.lease_fresh(4, LONG).await;
    assert!(again.iter().all(|lease| lease.attempt == 1 && *lease.config == config), "{again:?}");
    let new = again.iter().map(|lease| reading(lease, "777")).collect();
    assert_eq!(store.queue.finish(new).await.expect("finishes"), [FinishOutcome::Done; 4]);
    for photo in photos.into_iter().chain([ready]) {
        let (_, texts) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
        assert_eq!(texts, [text("777", 0.99)]);
    }
    assert_eq!((fixture.check_counts().await.ready, held().await), (4, Credits::ZERO));
    fixture.delete().await;
}

async fn a_photo_that_is_being_processed_with_the_settings_of_now_is_not_processed_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(2).await;
    let leases = fixture.lease_fresh(2, LONG).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("requeues").queued, 0);
    let finished = store.queue.finish(vec![empty_results(&leases[0])]).await.expect("finishes");
    assert_eq!(finished, [FinishOutcome::Done]);
    let failed = store.queue.fail(&leases[1], FailureReason::CorruptImage, "damaged").await.expect("fails");
    assert_eq!(failed, FinishOutcome::Done);
    // Nor is one with other settings, of which nobody asked for it.
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    read_in_cells(&fixture).await;
    let finished = store.queue.finish(vec![empty_results(&lease)]).await.expect("finishes");
    assert_eq!(finished, [FinishOutcome::Done]);
    fixture.delete().await;
}
