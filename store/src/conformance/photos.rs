//! Photos: ids in order, pages without gaps or repeats, one album each.

use std::time::Duration;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG, empty_results, face, text};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, NewPhoto, Photo, PhotoQuery, PhotoState, StateCounts};
use crate::store::Store;
use crate::traits::{FinishOutcome, PhotoResults};

/// Checks the backend of [`crate::traits::Photos`].
pub async fn photos_suite(store: &Store) {
    photos_get_ordered_ids_and_keep_the_declared_fields(store).await;
    unusual_texts_are_stored_unchanged(store).await;
    a_photo_belongs_to_its_album_only(store).await;
    pages_contain_every_photo_once_oldest_first(store).await;
    states_are_counted_and_listed(store).await;
    photos_that_are_processed_again_are_shown(store).await;
    many_photos_that_are_processed_again_are_counted(store).await;
    settled_photos_are_counted_within_the_window(store).await;
    a_deleted_photo_is_removed_with_its_detections(store).await;
}

async fn photos_get_ordered_ids_and_keep_the_declared_fields(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let new: Vec<NewPhoto> = ["ziel 1.jpg", "../ziel \u{1f3c3}.png"]
        .map(|name| NewPhoto { filename: name.into(), content_type: "image/png".into() })
        .into();
    let ids = store.photos.create(fixture.album, new.clone()).await.expect("creates photos");
    assert!(ids.is_sorted());
    for (id, new) in ids.iter().zip(&new) {
        let photo = store.photos.get(fixture.album, *id).await.expect("gets it");
        assert_eq!((&photo.filename, photo.content_type.as_str()), (&new.filename, "image/png"));
        assert_eq!((photo.state, photo.failure), (PhotoState::AwaitingUpload, None));
        assert_eq!((photo.size, photo.taken_at, photo.camera), (None, None, None));
    }
    assert_eq!(store.photos.create(fixture.album, Vec::new()).await.expect("creates none"), []);
    assert_error_kind(store.photos.create(AlbumId::generate(), new).await, StoreErrorKind::NotFound);
    fixture.delete().await;
}

/// A NUL may be dropped. Every other character is stored, and no text is refused.
async fn unusual_texts_are_stored_unchanged(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let odd = "a\0b'\"\\%_\u{1f3c3}\u{feff}\r\n";
    let new = NewPhoto { filename: odd.into(), content_type: "image/jpeg".into() };
    let id = store.photos.create(fixture.album, vec![new]).await.expect("creates it")[0];
    store.queue.confirm(fixture.album, &[id]).await.expect("confirms it");
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("the photo waits");
    let read =
        PhotoResults { camera: Some(odd.into()), texts: vec![text(odd, 0.99)], ..empty_results(&lease) };
    assert_eq!(store.queue.finish(vec![read]).await.expect("finishes"), [FinishOutcome::Done]);
    let photo = store.photos.get(fixture.album, id).await.expect("gets it");
    let (_, texts) = store.photos.get_detections(fixture.album, id).await.expect("reads");
    for kept in [photo.filename.as_str(), photo.camera.as_deref().unwrap_or_default(), &texts[0].text] {
        assert_eq!(kept.replace('\0', ""), odd.replace('\0', ""));
    }
    fixture.delete().await;
}

async fn a_photo_belongs_to_its_album_only(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let ids = fixture.create_photos(3).await;
    let foreign = other.create_photos(1).await[0];
    assert_error_kind(store.photos.get(fixture.album, foreign).await, StoreErrorKind::NotFound);
    assert_error_kind(store.photos.delete(fixture.album, foreign).await, StoreErrorKind::NotFound);
    let asked = [ids[2], foreign, PhotoId::generate(), ids[0]];
    let mut got: Vec<PhotoId> = store
        .photos
        .get_many(fixture.album, &asked)
        .await
        .expect("gets many")
        .iter()
        .map(|photo| photo.id)
        .collect();
    got.sort();
    assert_eq!(got, [ids[0], ids[2]]);
    assert_eq!(store.photos.get_many(fixture.album, &[]).await.expect("gets none").len(), 0);
    fixture.delete().await;
    other.delete().await;
}

