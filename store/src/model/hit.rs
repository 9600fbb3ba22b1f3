//! Face searches and their hits.

use crate::model::ids::PhotoId;
use crate::model::photo::{BoundingBox, Embedding};

/// A photo that contains the face of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct FaceHit {
    /// The photo.
    pub photo: PhotoId,
    /// Cosine similarity to the probe, -1 to 1.
    pub cosine: f32,
    /// The most similar face of that photo.
    pub bounding_box: BoundingBox,
}

/// A search for all photos of the person on a selfie: see [`crate::search::selfie`].
#[derive(Clone, Debug)]
pub struct SelfieQuery {
    /// The face of the selfie.
    pub probe: Embedding,
    /// How similar two faces of the probe's network must be to be surely of one person.
    pub scale: SelfieScale,
    /// The least score of a hit.
    pub min_score: f64,
    /// The largest number of photos.
    pub limit: usize,
}

/// What a selfie search must know of the network that made the embeddings, as cosines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfieScale {
    /// From this cosine on two faces are surely of one person.
    pub sure_cosine: f64,
    /// What the bib of the person adds to the score of a face, and another bib subtracts.
    pub bib_weight: f64,
    /// The cosine of strangers where an album has too few faces to measure it.
    pub few_faces_level: f64,
}

/// A photo of the person on a selfie.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfieHit {
    /// The photo.
    pub photo: PhotoId,
    /// A cosine, with what bibs add and without half of the level that strangers reach: between albums of different
    /// sizes it means the same.
    pub score: f64,
    /// The face that has this score, the best of its photo.
    pub bounding_box: BoundingBox,
    /// What the hit rests on.
    pub reason: HitReason,
}

/// What a hit of a selfie search rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitReason {
    /// The face alone.
    Face,
    /// The face is not surely that of the person, and wears the bib of the person's sure hits.
    SameBib,
}
