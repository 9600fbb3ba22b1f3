//! Erasures beside what happens at the same time: photos that are being read, other erasures, processes that stop, and processes of
//! another version.

use std::sync::atomic::{AtomicBool, Ordering};

use time::OffsetDateTime;

use super::assert_error_kind;
use super::erasures::{
    OTHER, RUNNER, ageing, bib_of, create_probe, embedding, erase, face_at, faces_of, finish, found,
    found_bib, import,
};
use super::fixture::{AlbumFixture, LONG, bounding_box, face, text};
use super::galleries::report;
use crate::error::StoreErrorKind;
use crate::model::erasure::{ErasureSubject, ExpiringPart, NewErasure, PhotoFate, Receipt};
use crate::model::gallery::ReportKind;
use crate::model::ids::{ErasureId, PhotoId, ProcessId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::model::photo::{BoundingBox, DetectedText};
use crate::model::process::{Process, ProcessReport};
use crate::model::start_list::EntryQuery;
use crate::store::Store;

pub(super) async fn erasure_edges_suite(store: &Store) {
    photos_that_were_not_read_yet_are_named(store).await;
    selfies_that_could_not_be_compared_are_named(store).await;
    a_photo_that_shows_only_the_runner_and_the_runners_bib_is_deleted(store).await;
    a_bib_that_is_erased_twice_is_looked_for_by_both(store).await;
    an_erasure_that_stops_after_any_step_is_finished_by_another(store).await;
    objects_are_counted_once_however_many_delete_them(store).await;
    an_album_that_is_being_erased_is_left_to_its_erasure(store).await;
    what_a_visitor_asked_for_is_gone_when_its_erasure_has_begun(store).await;
    an_album_that_has_changed_since_its_age_was_read_is_not_erased(store).await;
    a_bib_that_is_imported_while_it_is_erased_is_gone(store).await;
    a_bib_goes_with_and_without_the_zeros_of_the_list(store).await;
    no_receipt_is_signed_beside_a_process_that_knows_no_erasures(store).await;
    a_face_index_has_to_be_newer_than_the_end_of_the_removal(store).await;
    who_stays_in_the_photos_is_found_also_if_others_search_meanwhile(store).await;
}

async fn a_bib_goes_with_and_without_the_zeros_of_the_list(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    assert_eq!(import(&fixture, ["0042", "33", "44"]).await, 3);
    let add_both = async || {
        for bib in ["42", "0042"] {
            fixture.add_ready_photo(Vec::new(), vec![text(bib, 0.97)]).await;
        }
    };
    add_both().await;
    let (done, _) = erase(store, bib_of(&fixture, "42", false)).await;
    assert_eq!(done.removed.texts, 2);
    assert_eq!(import(&fixture, ["0042", "33", "44"]).await, 2, "it is on no list any more");
    add_both().await;
    assert_eq!((found_bib(&fixture, "42").await, found_bib(&fixture, "0042").await), (0, 0));
    fixture.delete().await;
}

fn keeps(receipt: &Receipt, what: &str) -> bool {
    receipt.kept.iter().any(|kept| kept.what == what)
}

async fn photos_that_were_not_read_yet_are_named(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    assert!(store.erasures.has_vectors(fixture.album).await.expect("looks for vectors"));
    let searched_at = store.erasures.read_clock().await.expect("reads the clock");
    let request = |photos: &[PhotoId]| {
        let mut request = faces_of(&fixture, photos, PhotoFate::Keep);
        if let ErasureSubject::Faces { searched_at: at, .. } = &mut request.subject {
            *at = searched_at;
        }
        request
    };
    assert_eq!(store.erasures.preview(&request(&[photo])).await.expect("says").unread_photos, 0);
    // One that became ready after the search, and one that waits.
    fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    fixture.queue_photos(1).await;
    assert_eq!(store.erasures.preview(&request(&[photo])).await.expect("says").unread_photos, 2);
    let (_, receipt) = erase(store, request(&[photo])).await;
    assert!(keeps(&receipt, "faces in 2 photos that were not read yet"), "{:?}", receipt.kept);
    assert_eq!(found(&fixture, RUNNER).await.len(), 1, "that of the photo that the search did not see");
    fixture.delete().await;
}

async fn selfies_that_could_not_be_compared_are_named(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    create_probe(&fixture, OTHER).await;
    assert!(!store.erasures.has_vectors(fixture.album).await.expect("looks for vectors"));
    let (_, receipt) = erase(store, faces_of(&fixture, &[], PhotoFate::Keep)).await;
    assert!(keeps(&receipt, "1 selfies that could not be compared"), "{:?}", receipt.kept);
    fixture.delete().await;
}

async fn a_photo_that_shows_only_the_runner_and_the_runners_bib_is_deleted(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let head = BoundingBox { top: 0.1, ..bounding_box(1) };
    let chest = BoundingBox { top: 0.4, height: 0.04, ..head };
    let bib = |number: &str, place| DetectedText { bounding_box: place, ..text(number, 0.97) };
    let head = BoundingBox { height: 0.1, ..head };
    let own = fixture.add_ready_photo(vec![face_at(RUNNER, head)], vec![bib("01207", chest)]).await;
    let aside = BoundingBox { left: 0.8, ..chest };
    let texts = vec![bib("1207", chest), bib("33", aside)];
    let shared = fixture.add_ready_photo(vec![face_at(RUNNER, head)], texts).await;
    let mut request = faces_of(&fixture, &[own, shared], PhotoFate::Delete);
    if let ErasureSubject::Faces { places, .. } = &mut request.subject {
        places.iter_mut().for_each(|place| place.bounding_box = head);
    }
    assert_eq!(store.erasures.preview(&request).await.expect("says").deleted_photos, [own]);
    let (done, receipt) = erase(store, request).await;
    assert_eq!((done.removed.photos, done.removed.vectors), (1, 2));
    assert!(keeps(&receipt, "1 photos"), "{:?}", receipt.kept);
    assert_error_kind(store.photos.get(fixture.album, own).await, StoreErrorKind::NotFound);
    store.photos.get(fixture.album, shared).await.expect("another bib is in it");
    fixture.delete().await;
}

async fn a_bib_that_is_erased_twice_is_looked_for_by_both(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97)]).await;
    let (first, _) = erase(store, bib_of(&fixture, "1207", false)).await;
    let (second, _) = erase(store, bib_of(&fixture, "1207", false)).await;
    import(&fixture, ["88", "33", "44"]).await;
    for id in [first.id, second.id] {
        let scan = store.erasures.verify(&fixture.tenant, id).await.expect("looks again");
        let rows = scan.stores.iter().find(|scanned| scanned.store == "rows").expect("looks at rows");
        assert!(rows.looked >= 3 && scan.left == 0, "{scan:?}");
        assert!(
            scan.stores.iter().all(|scanned| scanned.store != "dead rows"),
            "only what was looked at: {scan:?}"
        );
    }
    fixture.delete().await;
}

