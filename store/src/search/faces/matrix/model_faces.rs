//! The faces of one embedding model: vectors and their photos in chunks, so that growing never copies the whole list.

use std::collections::HashMap;
use std::sync::Arc;

use photofinish_kernels::quantised::{BLOCK_ROWS, ProbeBatch, QuantisedRow, QuantisedRows};

use super::bibs::BibTexts;
use super::entry::{EntryBib, FaceEntry};
use super::pass::{ModelSearch, Pass};
use super::shortlist::{RowFaces, ShortlistedFace};
#[cfg(test)]
use crate::model::ids::FaceId;
use crate::model::ids::PhotoId;
use crate::model::photo::Embedding;
use crate::search::scoring::{FaceBib, FaceQuery, WornBib};

/// Faces of a full chunk: a huge page of vectors of 256. A single list would have to be copied to grow, and be in memory
/// twice meanwhile. Few in tests, where a small album must have several chunks.
pub(super) const CHUNK_FACES: usize = if cfg!(test) { 2 * BLOCK_ROWS } else { 8192 };

/// Faces whose vectors were computed by the same model.
pub(super) struct ModelFaces {
    model: String,
    dimension: usize,
    /// All but the last are full, and the last has at least one face.
    chunks: Vec<FaceChunk>,
    /// One row of each photo; [`FaceEntry::next_row`] leads to the others.
    rows: HashMap<PhotoId, u32>,
    bibs: BibTexts,
}

/// A part of the rows: row `i` is face `i % CHUNK_FACES` of chunk `i / CHUNK_FACES`.
struct FaceChunk {
    /// The vectors in the order of `faces`.
    vectors: QuantisedRows,
    faces: Vec<FaceEntry>,
    #[cfg(test)]
    _live: live_chunks::LiveChunk,
}

impl ModelFaces {
    pub(super) fn new(model: &str, dimension: usize) -> Self {
        Self {
            model: model.to_owned(),
            dimension,
            chunks: Vec::new(),
            rows: HashMap::new(),
            bibs: BibTexts::default(),
        }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Returns the length of the vectors.
    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    /// Whether a probe can be compared with these faces: its model computed their vectors.
    pub(super) fn holds_comparable(&self, probe: &Embedding) -> bool {
        self.model == probe.model && self.dimension == probe.vector.len()
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_FACES + last.faces.len())
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(FaceChunk::bytes).sum();
        chunks + self.rows.capacity() * (size_of::<(PhotoId, u32)>() + 1) + self.bibs.bytes()
    }

    /// Returns the bytes that adding one face will allocate; 0 while there is space.
    pub(super) fn bytes_to_reserve(&self) -> usize {
        let faces = self.faces_to_reserve();
        QuantisedRows::bytes_of(faces, self.dimension) + faces * size_of::<FaceEntry>()
    }

    /// Returns for how many faces memory is allocated when one is added; 0 while there is space. The first chunk
    /// doubles, so that a small album takes little.
    fn faces_to_reserve(&self) -> usize {
        let Some(last) = self.chunks.last() else { return BLOCK_ROWS };
        match last.faces.len() {
            CHUNK_FACES => CHUNK_FACES,
            few if few < last.vectors.capacity() => 0,
            few => few.min(CHUNK_FACES - few),
        }
    }

    /// Adds a face after the others; its vector has `dimension` numbers.
    pub(super) fn push(&mut self, mut face: FaceEntry, vector: &QuantisedRow) {
        let row = self.len();
        // Four billion faces of 344 bytes would not fit into memory.
        let number = row as u32;
        face.next_row = match self.rows.get(&face.photo).copied() {
            Some(other) => std::mem::replace(&mut self.face_mut(other as usize).next_row, number),
            None => {
                self.rows.insert(face.photo, number);
                number
            }
        };
        let reserve = self.faces_to_reserve();
        let index = row / CHUNK_FACES;
        if index == self.chunks.len() {
            self.chunks.push(FaceChunk::new(self.dimension));
        }
        let chunk = &mut self.chunks[index];
        if reserve > 0 {
            chunk.vectors.reserve_exact(reserve);
            chunk.faces.reserve_exact(reserve);
        }
        chunk.vectors.push(vector);
        chunk.faces.push(face);
    }

    /// Adds the faces of `other`, which has vectors of the same length.
    pub(super) fn append(&mut self, other: Self) {
        // Each chunk is dropped once its faces are copied, so that few faces are in memory twice.
        let Self { chunks, bibs, .. } = other;
        for chunk in chunks {
            for (row, face) in chunk.faces.iter().enumerate() {
                self.push(FaceEntry { worn: None, ..*face }, &chunk.vectors.get(row));
                if let Some(worn) = worn_bib(&bibs, face) {
                    self.set_bib(self.len() - 1, worn);
                }
            }
        }
    }

