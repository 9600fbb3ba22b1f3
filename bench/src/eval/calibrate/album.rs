//! The album of the calibration: all faces of the labelled photos, searched as the service does, but without bibs. Each
//! face counts as a photo of its own, so that every labelled face gets its score.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use photofinish_store::model::ids::{FaceId, PhotoId};
use photofinish_store::model::photo::{BoundingBox, Embedding};
use photofinish_store::search::scoring::{FaceQuery, ScoredFace};
use photofinish_store::search::selfie::{AlbumFaces, SelfieSearch, find_photos};
use photofinish_store::traits::{Result, SelfieHit, SelfieScale};

use super::super::gallery::{EmbeddedFace, cosine};

/// Scores of pairs of a probe and another face.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Of one person.
    pub same: Vec<f64>,
    /// Of two persons.
    pub different: Vec<f64>,
}

/// A face with the id that stands for its photo.
struct AlbumFace<'a> {
    id: PhotoId,
    face: &'a EmbeddedFace,
}

/// Faces to search in.
pub struct CalibrationAlbum<'a> {
    faces: Vec<AlbumFace<'a>>,
    scale: SelfieScale,
}

/// The faces that one probe is compared with.
struct Searched<'a, 's> {
    faces: Vec<&'s AlbumFace<'a>>,
}

impl<'a> CalibrationAlbum<'a> {
    /// Creates an album of faces.
    pub fn new(faces: impl Iterator<Item = &'a EmbeddedFace>, scale: SelfieScale) -> Self {
        Self { faces: faces.map(|face| AlbumFace { id: PhotoId::generate(), face }).collect(), scale }
    }

    /// Searches with each probe in the album without its own photo, and pairs it with the labelled faces that
    /// `is_paired` accepts.
    pub fn score_pairs(&self, probes: &[&EmbeddedFace], is_paired: impl Fn(&EmbeddedFace) -> bool) -> Pairs {
        let mut pairs = Pairs::default();
        for probe in probes {
            let scores = self.score_all(probe);
            for AlbumFace { id, face } in self.faces.iter().filter(|other| is_paired(other.face)) {
                let (Some(score), Some(person), Some(other)) = (scores.get(id), &probe.person, &face.person)
                else {
                    continue;
                };
                let kind = if person == other { &mut pairs.same } else { &mut pairs.different };
                kind.push(*score);
            }
        }
        pairs
    }

    fn score_all(&self, probe: &EmbeddedFace) -> HashMap<PhotoId, f64> {
        let faces = self.faces.iter().filter(|other| other.face.file != probe.file).collect();
        let probe = Embedding { model: String::new(), vector: probe.vector.clone() };
        let (min_score, limit) = (f64::NEG_INFINITY, usize::MAX);
        let search = SelfieSearch { probe: &probe, scale: self.scale, min_score, limit };
        let hits = find_photos(&Searched { faces }, &search).now_or_never();
        let hits: Vec<SelfieHit> =
            hits.and_then(Result::ok).expect("a search in memory neither waits nor fails");
        hits.into_iter().map(|hit| (hit.photo, hit.score)).collect()
    }
}

impl AlbumFaces for Searched<'_, '_> {
    fn count(&self) -> usize {
        self.faces.len()
    }

    async fn search(&self, queries: Vec<FaceQuery>) -> Result<Vec<Vec<ScoredFace>>> {
        let search = |query: &FaceQuery| {
            let score = |(number, other): (usize, &&AlbumFace<'_>)| {
                let cosine = cosine(&query.probe.vector, &other.face.vector) as f32;
                ScoredFace {
                    face: FaceId(number as i64),
                    photo: other.id,
                    bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.0, height: 0.0 },
                    bib: None,
                    cosine,
                    score: query.rule.score(cosine, None),
                }
            };
            query.choose_hits(self.faces.iter().enumerate().map(score).collect())
        };
        Ok(queries.iter().map(search).collect())
    }

    async fn read_vectors(&self, faces: &[ScoredFace]) -> Result<Vec<Option<Vec<f32>>>> {
        let vector = |face: &ScoredFace| {
            let own = self.faces.get(usize::try_from(face.face.0).ok()?)?;
            Some(own.face.vector.clone())
        };
        Ok(faces.iter().map(vector).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(file: &str, person: &str, vector: [f32; 2]) -> EmbeddedFace {
        EmbeddedFace { file: file.to_owned(), person: Some(person.to_owned()), vector: vector.to_vec() }
    }

    #[test]
    fn faces_of_one_photo_are_not_paired() {
        let faces = [
            known("a", "1", [1.0, 0.0]),
            known("a", "2", [1.0, 0.0]),
            known("b", "1", [0.0, 1.0]),
            EmbeddedFace { person: None, ..known("c", "", [0.0, 1.0]) },
        ];
        let scale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };
        let album = CalibrationAlbum::new(faces.iter(), scale);
        let pairs = album.score_pairs(&[&faces[0], &faces[1]], |_| true);
        assert_eq!((pairs.same, pairs.different), (vec![0.0], vec![0.0]));
    }
}
