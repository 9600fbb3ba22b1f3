//! Erasures: nothing is found, nothing comes back, and the receipt says so.

use time::OffsetDateTime;

use super::assert_error_kind;
use super::erasure_edges::erasure_edges_suite;
use super::fixture::{AlbumFixture, LONG, bounding_box, create_key, empty_results, face, text};
use crate::error::StoreErrorKind;
use crate::model::album::AlbumChange;
use crate::model::erasure::{
    AgeingAlbum, ComparedSelfie, Erasure, ErasureKind, ErasureQuery, ErasureState, ErasureSubject,
    ExpiringPart, FacePlace, NewErasure, PhotoFate, Receipt,
};
use crate::model::ids::{ErasureId, PhotoId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::model::photo::{BoundingBox, DetectedFace, Embedding, TextIndexState, UnindexedReason};
use crate::model::start_list::{ImportMode, StartListEntry, StartListImport};
use crate::store::Store;
use crate::traits::{PhotoResults, ProbeOutcome, TextQuery};

pub(super) const RUNNER: [f32; 4] = [1.0, 0.0, 0.0, 0.0];
pub(super) const OTHER: [f32; 4] = [0.0, 1.0, 0.0, 0.0];
const ERASED: UnindexedReason = UnindexedReason::Erased;

/// Checks the backend of [`crate::traits::Erasures`].
pub async fn erasures_suite(store: &Store) {
    an_erased_face_is_found_nowhere_and_does_not_come_back(store).await;
    a_face_that_was_read_before_its_erasure_gets_no_vector_after_it(store).await;
    an_erased_bib_says_nothing_and_does_not_come_back(store).await;
    a_bib_goes_with_the_faces_that_wear_it(store).await;
    an_erased_bib_leaves_the_start_list_and_is_left_out_of_the_next(store).await;
    photos_with_nobody_else_are_deleted_on_request(store).await;
    nothing_to_erase_gives_a_receipt_with_zeros(store).await;
    a_photo_and_an_album_leave_receipts(store).await;
    an_interrupted_erasure_is_finished_later(store).await;
    erasures_belong_to_their_tenant(store).await;
    faces_of_an_album_go_by_their_age_and_come_back_only_when_asked(store).await;
    an_album_goes_by_its_age_and_its_owner_is_told(store).await;
    erasure_edges_suite(store).await;
}

pub(super) fn embedding(vector: [f32; 4]) -> Embedding {
    face(vector).embedding.expect("a searchable face")
}

pub(super) fn face_at(vector: [f32; 4], place: BoundingBox) -> DetectedFace {
    DetectedFace { bounding_box: place, ..face(vector) }
}

pub(super) fn faces_of(fixture: &AlbumFixture, photos: &[PhotoId], fate: PhotoFate) -> NewErasure {
    let places =
        photos.iter().map(|photo| FacePlace { photo: *photo, bounding_box: bounding_box(1) }).collect();
    let subject = ErasureSubject::Faces {
        places,
        selfie: Some(ComparedSelfie { embedding: embedding(RUNNER), min_cosine: 0.9 }),
        searched_at: i64::MAX,
    };
    new_erasure(fixture, subject, fate)
}

pub(super) fn bib_of(fixture: &AlbumFixture, bib: &str, with_faces: bool) -> NewErasure {
    new_erasure(fixture, ErasureSubject::Bib { bib: bib.into(), with_faces }, PhotoFate::Keep)
}

fn new_erasure(fixture: &AlbumFixture, subject: ErasureSubject, photos: PhotoFate) -> NewErasure {
    let (tenant, album, asked_by) = (fixture.tenant, fixture.album, fixture.key.id);
    NewErasure { tenant, album, asked_by, subject, photos, report: None }
}

/// Does what is left of an erasure; returns it with its receipt.
pub(super) async fn finish(store: &Store, id: ErasureId) -> (Erasure, Receipt) {
    let erasure = store.erasures.remove_objects(id).await.expect("removes objects");
    for _ in 0..100 {
        if store.erasures.finish(&[id]).await.expect("finishes") == 1 {
            break;
        }
        // Somebody still reads the log of the database.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let done = store.erasures.get(&erasure.tenant, id).await.expect("gets the erasure");
    assert_eq!(done.state, ErasureState::Done);
    let receipt = done.receipt.clone().expect("has a receipt");
    assert_eq!((receipt.receipt_id, receipt.scan.left), (id, 0));
    assert_eq!(receipt.removed, done.removed);
    let again = store.erasures.verify(&erasure.tenant, id).await.expect("looks again");
    assert_eq!(again.left, 0, "{again:?}");
    (done, receipt)
}

pub(super) async fn erase(store: &Store, erasure: NewErasure) -> (Erasure, Receipt) {
    let id = store.erasures.begin(erasure).await.expect("erases");
    finish(store, id).await
}

pub(super) async fn found(fixture: &AlbumFixture, vector: [f32; 4]) -> Vec<PhotoId> {
    let hits = fixture.store.faces.nearest(fixture.album, &embedding(vector), 10, 0.9).await;
    hits.expect("searches").into_iter().map(|hit| hit.photo).collect()
}

pub(super) async fn found_bib(fixture: &AlbumFixture, bib: &str) -> usize {
    let query = TextQuery { text: bib.into(), exact: false };
    fixture.store.texts.search(fixture.album, &query).await.expect("searches").len()
}

async fn an_erased_face_is_found_nowhere_and_does_not_come_back(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other_place = bounding_box(40);
    let photo = fixture.add_ready_photo(vec![face(RUNNER), face_at(OTHER, other_place)], Vec::new()).await;
    let (same, stranger) = (create_probe(&fixture, RUNNER).await, create_probe(&fixture, OTHER).await);
    let request = faces_of(&fixture, &[photo], PhotoFate::Keep);
    let preview = store.erasures.preview(&request).await.expect("says what would go");
    assert_eq!((preview.faces, preview.texts, preview.probes), (1, 0, 1));
    assert_eq!((preview.photos.as_slice(), preview.deleted_photos.len()), (&[photo][..], 0));
    assert_eq!(found(&fixture, RUNNER).await, [photo], "a preview erases nothing");

    let (done, receipt) = erase(store, request).await;
    assert_eq!((done.removed.faces, done.removed.vectors, done.removed.probes), (1, 1, 1));
    assert_eq!(receipt.subject.kind, ErasureKind::Face);
    assert!(receipt.kept.iter().any(|kept| kept.what == "1 photos"), "{:?}", receipt.kept);
    assert!(found(&fixture, RUNNER).await.is_empty());
    assert_eq!(found(&fixture, OTHER).await, [photo]);
    let (faces, _) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    let erased = faces.iter().find(|face| face.bounding_box == bounding_box(1)).expect("the box stays");
    assert_eq!((erased.unindexed, &erased.embedding), (Some(ERASED), &None));
    assert_error_kind(store.probes.get(fixture.album, same).await, StoreErrorKind::NotFound);
    store.probes.get(fixture.album, stranger).await.expect("another person's selfie stays");

    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 1);
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert_eq!(lease.erased_places, [bounding_box(1)]);
    // A version of the pipeline that computed it all the same.
    let moved = BoundingBox { left: bounding_box(1).left + 0.005, ..bounding_box(1) };
    let faces = vec![face_at(RUNNER, moved), face_at(OTHER, other_place)];
    let results = PhotoResults { faces, ..empty_results(&lease) };
    store.queue.finish(vec![results]).await.expect("finishes");
    assert!(found(&fixture, RUNNER).await.is_empty(), "it does not come back");
    assert_eq!(found(&fixture, OTHER).await, [photo]);
    let again = store.erasures.verify(&fixture.tenant, done.id).await.expect("looks again");
    assert_eq!(again.left, 0, "{again:?}");
    fixture.delete().await;
}

pub(super) async fn create_probe(fixture: &AlbumFixture, vector: [f32; 4]) -> crate::model::ids::ProbeId {
    let probe = fixture.store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    let outcome = ProbeOutcome::Embedded(embedding(vector));
    fixture.store.probes.set_outcome(probe.id, outcome).await.expect("stores the embedding");
    probe.id
}

async fn a_face_that_was_read_before_its_erasure_gets_no_vector_after_it(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], vec![text("1207", 0.97)]).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 1);
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    assert!(lease.erased_places.is_empty());
    erase(store, faces_of(&fixture, &[photo], PhotoFate::Keep)).await;
    erase(store, bib_of(&fixture, "1207", false)).await;
    let (faces, texts) = (vec![face(RUNNER)], vec![text("1207", 0.97), text("33", 0.97)]);
    store.queue.finish(vec![PhotoResults { faces, texts, ..empty_results(&lease) }]).await.expect("finishes");
    assert!(found(&fixture, RUNNER).await.is_empty());
    assert_eq!((found_bib(&fixture, "1207").await, found_bib(&fixture, "33").await), (0, 1));
    fixture.delete().await;
}

