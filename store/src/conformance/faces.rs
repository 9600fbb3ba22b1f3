//! What every face index must do: follow the rows at once, one hit a photo, nothing of another album.

use super::refused;
use crate::Store;
use crate::conformance::fixture::{Event, LONG, face};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{DetectedFace, Embedding, FailureReason, UnindexedReason};

/// The face index.
pub async fn faces_suite(store: &Store) {
    a_photo_is_found_as_soon_as_it_is_finished(store).await;
    each_photo_is_found_once_by_its_best_face(store).await;
    faces_without_a_vector_or_of_another_model_are_not_found(store).await;
    the_index_follows_changes_in_the_database(store).await;
    searches_during_ingest_miss_nothing(store).await;
}

const EAST: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
const NORTH: [f32; 4] = [0.0, 1.0, 0.0, 0.0];

fn make_embedding(vector: [f32; 4]) -> Embedding {
    face(vector).embedding.expect("a searchable face")
}

async fn search_faces(event: &Event, probe: [f32; 4], at_least: f32) -> Vec<PhotoId> {
    let hits = event.store.faces.nearest(event.album, &make_embedding(probe), 1000, at_least).await;
    hits.expect("searches").into_iter().map(|hit| hit.photo).collect()
}

async fn a_photo_is_found_as_soon_as_it_is_finished(store: &Store) {
    let event = Event::make(store).await;
    assert_eq!(search_faces(&event, EAST, 0.5).await, []);
    let mut photos = Vec::new();
    for _ in 0..3 {
        photos.push(event.ready(vec![face(EAST)], Vec::new()).await);
        assert_eq!(search_faces(&event, EAST, 0.5).await, photos);
    }
    refused(
        store.faces.nearest(AlbumId::generate(), &make_embedding(EAST), 10, 0.5).await,
        StoreErrorKind::NotFound,
    );
    event.end().await;
}

async fn each_photo_is_found_once_by_its_best_face(store: &Store) {
    let event = Event::make(store).await;
    let close = event.ready(vec![face([1.0, 1.0, 0.0, 0.0]), face([1.0, 0.1, 0.0, 0.0])], Vec::new()).await;
    let closest = event.ready(vec![face(EAST)], Vec::new()).await;
    let far = event.ready(vec![face([1.0, 2.0, 0.0, 0.0])], Vec::new()).await;
    let hits = store.faces.nearest(event.album, &make_embedding(EAST), 10, 0.0).await.expect("searches");
    let found: Vec<PhotoId> = hits.iter().map(|hit| hit.photo).collect();
    assert_eq!(found, [closest, close, far]);
    let expected = [1.0, 1.0 / 1.01_f32.sqrt(), 1.0 / 5.0_f32.sqrt()];
    for (hit, cosine) in hits.iter().zip(expected) {
        assert!((hit.cosine - cosine).abs() < 1e-5, "{} is not {cosine}", hit.cosine);
        assert_eq!(hit.bounding_box, face(EAST).bounding_box);
    }
    assert_eq!(search_faces(&event, EAST, 0.9).await, [closest, close]);
    let first = store.faces.nearest(event.album, &make_embedding(EAST), 1, 0.0).await.expect("searches");
    assert_eq!(first, hits[..1]);
    event.end().await;
}

async fn faces_without_a_vector_or_of_another_model_are_not_found(store: &Store) {
    let event = Event::make(store).await;
    let blurred =
        DetectedFace { unindexed: Some(UnindexedReason::LowSharpness), embedding: None, ..face(EAST) };
    event.ready(vec![blurred], Vec::new()).await;
    let older = Embedding { model: "suite@0".into(), vector: vec![1.0, 0.0] };
    let by_older =
        event.ready(vec![DetectedFace { embedding: Some(older.clone()), ..face(EAST) }], Vec::new());
    let by_older = by_older.await;
    assert_eq!(search_faces(&event, EAST, -1.0).await, []);
    let hits = store.faces.nearest(event.album, &older, 10, 0.5).await.expect("searches");
    assert_eq!(hits.iter().map(|hit| hit.photo).collect::<Vec<_>>(), [by_older]);
    event.end().await;
}

async fn the_index_follows_changes_in_the_database(store: &Store) {
    let event = Event::make(store).await;
    let first = event.ready(vec![face(EAST)], Vec::new()).await;
    let second = event.ready(vec![face(EAST)], Vec::new()).await;
    assert_eq!(search_faces(&event, EAST, 0.5).await, [first, second]);
    store.photos.delete(event.album, first).await.expect("deletes it");
    assert_eq!(search_faces(&event, EAST, 0.5).await, [second]);
    store.queue.reprocess(event.album).await.expect("queues");
    assert_eq!(search_faces(&event, EAST, 0.5).await, [second], "found until it is read anew");
    event.read(vec![face(NORTH)], Vec::new()).await;
    assert_eq!(search_faces(&event, EAST, 0.5).await, []);
    assert_eq!(search_faces(&event, NORTH, 0.5).await, [second]);
    store.queue.reprocess(event.album).await.expect("queues");
    let lease = event.leased(1, LONG).await.pop().expect("a photo waits");
    store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.expect("fails");
    assert_eq!(search_faces(&event, NORTH, 0.5).await, []);
    event.end().await;
}

async fn searches_during_ingest_miss_nothing(store: &Store) {
    let event = Event::make(store).await;
    event.queued(40).await;
    let ingest = async {
        for _ in 0..40 {
            event.read(vec![face(EAST)], Vec::new()).await;
        }
    };
    let search = || async {
        let mut before = 0;
        while before < 40 {
            let found = search_faces(&event, EAST, 0.5).await.len();
            assert!(found >= before, "{found} photos after {before}");
            before = found;
        }
    };
    tokio::join!(ingest, search(), search(), search());
    event.end().await;
}
