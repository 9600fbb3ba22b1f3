//! The stage `embed`: computes the embeddings of faces, those of several photos in one call of the network, and records
//! for the other faces why they are not indexed. Each call is a step: a photo of many faces takes several.

use photofinish_kernels::geometry::Point;
use photofinish_kernels::image::frame::Frame;
use photofinish_models::traits::{EmbeddedFace, FaceBox, FaceCrop, FaceEmbedder, ModelError};
use photofinish_store::model::photo::{DetectedFace, Embedding, UnindexedReason};

use crate::engine::fault::{Outage, Poison};
use crate::engine::metrics::{ALBUM_KINDS, FACES_EMBEDDED};
use crate::engine::stage::{Step, StepResults, SteppedStage};
use crate::stages::inference::{BatchInference, grey_frame};
use crate::stages::photo::{DetectedPhoto, EmbeddedPhoto};
use crate::stages::quality::{
    MIN_SHARPNESS, rejection_before_embedding, rejection_by_sharpness, to_bounding_box,
};

/// The stage `embed`; one per thread.
pub(crate) struct Embed {
    embedder: Box<dyn FaceEmbedder>,
    /// Faces per call of the network.
    batch_size: usize,
    /// Name and version of the network, stored with each embedding.
    model: String,
}

fn crop_inference<'a>() -> BatchInference<dyn FaceEmbedder, FaceCrop<'a>, EmbeddedFace> {
    // The network's input is a crop of fixed size, whatever the size of the photo, so every self-test is the same.
    BatchInference {
        run: |embedder, crops| embedder.embed(crops),
        self_test: |embedder, _crop, _kind| self_test(embedder),
    }
}

