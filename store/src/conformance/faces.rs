//! Face search: follows the database at once, one hit per photo, nothing of another album.

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG, face, text};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, FailureReason, UnindexedReason,
};
use crate::store::Store;
use crate::traits::{HitReason, SelfieHit, SelfieQuery, SelfieScale};

/// Checks the backend of [`crate::traits::FaceIndex`].
pub async fn faces_suite(store: &Store) {
    a_photo_is_found_as_soon_as_it_is_finished(store).await;
    each_photo_is_found_once_by_its_best_face(store).await;
    faces_without_a_vector_or_of_another_model_are_not_found(store).await;
    the_index_follows_changes_in_the_database(store).await;
    searches_during_ingest_miss_nothing(store).await;
    a_person_is_found_by_face_and_bib(store).await;
}

const EAST: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
const NORTH: [f32; 4] = [0.0, 1.0, 0.0, 0.0];

fn make_embedding(vector: [f32; 4]) -> Embedding {
    face(vector).embedding.expect("a searchable face")
}

async fn search_faces(fixture: &AlbumFixture, probe: [f32; 4], at_least: f32) -> Vec<PhotoId> {
    let hits = fixture.store.faces.nearest(fixture.album, &make_embedding(probe), 1000, at_least).await;
    hits.expect("searches").into_iter().map(|hit| hit.photo).collect()
}

async fn a_photo_is_found_as_soon_as_it_is_finished(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    assert_eq!(search_faces(&fixture, EAST, 0.5).await, []);
    let mut photos = Vec::new();
    for _ in 0..3 {
        photos.push(fixture.add_ready_photo(vec![face(EAST)], Vec::new()).await);
        assert_eq!(search_faces(&fixture, EAST, 0.5).await, photos);
    }
    assert_error_kind(
        store.faces.nearest(AlbumId::generate(), &make_embedding(EAST), 10, 0.5).await,
        StoreErrorKind::NotFound,
    );
    fixture.delete().await;
}

async fn each_photo_is_found_once_by_its_best_face(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let close = fixture
        .add_ready_photo(vec![face([1.0, 1.0, 0.0, 0.0]), face([1.0, 0.1, 0.0, 0.0])], Vec::new())
        .await;
    let closest = fixture.add_ready_photo(vec![face(EAST)], Vec::new()).await;
    let far = fixture.add_ready_photo(vec![face([1.0, 2.0, 0.0, 0.0])], Vec::new()).await;
    let hits = store.faces.nearest(fixture.album, &make_embedding(EAST), 10, 0.0).await.expect("searches");
    let found: Vec<PhotoId> = hits.iter().map(|hit| hit.photo).collect();
    assert_eq!(found, [closest, close, far]);
    let expected = [1.0, 1.0 / 1.01_f32.sqrt(), 1.0 / 5.0_f32.sqrt()];
    for (hit, cosine) in hits.iter().zip(expected) {
        assert!((hit.cosine - cosine).abs() < 1e-5, "{} is not {cosine}", hit.cosine);
        assert_eq!(hit.bounding_box, face(EAST).bounding_box);
    }
    assert_eq!(search_faces(&fixture, EAST, 0.9).await, [closest, close]);
    let first = store.faces.nearest(fixture.album, &make_embedding(EAST), 1, 0.0).await.expect("searches");
    assert_eq!(first, hits[..1]);
    fixture.delete().await;
}

async fn faces_without_a_vector_or_of_another_model_are_not_found(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let blurred =
        DetectedFace { unindexed: Some(UnindexedReason::LowSharpness), embedding: None, ..face(EAST) };
    fixture.add_ready_photo(vec![blurred], Vec::new()).await;
    let older = Embedding { model: "suite@0".into(), vector: vec![1.0, 0.0] };
    let by_older = fixture
        .add_ready_photo(vec![DetectedFace { embedding: Some(older.clone()), ..face(EAST) }], Vec::new());
    let by_older = by_older.await;
    assert_eq!(search_faces(&fixture, EAST, -1.0).await, []);
    let hits = store.faces.nearest(fixture.album, &older, 10, 0.5).await.expect("searches");
    assert_eq!(hits.iter().map(|hit| hit.photo).collect::<Vec<_>>(), [by_older]);
    fixture.delete().await;
}

