//! Bib search: exact readings first, then readings that may be misreadings of the bib. Contains no SQL: [`TextSource`]
//! reads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use async_trait::async_trait;

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use crate::search::variants::{TextVariant, find_variants};
use crate::traits::{Result, TextHit, TextMatch, TextQuery, Texts};

/// The least confidence, in percent, of an indexed reading that equals the query: it has passed the reader's threshold
/// and the album's pattern.
const EXACT_FLOOR: f64 = 80.0;

/// The largest confidence, in percent: no reading is certain.
const EXACT_CEILING: f64 = 99.0;

/// Factor for a candidate, a reading that was too uncertain to be indexed. Candidates score 0.9 at most, so this is below
/// every exact hit.
const CANDIDATE_FACTOR: f64 = 0.85;

/// Factor per look-alike character: `0` for `O` is the most common misreading, and two runners whose bibs differ only in
/// that are rare.
const LOOK_ALIKE_FACTOR: f64 = 0.78;

/// Factor for a digit cut off at an end. One runner in ten has the shorter number too.
const CUT_FACTOR: f64 = 0.55;

/// Factor for any other edit: most often the reading is another runner's number.
const EDIT_FACTOR: f64 = 0.35;

/// Reads the detected texts of albums.
#[async_trait]
pub(crate) trait TextSource: Send + Sync {
    /// Returns all texts that the start list of the album takes for the same bib as this one, itself among them.
    async fn find_spellings(&self, album: AlbumId, text: &str) -> Result<Vec<String>>;
    /// Returns the readings in the album that equal one of `texts` and are indexed or candidates.
    async fn find_readings(&self, album: AlbumId, texts: Vec<&str>) -> Result<Vec<(PhotoId, DetectedText)>>;
}

/// Bib search over a [`TextSource`].
pub(crate) struct TextSearch {
    source: Arc<dyn TextSource>,
}

impl TextSearch {
    pub(crate) fn new(source: Arc<dyn TextSource>) -> Self {
        Self { source }
    }
}

#[async_trait]
impl Texts for TextSearch {
    async fn search(&self, album: AlbumId, query: &TextQuery) -> Result<Vec<TextHit>> {
        let mut variants = if query.exact { HashMap::new() } else { find_variants(&query.text) };
        let spellings = self.source.find_spellings(album, &query.text).await?;
        let exact = TextVariant { kind: TextMatch::Exact, edits: 0 };
        variants.extend(spellings.into_iter().map(|text| (text, exact)));
        let read = self.source.find_readings(album, variants.keys().map(String::as_str).collect()).await?;
        let mut best: HashMap<PhotoId, TextHit> = HashMap::new();
        for (photo, seen) in read {
            let Some(variant) =
                variants.get(&seen.text).filter(|variant| is_found(&seen, **variant, query.exact))
            else {
                continue;
            };
            let hit = to_hit(photo, seen, *variant);
            match best.entry(photo) {
                Entry::Vacant(vacant) => drop(vacant.insert(hit)),
                Entry::Occupied(mut known) if rank(&hit) > rank(known.get()) => drop(known.insert(hit)),
                Entry::Occupied(_) => {}
            }
        }
        let mut hits: Vec<TextHit> = best.into_values().collect();
        hits.sort_by(|a, b| {
            let (a_rank, b_rank) = (rank(a), rank(b));
            b_rank.0.cmp(&a_rank.0).then(b_rank.1.total_cmp(&a_rank.1)).then(a.photo.cmp(&b.photo))
        });
        Ok(hits)
    }
}

/// Whether a search returns a reading. One that is not on the start list is found by a search for just that bib: a late
/// registration, while it is no other runner's.
fn is_found(seen: &DetectedText, variant: TextVariant, exact: bool) -> bool {
    match seen.index_state {
        TextIndexState::Indexed => true,
        TextIndexState::Unindexed(UnindexedReason::NotOnStartList) => {
            !exact && variant.kind == TextMatch::Exact
        }
        TextIndexState::Candidate | TextIndexState::Unindexed(_) => !exact,
    }
}

fn is_indexed(seen: &DetectedText) -> bool {
    seen.index_state == TextIndexState::Indexed
}

/// Orders hits: indexed exact readings first, then by confidence.
fn rank(hit: &TextHit) -> (bool, f64) {
    (hit.confidence >= EXACT_FLOOR, hit.confidence)
}

fn to_hit(photo: PhotoId, seen: DetectedText, variant: TextVariant) -> TextHit {
    let confidence = compute_confidence(&seen, variant);
    TextHit { photo, text: seen.text, bounding_box: seen.bounding_box, confidence, match_kind: variant.kind }
}