/// Embeds the face of a grey frame.
pub(crate) fn self_test(embedder: &mut (dyn FaceEmbedder + 'static)) -> Result<(), ModelError> {
    // Eyes, nose and mouth of a face that fills the grey frame.
    let landmarks = [(20., 24.), (44., 24.), (32., 36.), (22., 48.), (42., 48.)].map(|(x, y)| Point { x, y });
    embedder.embed(&[FaceCrop::new(grey_frame(), landmarks)]).map(drop)
}

impl Embed {
    pub(crate) fn new(embedder: Box<dyn FaceEmbedder>, batch_size: usize) -> Self {
        let model = embedder.identity().to_string();
        Self { embedder, batch_size: batch_size.max(1), model }
    }

    /// Runs the network on a grey frame.
    pub(crate) fn try_network(&mut self) -> Result<(), ModelError> {
        self_test(self.embedder.as_mut())
    }

    /// Moves the embeddings of a photo's faces, in their order, into their records.
    fn to_embedded_photo(&self, photo: &DetectedPhoto, embedded: Vec<EmbeddedFace>) -> EmbeddedPhoto {
        let mut embedded = embedded.into_iter();
        let mut faces = Vec::new();
        if wants_faces(photo) {
            for face in &photo.faces {
                let rejection = find_rejection(photo, face);
                let vector = if rejection.is_some() { None } else { embedded.next() };
                faces.extend(self.to_detected_face(face, photo.sized.frame.frame(), rejection, vector));
            }
        }
        faces.sort_by(|a: &DetectedFace, b| box_area(b).total_cmp(&box_area(a)));
        EmbeddedPhoto { detected: photo.clone(), faces }
    }

    /// Builds the record of a face; `vector` is `None` for one that was rejected before embedding, for this reason. Returns
    /// `None` for a face outside the frame.
    fn to_detected_face(
        &self,
        face: &FaceBox,
        frame: Frame<'_>,
        rejection: Option<UnindexedReason>,
        vector: Option<EmbeddedFace>,
    ) -> Option<DetectedFace> {
        let bounding_box = to_bounding_box(&face.rect, frame.width(), frame.height())?;
        let (unindexed, embedding) = match vector {
            None => (rejection, None),
            Some(vector) => match rejection_by_sharpness(vector.sharpness) {
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

impl SteppedStage for Embed {
    type In = DetectedPhoto;
    type Part = Vec<EmbeddedFace>;
    type Out = EmbeddedPhoto;

    fn step(
        &mut self,
        batch: &[DetectedPhoto],
        parts: &[Vec<Vec<EmbeddedFace>>],
    ) -> Result<StepResults<Vec<EmbeddedFace>, EmbeddedPhoto>, Outage> {
        let remaining: Vec<Vec<FaceCrop<'_>>> = batch
            .iter()
            .zip(parts)
            .map(|(photo, parts)| crops_to_embed(photo).skip(parts.iter().map(Vec::len).sum()).collect())
            .collect();
        let lengths: Vec<usize> = remaining.iter().map(Vec::len).collect();
        let shares = share_places(&lengths, self.batch_size);
        let crops: Vec<FaceCrop<'_>> = remaining
            .iter()
            .zip(&shares)
            .flat_map(|(crops, share)| crops[..*share].iter().copied())
            .collect();
        let mut results = crop_inference().infer_batch(self.embedder.as_mut(), &crops)?.into_iter();
        let mut steps = Vec::with_capacity(batch.len());
        for (i, photo) in batch.iter().enumerate() {
            // In two steps: an error must not leave results of this photo for the next one.
            let found: Vec<Result<EmbeddedFace, Poison>> = results.by_ref().take(shares[i]).collect();
            let found: Result<Vec<EmbeddedFace>, Poison> = found.into_iter().collect();
            let has_vector = |face: &&EmbeddedFace| !face.vector.is_empty();
            let computed = found.as_ref().map_or(0, |found| found.iter().filter(has_vector).count());
            if computed > 0 {
                let [faces, bibs_only] = ALBUM_KINDS;
                let kind = if wants_faces(photo) { faces } else { bibs_only };
                metrics::counter!(FACES_EMBEDDED, "album_kind" => kind).increment(computed as u64);
            }
            let is_done = shares[i] == lengths[i];
            steps.push(found.map(|found| {
                if !is_done {
                    return Step::Part(found);
                }
                let embedded = parts[i].iter().flatten().cloned().chain(found).collect();
                Step::Done(self.to_embedded_photo(photo, embedded))
            }));
        }
        Ok(steps)
    }

    /// Its faces; one at least, for the work around them.
    fn weigh(photo: &DetectedPhoto, parts: &[Vec<EmbeddedFace>]) -> u64 {
        1 + faces_left(photo, parts) as u64
    }
}

/// How many faces of a photo a step embeds at most: what is left, up to the places of a call.
fn faces_left(photo: &DetectedPhoto, parts: &[Vec<EmbeddedFace>]) -> usize {
    crops_to_embed(photo).count().saturating_sub(parts.iter().map(Vec::len).sum())
}

/// The faces of a photo that are not rejected beforehand.
fn crops_to_embed(photo: &DetectedPhoto) -> impl Iterator<Item = FaceCrop<'_>> {
    let faces = photo.faces.iter().filter(|face| wants_faces(photo) && find_rejection(photo, face).is_none());
    faces.map(|face| FaceCrop {
        least_sharpness: MIN_SHARPNESS,
        ..FaceCrop::new(photo.sized.frame.frame(), face.landmarks)
    })
}

/// Returns why a face of a photo is not to be embedded; `None` when it is. No vector is made of a face that was erased,
/// not even for a moment.
fn find_rejection(photo: &DetectedPhoto, face: &FaceBox) -> Option<UnindexedReason> {
    let erased = &photo.sized.metadata.lease.erased_places;
    if !erased.is_empty() {
        let frame = photo.sized.frame.frame();
        let place = to_bounding_box(&face.rect, frame.width(), frame.height());
        if place.is_some_and(|place| erased.iter().any(|erased| erased.is_same_face(&place))) {
            return Some(UnindexedReason::Erased);
        }
    }
    rejection_before_embedding(face)
}

/// Shares the places of one call between photos that have so many faces left, one by one in turn.
fn share_places(remaining: &[usize], places: usize) -> Vec<usize> {
    let mut shares = vec![0; remaining.len()];
    let mut left = places;
    while left > 0 && shares.as_slice() != remaining {
        for (share, remaining) in shares.iter_mut().zip(remaining) {
            if left > 0 && *share < *remaining {
                *share += 1;
                left -= 1;
            }
        }
    }
    shares
}

fn wants_faces(photo: &DetectedPhoto) -> bool {
    photo.sized.metadata.lease.config.face.enabled
}

fn box_area(face: &DetectedFace) -> f64 {
    face.bounding_box.width * face.bounding_box.height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_share_the_places_of_a_call() {
        assert_eq!(share_places(&[200, 3, 0], 64), [61, 3, 0]);
        assert_eq!(share_places(&[200, 200], 64), [32, 32]);
        assert_eq!(share_places(&[200], 1), [1]);
        assert_eq!(share_places(&[2, 1], 64), [2, 1]);
        assert_eq!(share_places(&[5, 5, 5], 2), [1, 1, 0]);
        assert_eq!(share_places(&[0], 64), [0]);
    }
}
