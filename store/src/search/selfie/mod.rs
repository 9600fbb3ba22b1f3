//! Finds all photos of the person on a selfie. A pure function of the album's faces, which [`AlbumFaces`] scores; its
//! constants were measured together (docs/EVALUATION.md).
//!
//! 1. Every face is scored by its cosine to the probe.
//! 2. The *stranger level* is the mean score of the faces at ranks 11 to 40, those that are surely the person's left
//!    out: how similar strangers of this album are to this person. Half of it is subtracted at the end, so that a score
//!    means the same in an album of 100 and of 100,000 faces.
//! 3. Query expansion: the probe becomes the mean of itself and the sure hits, weighted by their scores, and all faces
//!    are scored again.
//! 4. The bibs of the sure hits vote for the person's bib. A face that wears it scores higher, one that wears a clearly
//!    different bib lower, both only within one race.
//!
//! Steps 2 and 3 need the best faces only, and the last one the faces above the threshold and those with the person's
//! bib. So the index is asked for few faces, and the answer is that of a search which looks at all of them. Equal scores
//! are ordered by photo and place, never by row: rows depend on how the album came into memory.

mod bib;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashSet;

pub use self::bib::WornBib;
use self::bib::{BibEvidence, PersonBib, Vote, elect_bib};
use crate::model::hit::{HitReason, SelfieHit, SelfieScale};
use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;

/// The photos whose faces expand the query, and whose bibs vote.
const SURE_PHOTOS: usize = 10;

/// The ranks of the faces that the stranger level is the mean of. Those above are too often the person's own.
const FIRST_STRANGER: usize = 11;
const LAST_STRANGER: usize = 40;

/// The fraction of the stranger level that is subtracted: what the scores of the best strangers grow by when the middle
/// ranks grow by one.
const STRANGER_SHARE: f64 = 0.5;

/// Faces of the first look: the strangers and the sure hits of most people.
const FIRST_LOOK: usize = 128;

/// The faces of one album whose embeddings one network made. Rows are numbers of faces, valid as long as the borrow.
pub trait AlbumFaces {
    /// Returns the number of faces.
    fn count(&self) -> usize;
    /// Returns rows and cosines of the faces that reach `min_cosine`, in any order: all of them, or the `k` best.
    fn nearest(&self, query: &[f32], k: usize, min_cosine: f32) -> Vec<ScoredRow>;
    /// Returns the rows of the faces that wear this bib, each once.
    fn wearers(&self, bib: &str) -> Vec<usize>;
    /// Returns the cosine of one face, bit for bit that of [`Self::nearest`].
    fn cosine(&self, query: &[f32], row: usize) -> f32;
    /// Returns the embedding of a face, a unit vector.
    fn vector(&self, row: usize) -> &[f32];
    /// Returns the photo of a face.
    fn photo(&self, row: usize) -> PhotoId;
    /// Returns where a face is in its photo.
    fn bounding_box(&self, row: usize) -> BoundingBox;
    /// Returns the bib of a face, if one was read.
    fn bib(&self, row: usize) -> Option<WornBib<'_>>;
}

/// A face with its cosine to a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredRow {
    /// The row of the face.
    pub row: usize,
    /// Its cosine, -1 to 1.
    pub cosine: f32,
}

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub struct SelfieSearch<'a> {
    /// The embedding of the selfie, a unit vector of the faces' length.
    pub probe: &'a [f32],
    /// The scale of the network.
    pub scale: SelfieScale,
    /// The least score of a hit.
    pub min_score: f64,
}

/// Returns the photos of the person, best first, one hit per photo; equal scores in the order of their photos.
pub fn find_photos(faces: &impl AlbumFaces, search: &SelfieSearch<'_>) -> Vec<SelfieHit> {
    let first = look_at_best(faces, search);
    let half_level = STRANGER_SHARE * first.stranger_level(faces.count(), search.scale);
    // What a face scores whose bib changes nothing.
    let min_cosine = search.min_score + half_level;
    let sure = first_of_photos(faces, above(&first.best, search.scale.sure_cosine));
    let (query, mut candidates) = if sure.is_empty() {
        (search.probe.to_vec(), first.extend_to(faces, search.probe, min_cosine))
    } else {
        let query = expand_query(faces, search.probe, &sure);
        let shown = ranked(faces, &query, usize::MAX, min_cosine.min(search.scale.sure_cosine));
        (query, shown)
    };
    let voters = first_of_photos(faces, above(&candidates, search.scale.sure_cosine));
    let bib = elect_bib(
        voters
            .iter()
            .filter_map(|voter| Some(Vote { bib: faces.bib(voter.row)?, weight: f64::from(voter.cosine) })),
    );
    if let Some(bib) = &bib {
        add_wearers(faces, &query, bib, &mut candidates);
    }
    let scored = candidates.into_iter().map(|face| {
        let mut candidate = weigh_evidence(faces, face, bib.as_ref(), search.scale);
        candidate.score -= half_level;
        candidate
    });
    best_of_photos(faces, scored.filter(|candidate| candidate.score >= search.min_score))
}

/// The best faces by their cosine to the probe, enough for the sure hits and the strangers.
struct FirstLook {
    best: Vec<ScoredRow>,
    /// Whether these are all faces of the album.
    is_complete: bool,
}

/// Returns the best faces: all that are surely the person's, and [`LAST_STRANGER`] more.
fn look_at_best(faces: &impl AlbumFaces, search: &SelfieSearch<'_>) -> FirstLook {
    let mut k = FIRST_LOOK;
    loop {
        let best = ranked(faces, search.probe, k, f64::NEG_INFINITY);
        let strangers = best.len() - above(&best, search.scale.sure_cosine).len();
        let is_complete = best.len() < k;
        if is_complete || strangers >= LAST_STRANGER {
            return FirstLook { best, is_complete };
        }
        k *= 4;
    }
}

