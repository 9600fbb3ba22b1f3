//! The searchable faces of one album in memory: a matrix of unit vectors per embedding network. Plain values; knows
//! no rows, no cache and no clock.

use std::collections::HashSet;

use photofinish_kernels::cosine::{Cosine, Search};

use crate::error::{StoreError, StoreErrorKind};
use crate::ids::PhotoId;
use crate::photo::{BoundingBox, Embedding};
use crate::rows::floats_of;
use crate::traits::{FaceHit, Result};

/// A face as its row gives it.
pub(crate) struct IndexedFace<'a> {
    pub(crate) photo: PhotoId,
    pub(crate) bounding_box: BoundingBox,
    /// The network that made the vector: vectors of two are never compared.
    pub(crate) model: &'a str,
    /// f32, little endian.
    pub(crate) vector: &'a [u8],
}

/// What a search asks of the matrix.
pub(crate) struct Nearest {
    pub(crate) probe: Embedding,
    pub(crate) k: usize,
    pub(crate) at_least: f32,
}

/// Searchable faces.
#[derive(Default)]
pub(crate) struct FaceMatrix {
    groups: Vec<Group>,
    /// Photos that have rows in some group: photos just read for the first time are added without a look at the rest.
    photos: HashSet<PhotoId>,
}

/// The vectors of one network, one after the other; row `i` of each list is one face.
struct Group {
    model: String,
    dimension: usize,
    vectors: Vec<f32>,
    photos: Vec<PhotoId>,
    boxes: Vec<BoundingBox>,
}

impl FaceMatrix {
    /// Adds a face.
    ///
    /// # Errors
    /// `Corrupt` when the vector is torn or not as long as the others of its network.
    pub(crate) fn push(&mut self, face: &IndexedFace<'_>) -> Result<()> {
        let values = floats_of(face.vector)?;
        let dimension = face.vector.len() / size_of::<f32>();
        let group = self.group(face.model, dimension);
        if group.dimension != dimension {
            let what = format!("embedding of photo {}: {dimension} numbers", face.photo);
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
        group.vectors.extend(values);
        group.photos.push(face.photo);
        group.boxes.push(face.bounding_box);
        self.photos.insert(face.photo);
        Ok(())
    }

    /// Takes the faces of `changed` out and those of `fresh` in.
    ///
    /// # Errors
    /// As [`Self::push`]; nothing is changed then.
    pub(crate) fn replace(&mut self, changed: &[PhotoId], fresh: Self) -> Result<()> {
        for group in &fresh.groups {
            let own = self.groups.iter().find(|own| own.model == group.model);
            if own.is_some_and(|own| own.dimension != group.dimension) {
                let what = format!("embeddings of {}: {} numbers", group.model, group.dimension);
                return Err(StoreError::new(StoreErrorKind::Corrupt, what));
            }
        }
        self.remove(changed);
        for group in fresh.groups {
            let own = self.group(&group.model, group.dimension);
            own.vectors.extend(group.vectors);
            own.photos.extend(group.photos);
            own.boxes.extend(group.boxes);
        }
        self.photos.extend(fresh.photos);
        Ok(())
    }

    /// Takes the faces of these photos out.
    pub(crate) fn remove(&mut self, photos: &[PhotoId]) {
        let gone: HashSet<PhotoId> =
            photos.iter().filter(|photo| self.photos.remove(photo)).copied().collect();
        if !gone.is_empty() {
            for group in &mut self.groups {
                group.keep(|photo| !gone.contains(&photo));
            }
        }
    }

    /// The photos whose best face is at least as close as asked, best first; equal ones in the
    /// order they were read.
    pub(crate) fn nearest(&self, scorer: &Cosine, wanted: &Nearest) -> Vec<FaceHit> {
        let Some(group) = self.groups.iter().find(|group| group.model == wanted.probe.model) else {
            return Vec::new();
        };
        if group.dimension != wanted.probe.vector.len() {
            return Vec::new();
        }
        // Every row that is close enough: how many of them are in one photo is not known before.
        let search = Search { probe: &wanted.probe.vector, at_least: wanted.at_least, k: group.photos.len() };
        let near = scorer.nearest(&search, &group.vectors);
        let mut answered = HashSet::new();
        near.iter()
            .filter(|found| answered.insert(group.photos[found.row]))
            .take(wanted.k)
            .map(|found| FaceHit {
                photo: group.photos[found.row],
                cosine: found.score.clamp(-1.0, 1.0),
                bounding_box: group.boxes[found.row],
            })
            .collect()
    }

    /// How many faces.
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.photos.len()).sum()
    }

    /// What it holds, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let groups: usize = self.groups.iter().map(Group::bytes).sum();
        groups + self.photos.capacity() * size_of::<PhotoId>()
    }

    fn group(&mut self, model: &str, dimension: usize) -> &mut Group {
        let at = match self.groups.iter().position(|group| group.model == model) {
            Some(at) => at,
            None => {
                self.groups.push(Group {
                    model: model.to_owned(),
                    dimension,
                    vectors: Vec::new(),
                    photos: Vec::new(),
                    boxes: Vec::new(),
                });
                self.groups.len() - 1
            }
        };
        &mut self.groups[at]
    }
}