async fn an_erased_bib_says_nothing_and_does_not_come_back(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97), text("88", 0.97)]).await;
    let (done, _) = erase(store, bib_of(&fixture, "1207", true)).await;
    assert_eq!((done.kind, done.removed.texts), (ErasureKind::Bib, 1));
    let said = |texts: Vec<crate::model::photo::DetectedText>| -> Vec<(String, TextIndexState)> {
        texts.into_iter().map(|text| (text.text, text.index_state)).collect()
    };
    let expected =
        [(String::new(), TextIndexState::Unindexed(ERASED)), ("88".to_owned(), TextIndexState::Indexed)];
    let (_, texts) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(said(texts), expected);
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 1);
    fixture.process_next_photo(Vec::new(), vec![text("1207", 0.97), text("88", 0.97)]).await;
    let (_, texts) = store.photos.get_detections(fixture.album, photo).await.expect("reads");
    assert_eq!(said(texts), expected);
    // A photo that is uploaded later says it neither.
    fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97)]).await;
    assert_eq!((found_bib(&fixture, "1207").await, found_bib(&fixture, "88").await), (0, 1));
    fixture.delete().await;
}

async fn a_bib_goes_with_the_faces_that_wear_it(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let head = BoundingBox { top: 0.1, left: 0.2, width: 0.05, height: 0.1 };
    let chest = BoundingBox { top: 0.3, left: 0.2, width: 0.05, height: 0.04 };
    let bib = crate::model::photo::DetectedText { bounding_box: chest, ..text("1207", 0.97) };
    let aside = BoundingBox { left: 0.8, ..head };
    fixture.add_ready_photo(vec![face_at(RUNNER, head), face_at(OTHER, aside)], vec![bib]).await;
    let without = store.erasures.preview(&bib_of(&fixture, "1207", false)).await.expect("says");
    assert_eq!((without.faces, without.texts), (0, 1));
    let (done, _) = erase(store, bib_of(&fixture, "1207", true)).await;
    assert_eq!((done.removed.faces, done.removed.vectors, done.removed.texts), (1, 1, 1));
    assert!(found(&fixture, RUNNER).await.is_empty());
    assert_eq!(found(&fixture, OTHER).await.len(), 1);
    fixture.delete().await;
}