async fn the_index_follows_changes_in_the_database(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let first = fixture.add_ready_photo(vec![face(EAST)], Vec::new()).await;
    let second = fixture.add_ready_photo(vec![face(EAST)], Vec::new()).await;
    assert_eq!(search_faces(&fixture, EAST, 0.5).await, [first, second]);
    store.photos.delete(fixture.album, first).await.expect("deletes it");
    assert_eq!(search_faces(&fixture, EAST, 0.5).await, [second]);
    store.queue.reprocess(fixture.album).await.expect("requeues");
    assert_eq!(search_faces(&fixture, EAST, 0.5).await, [second], "found until it is reprocessed");
    fixture.process_next_photo(vec![face(NORTH)], Vec::new()).await;
    assert_eq!(search_faces(&fixture, EAST, 0.5).await, []);
    assert_eq!(search_faces(&fixture, NORTH, 0.5).await, [second]);
    store.queue.reprocess(fixture.album).await.expect("requeues");
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails");
    assert_eq!(search_faces(&fixture, NORTH, 0.5).await, []);
    fixture.delete().await;
}

async fn searches_during_ingest_miss_nothing(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(40).await;
    let ingest = async {
        for _ in 0..40 {
            fixture.process_next_photo(vec![face(EAST)], Vec::new()).await;
        }
    };
    let search = || async {
        let mut before = 0;
        while before < 40 {
            let found = search_faces(&fixture, EAST, 0.5).await.len();
            assert!(found >= before, "{found} photos after {before}");
            before = found;
        }
    };
    tokio::join!(ingest, search(), search(), search());
    fixture.delete().await;
}

/// How similar faces of the suites' network must be.
const SCALE: SelfieScale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };

/// A face with a bib on the chest below it.
fn runner(vector: [f32; 4], bib: &str) -> (DetectedFace, DetectedText) {
    let at = |top| BoundingBox { top, left: 0.4, width: 0.1, height: 0.1 };
    let face = DetectedFace { bounding_box: at(0.1), ..face(vector) };
    (face, DetectedText { bounding_box: at(0.3), ..text(bib, 0.95) })
}

/// Adds an album in which bibs matter, searching it with each of `stores` after each change: a photo is read again and
/// has another bib, one is deleted. Returns the album, the query, and what must be found in the end.
///
/// # Panics
/// When a search misses a change.
pub async fn add_album_with_bibs(stores: &[&Store]) -> (AlbumFixture, SelfieQuery, Vec<SelfieHit>) {
    let fixture = AlbumFixture::create(stores[0]).await;
    let query = SelfieQuery { probe: make_embedding(EAST), scale: SCALE, min_score: 0.35, limit: 1000 };
    let search = async || {
        let mut answers = Vec::new();
        for store in stores {
            answers.push(store.faces.find_person(fixture.album, query.clone()).await.expect("searches"));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
        answers.swap_remove(0)
    };
    let add = async |vector, bib: &str| {
        let (face, text) = runner(vector, bib);
        fixture.add_ready_photo(vec![face], vec![text]).await
    };
    let photos_of = |hits: &[SelfieHit]| hits.iter().map(|hit| hit.photo).collect::<Vec<_>>();
    let sure = add([0.8, 0.6, 0.0, 0.0], "0120").await;
    let look_alike = add([0.4, 0.0, 0.9, 0.0], "88").await;
    assert_eq!(photos_of(&search().await), [sure], "the bib of the look-alike excludes it");
    let weak = add([0.25, 0.0, 0.0, 0.97], "120").await;
    let found = search().await;
    assert_eq!(photos_of(&found), [sure, weak]);
    assert_eq!(found[1].reason, HitReason::SameBib);
    // The look-alike is read again, now with the runner's bib: what was known of its face must not stay.
    stores[0].queue.reprocess(fixture.album).await.expect("requeues");
    for (vector, bib) in
        [([0.8, 0.6, 0.0, 0.0], "120"), ([0.4, 0.0, 0.9, 0.0], "120"), ([0.25, 0.0, 0.0, 0.97], "77")]
    {
        let (face, text) = runner(vector, bib);
        fixture.process_next_photo(vec![face], vec![text]).await;
    }
    let found = search().await;
    assert_eq!(photos_of(&found), [sure, look_alike], "{weak} has another bib now");
    let other = add([0.85, 0.0, 0.5, 0.0], "120").await;
    stores[0].photos.delete(fixture.album, sure).await.expect("deletes");
    let found = search().await;
    assert_eq!(photos_of(&found), [other, look_alike]);
    (fixture, query, found)
}

async fn a_person_is_found_by_face_and_bib(store: &Store) {
    let (fixture, query, found) = add_album_with_bibs(&[store]).await;
    let best = SelfieQuery { limit: 1, ..query.clone() };
    assert_eq!(store.faces.find_person(fixture.album, best).await.expect("searches"), found[..1]);
    assert_error_kind(store.faces.find_person(AlbumId::generate(), query).await, StoreErrorKind::NotFound);
    fixture.delete().await;
}