/// Adds a photo of a runner who wears a bib, with its original, and the runner's selfie.
async fn add_runner(fixture: &AlbumFixture) -> PhotoId {
    let chest = BoundingBox { top: 0.55, height: 0.04, ..bounding_box(1) };
    let bib = DetectedText { bounding_box: chest, ..text("1207", 0.97) };
    let photo = fixture.add_ready_photo(vec![face(RUNNER)], vec![bib]).await;
    let original = ObjectKey::photo(fixture.tenant.organization, fixture.album, photo, ObjectRole::Original);
    fixture.store.blobs.write(&original, "image/jpeg", vec![7; 100].into()).await.expect("writes");
    let probe = create_probe(fixture, RUNNER).await;
    let selfie = ObjectKey::probe(fixture.tenant.organization, fixture.album, probe);
    fixture.store.blobs.write(&selfie, "image/jpeg", vec![7; 10].into()).await.expect("writes");
    photo
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Faces,
    Bib,
    Photo,
    Album,
    ExpiredFaces,
    ExpiredAlbum,
}

async fn begin(fixture: &AlbumFixture, photo: PhotoId, asked: Asked) -> ErasureId {
    let AlbumFixture { store, tenant, key, album } = fixture;
    let with_photos = |request: NewErasure| NewErasure { photos: PhotoFate::Delete, ..request };
    let begun = match asked {
        Asked::Faces => store.erasures.begin(faces_of(fixture, &[photo], PhotoFate::Delete)).await,
        Asked::Bib => store.erasures.begin(with_photos(bib_of(fixture, "1207", true))).await,
        Asked::Photo => store.erasures.begin_photo(tenant, *album, photo, key.id).await,
        Asked::Album => store.erasures.begin_album(tenant, *album, key.id).await,
        Asked::ExpiredFaces => {
            store.erasures.begin_expired(&ageing(fixture).await, ExpiringPart::Faces).await
        }
        Asked::ExpiredAlbum => {
            store.erasures.begin_expired(&ageing(fixture).await, ExpiringPart::Photos).await
        }
    };
    begun.expect("begins")
}

