//! The faces that may be answers to a search, while they are found and until they are ranked by their exact scores.

use std::collections::HashMap;

use photofinish_kernels::quantised::Candidate;

use super::entry::FaceEntry;
use crate::model::face_search::{FaceQuery, HitsPer};
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::BoundingBox;

/// At so many candidates at least, those that turned out too far are dropped.
const MIN_PRUNED: usize = 1_024;

/// A face that may be an answer.
#[derive(Clone, Debug)]
pub(crate) struct ShortlistedFace {
    pub(crate) face: FaceId,
    pub(crate) photo: PhotoId,
    pub(crate) bounding_box: BoundingBox,
    /// See [`crate::search::faces::fingerprint`].
    pub(crate) fingerprint: u64,
    /// Its cosine is at most this.
    pub(crate) upper: f32,
}

/// Collects the candidates of one search, and raises its least score as better ones are found.
pub(super) struct Collector<'q> {
    query: &'q FaceQuery,
    /// The score that a face must be able to reach.
    min_score: f32,
    found: Vec<RowBounds>,
    prune_at: usize,
}

/// A row and the bounds of its score.
#[derive(Clone, Copy)]
struct RowBounds {
    row: u32,
    lower: f32,
    upper: f32,
}

impl<'q> Collector<'q> {
    pub(super) fn new(query: &'q FaceQuery) -> Self {
        let prune_at = MIN_PRUNED.max(query.k.saturating_mul(2));
        // None is enough when none is wanted.
        let min_score = if query.k == 0 { f32::INFINITY } else { query.min_cosine };
        Self { query, min_score, found: Vec::new(), prune_at }
    }

    pub(super) fn min_score(&self) -> f32 {
        self.min_score
    }

    /// Adds a candidate in row `row`; returns the score that others must be able to reach.
    pub(super) fn add<'f>(
        &mut self,
        row: usize,
        candidate: &Candidate,
        face: impl Fn(usize) -> &'f FaceEntry,
    ) -> f32 {
        // Of a NaN nothing is known. `max` takes the other one.
        let lower = candidate.lower.max(f32::NEG_INFINITY);
        let upper = if candidate.upper.is_nan() { f32::INFINITY } else { candidate.upper };
        self.found.push(RowBounds { row: row as u32, lower, upper });
        if self.found.len() >= self.prune_at {
            self.prune(face);
        }
        self.min_score
    }

    /// Adds what another collector of the same search has found in other rows.
    pub(super) fn merge(&mut self, other: Self) {
        self.min_score = self.min_score.max(other.min_score);
        self.found.extend(other.found);
    }

    /// Returns the faces that may be answers.
    pub(super) fn finish<'f>(mut self, face: impl Fn(usize) -> &'f FaceEntry) -> Vec<ShortlistedFace> {
        if self.query.k == 0 {
            return Vec::new();
        }
        self.prune(&face);
        let shortlisted = |bounds: &RowBounds| {
            let entry = face(bounds.row as usize);
            ShortlistedFace {
                face: entry.id,
                photo: entry.photo,
                bounding_box: entry.bounding_box,
                fingerprint: entry.fingerprint,
                upper: bounds.upper,
            }
        };
        self.found.iter().map(shortlisted).collect()
    }

    /// Drops candidates that `k` hits are certain to surpass.
    fn prune<'f>(&mut self, face: impl Fn(usize) -> &'f FaceEntry) {
        let mut lowers: Vec<f32> = match self.query.per {
            HitsPer::Face => self.found.iter().map(|bounds| bounds.lower).collect(),
            HitsPer::Photo => {
                let mut best: HashMap<PhotoId, f32> = HashMap::new();
                for bounds in &self.found {
                    let photo = face(bounds.row as usize).photo;
                    let lower = best.entry(photo).or_insert(bounds.lower);
                    *lower = lower.max(bounds.lower);
                }
                best.into_values().collect()
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

/// Returns the `k`-th largest of the scores, `k` from 1; `None` if there are fewer. Changes their order.
pub(crate) fn find_kth_largest(scores: &mut [f32], k: usize) -> Option<f32> {
    if k == 0 || scores.len() < k {
        return None;
    }
    Some(*scores.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1)
}
