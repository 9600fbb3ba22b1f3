//! The faces that may be answers to a search, while they are found and until they are ranked by their exact scores.

use std::collections::HashMap;

use photofinish_kernels::quantised::Candidate;

use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::BoundingBox;
use crate::search::scoring::{FaceBib, FaceQuery, HitsPer, WornBib};

/// At so many candidates at least, those that turned out too far are dropped.
const MIN_PRUNED: usize = 256;

/// A face that may be an answer.
#[derive(Clone, Debug)]
pub(crate) struct ShortlistedFace {
    pub(crate) face: FaceId,
    pub(crate) photo: PhotoId,
    pub(crate) bounding_box: BoundingBox,
    pub(crate) bib: Option<FaceBib>,
    /// See [`crate::search::faces::fingerprint`].
    pub(crate) fingerprint: u64,
    /// Its score is at most this.
    pub(crate) upper: f64,
}

/// The faces of a matrix by row, as a collector asks for them.
pub(super) trait RowFaces {
    fn photo(&self, row: usize) -> PhotoId;
    fn worn(&self, row: usize) -> Option<WornBib<'_>>;
    fn shortlisted(&self, row: usize, upper: f64) -> ShortlistedFace;
}

/// Collects the candidates of one search, and raises its least score as better ones are found.
pub(super) struct Collector<'q> {
    query: &'q FaceQuery,
    /// The score that a face must be able to reach.
    min_score: f64,
    found: Vec<RowBounds>,
    prune_at: usize,
}

/// A row and the bounds of its score.
#[derive(Clone, Copy)]
struct RowBounds {
    row: u32,
    lower: f64,
    upper: f64,
}

impl<'q> Collector<'q> {
    pub(super) fn new(query: &'q FaceQuery) -> Self {
        let prune_at = MIN_PRUNED.max(query.k.saturating_mul(2));
        // None is enough when none is wanted.
        let min_score = if query.k == 0 { f64::INFINITY } else { query.scores.start };
        Self { query, min_score, found: Vec::new(), prune_at }
    }

    /// Returns an empty one for the same search in other rows, where what is found must be as good as here.
    pub(super) fn start_beside(&self) -> Self {
        Self { min_score: self.min_score, ..Self::new(self.query) }
    }

    /// Returns the cosine that a face must be able to reach.
    pub(super) fn min_cosine(&self) -> f32 {
        self.query.rule.min_cosine(self.min_score)
    }

    /// Adds a candidate in row `row`; returns the cosine that others must be able to reach.
    pub(super) fn add(&mut self, row: usize, candidate: &Candidate, faces: &impl RowFaces) -> f32 {
        // Of a NaN nothing is known. `max` takes the other one.
        let lower = candidate.lower.max(f32::NEG_INFINITY);
        let upper = if candidate.upper.is_nan() { f32::INFINITY } else { candidate.upper };
        let worn = faces.worn(row);
        let score = |cosine| self.query.rule.score(cosine, worn);
        let bounds = RowBounds { row: row as u32, lower: score(lower), upper: score(upper) };
        if bounds.upper >= self.min_score && bounds.lower < self.query.scores.end {
            self.found.push(bounds);
            if self.found.len() >= self.prune_at {
                self.prune(faces);
            }
        }
        self.min_cosine()
    }

    /// Adds what another collector of the same search has found in other rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.min_score = self.min_score.max(other.min_score);
        self.found.extend(other.found);
    }

    /// Returns the faces that may be answers.
    pub(super) fn finish(mut self, faces: &impl RowFaces) -> Vec<ShortlistedFace> {
        if self.query.k == 0 {
            return Vec::new();
        }
        self.prune(faces);
        self.found.iter().map(|bounds| faces.shortlisted(bounds.row as usize, bounds.upper)).collect()
    }

    /// Drops candidates that `k` hits are certain to surpass.
    pub(super) fn prune(&mut self, faces: &impl RowFaces) {
        // Those that may turn out too good for a hit are none of the `k`.
        let certain = self.found.iter().filter(|bounds| bounds.upper < self.query.scores.end);
        let mut lowers: Vec<f64> = match self.query.per {
            HitsPer::Face => certain.map(|bounds| bounds.lower).collect(),
            HitsPer::Photo => {
                best_of_photos(certain.map(|bounds| (faces.photo(bounds.row as usize), bounds.lower)))
            }
        };
        if let Some(score) = find_kth_largest(&mut lowers, self.query.k) {
            self.min_score = self.min_score.max(score);
        }
        let min_score = self.min_score;
        self.found.retain(|bounds| bounds.upper >= min_score);
        self.prune_at = self.prune_at.max(self.found.len().saturating_mul(2));
    }
}

/// Returns the best score of each photo.
pub(crate) fn best_of_photos(scores: impl Iterator<Item = (PhotoId, f64)>) -> Vec<f64> {
    let mut best: HashMap<PhotoId, f64> = HashMap::new();
    for (photo, score) in scores {
        let known = best.entry(photo).or_insert(score);
        *known = known.max(score);
    }
    best.into_values().collect()
}

/// Returns the `k`-th largest of the scores, `k` from 1; `None` if there are fewer. Changes their order.
pub(crate) fn find_kth_largest(scores: &mut [f64], k: usize) -> Option<f64> {
    if k == 0 || scores.len() < k {
        return None;
    }
    Some(*scores.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1)
}