/// Returns the confidence of a reading, 0 to 100.
fn compute_confidence(seen: &DetectedText, variant: TextVariant) -> f64 {
    let score = 100.0 * seen.confidence.clamp(0.0, 1.0);
    let edited = match variant.kind {
        TextMatch::Exact if is_indexed(seen) => return score.clamp(EXACT_FLOOR, EXACT_CEILING),
        TextMatch::Exact => score,
        TextMatch::Confusable => score * LOOK_ALIKE_FACTOR.powf(f64::from(variant.edits)),
        TextMatch::Truncated => score * CUT_FACTOR,
        TextMatch::OneEdit => score * EDIT_FACTOR,
    };
    let standing = if is_indexed(seen) { 1.0 } else { CANDIDATE_FACTOR };
    // Only exact readings reach the floor of exact readings, whatever the reader scored.
    (edited * standing).min(EXACT_FLOOR - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::photo::BoundingBox;

    struct FixedTexts(Vec<(PhotoId, DetectedText)>);

    #[async_trait]
    impl TextSource for FixedTexts {
        async fn find_spellings(&self, _: AlbumId, text: &str) -> Result<Vec<String>> {
            Ok(vec![text.to_owned()])
        }

        async fn find_readings(&self, _: AlbumId, texts: Vec<&str>) -> Result<Vec<(PhotoId, DetectedText)>> {
            Ok(self.0.iter().filter(|(_, seen)| texts.contains(&seen.text.as_str())).cloned().collect())
        }
    }

    fn seen(text: &str, confidence: f64, standing: TextIndexState) -> DetectedText {
        let bounding_box = BoundingBox { top: 0.5, left: 0.5, width: 0.1, height: 0.1 };
        let (text, index_state) = (text.into(), standing);
        let max_confidence = 1.0;
        DetectedText {
            text,
            bounding_box,
            confidence,
            max_confidence,
            index_state,
            read: None,
            lattice: None,
        }
    }

    async fn search(rows: Vec<(PhotoId, DetectedText)>, text: &str, exact: bool) -> Vec<TextHit> {
        let search = TextSearch::new(Arc::new(FixedTexts(rows)));
        search.search(AlbumId::generate(), &TextQuery { text: text.into(), exact }).await.unwrap()
    }

    #[tokio::test]
    async fn exact_readings_come_first_and_the_rest_below_them() {
        use TextIndexState::{Candidate, Indexed};
        let ids: Vec<PhotoId> = (0..6).map(|_| PhotoId::generate()).collect();
        let rows = vec![
            (ids[0], seen("124", 0.99, Indexed)),
            (ids[1], seen("I234", 0.99, Indexed)),
            (ids[2], seen("1234", 0.89, Candidate)),
            (ids[3], seen("1234", 0.40, Indexed)),
            (ids[4], seen("1234", 1.00, Indexed)),
            (ids[5], seen("234", 1.00, Indexed)),
        ];
        let hits = search(rows, "1234", false).await;
        let order: Vec<_> = hits.iter().map(|hit| (hit.photo, hit.confidence.round() as i64)).collect();
        assert_eq!(
            order,
            [(ids[4], 99), (ids[3], 80), (ids[1], 77), (ids[2], 76), (ids[5], 55), (ids[0], 35)]
        );
    }

    #[tokio::test]
    async fn an_exact_search_returns_only_indexed_readings_of_that_text() {
        use TextIndexState::{Candidate, Indexed};
        let photo = PhotoId::generate();
        let rows = vec![
            (photo, seen("1234", 0.95, Indexed)),
            (PhotoId::generate(), seen("1234", 0.89, Candidate)),
            (PhotoId::generate(), seen("I234", 0.99, Indexed)),
        ];
        let hits = search(rows, "1234", true).await;
        assert_eq!(hits.len(), 1);
        assert_eq!((hits[0].photo, hits[0].match_kind), (photo, TextMatch::Exact));
    }

    #[tokio::test]
    async fn a_photo_is_returned_once_with_its_best_reading() {
        let photo = PhotoId::generate();
        let rows = vec![
            (photo, seen("123", 0.99, TextIndexState::Indexed)),
            (photo, seen("1234", 0.91, TextIndexState::Indexed)),
            (photo, seen("7234", 0.99, TextIndexState::Indexed)),
        ];
        let hits = search(rows, "1234", false).await;
        assert_eq!(hits.len(), 1);
        assert_eq!((hits[0].text.as_str(), hits[0].match_kind), ("1234", TextMatch::Exact));
    }
}