    /// Gives a face without a bib the one that it wears.
    pub(super) fn set_bib(&mut self, row: usize, worn: WornBib<'_>) {
        let id = self.bibs.add(worn.text);
        self.face_mut(row).worn = Some(EntryBib::new(id, worn.taken_hour));
    }

    /// Removes the faces of a photo, if it has any.
    pub(super) fn remove(&mut self, photo: PhotoId) {
        let mut removed = self.rows_of(photo);
        self.rows.remove(&photo);
        // From the last row to the first: the row that fills a gap is then never one that must be removed too.
        removed.sort_unstable();
        for row in removed.into_iter().rev() {
            if let Some(worn) = self.face(row).worn {
                self.bibs.remove(worn.id);
            }
            self.swap_remove(row);
        }
    }

    /// Returns the rows of a photo's faces.
    pub(super) fn rows_of(&self, photo: PhotoId) -> Vec<usize> {
        let Some(first) = self.rows.get(&photo).copied() else { return Vec::new() };
        let mut rows = vec![first as usize];
        let mut row = self.face(first as usize).next_row;
        while row != first {
            rows.push(row as usize);
            row = self.face(row as usize).next_row;
        }
        rows
    }

    /// Removes a row of a photo that is being removed; the last row, of any photo, takes its place.
    fn swap_remove(&mut self, gap: usize) {
        let last = self.len() - 1;
        if gap != last {
            let mut before = last;
            while self.face(before).next_row as usize != last {
                before = self.face(before).next_row as usize;
            }
            self.face_mut(before).next_row = gap as u32;
            let photo = self.face(last).photo;
            self.rows.insert(photo, gap as u32);
        }
        if let Some((face, vector)) = self.pop()
            && gap != last
        {
            *self.face_mut(gap) = face;
            self.chunks[gap / CHUNK_FACES].vectors.set(gap % CHUNK_FACES, &vector);
        }
    }

    /// Removes the last row, and its chunk if it was the only one in it.
    fn pop(&mut self) -> Option<(FaceEntry, QuantisedRow)> {
        let chunk = self.chunks.last_mut()?;
        let face = chunk.faces.pop()?;
        let vector = chunk.vectors.pop();
        if chunk.faces.is_empty() {
            self.chunks.pop();
        }
        Some((face, vector))
    }

    /// Returns per query the faces that may be answers to it. The queries have probes of this model.
    pub(super) fn shortlist(&self, pass: &Pass<'_>, queries: &[&FaceQuery]) -> Vec<Vec<ShortlistedFace>> {
        let vectors: Vec<&[f32]> = queries.iter().map(|query| query.probe.vector.as_slice()).collect();
        let chunks = self.chunks().collect();
        let search = ModelSearch { faces: self, chunks, probes: ProbeBatch::new(&vectors), queries };
        search.run(pass).into_iter().map(|collector| collector.finish(self)).collect()
    }

    /// Returns the vectors, in chunks.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &QuantisedRows> {
        self.chunks.iter().map(|chunk| &chunk.vectors)
    }

    pub(super) fn face(&self, row: usize) -> &FaceEntry {
        &self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }

    fn face_mut(&mut self, row: usize) -> &mut FaceEntry {
        &mut self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }

    /// Returns the face of every row.
    #[cfg(test)]
    pub(super) fn list_rows(&self) -> Vec<FaceId> {
        self.chunks.iter().flat_map(|chunk| &chunk.faces).map(|face| face.id).collect()
    }
}

impl RowFaces for ModelFaces {
    fn photo(&self, row: usize) -> PhotoId {
        self.face(row).photo
    }

    fn worn(&self, row: usize) -> Option<WornBib<'_>> {
        worn_bib(&self.bibs, self.face(row))
    }

    fn shortlisted(&self, row: usize, upper: f64) -> ShortlistedFace {
        let FaceEntry { id, photo, bounding_box, fingerprint, worn, .. } = *self.face(row);
        let bib = worn
            .map(|worn| FaceBib { text: Arc::clone(self.bibs.text(worn.id)), taken_hour: worn.taken_hour() });
        ShortlistedFace { face: id, photo, bounding_box, bib, fingerprint, upper }
    }
}

fn worn_bib<'b>(bibs: &'b BibTexts, face: &FaceEntry) -> Option<WornBib<'b>> {
    face.worn.map(|worn| WornBib { text: bibs.text(worn.id), taken_hour: worn.taken_hour() })
}

impl FaceChunk {
    fn new(dimension: usize) -> Self {
        Self {
            vectors: QuantisedRows::new(dimension),
            faces: Vec::new(),
            #[cfg(test)]
            _live: live_chunks::LiveChunk::new(),
        }
    }

    fn bytes(&self) -> usize {
        self.vectors.bytes() + self.faces.capacity() * size_of::<FaceEntry>()
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

    impl LiveChunk {
        pub(super) fn new() -> Self {
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