async fn photos_with_nobody_else_are_deleted_on_request(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let alone = fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    let shared =
        fixture.add_ready_photo(vec![face(RUNNER), face_at(OTHER, bounding_box(40))], Vec::new()).await;
    let original = ObjectKey::photo(fixture.tenant.organization, fixture.album, alone, ObjectRole::Original);
    store.blobs.write(&original, "image/jpeg", vec![7; 1234].into()).await.expect("writes");
    let request = faces_of(&fixture, &[alone, shared], PhotoFate::Delete);
    let preview = store.erasures.preview(&request).await.expect("says what would go");
    assert_eq!((preview.faces, preview.deleted_photos), (2, vec![alone]));
    let (done, receipt) = erase(store, request).await;
    assert_eq!((done.removed.photos, done.removed.objects, done.removed.bytes), (1, 1, 1234));
    assert!(receipt.kept.iter().any(|kept| kept.what == "1 photos"), "{:?}", receipt.kept);
    assert_error_kind(store.photos.get(fixture.album, alone).await, StoreErrorKind::NotFound);
    store.photos.get(fixture.album, shared).await.expect("stays");
    assert_eq!(store.blobs.head(&original).await.expect("looks"), None);
    fixture.delete().await;
}

async fn nothing_to_erase_gives_a_receipt_with_zeros(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (done, _) = erase(store, bib_of(&fixture, "4711", true)).await;
    assert_eq!(done.removed, Default::default());
    // And the bib stays away.
    fixture.add_ready_photo(Vec::new(), vec![text("4711", 0.97)]).await;
    assert_eq!(found_bib(&fixture, "4711").await, 0);
    fixture.delete().await;
}

