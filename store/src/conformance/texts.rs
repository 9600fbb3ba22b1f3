//! Bib search: exact matches first, then fuzzy ones, no unindexed texts.

use crate::conformance::fixture::{AlbumFixture, text};
use crate::model::ids::PhotoId;
use crate::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use crate::store::Store;
use crate::traits::{TextMatch, TextQuery};

/// Checks the backend of [`crate::traits::Texts`].
pub async fn texts_suite(store: &Store) {
    exact_matches_come_first_then_fuzzy_ones(store).await;
    unindexed_texts_are_not_found(store).await;
    a_bib_is_found_in_its_album_only_and_until_its_photo_is_deleted(store).await;
}

async fn search_texts(fixture: &AlbumFixture, text: &str, exact: bool) -> Vec<(PhotoId, TextMatch)> {
    let query = TextQuery { text: text.into(), exact };
    let hits = fixture.store.texts.search(fixture.album, &query).await.expect("searches");
    assert!(hits.iter().all(|hit| (0.0..=100.0).contains(&hit.confidence)));
    hits.into_iter().map(|hit| (hit.photo, hit.match_kind)).collect()
}

async fn exact_matches_come_first_then_fuzzy_ones(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let read = async |bib: &str, score| fixture.add_ready_photo(Vec::new(), vec![text(bib, score)]).await;
    let cut = read("051", 0.99).await;
    let alike = read("8O51", 0.99).await;
    let exact = read("8051", 0.92).await;
    let edited = read("8951", 0.99).await;
    let longer = read("80512", 0.99).await;
    read("80", 0.99).await;
    let both = fixture.add_ready_photo(Vec::new(), vec![text("9999", 0.99), text("8051", 0.97)]).await;
    let hits = search_texts(&fixture, "8051", false).await;
    assert_eq!(
        hits[..4].iter().map(|hit| hit.1).collect::<Vec<_>>(),
        [TextMatch::Exact, TextMatch::Exact, TextMatch::Confusable, TextMatch::Truncated]
    );
    let order: Vec<PhotoId> = hits.iter().map(|hit| hit.0).collect();
    assert_eq!(order[..4], [both, exact, alike, cut]);
    assert_eq!(hits[4..], [(edited, TextMatch::OneEdit), (longer, TextMatch::OneEdit)]);
    let exact_hits = [(both, TextMatch::Exact), (exact, TextMatch::Exact)];
    assert_eq!(search_texts(&fixture, "8051", true).await, exact_hits);
    fixture.delete().await;
}

async fn unindexed_texts_are_not_found(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let text_in_state = |index_state| vec![DetectedText { index_state, ..text("4321", 0.75) }];
    let candidate = fixture.add_ready_photo(Vec::new(), text_in_state(TextIndexState::Candidate)).await;
    // They are found by a fuzzy search for this bib.
    let not_listed = TextIndexState::Unindexed(UnindexedReason::NotOnStartList);
    let not_listed = fixture.add_ready_photo(Vec::new(), text_in_state(not_listed)).await;
    let part = TextIndexState::Unindexed(UnindexedReason::Partial);
    let part = fixture.add_ready_photo(Vec::new(), text_in_state(part)).await;
    let found = [UnindexedReason::NotOnStartList, UnindexedReason::Partial];
    for reason in UnindexedReason::ALL.into_iter().filter(|reason| !found.contains(reason)) {
        fixture.add_ready_photo(Vec::new(), text_in_state(TextIndexState::Unindexed(reason))).await;
    }
    assert_eq!(search_texts(&fixture, "4321", true).await, []);
    let fuzzy = [candidate, not_listed, part].map(|photo| (photo, TextMatch::Exact));
    assert_eq!(search_texts(&fixture, "4321", false).await, fuzzy);
    let other: Vec<PhotoId> =
        search_texts(&fixture, "4327", false).await.into_iter().map(|hit| hit.0).collect();
    assert_eq!(other, [candidate, part], "what is not on the list is no other runner");
    fixture.delete().await;
}

async fn a_bib_is_found_in_its_album_only_and_until_its_photo_is_deleted(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(Vec::new(), vec![text("0042", 0.99)]).await;
    other.add_ready_photo(Vec::new(), vec![text("0042", 0.99)]).await;
    assert_eq!(search_texts(&fixture, "0042", true).await, [(photo, TextMatch::Exact)]);
    assert_eq!(search_texts(&fixture, "42", false).await, [], "leading zeros count");
    assert_eq!(search_texts(&fixture, "1111111111", false).await, []);
    store.photos.delete(fixture.album, photo).await.expect("deletes it");
    assert_eq!(search_texts(&fixture, "0042", false).await, []);
    fixture.delete().await;
    other.delete().await;
}
