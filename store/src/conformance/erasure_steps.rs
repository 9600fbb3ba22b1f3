//! Erasures of large albums, which are done page by page, and of bibs that have several spellings.

use super::erasures::{RUNNER, ageing, bib_of, erase, finish, found_bib, import};
use super::fixture::{AlbumFixture, LONG, empty_results, face, text};
use super::start_lists::judge_all;
use crate::model::erasure::{ExpiringPart, RemovedCounts};
use crate::store::Store;
use crate::traits::PhotoResults;

/// One more than a page has.
const PHOTOS: usize = 501;

/// Checks what [`super::erasures_suite`] checks of [`crate::traits::Erasures`], of larger albums.
pub async fn erasure_steps_suite(store: &Store) {
    an_album_of_several_pages_loses_all_faces_and_then_all_rows(store).await;
    a_bib_goes_in_every_spelling_that_its_list_takes_for_it(store).await;
}

/// An album of ready photos with a face and a text each.
async fn create_large_album(store: &Store) -> AlbumFixture {
    let fixture = AlbumFixture::create(store).await;
    fixture.queue_photos(PHOTOS).await;
    let mut finished = 0;
    while finished < PHOTOS {
        let leases = fixture.lease_fresh(100, LONG).await;
        assert!(!leases.is_empty(), "photos wait");
        finished += leases.len();
        let (faces, texts) = (vec![face(RUNNER)], vec![text("1207", 0.97)]);
        let results =
            |lease| PhotoResults { faces: faces.clone(), texts: texts.clone(), ..empty_results(lease) };
        store.queue.finish(leases.iter().map(results).collect()).await.expect("finishes");
    }
    fixture
}

async fn an_album_of_several_pages_loses_all_faces_and_then_all_rows(store: &Store) {
    let fixture = create_large_album(store).await;
    let photos = PHOTOS as u64;
    let has_vectors = async || store.erasures.has_vectors(fixture.album).await.expect("looks for vectors");
    assert!(has_vectors().await);
    let id =
        store.erasures.begin_expired(&ageing(&fixture).await, ExpiringPart::Faces).await.expect("erases");
    assert!(!has_vectors().await, "they are on their way out");
    let (done, _) = finish(store, id).await;
    assert_eq!(done.removed, RemovedCounts { faces: photos, vectors: photos, ..RemovedCounts::default() });

    let (tenant, album) = (fixture.tenant, fixture.album);
    let id = store.erasures.begin_album(&tenant, album, fixture.key.id).await.expect("closes");
    let closed = store.erasures.get(&tenant, id).await.expect("gets");
    let expected = RemovedCounts { faces: photos, texts: photos, photos, ..RemovedCounts::default() };
    assert_eq!(closed.removed, expected, "for a process of an earlier version, which counts no rows");
    let (done, _) = finish(store, id).await;
    assert_eq!(done.removed, expected);
}

async fn a_bib_goes_in_every_spelling_that_its_list_takes_for_it(store: &Store) {
    // The reader does not see zeros of the list, or the list has lost zeros that are printed.
    for (bib, read) in [("0123", "123"), ("42", "0042")] {
        let fixture = AlbumFixture::create(store).await;
        import(&fixture, ["0123", "42", "44"]).await;
        // The list takes one text of a photo for the bib, and the other one for nothing.
        fixture.add_ready_photo(Vec::new(), vec![text(read, 0.97), text(read, 0.96)]).await;
        judge_all(store).await;
        let request = bib_of(&fixture, bib, false);
        assert_eq!(store.erasures.preview(&request).await.expect("says what would go").texts, 2, "{bib}");
        let (done, _) = erase(store, request).await;
        assert_eq!(done.removed.texts, 2, "{bib}");
        fixture.add_ready_photo(Vec::new(), vec![text(read, 0.97)]).await;
        judge_all(store).await;
        for spelling in [bib, read] {
            assert_eq!(found_bib(&fixture, spelling).await, 0, "{spelling} of {bib}");
        }
        assert_eq!(import(&fixture, [bib, read, "44"]).await, 1, "the next list has it in no spelling");
        let again = store.erasures.verify(&fixture.tenant, done.id).await.expect("looks again");
        assert_eq!(again.left, 0, "{again:?}");
        fixture.delete().await;
    }
}