async fn a_photo_and_an_album_leave_receipts(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], vec![text("1207", 0.97)]).await;
    let kept = fixture.add_ready_photo(vec![face(OTHER)], vec![text("33", 0.97)]).await;
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    for photo in [photo, kept] {
        let original = ObjectKey::photo(tenant.organization, album, photo, ObjectRole::Original);
        store.blobs.write(&original, "image/jpeg", vec![7; 100].into()).await.expect("writes");
    }
    let id = store.erasures.begin_photo(&tenant, album, photo, key).await.expect("deletes");
    let (done, _) = finish(store, id).await;
    let removed = done.removed;
    assert_eq!((removed.photos, removed.faces, removed.vectors, removed.texts), (1, 1, 1, 1));
    assert_eq!((removed.objects, removed.bytes), (1, 100));
    let again = store.erasures.begin_photo(&tenant, album, photo, key).await;
    assert_error_kind(again, StoreErrorKind::NotFound);

    create_probe(&fixture, OTHER).await;
    let id = store.erasures.begin_album(&tenant, album, key).await.expect("closes");
    assert_error_kind(store.albums.get(&tenant, album).await, StoreErrorKind::NotFound);
    assert_eq!(store.erasures.begin_album(&tenant, album, key).await.expect("again"), id);
    let (done, _) = finish(store, id).await;
    assert_eq!((done.removed.photos, done.removed.vectors, done.removed.probes), (1, 1, 1));
    assert_eq!((done.removed.objects, done.removed.bytes), (1, 100));
    assert_error_kind(store.erasures.begin_album(&tenant, album, key).await, StoreErrorKind::NotFound);
}

async fn an_interrupted_erasure_is_finished_later(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    let id = store.erasures.begin(faces_of(&fixture, &[photo], PhotoFate::Delete)).await.expect("erases");
    assert!(found(&fixture, RUNNER).await.is_empty(), "at once");
    let running = store.erasures.list_running(None).await.expect("lists");
    assert!(running.contains(&id), "{running:?}");
    assert_eq!(store.erasures.get(&fixture.tenant, id).await.expect("gets").receipt, None);
    let (done, _) = finish(store, id).await;
    assert_eq!(done.removed.photos, 1);
    assert!(!store.erasures.list_running(None).await.expect("lists").contains(&id));
    fixture.delete().await;
}

async fn erasures_belong_to_their_tenant(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (first, _) = erase(store, bib_of(&fixture, "1", false)).await;
    let (second, _) = erase(store, bib_of(&fixture, "2", false)).await;
    let query = ErasureQuery { before: None, album: Some(fixture.album), limit: 1 };
    let page = store.erasures.list(&fixture.tenant, query.clone()).await.expect("lists");
    assert_eq!((page.erasures, page.next, page.total), (vec![second.clone()], Some(second.id), 2));
    let rest = ErasureQuery { before: page.next, ..query.clone() };
    let page = store.erasures.list(&fixture.tenant, rest).await.expect("lists");
    assert_eq!((page.erasures, page.next), (vec![first.clone()], None));
    let stranger = create_key(store, "organization of a stranger").await.tenant;
    assert_eq!(store.erasures.list(&stranger, query).await.expect("lists").total, 0);
    assert_error_kind(store.erasures.get(&stranger, first.id).await, StoreErrorKind::NotFound);
    assert_error_kind(store.erasures.verify(&stranger, first.id).await, StoreErrorKind::NotFound);
    fixture.delete().await;
}

/// The album as the retention task sees it.
pub(super) async fn ageing(fixture: &AlbumFixture) -> AgeingAlbum {
    let mut after = None;
    loop {
        let albums = fixture.store.erasures.list_ageing(after).await.expect("lists albums");
        after = Some(albums.last().expect("the album is there").id);
        if let Some(found) = albums.into_iter().find(|album| album.id == fixture.album) {
            return found;
        }
    }
}

async fn set_faces(fixture: &AlbumFixture, enabled: bool) {
    let album = fixture.store.albums.get(&fixture.tenant, fixture.album).await.expect("gets");
    let mut config = album.config;
    config.face.enabled = enabled;
    let change = AlbumChange { config: Some(config), ..AlbumChange::default() };
    fixture.store.albums.update(&fixture.tenant, fixture.album, change).await.expect("updates");
}