impl Group {
    /// Moves the rows to keep together, in order.
    fn keep(&mut self, wanted: impl Fn(PhotoId) -> bool) {
        let mut kept = 0;
        for row in 0..self.photos.len() {
            if wanted(self.photos[row]) {
                let from = row * self.dimension;
                self.vectors.copy_within(from..from + self.dimension, kept * self.dimension);
                self.photos[kept] = self.photos[row];
                self.boxes[kept] = self.boxes[row];
                kept += 1;
            }
        }
        self.vectors.truncate(kept * self.dimension);
        self.photos.truncate(kept);
        self.boxes.truncate(kept);
    }

    fn bytes(&self) -> usize {
        self.vectors.capacity() * size_of::<f32>()
            + self.photos.capacity() * size_of::<PhotoId>()
            + self.boxes.capacity() * size_of::<BoundingBox>()
    }
}

#[cfg(test)]
mod tests {
    use photofinish_kernels::device::Device;

    use super::*;
    use crate::rows::bytes_of;

    const BOX: BoundingBox = BoundingBox { top: 0.1, left: 0.2, width: 0.3, height: 0.4 };

    fn push(matrix: &mut FaceMatrix, photo: PhotoId, model: &str, vector: &[f32]) -> Result<()> {
        let vector = bytes_of(vector);
        matrix.push(&IndexedFace { photo, bounding_box: BOX, model, vector: &vector })
    }

    fn found(matrix: &FaceMatrix, probe: &[f32], k: usize, at_least: f32) -> Vec<(PhotoId, f32)> {
        let probe = Embedding { model: "net@1".into(), vector: probe.to_vec() };
        let hits = matrix.nearest(&Cosine::new(&Device::Cpu), &Nearest { probe, k, at_least });
        hits.into_iter().map(|hit| (hit.photo, hit.cosine)).collect()
    }

    #[test]
    fn each_photo_is_answered_once_by_its_best_face() {
        let mut matrix = FaceMatrix::default();
        let (a, b) = (PhotoId::generate(), PhotoId::generate());
        push(&mut matrix, a, "net@1", &[0.6, 0.8]).unwrap();
        push(&mut matrix, a, "net@1", &[1.0, 0.0]).unwrap();
        push(&mut matrix, b, "net@1", &[0.8, 0.6]).unwrap();
        assert_eq!(found(&matrix, &[1.0, 0.0], 10, 0.5), [(a, 1.0), (b, 0.8)]);
        assert_eq!(found(&matrix, &[1.0, 0.0], 1, 0.5), [(a, 1.0)]);
        assert_eq!(found(&matrix, &[1.0, 0.0], 10, 0.9), [(a, 1.0)]);
    }

    #[test]
    fn vectors_of_another_network_are_not_compared() {
        let mut matrix = FaceMatrix::default();
        push(&mut matrix, PhotoId::generate(), "net@2", &[1.0, 0.0]).unwrap();
        assert_eq!(found(&matrix, &[1.0, 0.0], 10, -1.0), []);
    }

    #[test]
    fn a_vector_of_another_length_is_refused() {
        let mut matrix = FaceMatrix::default();
        push(&mut matrix, PhotoId::generate(), "net@1", &[1.0, 0.0]).unwrap();
        assert!(push(&mut matrix, PhotoId::generate(), "net@1", &[1.0, 0.0, 0.0]).is_err());
        assert_eq!(matrix.len(), 1);
    }

    #[test]
    fn a_photo_read_again_is_found_by_its_new_faces_alone() {
        let mut matrix = FaceMatrix::default();
        let (a, b) = (PhotoId::generate(), PhotoId::generate());
        push(&mut matrix, a, "net@1", &[1.0, 0.0]).unwrap();
        push(&mut matrix, b, "net@1", &[0.8, 0.6]).unwrap();
        let mut fresh = FaceMatrix::default();
        push(&mut fresh, a, "net@1", &[0.0, 1.0]).unwrap();
        matrix.replace(&[a], fresh).unwrap();
        assert_eq!(found(&matrix, &[1.0, 0.0], 10, 0.5), [(b, 0.8)]);
        assert_eq!(found(&matrix, &[0.0, 1.0], 10, 0.7), [(a, 1.0)]);
        matrix.remove(&[a, b]);
        assert_eq!(matrix.len(), 0);
    }
}
