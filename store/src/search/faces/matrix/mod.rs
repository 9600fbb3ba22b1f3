//! The searchable faces of one album in memory: one matrix of unit vectors per embedding model. Plain values without
//! database, cache or clock. Memory is reported to a [`MemoryObserver`] before it is allocated.
//!
//! The cost of a change depends on the change, not on the album: the last row moves to the place of a removed one.
//! Rows are therefore in no order, and each face has a sequence number that orders equal scores.

mod bibs;
mod model_faces;
mod scored_faces;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use photofinish_kernels::cosine::{Cosine, VectorQuery};

use self::model_faces::{FaceEntry, ModelFaces};
use self::scored_faces::ScoredFaces;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::floats_from_bytes;
use crate::model::ids::PhotoId;
use crate::model::photo::{BoundingBox, Embedding};
use crate::search::selfie::{self, SelfieSearch, WornBib};
use crate::traits::{FaceHit, Result, SelfieHit, SelfieQuery};

/// Accounts for the memory of a matrix that is being filled.
pub(crate) trait MemoryObserver: Send + Sync {
    /// Is called before a matrix grows to `bytes`.
    ///
    /// # Errors
    /// An error refuses the memory and ends the filling.
    fn reserve(&self, bytes: usize) -> Result<()>;
}

/// A face as read from the database.
pub(crate) struct IndexedFace<'a> {
    pub(crate) photo: PhotoId,
    pub(crate) bounding_box: BoundingBox,
    /// The model that computed the vector; vectors of different models are never compared.
    pub(crate) model: &'a str,
    /// Numbers as f32, little endian.
    pub(crate) vector: &'a [u8],
    pub(crate) bib: Option<WornBib<'a>>,
}

/// A search in the matrix.
pub(crate) struct FaceQuery {
    pub(crate) probe: Embedding,
    /// The largest number of photos.
    pub(crate) k: usize,
    pub(crate) min_cosine: f32,
}

/// Searchable faces.
#[derive(Default)]
pub(crate) struct FaceMatrix {
    groups: Vec<ModelFaces>,
    /// Number of faces added so far, including those that were removed since.
    next_sequence: u64,
}

impl FaceMatrix {
    /// Adds a face.
    ///
    /// # Errors
    /// `Corrupt` if the vector is incomplete or differs in length from the others of its model; any error of `memory`.
    pub(crate) fn push(&mut self, face: &IndexedFace<'_>, memory: &dyn MemoryObserver) -> Result<()> {
        let values = floats_from_bytes(face.vector)?;
        let dimension = face.vector.len() / size_of::<f32>();
        let index = self.group_index(face.model, dimension);
        if self.groups[index].dimension() != dimension {
            let what = format!("embedding of photo {}: {dimension} numbers", face.photo);
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
        let growth = self.groups[index].bytes_to_reserve();
        if growth > 0 {
            memory.reserve(self.bytes() + growth)?;
        }
        let IndexedFace { photo, bounding_box, .. } = *face;
        let entry = FaceEntry::new(photo, bounding_box, self.next_sequence);
        self.groups[index].push(entry, face.bib, values);
        self.next_sequence += 1;
        Ok(())
    }

    /// Removes the faces of the `changed` photos and adds the `fresh` ones.
    ///
    /// # Errors
    /// `Corrupt` if the vectors of a model differ in length from those before; nothing is changed then.
    pub(crate) fn replace(&mut self, changed: &[PhotoId], fresh: Self) -> Result<()> {
        for group in &fresh.groups {
            let own = self.groups.iter().find(|own| own.model() == group.model());
            if own.is_some_and(|own| own.dimension() != group.dimension()) {
                let what = format!("embeddings of {}: {} numbers", group.model(), group.dimension());
                return Err(StoreError::new(StoreErrorKind::Corrupt, what));
            }
        }
        self.remove(changed);
        for group in fresh.groups {
            let index = self.group_index(group.model(), group.dimension());
            self.groups[index].append(group, self.next_sequence);
        }
        self.next_sequence += fresh.next_sequence;
        Ok(())
    }

    /// Removes the faces of these photos.
    pub(crate) fn remove(&mut self, photos: &[PhotoId]) {
        for group in &mut self.groups {
            for photo in photos {
                group.remove(*photo);
            }
        }
        // An album without faces takes no memory.
        self.groups.retain(|group| group.len() > 0);
    }

    /// Returns the photos whose best face reaches the query's cosine, best first; equal ones in the order in which they
    /// were added.
    pub(crate) fn nearest(&self, scorer: &Cosine, query: &FaceQuery) -> Vec<FaceHit> {
        let Some(group) = self.comparable_faces(&query.probe) else { return Vec::new() };
        // All faces that are close enough: how many of them belong to one photo is not known yet.
        let mut near: Vec<(f32, &FaceEntry)> = Vec::new();
        let search = VectorQuery { probe: &query.probe.vector, min_score: query.min_cosine };
        group.for_each_hit(scorer, &search, |score, row| near.push((score, group.face(row))));
        near.sort_unstable_by(|(a, first), (b, second)| {
            b.total_cmp(a).then_with(|| first.sequence.cmp(&second.sequence))
        });
        let mut returned = HashSet::new();
        near.into_iter()
            .filter(|(_, face)| returned.insert(face.photo))
            .take(query.k)
            .map(|(score, face)| FaceHit {
                photo: face.photo,
                cosine: score.clamp(-1.0, 1.0),
                bounding_box: face.bounding_box,
            })
            .collect()
    }

    /// Returns the photos of the person on a selfie, best first.
    pub(crate) fn find_person(&self, scorer: &Cosine, query: &SelfieQuery) -> Vec<SelfieHit> {
        let Some(group) = self.comparable_faces(&query.probe) else { return Vec::new() };
        let SelfieQuery { probe, scale, min_score, limit } = query;
        let search = SelfieSearch { probe: &probe.vector, scale: *scale, min_score: *min_score };
        let mut hits = selfie::find_photos(&ScoredFaces { faces: group, scorer }, &search);
        hits.truncate(*limit);
        hits
    }

    /// Returns the faces that can be compared with a probe: those of its model.
    fn comparable_faces(&self, probe: &Embedding) -> Option<&ModelFaces> {
        let group = self.groups.iter().find(|group| group.model() == probe.model)?;
        (group.dimension() == probe.vector.len()).then_some(group)
    }

    /// Returns the number of faces.
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(ModelFaces::len).sum()
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.iter().map(ModelFaces::bytes).sum()
    }

    /// Returns the index of a model's faces; adds an empty set if there is none.
    fn group_index(&mut self, model: &str, dimension: usize) -> usize {
        match self.groups.iter().position(|group| group.model() == model) {
            Some(index) => index,
            None => {
                self.groups.push(ModelFaces::new(model, dimension));
                self.groups.len() - 1
            }
        }
    }
}

#[cfg(test)]
pub(crate) use self::model_faces::live_chunks;

/// Grants any amount of memory.
#[cfg(test)]
pub(crate) struct UnlimitedMemory;

#[cfg(test)]
impl MemoryObserver for UnlimitedMemory {
    fn reserve(&self, _: usize) -> Result<()> {
        Ok(())
    }
}