async fn faces_of_an_album_go_by_their_age_and_come_back_only_when_asked(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.add_ready_photo(vec![face(RUNNER)], vec![text("1207", 0.97)]).await;
    fixture.add_ready_photo(vec![face(OTHER)], Vec::new()).await;
    create_probe(&fixture, RUNNER).await;
    assert_eq!(found(&fixture, RUNNER).await.len(), 1);
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 2);
    let read_before = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    let album = ageing(&fixture).await;
    assert!(album.has_faces && album.is_busy);
    let id = store.erasures.begin_expired(&album, ExpiringPart::Faces).await.expect("erases");
    let (done, _) = finish(store, id).await;
    assert_eq!((done.kind, done.removed.vectors, done.removed.probes), (ErasureKind::Face, 2, 1));
    assert!(found(&fixture, RUNNER).await.is_empty() && found(&fixture, OTHER).await.is_empty());
    assert_eq!(found_bib(&fixture, "1207").await, 1, "bibs stay");
    assert!(!ageing(&fixture).await.has_faces);
    let results = PhotoResults { faces: vec![face(RUNNER)], ..empty_results(&read_before) };
    store.queue.finish(vec![results]).await.expect("finishes");
    assert!(found(&fixture, RUNNER).await.is_empty(), "read before, finished after");
    set_faces(&fixture, false).await;
    fixture.process_next_photo(vec![face(OTHER)], Vec::new()).await;
    assert!(found(&fixture, OTHER).await.is_empty(), "another change of the album means nothing");

    set_faces(&fixture, true).await;
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 2);
    fixture.process_next_photo(vec![face(RUNNER)], Vec::new()).await;
    assert_eq!(found(&fixture, RUNNER).await.len(), 1, "its owner wants faces again");
    fixture.delete().await;
}

async fn an_album_goes_by_its_age_and_its_owner_is_told(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let empty = ageing(&fixture).await;
    let created = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets").created_at;
    assert_eq!((empty.counted_from, empty.is_busy), (created, false));
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    let album = ageing(&fixture).await;
    assert!(album.counted_from > created && !album.is_busy);
    let confirmed_by = OffsetDateTime::now_utc() + time::Duration::HOUR;
    assert!(album.counted_from <= confirmed_by, "within an hour of the confirmation");
    assert_eq!(store.queue.reprocess(fixture.album).await.expect("queues again").queued, 1);
    fixture.process_next_photo(vec![face(RUNNER)], Vec::new()).await;
    assert_eq!(
        ageing(&fixture).await.counted_from,
        album.counted_from,
        "reading again makes nothing younger"
    );
    assert_eq!(store.queue.confirm(fixture.album, &[photo]).await.expect("confirms"), [photo]);
    assert!(ageing(&fixture).await.counted_from >= album.counted_from);
    let alone = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.expect("gets");
    assert_eq!(alone, album);
    let stranger = create_key(store, "owner of another album").await.tenant;
    assert_error_kind(store.erasures.get_ageing(&stranger, fixture.album).await, StoreErrorKind::NotFound);
    let at = album.counted_from + time::Duration::days(30);
    for _ in 0..2 {
        store.erasures.tell_expiring(&album, ExpiringPart::Photos, at).await.expect("tells");
    }
    let told = ageing(&fixture).await;
    assert_eq!((told.told_photos_expire_at, told.told_faces_expire_at), (at, album.told_faces_expire_at));
    let id = store.erasures.begin_expired(&told, ExpiringPart::Photos).await.expect("erases");
    let (done, _) = finish(store, id).await;
    assert_eq!((done.kind, done.removed.photos), (ErasureKind::Album, 1));
    assert_error_kind(store.albums.get(&fixture.tenant, fixture.album).await, StoreErrorKind::NotFound);
}

pub(super) async fn import(fixture: &AlbumFixture, bibs: [&str; 3]) -> u64 {
    let entry = |bib: &str| StartListEntry {
        bib: bib.into(),
        wave: Some("B".into()),
        team: None,
        start_at: None,
        excluded: false,
    };
    let entries = bibs.iter().map(|bib| entry(bib)).collect();
    let (mode, imported_by) = (ImportMode::Replace, fixture.key.id);
    let list = StartListImport { entries, mode, imported_by, max_entries: 10 };
    fixture.store.start_lists.import(fixture.album, list).await.expect("imports").entries
}

async fn an_erased_bib_leaves_the_start_list_and_is_left_out_of_the_next(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    assert_eq!(import(&fixture, ["1207", "33", "44"]).await, 3);
    fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97)]).await;
    erase(store, bib_of(&fixture, "1207", true)).await;
    let list = || async { store.start_lists.get(fixture.album).await.expect("gets").expect("a list") };
    assert_eq!((list().await.entries, list().await.without_lattice), (2, 0), "what was erased has none");
    assert_eq!(import(&fixture, ["1207", "33", "55"]).await, 2);
    assert_eq!(list().await.entries, 2);
    fixture.delete().await;
}
