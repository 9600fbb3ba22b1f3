//! The searchable faces of one album in memory: one matrix of unit vectors per embedding model. Plain values without
//! database, cache or clock. Memory is reported to a [`MemoryObserver`] before it is allocated.
//!
//! The cost of a change depends on the change, not on the album: the last row moves to the place of a removed one.
//! Rows are therefore in no order.
//!
//! Vectors are kept in 8 bits a component, so a search of the matrix finds a shortlist: all faces that may be answers, and
//! few others.

mod bibs;
mod entry;
mod model_faces;
pub(crate) mod pass;
pub(crate) mod shortlist;
#[cfg(test)]
mod tests;

use photofinish_kernels::batch::near;
use photofinish_kernels::quantised::{DeviceCopy, QuantisedRow};

use self::entry::FaceEntry;
use self::model_faces::ModelFaces;
use self::pass::Pass;
use self::shortlist::ShortlistedFace;
use super::fingerprint::fingerprint;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::floats_from_bytes;
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::{BoundingBox, Embedding};
use crate::search::face_bibs::PhotoReadings;
use crate::search::scoring::FaceQuery;
use crate::traits::Result;

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
    pub(crate) id: FaceId,
    pub(crate) photo: PhotoId,
    pub(crate) bounding_box: BoundingBox,
    /// The model that computed the vector; vectors of different models are never compared.
    pub(crate) model: &'a str,
    /// Numbers as f32, little endian.
    pub(crate) vector: &'a [u8],
}

/// Searchable faces.
#[derive(Default)]
pub(crate) struct FaceMatrix {
    groups: Vec<ModelFaces>,
}

impl FaceMatrix {
    /// Adds a face.
    ///
    /// # Errors
    /// `Corrupt` if the vector is incomplete or differs in length from the others of its model; any error of `memory`.
    pub(crate) fn push(&mut self, face: &IndexedFace<'_>, memory: &dyn MemoryObserver) -> Result<()> {
        let vector: Vec<f32> = floats_from_bytes(face.vector)?.collect();
        let dimension = vector.len();
        let index = self.group_index(face.model, dimension);
        if self.groups[index].dimension() != dimension {
            let what = format!("embedding of photo {}: {dimension} numbers", face.photo);
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
        let growth = self.groups[index].bytes_to_reserve();
        if growth > 0 {
            memory.reserve(self.bytes() + growth)?;
        }
        let IndexedFace { id, photo, bounding_box, .. } = *face;
        let entry =
            FaceEntry { id, photo, bounding_box, fingerprint: fingerprint(&vector), next_row: 0, worn: None };
        self.groups[index].push(entry, &QuantisedRow::new(&vector));
        Ok(())
    }

    /// Gives the faces of a photo, which have none yet, the bibs that were read below them. `others` are its faces that
    /// are not in the matrix: they wear bibs too.
    pub(crate) fn assign_bibs(&mut self, photo: PhotoId, readings: &PhotoReadings, others: &[BoundingBox]) {
        let mut rows: Vec<(usize, usize)> = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            rows.extend(group.rows_of(photo).into_iter().map(|row| (index, row)));
        }
        let places = rows.iter().map(|(group, row)| self.groups[*group].face(*row).bounding_box);
        let places: Vec<BoundingBox> = places.chain(others.iter().copied()).collect();
        for (face, worn) in readings.match_faces(&places) {
            if let Some((group, row)) = rows.get(face) {
                self.groups[*group].set_bib(*row, worn);
            }
        }
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
            self.groups[index].append(group);
        }
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

    /// Returns per query the faces that may be answers to it, in any order: all that are, and as few others as can be told
    /// without their vectors.
    pub(crate) fn shortlist(&self, pass: &Pass<'_>, queries: &[&FaceQuery]) -> Vec<Vec<ShortlistedFace>> {
        let mut shortlists = vec![Vec::new(); queries.len()];
        for group in &self.groups {
            let own = queries.iter().copied().enumerate();
            let (places, own): (Vec<usize>, Vec<&FaceQuery>) =
                own.filter(|(_, query)| group.holds_comparable(&query.probe)).unzip();
            if !own.is_empty() {
                let found = group.shortlist(pass, &own);
                places.into_iter().zip(found).for_each(|(place, faces)| shortlists[place] = faces);
            }
        }
        shortlists
    }

    /// Returns the number of faces that can be compared with a probe: those of its model.
    pub(crate) fn count_comparable(&self, probe: &Embedding) -> usize {
        let groups = self.groups.iter().filter(|group| group.holds_comparable(probe));
        groups.map(ModelFaces::len).sum()
    }

    /// Returns the number of faces.
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(ModelFaces::len).sum()
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.iter().map(ModelFaces::bytes).sum()
    }

    /// Returns the bytes that the vectors take on a device.
    pub(crate) fn device_bytes(&self) -> usize {
        self.groups.iter().flat_map(ModelFaces::chunks).map(near::count_bytes).sum()
    }

    /// Returns the copies of the vectors on a device, as far as there are any.
    pub(crate) fn device_copies(&self) -> Vec<DeviceCopy> {
        self.groups.iter().flat_map(ModelFaces::chunks).map(|rows| rows.device_copy()).collect()
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
