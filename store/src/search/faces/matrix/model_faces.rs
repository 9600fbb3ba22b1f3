//! The faces of one embedding model: vectors and their photos in chunks, so that growing never copies the whole list.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::cosine::{Cosine, VectorQuery};

use super::bibs::{BibId, BibIndex};
use crate::model::ids::PhotoId;
use crate::model::photo::BoundingBox;
use crate::search::selfie::WornBib;

/// Faces of a full chunk, 4 MiB of vectors of 256. A single list would have to be copied to grow, and be in memory twice
/// meanwhile. Few in tests, where a small album must have several chunks.
pub(super) const CHUNK_FACES: usize = if cfg!(test) { 4 } else { 4096 };

/// Faces whose vectors were computed by the same model.
pub(super) struct ModelFaces {
    model: String,
    dimension: usize,
    /// All but the last are full, and the last has at least one face.
    chunks: Vec<FaceChunk>,
    /// One row of each photo; [`FaceEntry::next_row`] leads to the others.
    rows: HashMap<PhotoId, usize>,
    bibs: BibIndex,
}

/// A part of the rows: row `i` is face `i % CHUNK_FACES` of chunk `i / CHUNK_FACES`.
#[derive(Default)]
struct FaceChunk {
    /// The vectors one after the other, in the order of `faces`.
    vectors: Vec<f32>,
    faces: Vec<FaceEntry>,
    #[cfg(test)]
    _live: live_chunks::LiveChunk,
}

/// A face without its vector: 72 bytes in addition to the 1,024 of a vector of 256.
#[derive(Clone, Copy)]
pub(super) struct FaceEntry {
    pub(super) photo: PhotoId,
    pub(super) bounding_box: BoundingBox,
    /// Number of faces that were added to the matrix before this one.
    pub(super) sequence: u64,
    /// Another row of the same photo. The rows of a photo form a ring.
    next_row: usize,
    /// The bib it wears.
    bib: Option<BibId>,
    /// When the photo of its bib was taken, hours since 1970; [`UNKNOWN_HOUR`] if that is not known.
    taken_hour: i32,
}

/// No photo was taken 245,000 years ago.
const UNKNOWN_HOUR: i32 = i32::MIN;

impl FaceEntry {
    pub(super) fn new(photo: PhotoId, bounding_box: BoundingBox, sequence: u64) -> Self {
        Self { photo, bounding_box, sequence, next_row: 0, bib: None, taken_hour: UNKNOWN_HOUR }
    }
}

