//! Finds all photos of the person on a selfie. A function of the album's faces, which [`AlbumFaces`] scores; its
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
//! Each step needs the best faces only: ten sure photos and forty strangers, ten photos that vote, and the photos that
//! the answer shows. So the index is asked for these, and the answer is that of a search which looks at all faces. Equal
//! scores are ordered by photo and place, never by row: rows depend on how the album came into memory.

#[cfg(test)]
mod tests;

use crate::model::hit::{HitReason, SelfieHit, SelfieScale};
use crate::model::photo::Embedding;
use crate::search::scoring::{BibEvidence, FaceQuery, HitsPer, ScoreRule, ScoredFace, Vote, elect_bib};
use crate::traits::Result;

/// The photos whose faces expand the query, and whose bibs vote.
const SURE_PHOTOS: usize = 10;

/// The ranks of the faces that the stranger level is the mean of. Those above are too often the person's own.
const FIRST_STRANGER: usize = 11;
const LAST_STRANGER: usize = 40;

/// The fraction of the stranger level that is subtracted: what the scores of the best strangers grow by when the middle
/// ranks grow by one.
const STRANGER_SHARE: f64 = 0.5;

/// The faces of one album.
pub trait AlbumFaces {
    /// Returns the number of faces whose embeddings the probe's network made.
    fn count(&self) -> usize;
    /// Returns the hits of each of the searches, best first: see [`FaceQuery::choose_hits`].
    fn search(&self, queries: Vec<FaceQuery>) -> impl Future<Output = Result<Vec<Vec<ScoredFace>>>> + Send;
    /// Returns the embeddings of hits, unit vectors, in their order; `None` for a face that was deleted since.
    fn read_vectors(
        &self,
        faces: &[ScoredFace],
    ) -> impl Future<Output = Result<Vec<Option<Vec<f32>>>>> + Send;
}

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub struct SelfieSearch<'a> {
    /// The embedding of the selfie, a unit vector.
    pub probe: &'a Embedding,
    /// The scale of the network.
    pub scale: SelfieScale,
    /// The least score of a hit.
    pub min_score: f64,
    /// The largest number of hits.
    pub limit: usize,
}

/// Returns the photos of the person, best first, one hit per photo; equal scores in the order of their photos.
///
/// # Errors
/// Those of `faces`.
pub async fn find_photos(
    faces: &(impl AlbumFaces + Sync),
    search: &SelfieSearch<'_>,
) -> Result<Vec<SelfieHit>> {
    let sure_cosine = search.scale.sure_cosine;
    let mut found = faces.search(vec![sure_query(search.probe, sure_cosine), stranger_query(search)]).await?;
    let strangers = found.pop().unwrap_or_default();
    let sure = found.pop().unwrap_or_default();
    let level = stranger_level(&strangers, faces.count(), search.scale);
    let mut rule = ScoreRule::subtracting(STRANGER_SHARE * level);
    let mut probe = search.probe.clone();
    if !sure.is_empty() {
        probe.vector = expand_query(&search.probe.vector, &sure, &faces.read_vectors(&sure).await?);
        let voters = search_once(faces, sure_query(&probe, sure_cosine)).await?;
        let votes = voters
            .iter()
            .filter_map(|voter| Some(Vote { bib: voter.worn()?, weight: f64::from(voter.cosine) }));
        rule = rule.with_bib(elect_bib(votes), search.scale.bib_weight);
    }
    let scores = search.min_score..f64::INFINITY;
    let query = FaceQuery { probe, k: search.limit, per: HitsPer::Photo, scores, rule: rule.clone() };
    let hits = search_once(faces, query).await?;
    Ok(hits.into_iter().map(|face| to_hit(&face, &rule, search.scale)).collect())
}

/// Asks for the best photos that are surely the person's.
fn sure_query(probe: &Embedding, sure_cosine: f64) -> FaceQuery {
    let scores = sure_cosine..f64::INFINITY;
    let rule = ScoreRule::default();
    FaceQuery { probe: probe.clone(), k: SURE_PHOTOS, per: HitsPer::Photo, scores, rule }
}

/// Asks for the faces that are most similar to the probe and not surely the person's.
fn stranger_query(search: &SelfieSearch<'_>) -> FaceQuery {
    let scores = f64::NEG_INFINITY..search.scale.sure_cosine;
    let rule = ScoreRule::default();
    FaceQuery { probe: search.probe.clone(), k: LAST_STRANGER, per: HitsPer::Face, scores, rule }
}

async fn search_once(faces: &impl AlbumFaces, query: FaceQuery) -> Result<Vec<ScoredFace>> {
    Ok(faces.search(vec![query]).await?.pop().unwrap_or_default())
}

/// Returns the mean cosine of the strangers that are most similar to the probe. In an album of fewer than 80 faces they
/// end at the middle rank, and below 22 there are none: then it is that of the network.
fn stranger_level(strangers: &[ScoredFace], faces: usize, scale: SelfieScale) -> f64 {
    let last = LAST_STRANGER.min(faces / 2).min(strangers.len());
    let Some(measured) = strangers.get(FIRST_STRANGER - 1..last).filter(|ranks| !ranks.is_empty()) else {
        return scale.few_faces_level;
    };
    measured.iter().map(|face| face.score).sum::<f64>() / measured.len() as f64
}

/// Returns the unit vector of the probe and its sure hits, each weighted by its score.
fn expand_query(probe: &[f32], sure: &[ScoredFace], vectors: &[Option<Vec<f32>>]) -> Vec<f32> {
    let mut sum: Vec<f64> = probe.iter().map(|value| f64::from(*value)).collect();
    for (face, vector) in sure.iter().zip(vectors) {
        for (sum, value) in sum.iter_mut().zip(vector.iter().flatten()) {
            *sum += f64::from(face.cosine) * f64::from(*value);
        }
    }
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    sum.into_iter().map(|value| (value / length) as f32).collect()
}

fn to_hit(face: &ScoredFace, rule: &ScoreRule, scale: SelfieScale) -> SelfieHit {
    let is_by_bib =
        rule.compare_bib(face.worn()) == BibEvidence::Same && f64::from(face.cosine) < scale.sure_cosine;
    let reason = if is_by_bib { HitReason::SameBib } else { HitReason::Face };
    SelfieHit { photo: face.photo, score: face.score, bounding_box: face.bounding_box, reason }
}
