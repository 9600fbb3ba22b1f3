//! The answer to a search: the shortlisted faces by the scores of their vectors, which are read from the database.
//!
//! Memory holds 8 bits of each component. The vectors themselves stay in the database, the only place from which a deletion
//! must remove them. A shortlist names few more faces than the answer has, so few are read; faces of equal vectors are read
//! once, and so are faces that several searches of a selfie look at.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::cosine::Cosine;

use super::fingerprint::fingerprint;
use super::matrix::shortlist::{ShortlistedFace, best_of_photos, find_kth_largest};
use super::source::FaceSource;
use crate::model::ids::{AlbumId, FaceId};
use crate::search::scoring::{FaceQuery, HitsPer, ScoredFace};
use crate::traits::Result;

/// Vectors of the first read, half a megabyte of vectors of 256. Most answers need no second.
const FIRST_READ: usize = 512;

/// Vectors of a later read: each reads twice as many as the one before, up to this.
const LARGEST_READ: usize = 4_096;

/// Vectors that are kept until the end of a search.
const KEPT_VECTORS: usize = 1_024;

/// Reads vectors of the faces of one album, and scores them.
pub(super) struct Ranker<'a> {
    source: &'a dyn FaceSource,
    album: AlbumId,
    scorer: Cosine,
    /// Vectors that were read, by fingerprint.
    kept: HashMap<u64, Vec<f32>>,
    /// Fingerprints of faces that were looked at.
    fingerprints: HashMap<FaceId, u64>,
    is_current: bool,
}

/// Cosines to the probe of one query, by fingerprint of the vector.
type Cosines = HashMap<u64, f32>;

impl<'a> Ranker<'a> {
    pub(super) fn new(source: &'a dyn FaceSource, album: AlbumId, scorer: Cosine) -> Self {
        Self { source, album, scorer, kept: HashMap::new(), fingerprints: HashMap::new(), is_current: true }
    }

    /// Whether every shortlisted face that was looked at so far had the vector that it had when it was indexed. Otherwise
    /// the album has changed since, and faces that were left out may belong into the answer.
    pub(super) fn is_current(&self) -> bool {
        self.is_current
    }

    /// Ranks a shortlist: reads the most promising vectors, and stops when no other face can be among the best `k`.
    pub(super) async fn rank(
        &mut self,
        query: &FaceQuery,
        mut shortlist: Vec<ShortlistedFace>,
    ) -> Result<Vec<ScoredFace>> {
        shortlist.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
        let mut cosines = Cosines::new();
        let mut near: Vec<ScoredFace> = Vec::new();
        let (mut remaining, mut read_size) = (shortlist.as_slice(), FIRST_READ);
        loop {
            let min_score = find_min_score(query, &near);
            let (batch, unread) = take_batch(remaining, min_score, read_size, &cosines);
            if batch.is_empty() {
                break;
            }
            self.read_cosines(query, &unread, &mut cosines).await?;
            for face in batch {
                if self.fingerprints.len() < KEPT_VECTORS {
                    self.fingerprints.insert(face.face, face.fingerprint);
                }
                match cosines.get(&face.fingerprint) {
                    Some(cosine) => near.extend(score_face(query, face, *cosine)),
                    None => self.is_current = false,
                }
            }
            remaining = &remaining[batch.len()..];
            read_size = LARGEST_READ.min(read_size * 2);
        }
        Ok(query.choose_hits(near))
    }

    /// Returns the vectors of faces, in their order; `None` for those that are not in the album any more.
    pub(super) async fn read_vectors(&self, faces: &[FaceId]) -> Result<Vec<Option<Vec<f32>>>> {
        let kept = |face: &FaceId| self.kept.get(self.fingerprints.get(face)?).cloned();
        let mut vectors: Vec<Option<Vec<f32>>> = faces.iter().map(kept).collect();
        let missing: Vec<FaceId> =
            faces.iter().zip(&vectors).filter(|(_, kept)| kept.is_none()).map(|(face, _)| *face).collect();
        if !missing.is_empty() {
            let read = self.source.read_embeddings(self.album, &missing).await?;
            let mut read: HashMap<FaceId, Vec<f32>> =
                read.into_iter().map(|(face, embedding)| (face, embedding.vector)).collect();
            for (vector, face) in vectors.iter_mut().zip(faces).filter(|(vector, _)| vector.is_none()) {
                *vector = read.remove(face);
            }
        }
        Ok(vectors)
    }

    /// Computes the cosines of these faces, as far as they are still what they were. Their vectors are read in the order
    /// in which the database has them.
    async fn read_cosines(
        &mut self,
        query: &FaceQuery,
        faces: &[&ShortlistedFace],
        cosines: &mut Cosines,
    ) -> Result<()> {
        let score = |vector: &[f32]| self.scorer.score(&query.probe.vector, vector);
        let mut unread: HashMap<FaceId, u64> = HashMap::new();
        for face in faces {
            match self.kept.get(&face.fingerprint) {
                Some(vector) => {
                    cosines.insert(face.fingerprint, score(vector));
                }
                None => {
                    unread.insert(face.face, face.fingerprint);
                }
            }
        }
        if unread.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<FaceId> = unread.keys().copied().collect();
        ids.sort_unstable();
        for (id, embedding) in self.source.read_embeddings(self.album, &ids).await? {
            let found = fingerprint(&embedding.vector);
            if unread.get(&id) == Some(&found) && embedding.vector.len() == query.probe.vector.len() {
                cosines.insert(found, score(&embedding.vector));
                if self.kept.len() < KEPT_VECTORS {
                    self.kept.insert(found, embedding.vector);
                }
            }
        }
        Ok(())
    }
}

fn score_face(query: &FaceQuery, face: &ShortlistedFace, cosine: f32) -> Option<ScoredFace> {
    let ShortlistedFace { face, photo, bounding_box, bib, .. } = face;
    let score = query.rule.score(cosine, bib.as_ref().map(|bib| bib.worn()));
    query.scores.contains(&score).then(|| ScoredFace {
        face: *face,
        photo: *photo,
        bounding_box: *bounding_box,
        bib: bib.clone(),
        cosine,
        score,
    })
}

/// Returns the score that a face must reach to be in the answer, given the exact scores so far.
fn find_min_score(query: &FaceQuery, near: &[ScoredFace]) -> f64 {
    let mut scores: Vec<f64> = match query.per {
        HitsPer::Face => near.iter().map(|face| face.score).collect(),
        HitsPer::Photo => best_of_photos(near.iter().map(|face| (face.photo, face.score))),
    };
    let least = query.scores.start;
    find_kth_largest(&mut scores, query.k).map_or(least, |score| score.max(least))
}

/// Returns the next faces to look at, none if no other can reach `min_score`, and those of them whose vectors must be read.
fn take_batch<'f>(
    remaining: &'f [ShortlistedFace],
    min_score: f64,
    read_size: usize,
    cosines: &Cosines,
) -> (&'f [ShortlistedFace], Vec<&'f ShortlistedFace>) {
    let (mut unread, mut asked) = (Vec::new(), HashSet::new());
    let mut len = 0;
    for face in remaining {
        if unread.len() == read_size || face.upper < min_score {
            break;
        }
        if !cosines.contains_key(&face.fingerprint) && asked.insert(face.fingerprint) {
            unread.push(face);
        }
        len += 1;
    }
    (&remaining[..len], unread)
}
