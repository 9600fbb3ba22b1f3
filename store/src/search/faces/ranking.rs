//! The answer to a search: the shortlisted faces by the scores of their vectors, which are read from the database.
//!
//! Memory holds 8 bits of each component. The vectors themselves stay in the database, the only place from which a deletion
//! must remove them. A shortlist names few more faces than the answer has, so few are read; faces of equal vectors are read
//! once.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::cosine::Cosine;

use super::fingerprint::fingerprint;
use super::matrix::shortlist::{ShortlistedFace, find_kth_largest};
use super::source::FaceSource;
use crate::model::ids::{AlbumId, FaceId, PhotoId};
use crate::traits::{FaceHit, FaceQuery, HitsPer, Result};

/// Vectors of the first read, half a megabyte of vectors of 256. Most answers need no second.
const FIRST_READ: usize = 512;

/// Vectors of a later read: each reads twice as many as the one before, up to this.
const LARGEST_READ: usize = 4_096;

/// The answer to a search.
pub(super) struct Ranking {
    pub(super) hits: Vec<FaceHit>,
    /// Whether every shortlisted face that was looked at has the vector that it had when it was indexed. Otherwise the album
    /// has changed since, and faces that were left out may belong into the answer.
    pub(super) is_current: bool,
}

/// Reads vectors of the faces of one album, and scores them.
pub(super) struct Ranker<'a> {
    pub(super) source: &'a dyn FaceSource,
    pub(super) album: AlbumId,
    pub(super) scorer: Cosine,
}

impl Ranker<'_> {
    /// Ranks a shortlist: reads the most promising vectors, and stops when no other face can be among the best `k`.
    pub(super) async fn rank(
        &self,
        query: &FaceQuery,
        mut shortlist: Vec<ShortlistedFace>,
    ) -> Result<Ranking> {
        shortlist.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
        let mut scores: HashMap<u64, f32> = HashMap::new();
        let mut near: Vec<(f32, &ShortlistedFace)> = Vec::new();
        let mut is_current = true;
        let (mut remaining, mut read_size) = (shortlist.as_slice(), FIRST_READ);
        loop {
            let min_score = find_min_score(query, &near);
            let (batch, unread) = take_batch(remaining, min_score, read_size, &scores);
            if batch.is_empty() {
                break;
            }
            self.read_scores(query, &unread, &mut scores).await?;
            for face in batch {
                match scores.get(&face.fingerprint) {
                    Some(score) if *score >= query.min_cosine => near.push((*score, face)),
                    Some(_) => {}
                    None => is_current = false,
                }
            }
            remaining = &remaining[batch.len()..];
            read_size = LARGEST_READ.min(read_size * 2);
        }
        Ok(Ranking { hits: choose_hits(query, near), is_current })
    }

    /// Reads and scores the vectors of these faces that are still what they were.
    async fn read_scores(
        &self,
        query: &FaceQuery,
        faces: &[&ShortlistedFace],
        scores: &mut HashMap<u64, f32>,
    ) -> Result<()> {
        if faces.is_empty() {
            return Ok(());
        }
        let ids: Vec<FaceId> = faces.iter().map(|face| face.face).collect();
        let expected: HashMap<FaceId, u64> = faces.iter().map(|face| (face.face, face.fingerprint)).collect();
        for (id, embedding) in self.source.read_embeddings(self.album, &ids).await? {
            let found = fingerprint(&embedding.vector);
            if expected.get(&id) == Some(&found) && embedding.vector.len() == query.probe.vector.len() {
                scores.insert(found, self.scorer.score(&query.probe.vector, &embedding.vector));
            }
        }
        Ok(())
    }
}

/// Returns the score that a face must reach to be in the answer, given the exact scores so far.
fn find_min_score(query: &FaceQuery, near: &[(f32, &ShortlistedFace)]) -> f32 {
    let mut scores: Vec<f32> = match query.per {
        HitsPer::Face => near.iter().map(|(score, _)| *score).collect(),
        HitsPer::Photo => {
            let mut best: HashMap<PhotoId, f32> = HashMap::new();
            for (score, face) in near {
                let known = best.entry(face.photo).or_insert(*score);
                *known = known.max(*score);
            }
            best.into_values().collect()
        }
    };
    find_kth_largest(&mut scores, query.k).map_or(query.min_cosine, |score| score.max(query.min_cosine))
}

/// Returns the next faces to look at, none if no other can reach `min_score`, and those of them whose vectors must be read.
fn take_batch<'f>(
    remaining: &'f [ShortlistedFace],
    min_score: f32,
    read_size: usize,
    scores: &HashMap<u64, f32>,
) -> (&'f [ShortlistedFace], Vec<&'f ShortlistedFace>) {
    let (mut unread, mut asked) = (Vec::new(), HashSet::new());
    let mut len = 0;
    for face in remaining {
        if unread.len() == read_size || face.upper < min_score {
            break;
        }
        if !scores.contains_key(&face.fingerprint) && asked.insert(face.fingerprint) {
            unread.push(face);
        }
        len += 1;
    }
    (&remaining[..len], unread)
}

/// Returns the best `k` hits, best first; of equal ones that which was detected first.
fn choose_hits(query: &FaceQuery, mut near: Vec<(f32, &ShortlistedFace)>) -> Vec<FaceHit> {
    near.sort_unstable_by(|(a, first), (b, second)| {
        b.total_cmp(a).then_with(|| first.face.cmp(&second.face))
    });
    let mut returned = HashSet::new();
    near.into_iter()
        .filter(|(_, face)| query.per == HitsPer::Face || returned.insert(face.photo))
        .take(query.k)
        .map(|(score, face)| FaceHit {
            face: face.face,
            photo: face.photo,
            cosine: score.clamp(-1.0, 1.0),
            bounding_box: face.bounding_box,
        })
        .collect()
}