impl ModelFaces {
    pub(super) fn new(model: &str, dimension: usize) -> Self {
        Self {
            model: model.to_owned(),
            dimension,
            chunks: Vec::new(),
            rows: HashMap::new(),
            bibs: BibIndex::default(),
        }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Returns the length of the vectors.
    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_FACES + last.faces.len())
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(FaceChunk::bytes).sum();
        chunks + self.rows.capacity() * size_of::<(PhotoId, usize)>() + self.bibs.bytes()
    }

    /// Returns the bytes that adding one face will allocate; 0 while there is space.
    pub(super) fn bytes_to_reserve(&self) -> usize {
        self.faces_to_reserve() * (self.dimension * size_of::<f32>() + size_of::<FaceEntry>())
    }

    /// Returns for how many faces memory is allocated when one is added; 0 while there is space. The first chunk
    /// doubles, so that a small album takes little.
    fn faces_to_reserve(&self) -> usize {
        let Some(last) = self.chunks.last() else { return 1 };
        match last.faces.len() {
            CHUNK_FACES => CHUNK_FACES,
            few if few < last.faces.capacity() => 0,
            few => few.min(CHUNK_FACES - few),
        }
    }

    /// Adds a face with its bib after the others; `vector` has `dimension` numbers.
    pub(super) fn push(
        &mut self,
        mut face: FaceEntry,
        bib: Option<WornBib<'_>>,
        vector: impl Iterator<Item = f32>,
    ) {
        let row = self.len();
        face.bib = bib.map(|bib| self.bibs.add(bib.text, face.photo));
        face.taken_hour = bib.and_then(|bib| bib.taken_hour).unwrap_or(UNKNOWN_HOUR);
        face.next_row = match self.rows.get(&face.photo).copied() {
            Some(other) => std::mem::replace(&mut self.face_mut(other).next_row, row),
            None => {
                self.rows.insert(face.photo, row);
                row
            }
        };
        let reserve = self.faces_to_reserve();
        let index = row / CHUNK_FACES;
        if index == self.chunks.len() {
            self.chunks.push(FaceChunk::default());
        }
        let chunk = &mut self.chunks[index];
        chunk.vectors.reserve_exact(reserve * self.dimension);
        chunk.vectors.extend(vector);
        chunk.faces.reserve_exact(reserve);
        chunk.faces.push(face);
    }

    /// Adds the faces of `other`, which has vectors of the same length, with sequence numbers from `first_sequence`.
    pub(super) fn append(&mut self, other: Self, first_sequence: u64) {
        // Each chunk is dropped once its faces are copied, so that few faces are in memory twice.
        for chunk in other.chunks {
            for (face, vector) in chunk.faces.iter().zip(chunk.vectors.chunks_exact(other.dimension)) {
                let bib = worn_bib(&other.bibs, face);
                let face = FaceEntry { sequence: first_sequence + face.sequence, ..*face };
                self.push(face, bib, vector.iter().copied());
            }
        }
    }

    /// Removes the faces of a photo, if it has any.
    pub(super) fn remove(&mut self, photo: PhotoId) {
        let mut removed = self.rows_of(photo);
        self.rows.remove(&photo);
        // From the last row to the first: the row that fills a gap is then never one that must be removed too.
        removed.sort_unstable();
        for row in removed.into_iter().rev() {
            if let Some(bib) = self.face(row).bib {
                self.bibs.remove(bib, photo);
            }
            self.swap_remove(row);
        }
    }

    /// Removes a row of a photo that is being removed; the last row, of any photo, takes its place.
    fn swap_remove(&mut self, gap: usize) {
        let last = self.len() - 1;
        if gap != last {
            let mut before = last;
            while self.face(before).next_row != last {
                before = self.face(before).next_row;
            }
            self.face_mut(before).next_row = gap;
            let photo = self.face(last).photo;
            self.rows.insert(photo, gap);
        }
        if let Some((face, vector)) = self.pop()
            && gap != last
        {
            *self.face_mut(gap) = face;
            let start = (gap % CHUNK_FACES) * self.dimension;
            self.chunks[gap / CHUNK_FACES].vectors[start..start + self.dimension].copy_from_slice(&vector);
        }
    }

    /// Removes the last row, and its chunk if it was the only one in it.
    fn pop(&mut self) -> Option<(FaceEntry, Vec<f32>)> {
        let chunk = self.chunks.last_mut()?;
        let face = chunk.faces.pop()?;
        let start = chunk.faces.len() * self.dimension;
        let vector = chunk.vectors[start..].to_vec();
        chunk.vectors.truncate(start);
        if chunk.faces.is_empty() {
            self.chunks.pop();
        }
        Some((face, vector))
    }

    /// Calls `on_hit` with the score and the row of every face that reaches the query's minimum.
    pub(super) fn for_each_hit(
        &self,
        scorer: &Cosine,
        query: &VectorQuery<'_>,
        mut on_hit: impl FnMut(f32, usize),
    ) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            let first = index * CHUNK_FACES;
            scorer.for_each_hit(query, &chunk.vectors, |hit| on_hit(hit.score, first + hit.row));
        }
    }

    /// Returns the rows of the faces that wear a bib, each once.
    pub(super) fn wearers(&self, bib: &str) -> Vec<usize> {
        let Some((id, photos)) = self.bibs.find(bib) else { return Vec::new() };
        let photos: HashSet<PhotoId> = photos.iter().copied().collect();
        let rows = photos.into_iter().flat_map(|photo| self.rows_of(photo));
        rows.filter(|row| self.face(*row).bib == Some(id)).collect()
    }

    /// Returns the bib that a face wears.
    pub(super) fn bib(&self, row: usize) -> Option<WornBib<'_>> {
        worn_bib(&self.bibs, self.face(row))
    }

    pub(super) fn vector(&self, row: usize) -> &[f32] {
        let start = (row % CHUNK_FACES) * self.dimension;
        &self.chunks[row / CHUNK_FACES].vectors[start..start + self.dimension]
    }

    fn rows_of(&self, photo: PhotoId) -> Vec<usize> {
        let mut rows: Vec<usize> = self.rows.get(&photo).copied().into_iter().collect();
        while let (Some(first), Some(last)) = (rows.first(), rows.last())
            && self.face(*last).next_row != *first
        {
            rows.push(self.face(*last).next_row);
        }
        rows
    }

    pub(super) fn face(&self, row: usize) -> &FaceEntry {
        &self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }

    fn face_mut(&mut self, row: usize) -> &mut FaceEntry {
        &mut self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }

    /// Returns photo and sequence number of every row.
    #[cfg(test)]
    pub(super) fn list_rows(&self) -> Vec<(PhotoId, u64)> {
        self.chunks.iter().flat_map(|chunk| &chunk.faces).map(|face| (face.photo, face.sequence)).collect()
    }
}

fn worn_bib<'b>(bibs: &'b BibIndex, face: &FaceEntry) -> Option<WornBib<'b>> {
    let taken_hour = (face.taken_hour != UNKNOWN_HOUR).then_some(face.taken_hour);
    face.bib.map(|bib| WornBib { text: bibs.text(bib), taken_hour })
}

impl FaceChunk {
    fn bytes(&self) -> usize {
        self.vectors.capacity() * size_of::<f32>() + self.faces.capacity() * size_of::<FaceEntry>()
    }
}

/// Counts the chunks that the current thread has allocated, for tests of memory.
#[cfg(test)]
pub(crate) mod live_chunks {
    use std::cell::Cell;

    thread_local! {
        static CHUNKS: Cell<isize> = const { Cell::new(0) };
    }

    /// Returns the number of chunks that exist on this thread.
    pub(crate) fn count() -> isize {
        CHUNKS.get()
    }

    /// Is counted as long as it exists.
    pub(super) struct LiveChunk;

    impl Default for LiveChunk {
        fn default() -> Self {
            CHUNKS.set(CHUNKS.get() + 1);
            Self
        }
    }

    impl Drop for LiveChunk {
        fn drop(&mut self) {
            CHUNKS.set(CHUNKS.get() - 1);
        }
    }
}
