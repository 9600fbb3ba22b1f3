//! The stage `embed`: computes the embeddings of faces, those of several photos in one call of the network, and records
//! for the other faces why they are not indexed.

use std::collections::HashMap;

use photofinish_kernels::geometry::Point;
use photofinish_kernels::image::frame::Frame;
use photofinish_models::traits::{EmbeddedFace, FaceBox, FaceCrop, FaceEmbedder, ModelError};
use photofinish_store::model::photo::{DetectedFace, Embedding, UnindexedReason};

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::{BatchResults, Stage};
use crate::stages::inference::{BatchInference, grey_frame};
use crate::stages::photo::{DetectedPhoto, EmbeddedPhoto};
use crate::stages::quality::{rejection_after_embedding, rejection_before_embedding, to_bounding_box};

/// The stage `embed`; one per thread.
pub(crate) struct Embed {
    embedder: Box<dyn FaceEmbedder>,
    /// Faces per call of the network.
    batch_size: usize,
    /// Name and version of the network, stored with each embedding.
    model: String,
}

/// Index of the photo in the batch, and of the face in the photo.
type FacePosition = (usize, usize);

/// The network's result for each face it was run on.
type EmbeddingResults = HashMap<FacePosition, Result<EmbeddedFace, Poison>>;

fn crop_inference<'a>() -> BatchInference<dyn FaceEmbedder, FaceCrop<'a>, EmbeddedFace> {
    // The network's input is a crop of fixed size, whatever the size of the photo, so every self-test is the same.
    BatchInference {
        run: |embedder, crops| embedder.embed(crops),
        self_test: |embedder, _crop, _kind| self_test(embedder),
    }
}

/// Embeds the face of a grey frame.
fn self_test(embedder: &mut (dyn FaceEmbedder + 'static)) -> Result<(), ModelError> {
    // Eyes, nose and mouth of a face that fills the grey frame.
    let landmarks = [(20., 24.), (44., 24.), (32., 36.), (22., 48.), (42., 48.)].map(|(x, y)| Point { x, y });
    embedder.embed(&[FaceCrop { frame: grey_frame(), landmarks }]).map(drop)
}

impl Embed {
    pub(crate) fn new(embedder: Box<dyn FaceEmbedder>, batch_size: usize) -> Self {
        let model = embedder.identity().to_string();
        Self { embedder, batch_size: batch_size.max(1), model }
    }

    /// Embeds all faces that are not rejected beforehand.
    fn embed_faces(&mut self, batch: &[DetectedPhoto]) -> Result<EmbeddingResults, Outage> {
        let mut positions: Vec<FacePosition> = Vec::new();
        let mut crops: Vec<FaceCrop<'_>> = Vec::new();
        for (i, photo) in batch.iter().enumerate().filter(|(_, photo)| wants_faces(photo)) {
            for (j, face) in
                photo.faces.iter().enumerate().filter(|(_, face)| rejection_before_embedding(face).is_none())
            {
                positions.push((i, j));
                crops.push(FaceCrop { frame: photo.sized.frame.frame(), landmarks: face.landmarks });
            }
        }
        let mut results = Vec::with_capacity(crops.len());
        for crops in crops.chunks(self.batch_size) {
            results.extend(crop_inference().infer_batch(self.embedder.as_mut(), crops)?);
        }
        Ok(positions.into_iter().zip(results).collect())
    }

    /// Moves the results of photo `index` of the batch out of `embeddings`.
    fn to_embedded_photo(
        &self,
        index: usize,
        photo: &DetectedPhoto,
        embeddings: &mut EmbeddingResults,
    ) -> Result<EmbeddedPhoto, Poison> {
        let mut faces = Vec::new();
        if wants_faces(photo) {
            for (j, face) in photo.faces.iter().enumerate() {
                let vector = embeddings.remove(&(index, j)).transpose()?;
                faces.extend(self.to_detected_face(face, photo.sized.frame.frame(), vector));
            }
        }
        faces.sort_by(|a: &DetectedFace, b| box_area(b).total_cmp(&box_area(a)));
        Ok(EmbeddedPhoto { detected: photo.clone(), faces })
    }

    /// Builds the record of a face; `vector` is `None` for one that was rejected before embedding. Returns `None` for a
    /// face outside the frame.
    fn to_detected_face(
        &self,
        face: &FaceBox,
        frame: Frame<'_>,
        vector: Option<EmbeddedFace>,
    ) -> Option<DetectedFace> {
        let bounding_box = to_bounding_box(&face.rect, frame.width(), frame.height())?;
        let (unindexed, embedding) = match vector {
            None => (rejection_before_embedding(face), None),
            Some(vector) => match rejection_after_embedding(vector.sharpness) {
                Some(reason) => (Some(reason), None),
                // A vector with NaN or infinity would match nothing, or everything.
                None if !vector.vector.iter().all(|value| value.is_finite()) => {
                    (Some(UnindexedReason::LowConfidence), None)
                }
                None => (None, Some(Embedding { model: self.model.clone(), vector: vector.vector })),
            },
        };
        Some(DetectedFace { bounding_box, confidence: f64::from(face.score), unindexed, embedding })
    }
}

impl Stage for Embed {
    type In = DetectedPhoto;
    type Out = EmbeddedPhoto;

    fn run(&mut self, batch: &[DetectedPhoto]) -> Result<BatchResults<EmbeddedPhoto>, Outage> {
        let mut embeddings = self.embed_faces(batch)?;
        let photos = batch.iter().enumerate();
        Ok(photos.map(|(i, photo)| self.to_embedded_photo(i, photo, &mut embeddings)).collect())
    }
}

fn wants_faces(photo: &DetectedPhoto) -> bool {
    photo.sized.metadata.lease.config.face.enabled
}

fn box_area(face: &DetectedFace) -> f64 {
    face.bounding_box.width * face.bounding_box.height
}