impl FirstLook {
    /// Returns the mean cosine of the strangers that are most similar to the probe. In an album of fewer than 80 faces
    /// they end at the middle rank, and below 22 there are none: then it is that of the network.
    fn stranger_level(&self, faces: usize, scale: SelfieScale) -> f64 {
        let strangers = &self.best[above(&self.best, scale.sure_cosine).len()..];
        let last = LAST_STRANGER.min(faces / 2).min(strangers.len());
        let Some(measured) = strangers.get(FIRST_STRANGER - 1..last).filter(|ranks| !ranks.is_empty()) else {
            return scale.few_faces_level;
        };
        measured.iter().map(|face| f64::from(face.cosine)).sum::<f64>() / measured.len() as f64
    }

    /// Returns all faces that reach `min_cosine`: those of this look if they include them.
    fn extend_to(self, faces: &impl AlbumFaces, query: &[f32], min_cosine: f64) -> Vec<ScoredRow> {
        let reached = self.best.last().is_some_and(|worst| f64::from(worst.cosine) < min_cosine);
        if self.is_complete || reached { self.best } else { ranked(faces, query, usize::MAX, min_cosine) }
    }
}

/// Returns the faces that reach `min_cosine`, at most `k`, best first. Rounding to `f32` loses none.
fn ranked(faces: &impl AlbumFaces, query: &[f32], k: usize, min_cosine: f64) -> Vec<ScoredRow> {
    let mut found = faces.nearest(query, k, (min_cosine - 1e-6) as f32);
    found.sort_unstable_by(|a, b| {
        b.cosine.total_cmp(&a.cosine).then_with(|| compare_places(faces, a.row, b.row))
    });
    found
}

/// Orders faces by photo, then by their place in it.
fn compare_places(faces: &impl AlbumFaces, a: usize, b: usize) -> Ordering {
    let place = |row| {
        let BoundingBox { top, left, width, height } = faces.bounding_box(row);
        [top, left, width, height]
    };
    faces.photo(a).cmp(&faces.photo(b)).then_with(|| {
        let (a, b) = (place(a), place(b));
        a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

/// Returns the faces of a ranking that reach a cosine.
fn above(ranking: &[ScoredRow], cosine: f64) -> &[ScoredRow] {
    &ranking[..ranking.partition_point(|face| f64::from(face.cosine) >= cosine)]
}

/// Returns the best face of each photo, of the first [`SURE_PHOTOS`] photos of a ranking.
fn first_of_photos(faces: &impl AlbumFaces, ranking: &[ScoredRow]) -> Vec<ScoredRow> {
    let mut seen = HashSet::new();
    let first = ranking.iter().filter(|face| seen.insert(faces.photo(face.row)));
    first.copied().take(SURE_PHOTOS).collect()
}

/// Returns the unit vector of the probe and its sure hits, each weighted by its score.
fn expand_query(faces: &impl AlbumFaces, probe: &[f32], sure: &[ScoredRow]) -> Vec<f32> {
    let mut sum: Vec<f64> = probe.iter().map(|value| f64::from(*value)).collect();
    for face in sure {
        for (sum, value) in sum.iter_mut().zip(faces.vector(face.row)) {
            *sum += f64::from(face.cosine) * f64::from(*value);
        }
    }
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    sum.into_iter().map(|value| (value / length) as f32).collect()
}

/// Adds the faces with the person's bib that are not among the candidates: the bib may lift them above the threshold.
fn add_wearers(faces: &impl AlbumFaces, query: &[f32], bib: &PersonBib<'_>, candidates: &mut Vec<ScoredRow>) {
    let known: HashSet<usize> = candidates.iter().map(|face| face.row).collect();
    let wearers = faces.wearers(bib.text()).into_iter().filter(|row| !known.contains(row));
    candidates.extend(wearers.map(|row| ScoredRow { row, cosine: faces.cosine(query, row) }));
}

/// A face that may become the hit of its photo.
struct FaceCandidate {
    row: usize,
    score: f64,
    reason: HitReason,
}

/// Scores a face by its cosine and its bib.
fn weigh_evidence(
    faces: &impl AlbumFaces,
    face: ScoredRow,
    bib: Option<&PersonBib<'_>>,
    scale: SelfieScale,
) -> FaceCandidate {
    let ScoredRow { row, cosine } = face;
    let cosine = f64::from(cosine);
    let evidence = match (bib, faces.bib(row)) {
        (Some(bib), Some(worn)) => bib.compare(worn),
        _ => BibEvidence::None,
    };
    let (score, reason) = match evidence {
        BibEvidence::Same if cosine < scale.sure_cosine => (cosine + scale.bib_weight, HitReason::SameBib),
        BibEvidence::Same => (cosine + scale.bib_weight, HitReason::Face),
        BibEvidence::Different => (cosine - scale.bib_weight, HitReason::Face),
        BibEvidence::None => (cosine, HitReason::Face),
    };
    FaceCandidate { row, score, reason }
}

/// Returns the best candidate of each photo, best first.
fn best_of_photos(
    faces: &impl AlbumFaces,
    candidates: impl Iterator<Item = FaceCandidate>,
) -> Vec<SelfieHit> {
    let mut ranking: Vec<FaceCandidate> = candidates.collect();
    ranking.sort_unstable_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| compare_places(faces, a.row, b.row))
    });
    let mut seen = HashSet::new();
    ranking
        .into_iter()
        .filter(|candidate| seen.insert(faces.photo(candidate.row)))
        .map(|FaceCandidate { row, score, reason }| SelfieHit {
            photo: faces.photo(row),
            score,
            bounding_box: faces.bounding_box(row),
            reason,
        })
        .collect()
}
