//! What a service found in photos, added up, and the figures of it.

use std::collections::BTreeSet;
use std::ops::{Add, AddAssign};

use photofinish_client::PhotoDetail;

use super::bootstrap::{Interval, bootstrap};
use crate::photos::score::{BibScore, ratio};

/// Counts over readings of photos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Readings that were added.
    pub readings: usize,
    /// Labelled bibs whose photo an exact search for the label returns.
    pub as_labelled: usize,
    /// The same, or a search for the label without its leading zeros.
    pub found: usize,
    /// Indexed texts against the labels.
    pub bibs: BibScore,
    /// Detected faces.
    pub faces: usize,
    /// Faces that searches find.
    pub searchable: usize,
}

/// What the service found in a photo, or in the part of a frame that shows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Distinct texts that exact searches find.
    pub indexed: BTreeSet<String>,
    /// Detected faces.
    pub faces: usize,
    /// Faces that searches find.
    pub searchable: usize,
}

impl Tally {
    /// Counts one reading of a photo, without searches.
    pub fn of_photo(detail: &PhotoDetail, bibs: &BTreeSet<String>, optional: &BTreeSet<String>) -> Self {
        let found = Found {
            indexed: indexed_texts(detail),
            faces: detail.faces.len(),
            searchable: detail.faces.iter().filter(|face| face.indexed).count(),
        };
        Self::of_found(&found, bibs, optional)
    }

    /// Counts what was found of a photo in one reading.
    pub fn of_found(found: &Found, bibs: &BTreeSet<String>, optional: &BTreeSet<String>) -> Self {
        let mut score = BibScore::default();
        score.add_photo(&found.indexed, bibs, optional);
        Self { readings: 1, bibs: score, faces: found.faces, searchable: found.searchable, ..Self::default() }
    }

    /// Labelled bibs.
    pub fn labelled(&self) -> usize {
        self.bibs.right + self.bibs.missed
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.readings += other.readings;
        self.as_labelled += other.as_labelled;
        self.found += other.found;
        self.bibs.right += other.bibs.right;
        self.bibs.unlabelled += other.bibs.unlabelled;
        self.bibs.missed += other.bibs.missed;
        self.faces += other.faces;
        self.searchable += other.searchable;
    }
}

/// A figure of a tally.
pub type Figure = fn(&Tally) -> f64;

/// Part of the labelled bibs that exact searches find as labelled.
pub const RECALL_AS_LABELLED: Figure = |tally| ratio(tally.as_labelled, tally.labelled());
/// The same, leading zeros ignored.
pub const SEARCH_RECALL: Figure = |tally| ratio(tally.found, tally.labelled());
/// Part of the labelled bibs that were indexed, leading zeros ignored.
pub const READ_RECALL: Figure = |tally| tally.bibs.recall();
/// Part of the indexed texts that are labelled.
pub const PRECISION: Figure = |tally| tally.bibs.precision();
/// Searchable faces in a reading.
pub const SEARCHABLE_FACES: Figure = |tally| ratio(tally.searchable, tally.readings);

/// Returns a figure over all photos, which are drawn for its interval.
pub fn estimate(photos: &[Tally], figure: Figure) -> Interval {
    bootstrap(photos.len(), |draw| figure(&sum(photos, draw)))
}

/// Returns how much the figure of `photos` exceeds that of the same photos in `baseline`.
pub fn estimate_gain(photos: &[Tally], baseline: &[Tally], figure: Figure) -> Interval {
    bootstrap(photos.len(), |draw| figure(&sum(photos, draw)) - figure(&sum(baseline, draw)))
}

fn sum(photos: &[Tally], draw: &[usize]) -> Tally {
    draw.iter().fold(Tally::default(), |sum, photo| sum + photos[*photo])
}

/// The distinct texts of a photo that exact searches find.
pub fn indexed_texts(detail: &PhotoDetail) -> BTreeSet<String> {
    detail.texts.iter().filter(|text| text.indexed).map(|text| text.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(right: usize, missed: usize) -> Tally {
        Tally { readings: 1, bibs: BibScore { right, missed, unlabelled: 0 }, ..Tally::default() }
    }

    #[test]
    fn a_figure_is_over_all_bibs_and_not_a_mean_over_photos() {
        let photos = [tally(9, 0), tally(0, 1)];
        assert_eq!(estimate(&photos, READ_RECALL).figure, 0.9);
    }

    #[test]
    fn a_gain_is_paired_by_photo() {
        let baseline: Vec<Tally> = (0..50).map(|photo| tally(photo % 2, 1 - photo % 2)).collect();
        let better: Vec<Tally> = baseline.iter().map(|photo| *photo + tally(1, 0)).collect();
        assert_eq!(estimate_gain(&better, &better, READ_RECALL).high, 0.0);
        let gain = estimate_gain(&better, &baseline, READ_RECALL);
        assert!(gain.figure == 0.25 && gain.low > 0.15 && gain.high < 0.35, "{gain}");
    }
}
