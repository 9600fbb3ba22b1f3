//! What a search of an album's faces asks for, and how faces score: by their cosine to a probe and by their bib. Plain
//! values; the face index and the selfie search share them.

mod bib;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use self::bib::{BibEvidence, PersonBib, Vote, elect_bib};
pub use self::bib::{FaceBib, WornBib};
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::{BoundingBox, Embedding};

/// By how much a cosine in `f32` may be less than what it is compared with in `f64`, and still be enough.
const ROUNDING: f64 = 1e-6;

/// A search for faces.
#[derive(Clone, Debug)]
pub struct FaceQuery {
    /// What to search for; only faces of the same model are compared.
    pub probe: Embedding,
    /// The largest number of hits: the best ones.
    pub k: usize,
    /// What is counted.
    pub per: HitsPer,
    /// The scores of hits: from the first on, and below the last.
    pub scores: Range<f64>,
    /// How a face scores.
    pub rule: ScoreRule,
}

/// What the hits of a search are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitsPer {
    /// Photos, each by its best face.
    Photo,
    /// Faces, also several of a photo.
    Face,
}

/// How a face scores: its cosine to the probe, more with the bib of the person who is searched for and less with another
/// one. The default is the cosine alone.
#[derive(Clone, Debug, Default)]
pub struct ScoreRule {
    person: Option<Arc<PersonBib>>,
    /// What the bib of the person adds, and another one subtracts.
    bib_weight: f64,
    /// What is subtracted from all scores.
    subtracted: f64,
}

impl ScoreRule {
    /// Creates a rule that subtracts `subtracted` from all scores, and knows no bib.
    pub(crate) fn subtracting(subtracted: f64) -> Self {
        Self { subtracted, ..Self::default() }
    }

    /// Makes the bib of the person count.
    pub(crate) fn with_bib(self, person: Option<PersonBib>, bib_weight: f64) -> Self {
        Self { person: person.map(Arc::new), bib_weight, ..self }
    }

    /// Returns the score of a face that wears this bib.
    pub fn score(&self, cosine: f32, worn: Option<WornBib<'_>>) -> f64 {
        let cosine = f64::from(cosine);
        let weighed = match self.compare_bib(worn) {
            BibEvidence::Same => cosine + self.bib_weight,
            BibEvidence::Different => cosine - self.bib_weight,
            BibEvidence::None => cosine,
        };
        weighed - self.subtracted
    }

    /// Returns what the bib of a face says about whose face it is.
    pub(crate) fn compare_bib(&self, worn: Option<WornBib<'_>>) -> BibEvidence {
        self.person.as_ref().zip(worn).map_or(BibEvidence::None, |(person, worn)| person.compare(worn))
    }

    /// Returns a cosine that every face has at least whose score reaches `score`.
    pub(crate) fn min_cosine(&self, score: f64) -> f32 {
        let bib = if self.person.is_some() { self.bib_weight } else { 0.0 };
        (score + self.subtracted - bib - ROUNDING) as f32
    }
}

/// A face with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredFace {
    /// The face.
    pub face: FaceId,
    /// Its photo.
    pub photo: PhotoId,
    /// Where in the photo.
    pub bounding_box: BoundingBox,
    /// The bib it wears.
    pub bib: Option<FaceBib>,
    /// Its cosine to the probe: that of the stored vectors, computed in `f32`.
    pub cosine: f32,
    /// Its score by the rule of the search.
    pub score: f64,
}

impl ScoredFace {
    /// Returns the bib it wears.
    pub fn worn(&self) -> Option<WornBib<'_>> {
        self.bib.as_ref().map(FaceBib::worn)
    }

    /// Orders faces by falling score; equal ones by photo and place, never by how they came into memory.
    fn compare(&self, other: &Self) -> Ordering {
        let place = |face: &Self| {
            let BoundingBox { top, left, width, height } = face.bounding_box;
            [top, left, width, height]
        };
        let compare_places = || {
            let (own, other) = (place(self), place(other));
            let different = own.iter().zip(&other).map(|(own, other)| own.total_cmp(other));
            different.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        (other.score.total_cmp(&self.score))
            .then_with(|| self.photo.cmp(&other.photo))
            .then_with(compare_places)
            .then_with(|| self.face.cmp(&other.face))
    }
}

impl FaceQuery {
    /// Returns the hits among faces that were scored for this search, best first.
    pub fn choose_hits(&self, mut faces: Vec<ScoredFace>) -> Vec<ScoredFace> {
        faces.retain(|face| self.scores.contains(&face.score));
        faces.sort_unstable_by(ScoredFace::compare);
        let mut returned = HashSet::new();
        faces.retain(|face| self.per == HitsPer::Face || returned.insert(face.photo));
        faces.truncate(self.k);
        faces
    }
}
