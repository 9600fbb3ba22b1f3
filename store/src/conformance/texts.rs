//! What every backend must do with bibs: exact readings first, then those misread, nothing unindexed.

use crate::Store;
use crate::conformance::fixture::{Event, text};
use crate::model::ids::PhotoId;
use crate::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use crate::traits::{TextMatch, TextQuery};

/// Bibs.
pub async fn texts_suite(store: &Store) {
    exact_matches_come_first_then_fuzzy_ones(store).await;
    unindexed_texts_are_not_found(store).await;
    a_bib_is_found_in_its_album_only_and_until_its_photo_is_deleted(store).await;
}

async fn found(event: &Event, text: &str, exact: bool) -> Vec<(PhotoId, TextMatch)> {
    let query = TextQuery { text: text.into(), exact };
    let hits = event.store.texts.search(event.album, &query).await.expect("searches");
    assert!(hits.iter().all(|hit| (0.0..=100.0).contains(&hit.confidence)));
    hits.into_iter().map(|hit| (hit.photo, hit.match_kind)).collect()
}

async fn exact_matches_come_first_then_fuzzy_ones(store: &Store) {
    let event = Event::make(store).await;
    let read = async |bib: &str, score| event.ready(Vec::new(), vec![text(bib, score)]).await;
    let cut = read("051", 0.99).await;
    let alike = read("8O51", 0.99).await;
    let exact = read("8051", 0.92).await;
    let edited = read("8951", 0.99).await;
    let longer = read("80512", 0.99).await;
    read("80", 0.99).await;
    let both = event.ready(Vec::new(), vec![text("9999", 0.99), text("8051", 0.97)]).await;
    let hits = found(&event, "8051", false).await;
    assert_eq!(
        hits[..4].iter().map(|hit| hit.1).collect::<Vec<_>>(),
        [TextMatch::Exact, TextMatch::Exact, TextMatch::Confusable, TextMatch::Cut]
    );
    let order: Vec<PhotoId> = hits.iter().map(|hit| hit.0).collect();
    assert_eq!(order[..4], [both, exact, alike, cut]);
    assert_eq!(hits[4..], [(edited, TextMatch::OneEdit), (longer, TextMatch::OneEdit)]);
    let exact_hits = [(both, TextMatch::Exact), (exact, TextMatch::Exact)];
    assert_eq!(found(&event, "8051", true).await, exact_hits);
    event.end().await;
}

async fn unindexed_texts_are_not_found(store: &Store) {
    let event = Event::make(store).await;
    let text_in_state = |index_state| vec![DetectedText { index_state, ..text("4321", 0.75) }];
    let candidate = event.ready(Vec::new(), text_in_state(TextIndexState::Candidate)).await;
    for reason in UnindexedReason::ALL {
        event.ready(Vec::new(), text_in_state(TextIndexState::Unindexed(reason))).await;
    }
    assert_eq!(found(&event, "4321", true).await, []);
    assert_eq!(found(&event, "4321", false).await, [(candidate, TextMatch::Exact)]);
    event.end().await;
}

async fn a_bib_is_found_in_its_album_only_and_until_its_photo_is_deleted(store: &Store) {
    let event = Event::make(store).await;
    let other = Event::make(store).await;
    let photo = event.ready(Vec::new(), vec![text("0042", 0.99)]).await;
    other.ready(Vec::new(), vec![text("0042", 0.99)]).await;
    assert_eq!(found(&event, "0042", true).await, [(photo, TextMatch::Exact)]);
    assert_eq!(found(&event, "42", false).await, [], "leading zeros count");
    assert_eq!(found(&event, "1111111111", false).await, []);
    store.photos.delete(event.album, photo).await.expect("deletes it");
    assert_eq!(found(&event, "0042", false).await, []);
    event.end().await;
    other.end().await;
}