async fn an_erasure_that_stops_after_any_step_is_finished_by_another(store: &Store) {
    let kinds =
        [Asked::Faces, Asked::Bib, Asked::Photo, Asked::Album, Asked::ExpiredFaces, Asked::ExpiredAlbum];
    for asked in kinds {
        let mut receipts = Vec::new();
        // How often the objects are removed before the process that finishes it comes.
        for removals in 0..3 {
            let fixture = AlbumFixture::create(store).await;
            let photo = add_runner(&fixture).await;
            let id = begin(&fixture, photo, asked).await;
            for _ in 0..removals {
                store.erasures.remove_objects(id).await.expect("removes objects");
            }
            assert_eq!(
                store.erasures.get(&fixture.tenant, id).await.expect("gets").receipt,
                None,
                "{asked:?}"
            );
            let (done, receipt) = finish(store, id).await;
            let rows = receipt.scan.stores.iter().find(|scanned| scanned.store == "rows");
            assert!(rows.is_some_and(|rows| rows.looked > 0), "{asked:?}: {receipt:?}");
            receipts.push(done.removed);
            if !matches!(asked, Asked::Album | Asked::ExpiredAlbum) {
                assert!(found(&fixture, RUNNER).await.is_empty(), "{asked:?}");
                fixture.delete().await;
            }
        }
        assert!(receipts.iter().all(|removed| *removed == receipts[0]), "{asked:?}: {receipts:?}");
        let objects = match asked {
            Asked::Bib | Asked::Photo | Asked::ExpiredFaces => 1,
            Asked::Faces | Asked::Album | Asked::ExpiredAlbum => 2,
        };
        assert_eq!(receipts[0].objects, objects, "{asked:?}: {receipts:?}");
    }
}

async fn objects_are_counted_once_however_many_delete_them(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = add_runner(&fixture).await;
    let id = begin(&fixture, photo, Asked::Faces).await;
    let (first, second) = tokio::join!(store.erasures.remove_objects(id), store.erasures.remove_objects(id));
    first.and(second).expect("removes objects");
    let (done, _) = finish(store, id).await;
    assert_eq!((done.removed.objects, done.removed.bytes), (2, 110));
    fixture.delete().await;
}

/// Whoever finishes the deletions of dead processes must delete no object that the receipt does not count yet.
async fn an_album_that_is_being_erased_is_left_to_its_erasure(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = add_runner(&fixture).await;
    let id = begin(&fixture, photo, Asked::Album).await;
    store.finish_deletions(OffsetDateTime::now_utc() + LONG).await.expect("finishes deletions");
    let (done, _) = finish(store, id).await;
    assert_eq!((done.removed.objects, done.removed.bytes), (2, 110));
}

/// The process may be killed right after the erasure has begun: what was said has the places of the faces.
async fn what_a_visitor_asked_for_is_gone_when_its_erasure_has_begun(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let alone = fixture.add_ready_photo(vec![face(RUNNER)], Vec::new()).await;
    let beside = face_at(OTHER, bounding_box(40));
    let shared = fixture.add_ready_photo(vec![face(RUNNER), beside], Vec::new()).await;
    report(&fixture, ReportKind::Removal, 1, vec![alone, shared]).await;
    report(&fixture, ReportKind::Removal, 2, vec![shared]).await;
    let said = async || store.galleries.list_reports(fixture.album, 10).await.expect("lists");
    // That of the photo which is deleted names those of the others.
    let of_alone = said().await.into_iter().find(|said| said.photo == alone).expect("it is there").id;
    let request = faces_of(&fixture, &[alone, shared], PhotoFate::Delete);
    let request = NewErasure { report: Some(of_alone), ..request };
    let id = store.erasures.begin(request).await.expect("erases");
    let left: Vec<PhotoId> = said().await.into_iter().map(|said| said.photo).collect();
    assert_eq!(left, [shared], "what another visitor said");
    finish(store, id).await;
    fixture.delete().await;
}

/// A photo may be confirmed, or the rule changed, after the age of the album was read.
async fn an_album_that_has_changed_since_its_age_was_read_is_not_erased(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let read = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.expect("gets");
    let refuse = async || {
        for part in ExpiringPart::ALL {
            assert_error_kind(store.erasures.begin_expired(&read, part).await, StoreErrorKind::Conflict);
        }
        let album = store.albums.get(&fixture.tenant, fixture.album).await.expect("it is open");
        assert!(album.config.face.enabled);
    };
    fixture.queue_photos(1).await;
    refuse().await;
    fixture.process_next_photo(vec![face(RUNNER)], Vec::new()).await;
    refuse().await;
    let read = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.expect("gets");
    let id = store.erasures.begin_expired(&read, ExpiringPart::Faces).await.expect("erases");
    finish(store, id).await;
    fixture.delete().await;
}

