//! The stage `embed`: turns faces into vectors, those of several photos in one call of the network, and says of the
//! others why they have none.

use std::collections::HashMap;

use photofinish_kernels::frame::Frame;
use photofinish_models::traits::{EmbeddedFace, FaceBox, FaceCrop, FaceEmbedder, ModelError};
use photofinish_store::photo::{Embedding, SeenFace, UnindexedReason};

use crate::fault::{Outage, Poison};
use crate::network::{Question, plain_frame};
use crate::photo::{DetectedPhoto, EmbeddedPhoto};
use crate::quality::{after_embedding, before_embedding, fractions};
use crate::stage::{Answers, Stage};

/// The stage `embed`.
pub(crate) struct Embed {
    embedder: Box<dyn FaceEmbedder>,
    /// Faces a call.
    batch_size: usize,
    /// Name and version of the network, as vectors carry it.
    model: String,
}

/// Which face of which photo of the batch.
type Place = (usize, usize);

/// What the network said of the faces it was asked about.
type Vectors = HashMap<Place, Result<EmbeddedFace, Poison>>;

fn question<'a>() -> Question<dyn FaceEmbedder, FaceCrop<'a>, EmbeddedFace> {
    // Every face comes to the network as a crop of one size, whatever the size of its photo.
    Question {
        ask: |embedder, crops| embedder.embed(crops),
        prove: |embedder, _crop, _proof| prove(embedder),
    }
}

fn prove(embedder: &mut (dyn FaceEmbedder + 'static)) -> Result<(), ModelError> {
    // Where the eyes, the nose and the mouth of a face that fills the plain picture would be.
    let landmarks = [(20., 24.), (44., 24.), (32., 36.), (22., 48.), (42., 48.)]
        .map(|(x, y)| photofinish_kernels::geometry::Point { x, y });
    embedder.embed(&[FaceCrop { frame: plain_frame(), landmarks }]).map(drop)
}

impl Embed {
    pub(crate) fn new(embedder: Box<dyn FaceEmbedder>, batch_size: usize) -> Self {
        let model = embedder.identity().to_string();
        Self { embedder, batch_size: batch_size.max(1), model }
    }

    /// The vectors of all faces that are worth one.
    fn vectors(&mut self, batch: &[DetectedPhoto]) -> Result<Vectors, Outage> {
        let mut places: Vec<Place> = Vec::new();
        let mut crops: Vec<FaceCrop<'_>> = Vec::new();
        for (i, photo) in batch.iter().enumerate().filter(|(_, photo)| wants_faces(photo)) {
            for (j, face) in
                photo.faces.iter().enumerate().filter(|(_, face)| before_embedding(face).is_none())
            {
                places.push((i, j));
                crops.push(FaceCrop { frame: photo.sized.frame.frame(), landmarks: face.landmarks });
            }
        }
        let mut answers = Vec::with_capacity(crops.len());
        for crops in crops.chunks(self.batch_size) {
            answers.extend(question().put(self.embedder.as_mut(), crops)?);
        }
        Ok(places.into_iter().zip(answers).collect())
    }

    fn seen(&self, face: &FaceBox, frame: Frame<'_>, vector: Option<EmbeddedFace>) -> Option<SeenFace> {
        let bounding_box = fractions(&face.rect, frame.width(), frame.height())?;
        let (unindexed, embedding) = match vector {
            None => (before_embedding(face), None),
            Some(vector) => match after_embedding(vector.sharpness) {
                Some(reason) => (Some(reason), None),
                // A vector of no numbers matches nothing, or everything.
                None if !vector.vector.iter().all(|value| value.is_finite()) => {
                    (Some(UnindexedReason::LowConfidence), None)
                }
                None => (None, Some(Embedding { model: self.model.clone(), vector: vector.vector })),
            },
        };
        Some(SeenFace { bounding_box, confidence: f64::from(face.score), unindexed, embedding })
    }
}

impl Stage for Embed {
    type In = DetectedPhoto;
    type Out = EmbeddedPhoto;

    fn run(&mut self, batch: &[DetectedPhoto]) -> Result<Answers<EmbeddedPhoto>, Outage> {
        let mut vectors = self.vectors(batch)?;
        let embed = |(i, photo): (usize, &DetectedPhoto)| {
            let mut seen = Vec::new();
            if wants_faces(photo) {
                for (j, face) in photo.faces.iter().enumerate() {
                    let vector = vectors.remove(&(i, j)).transpose()?;
                    seen.extend(self.seen(face, photo.sized.frame.frame(), vector));
                }
            }
            seen.sort_by(|a: &SeenFace, b| area(b).total_cmp(&area(a)));
            Ok(EmbeddedPhoto { detected: photo.clone(), seen })
        };
        Ok(batch.iter().enumerate().map(embed).collect())
    }
}

fn wants_faces(photo: &DetectedPhoto) -> bool {
    photo.sized.facts.lease.config.face.enabled
}

fn area(face: &SeenFace) -> f64 {
    face.bounding_box.width * face.bounding_box.height
}
