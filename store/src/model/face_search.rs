//! Face searches and their hits.

use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::{BoundingBox, Embedding};

/// A face that is similar to a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceHit {
    /// The face: of the hits of a photo the most similar.
    pub face: FaceId,
    /// Its photo.
    pub photo: PhotoId,
    /// Cosine similarity to the probe, -1 to 1: that of the stored vectors, computed in `f32`.
    pub cosine: f32,
    /// Where in the photo.
    pub bounding_box: BoundingBox,
}

/// A face search.
#[derive(Clone, Debug)]
pub struct FaceQuery {
    /// What to search for; only faces of the same model are compared.
    pub probe: Embedding,
    /// The largest number of hits.
    pub k: usize,
    /// The least cosine of a hit.
    pub min_cosine: f32,
    /// What is counted.
    pub per: HitsPer,
}

/// What the hits of a face search are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitsPer {
    /// Photos, each by its most similar face.
    Photo,
    /// Faces, also several of a photo.
    Face,
}