async fn a_bib_that_is_imported_while_it_is_erased_is_gone(store: &Store) {
    for _ in 0..8 {
        let fixture = AlbumFixture::create(store).await;
        fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97)]).await;
        let (_, (done, _)) = tokio::join!(
            import(&fixture, ["1207", "33", "44"]),
            erase(store, bib_of(&fixture, "1207", true))
        );
        let query = EntryQuery { prefix: String::new(), after: None, limit: 10 };
        let page = store.start_lists.list_entries(fixture.album, query).await.expect("lists");
        let bibs: Vec<String> = page.entries.into_iter().map(|entry| entry.bib).collect();
        assert_eq!(bibs, ["33", "44"]);
        let again = store.erasures.verify(&fixture.tenant, done.id).await.expect("looks again");
        assert_eq!(again.left, 0, "{again:?}");
        fixture.delete().await;
    }
}

async fn no_receipt_is_signed_beside_a_process_that_knows_no_erasures(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = add_runner(&fixture).await;
    let id = begin(&fixture, photo, Asked::Faces).await;
    let old = another_process(ProcessReport::default());
    store.processes.report(&old).await.expect("reports");
    assert!(store.erasures.has_old_processes().await.expect("looks"));
    store.erasures.remove_objects(id).await.expect("removes objects");
    assert_eq!(store.erasures.finish(&[id]).await.expect("looks"), 0);
    let album = ageing(&fixture).await;
    let refused = store.erasures.begin_expired(&album, ExpiringPart::Faces).await;
    assert_error_kind(refused, StoreErrorKind::Conflict);
    store.processes.remove(old.id).await.expect("removes");
    finish(store, id).await;
    assert!(
        store.faces.nearest(fixture.album, &embedding(RUNNER), 1, 0.9).await.expect("searches").is_empty()
    );
    fixture.delete().await;
}

/// Another process that reports this.
fn another_process(report: ProcessReport) -> Process {
    Process {
        id: ProcessId::generate(),
        role: "work".into(),
        host: "another".into(),
        version: "0.0.9".into(),
        started_at: OffsetDateTime::UNIX_EPOCH,
        report,
    }
}

/// One that was brought up to date between two steps of the removal may have what the second removed.
async fn a_face_index_has_to_be_newer_than_the_end_of_the_removal(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = add_runner(&fixture).await;
    let id = begin(&fixture, photo, Asked::Faces).await;
    let between = store.erasures.read_clock().await.expect("reads the clock");
    store.erasures.remove_objects(id).await.expect("removes objects");
    let as_of =
        |time| ProcessReport { faces_as_of: Some(time), knows_erasures: true, ..ProcessReport::default() };
    let mut other = another_process(as_of(between));
    store.processes.report(&other).await.expect("reports");
    let scan = store.erasures.verify(&fixture.tenant, id).await.expect("looks");
    let indexes = scan.stores.iter().find(|scanned| scanned.store == "face indexes").expect("looks there");
    assert!(indexes.left > 0, "{scan:?}");
    other.report = as_of(store.erasures.read_clock().await.expect("reads the clock"));
    store.processes.report(&other).await.expect("reports");
    finish(store, id).await;
    store.processes.remove(other.id).await.expect("removes");
    fixture.delete().await;
}

/// Searches bring the faces in memory up to date while the erasure does.
async fn who_stays_in_the_photos_is_found_also_if_others_search_meanwhile(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut photos = Vec::new();
    for _ in 0..10 {
        let beside = face_at(OTHER, bounding_box(20));
        photos.push(fixture.add_ready_photo(vec![face(RUNNER), beside], Vec::new()).await);
    }
    assert_eq!((found(&fixture, RUNNER).await.len(), found(&fixture, OTHER).await.len()), (10, 10));
    let is_erased = AtomicBool::new(false);
    let erasing = async {
        let begun = store.erasures.begin(faces_of(&fixture, &photos, PhotoFate::Keep)).await;
        is_erased.store(true, Ordering::Relaxed);
        begun.expect("erases")
    };
    let searching = async {
        while !is_erased.load(Ordering::Relaxed) {
            found(&fixture, OTHER).await;
        }
    };
    let (id, ()) = tokio::join!(erasing, searching);
    assert_eq!((found(&fixture, RUNNER).await.len(), found(&fixture, OTHER).await.len()), (0, 10));
    finish(store, id).await;
    fixture.delete().await;
}