async fn pages_contain_every_photo_once_oldest_first(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let ids = fixture.create_photos(7).await;
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let query = PhotoQuery { after, limit: 3, state: None };
        let page = store.photos.list(fixture.album, query).await.expect("lists them");
        assert_eq!(page.total, 7);
        listed.extend(page.photos.iter().map(|photo| photo.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, ids);
    fixture.delete().await;
}

async fn states_are_counted_and_listed(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    fixture.queue_photos(1).await;
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "ends early").await.expect("fails it");
    fixture.queue_photos(1).await;
    fixture.lease_fresh(1, LONG).await;
    fixture.queue_photos(3).await;
    fixture.create_photos(2).await;
    let expected = StateCounts { awaiting_upload: 2, queued: 3, processing: 1, ready: 1, failed: 1 };
    assert_eq!(fixture.check_counts().await, expected);
    for (state, count) in PhotoState::ALL.into_iter().zip([2, 3, 1, 1, 1]) {
        let query = PhotoQuery { after: None, limit: 2, state: Some(state) };
        let page = store.photos.list(fixture.album, query).await.expect("lists them");
        assert_eq!((page.total, page.photos.len()), (count, count.min(2) as usize), "{state:?}");
        assert!(page.photos.iter().all(|photo| photo.state == state));
        assert_eq!(page.next.is_some(), count > 2);
    }
    fixture.delete().await;
}

async fn photos_that_are_processed_again_are_shown(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut shown = Vec::new();
    for _ in 0..3 {
        shown.push(fixture.add_ready_photo(Vec::new(), Vec::new()).await);
        // Between them are photos without pictures.
        fixture.create_photos(1).await;
    }
    let count = async || store.photos.count_shown(fixture.album).await.expect("counts");
    assert_eq!(count().await, 3);
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 3);
    fixture.process_next_photo(Vec::new(), Vec::new()).await;
    fixture.lease_fresh(1, LONG).await;
    // Of these there is no picture yet.
    fixture.queue_photos(1).await;
    fixture.create_photos(1).await;
    let expected = StateCounts { awaiting_upload: 4, queued: 2, processing: 1, ready: 1, failed: 0 };
    assert_eq!(fixture.check_counts().await, expected);

    assert_eq!(count().await, 3);
    for limit in 1..=4 {
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let page = store.photos.list_shown(fixture.album, after, limit).await;
            let (photos, next) = page.expect("lists them");
            assert!(photos.len() <= limit as usize && photos.iter().all(Photo::has_pictures));
            listed.extend(photos.iter().map(|photo| photo.id));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, shown, "{limit} on a page");
    }
    fixture.delete().await;
}

/// More than are counted without a turn.
async fn many_photos_that_are_processed_again_are_counted(store: &Store) {
    const MANY: u64 = 1_050;
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(MANY as usize).await;
    loop {
        let leases = fixture.lease_fresh(350, LONG).await;
        if leases.is_empty() {
            break;
        }
        store.queue.finish(leases.iter().map(empty_results).collect()).await.expect("finishes them");
    }
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, MANY);
    fixture.process_next_photo(Vec::new(), Vec::new()).await;
    fixture.queue_photos(2).await;
    let expected = StateCounts { queued: MANY + 1, ready: 1, ..StateCounts::default() };
    assert_eq!(store.photos.count_by_state(fixture.album).await.expect("counts"), expected);
    assert_eq!(store.photos.count_shown(fixture.album).await.expect("counts"), MANY);
    fixture.delete().await;
}

async fn settled_photos_are_counted_within_the_window(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    fixture.queue_photos(1).await;
    let settled =
        async |window| store.photos.count_settled_within(fixture.album, window).await.expect("counts");
    assert_eq!(settled(LONG).await, 2);
    assert_eq!(settled(Duration::MAX).await, 2);
    let pause = Duration::from_millis(50);
    tokio::time::sleep(pause).await;
    assert_eq!(settled(pause / 2).await, 0, "they are older");
    fixture.delete().await;
}

async fn a_deleted_photo_is_removed_with_its_detections(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("1234", 0.99)]).await;
    let (faces, texts) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!((faces.len(), texts.len()), (1, 1));
    store.photos.delete(fixture.album, photo).await.expect("deletes it");
    assert_error_kind(store.photos.get(fixture.album, photo).await, StoreErrorKind::NotFound);
    assert_error_kind(store.photos.delete(fixture.album, photo).await, StoreErrorKind::NotFound);
    let seen = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(seen, (Vec::new(), Vec::new()));
    assert_eq!(fixture.check_counts().await, StateCounts::default());
    fixture.delete().await;
}
