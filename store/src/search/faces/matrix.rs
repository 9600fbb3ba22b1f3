//! The searchable faces of one album in memory: a matrix of unit vectors per embedding network. Plain values; knows
//! no rows, no cache and no clock. Whoever has matrices filled can hear of their growth ([`told_of_growth`]).
//!
//! A change costs what it changes, however large the album: a face that goes leaves a gap, which the last one fills.
//! So rows are in no order, and each face has the number under which it was read, for the order of equal ones.

use std::collections::{HashMap, HashSet};

use photofinish_kernels::cosine::{Cosine, VectorQuery};

use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::PhotoId;
use crate::model::photo::{BoundingBox, Embedding};
use crate::sql::row_types::floats_from_bytes;
use crate::traits::{FaceHit, Result};

/// Faces whose memory is taken at once, 4 MiB of vectors of 256: a list of all would have to be copied to grow, and be
/// there twice. Few in tests, where a small album is to have several chunks.
const CHUNK_FACES: usize = if cfg!(test) { 4 } else { 4096 };

/// Hears how many bytes a matrix is about to hold, before it holds them; an error ends the filling.
pub(crate) type MemoryObserver = Box<dyn Fn(usize) -> Result<()> + Send + Sync>;

tokio::task_local! {
    /// A value of the task and no argument: so the rows, which fill a matrix, need not know who counts its bytes, and
    /// cannot forget to say them.
    static MEMORY_OBSERVER: MemoryObserver;
}

/// Runs `filling`; `growth` hears of each matrix that it fills by [`FaceMatrix::push`], as long as it does so in this
/// task.
pub(crate) async fn with_memory_observer<T>(growth: MemoryObserver, filling: impl Future<Output = T>) -> T {
    MEMORY_OBSERVER.scope(growth, filling).await
}

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
pub(crate) struct FaceQuery {
    pub(crate) probe: Embedding,
    pub(crate) k: usize,
    pub(crate) at_least: f32,
}

/// Searchable faces.
#[derive(Default)]
pub(crate) struct FaceMatrix {
    groups: Vec<ModelFaces>,
    /// How many faces were read into it, those that have left too: the number of the next one.
    next_sequence: u64,
}

/// The faces of one network.
struct ModelFaces {
    model: String,
    dimension: usize,
    /// All but the last are full, and the last has at least one face.
    chunks: Vec<FaceChunk>,
    /// One row of each photo; [`Face::next`] leads to the others.
    rows: HashMap<PhotoId, usize>,
}

/// Row `i` of a group is face `i % CHUNK_FACES` of chunk `i / CHUNK_FACES`.
#[derive(Default)]
struct FaceChunk {
    /// One after the other, in the order of `faces`.
    vectors: Vec<f32>,
    faces: Vec<FaceEntry>,
    #[cfg(test)]
    _live: alive::LiveChunk,
}

/// A face but for its vector: 64 bytes beside the 1,024 of a vector of 256.
#[derive(Clone, Copy)]
struct FaceEntry {
    photo: PhotoId,
    bounding_box: BoundingBox,
    /// Which face of the matrix it was to be read.
    sequence: u64,
    /// Another row of the photo. Followed on, it leads to each of them once and then back.
    next_row: usize,
}

impl FaceMatrix {
    /// Adds a face.
    ///
    /// # Errors
    /// `Corrupt` when the vector is torn or not as long as the others of its network; what [`Growth`] answers.
    pub(crate) fn push(&mut self, face: &IndexedFace<'_>) -> Result<()> {
        let values = floats_from_bytes(face.vector)?;
        let dimension = face.vector.len() / size_of::<f32>();
        let at = self.group_index(face.model, dimension);
        if self.groups[at].dimension != dimension {
            let what = format!("embedding of photo {}: {dimension} numbers", face.photo);
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
        let more =
            self.groups[at].faces_to_reserve() * (dimension * size_of::<f32>() + size_of::<FaceEntry>());
        if more > 0 {
            let bytes = self.bytes() + more;
            MEMORY_OBSERVER.try_with(|growth| growth(bytes)).unwrap_or(Ok(()))?;
        }
        let IndexedFace { photo, bounding_box, .. } = *face;
        self.groups[at]
            .push(FaceEntry { photo, bounding_box, sequence: self.next_sequence, next_row: 0 }, values);
        self.next_sequence += 1;
        Ok(())
    }

    /// Takes the faces of `changed` out and those of `fresh` in.
    ///
    /// # Errors
    /// `Corrupt` when the vectors of a network are not as long as before; nothing is changed then.
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
            let at = self.group_index(&group.model, group.dimension);
            // Each chunk goes once its faces are copied, so that few faces are ever here twice.
            for chunk in group.chunks {
                for (face, vector) in chunk.faces.iter().zip(chunk.vectors.chunks_exact(group.dimension)) {
                    let face = FaceEntry { sequence: self.next_sequence + face.sequence, ..*face };
                    self.groups[at].push(face, vector.iter().copied());
                }
            }
        }
        self.next_sequence += fresh.next_sequence;
        Ok(())
    }

    /// Takes the faces of these photos out.
    pub(crate) fn remove(&mut self, photos: &[PhotoId]) {
        for group in &mut self.groups {
            for photo in photos {
                group.remove(*photo);
            }
        }
    }

    /// The photos whose best face is at least as close as asked, best first; equal ones in the
    /// order they were read.
    pub(crate) fn nearest(&self, scorer: &Cosine, wanted: &FaceQuery) -> Vec<FaceHit> {
        let Some(group) = self.groups.iter().find(|group| group.model == wanted.probe.model) else {
            return Vec::new();
        };
        if group.dimension != wanted.probe.vector.len() {
            return Vec::new();
        }
        // Every row that is close enough: how many of them are in one photo is not known before.
        let mut near: Vec<(f32, &FaceEntry)> = Vec::new();
        let search = VectorQuery { probe: &wanted.probe.vector, min_score: wanted.at_least, k: wanted.k };
        for chunk in &group.chunks {
            scorer.for_each_hit(&search, &chunk.vectors, |found| {
                near.push((found.score, &chunk.faces[found.row]))
            });
        }
        near.sort_unstable_by(|(a, first), (b, second)| {
            b.total_cmp(a).then_with(|| first.sequence.cmp(&second.sequence))
        });
        let mut answered = HashSet::new();
        near.into_iter()
            .filter(|(_, face)| answered.insert(face.photo))
            .take(wanted.k)
            .map(|(score, face)| FaceHit {
                photo: face.photo,
                cosine: score.clamp(-1.0, 1.0),
                bounding_box: face.bounding_box,
            })
            .collect()
    }

    /// How many faces.
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(ModelFaces::len).sum()
    }

    /// What it holds, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.iter().map(ModelFaces::bytes).sum()
    }

    /// Where the group of a network is, made when there is none.
    fn group_index(&mut self, model: &str, dimension: usize) -> usize {
        match self.groups.iter().position(|group| group.model == model) {
            Some(at) => at,
            None => {
                self.groups.push(ModelFaces {
                    model: model.to_owned(),
                    dimension,
                    chunks: Vec::new(),
                    rows: HashMap::new(),
                });
                self.groups.len() - 1
            }
        }
    }
}

impl ModelFaces {
    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_FACES + last.faces.len())
    }

    fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(FaceChunk::bytes).sum();
        chunks + self.rows.capacity() * size_of::<(PhotoId, usize)>()
    }

    /// For how many faces memory is taken when one more comes; 0 while there is some. The first chunk doubles, so that
    /// a small album takes little.
    fn faces_to_reserve(&self) -> usize {
        let Some(last) = self.chunks.last() else { return 1 };
        match last.faces.len() {
            CHUNK_FACES => CHUNK_FACES,
            few if few < last.faces.capacity() => 0,
            few => few.min(CHUNK_FACES - few),
        }
    }

    /// Adds a face after the others; `vector` has `dimension` numbers.
    fn push(&mut self, mut face: FaceEntry, vector: impl Iterator<Item = f32>) {
        let row = self.len();
        face.next_row = match self.rows.get(&face.photo).copied() {
            Some(other) => std::mem::replace(&mut self.face_mut(other).next_row, row),
            None => {
                self.rows.insert(face.photo, row);
                row
            }
        };
        let reserve = self.faces_to_reserve();
        let at = row / CHUNK_FACES;
        if at == self.chunks.len() {
            self.chunks.push(FaceChunk::default());
        }
        let chunk = &mut self.chunks[at];
        chunk.vectors.reserve_exact(reserve * self.dimension);
        chunk.vectors.extend(vector);
        chunk.faces.reserve_exact(reserve);
        chunk.faces.push(face);
    }

    /// Takes a photo's faces out, if it has any.
    fn remove(&mut self, photo: PhotoId) {
        let Some(first) = self.rows.remove(&photo) else { return };
        let mut gone = vec![first];
        let mut row = self.face(first).next_row;
        while row != first {
            gone.push(row);
            row = self.face(row).next_row;
        }
        // The last row first: what fills a gap is then never a face that is to go as well.
        gone.sort_unstable();
        for row in gone.into_iter().rev() {
            self.swap_remove(row);
        }
    }

    /// Takes a row of a photo that goes out; the last row, of another photo or the same, takes its place.
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
            let from = (gap % CHUNK_FACES) * self.dimension;
            self.chunks[gap / CHUNK_FACES].vectors[from..from + self.dimension].copy_from_slice(&vector);
        }
    }

    /// Takes the last row out, and with its last row a chunk.
    fn pop(&mut self) -> Option<(FaceEntry, Vec<f32>)> {
        let chunk = self.chunks.last_mut()?;
        let face = chunk.faces.pop()?;
        let from = chunk.faces.len() * self.dimension;
        let vector = chunk.vectors[from..].to_vec();
        chunk.vectors.truncate(from);
        if chunk.faces.is_empty() {
            self.chunks.pop();
        }
        Some((face, vector))
    }

    fn face(&self, row: usize) -> &FaceEntry {
        &self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }

    fn face_mut(&mut self, row: usize) -> &mut FaceEntry {
        &mut self.chunks[row / CHUNK_FACES].faces[row % CHUNK_FACES]
    }
}

impl FaceChunk {
    fn bytes(&self) -> usize {
        self.vectors.capacity() * size_of::<f32>() + self.faces.capacity() * size_of::<FaceEntry>()
    }
}

/// How many chunks this thread holds, whoever holds them: what a test of memory looks at.
#[cfg(test)]
pub(crate) mod alive {
    use std::cell::Cell;

    thread_local! {
        static CHUNKS: Cell<isize> = const { Cell::new(0) };
    }

    /// How many chunks there are on this thread now.
    pub(crate) fn chunks() -> isize {
        CHUNKS.get()
    }

    /// Is counted while it is there.
    pub(crate) struct LiveChunk;

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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use photofinish_kernels::device::Device;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::sql::row_types::vector_to_bytes;

    const BOX: BoundingBox = BoundingBox { top: 0.1, left: 0.2, width: 0.3, height: 0.4 };

    fn push(matrix: &mut FaceMatrix, photo: PhotoId, model: &str, vector: &[f32]) -> Result<()> {
        let vector = vector_to_bytes(vector);
        matrix.push(&IndexedFace { photo, bounding_box: BOX, model, vector: &vector })
    }

    fn find_photos(matrix: &FaceMatrix, probe: &[f32], k: usize, at_least: f32) -> Vec<(PhotoId, f32)> {
        let probe = Embedding { model: "net@1".into(), vector: probe.to_vec() };
        let hits = matrix.nearest(&Cosine::new(&Device::Cpu), &FaceQuery { probe, k, at_least });
        hits.into_iter().map(|hit| (hit.photo, hit.cosine)).collect()
    }

    #[test]
    fn each_photo_is_returned_once_with_its_best_face() {
        let mut matrix = FaceMatrix::default();
        let (a, b) = (PhotoId::generate(), PhotoId::generate());
        push(&mut matrix, a, "net@1", &[0.6, 0.8]).unwrap();
        push(&mut matrix, a, "net@1", &[1.0, 0.0]).unwrap();
        push(&mut matrix, b, "net@1", &[0.8, 0.6]).unwrap();
        assert_eq!(find_photos(&matrix, &[1.0, 0.0], 10, 0.5), [(a, 1.0), (b, 0.8)]);
        assert_eq!(find_photos(&matrix, &[1.0, 0.0], 1, 0.5), [(a, 1.0)]);
        assert_eq!(find_photos(&matrix, &[1.0, 0.0], 10, 0.9), [(a, 1.0)]);
    }

    #[test]
    fn vectors_of_another_network_are_not_compared() {
        let mut matrix = FaceMatrix::default();
        push(&mut matrix, PhotoId::generate(), "net@2", &[1.0, 0.0]).unwrap();
        assert_eq!(find_photos(&matrix, &[1.0, 0.0], 10, -1.0), []);
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
        assert_eq!(find_photos(&matrix, &[1.0, 0.0], 10, 0.5), [(b, 0.8)]);
        assert_eq!(find_photos(&matrix, &[0.0, 1.0], 10, 0.7), [(a, 1.0)]);
        matrix.remove(&[a, b]);
        assert_eq!(matrix.len(), 0);
    }
    /// A face of the plain model: a list in the order of reading, out of which faces are taken one by one.
    #[derive(Clone, Copy)]
    struct ListedFace {
        photo: PhotoId,
        model: &'static str,
        vector: [f32; 2],
        bounding_box: BoundingBox,
    }

    /// Few different vectors, so that many scores are equal, and no two boxes alike.
    fn random_face(dice: &mut StdRng, photo: PhotoId) -> ListedFace {
        const VECTORS: [[f32; 2]; 5] = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6], [-1.0, 0.0]];
        ListedFace {
            photo,
            model: if dice.random_bool(0.2) { "net@2" } else { "net@1" },
            vector: VECTORS[dice.random_range(0..VECTORS.len())],
            bounding_box: BoundingBox { top: dice.random_range(0.0..1.0), ..BOX },
        }
    }

    fn push_listed(matrix: &mut FaceMatrix, face: &ListedFace) {
        let ListedFace { photo, model, vector, bounding_box } = *face;
        let vector = vector_to_bytes(&vector);
        matrix.push(&IndexedFace { photo, bounding_box, model, vector: &vector }).unwrap();
    }

    fn nearest_in_list(faces: &[ListedFace], scorer: &Cosine, wanted: &FaceQuery) -> Vec<FaceHit> {
        let mut near: Vec<(f32, ListedFace)> = faces
            .iter()
            .filter(|face| face.model == wanted.probe.model)
            .map(|face| (scorer.score(&wanted.probe.vector, &face.vector), *face))
            .filter(|(score, _)| *score >= wanted.at_least)
            .collect();
        // Stable: equal ones stay in the order of reading.
        near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut answered = HashSet::new();
        near.retain(|(_, face)| answered.insert(face.photo));
        near.truncate(wanted.k);
        let hit = |(score, face): (f32, ListedFace)| FaceHit {
            photo: face.photo,
            cosine: score.clamp(-1.0, 1.0),
            bounding_box: face.bounding_box,
        };
        near.into_iter().map(hit).collect()
    }

    /// Takes some photos out of both, or reads them again, or reads one more face of one.
    fn apply_random_change(
        dice: &mut StdRng,
        photos: &[PhotoId],
        (matrix, model): (&mut FaceMatrix, &mut Vec<ListedFace>),
    ) {
        let count = dice.random_range(1..4);
        let some: Vec<PhotoId> = (0..count).map(|_| photos[dice.random_range(0..photos.len())]).collect();
        let how = dice.random_range(0..4);
        if how == 0 {
            let face = random_face(dice, some[0]);
            push_listed(matrix, &face);
            return model.push(face);
        }
        model.retain(|face| !some.contains(&face.photo));
        if how == 1 {
            return matrix.remove(&some);
        }
        let mut fresh = FaceMatrix::default();
        for _ in 0..dice.random_range(0..12) {
            let photo = some[dice.random_range(0..some.len())];
            let face = random_face(dice, photo);
            push_listed(&mut fresh, &face);
            model.push(face);
        }
        matrix.replace(&some, fresh).unwrap();
    }

    #[test]
    fn after_any_changes_a_search_returns_what_a_plain_list_returns() {
        let scorer = Cosine::new(&Device::Cpu);
        for seed in 0..100 {
            let mut dice = StdRng::seed_from_u64(seed);
            let photos: Vec<PhotoId> = (0..12).map(|_| PhotoId::generate()).collect();
            let (mut matrix, mut model) = (FaceMatrix::default(), Vec::new());
            for step in 0..100 {
                apply_random_change(&mut dice, &photos, (&mut matrix, &mut model));
                assert_eq!(matrix.len(), model.len(), "seed {seed}, step {step}");
                let wanted = FaceQuery {
                    probe: Embedding {
                        model: "net@1".into(),
                        vector: random_face(&mut dice, photos[0]).vector.to_vec(),
                    },
                    k: dice.random_range(0..14),
                    at_least: [-1.0, 0.0, 0.7][dice.random_range(0..3)],
                };
                let found = matrix.nearest(&scorer, &wanted);
                assert_eq!(found, nearest_in_list(&model, &scorer, &wanted), "seed {seed}, step {step}");
            }
            matrix.remove(&photos);
            assert_eq!(matrix.len(), 0, "seed {seed}");
        }
    }

    #[test]
    fn reading_a_photo_again_moves_one_row_per_face() {
        let mut matrix = FaceMatrix::default();
        let photos: Vec<PhotoId> = (0..1000).map(|_| PhotoId::generate()).collect();
        for photo in photos.iter().flat_map(|photo| [photo; 3]) {
            push(&mut matrix, *photo, "net@1", &[1.0, 0.0]).unwrap();
        }
        let rows = |matrix: &FaceMatrix| -> Vec<(PhotoId, u64)> {
            let chunks = matrix.groups[0].chunks.iter();
            chunks.flat_map(|chunk| &chunk.faces).map(|face| (face.photo, face.sequence)).collect()
        };
        let before = rows(&matrix);
        let mut fresh = FaceMatrix::default();
        for _ in 0..3 {
            push(&mut fresh, photos[0], "net@1", &[0.0, 1.0]).unwrap();
        }
        matrix.replace(&[photos[0]], fresh).unwrap();
        let after = rows(&matrix);
        assert_eq!(after.len(), before.len());
        let written = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        // Three gaps that the last three fill, and the new three after them.
        assert_eq!(written, 6);
    }

    #[test]
    fn removed_faces_free_their_memory() {
        let mut matrix = FaceMatrix::default();
        let (a, b) = (PhotoId::generate(), PhotoId::generate());
        push(&mut matrix, a, "net@1", &[1.0, 0.0]).unwrap();
        for _ in 0..10 * CHUNK_FACES {
            push(&mut matrix, b, "net@1", &[0.8, 0.6]).unwrap();
        }
        assert_eq!(alive::chunks(), 11);
        matrix.remove(&[b]);
        assert_eq!(alive::chunks(), 1);
        matrix.remove(&[a]);
        assert_eq!(alive::chunks(), 0);
    }

    #[tokio::test]
    async fn the_observer_is_called_before_memory_is_allocated_and_can_refuse() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let growth: MemoryObserver = Box::new(move |bytes| {
            let mut heard = heard.lock().unwrap();
            heard.push((bytes, alive::chunks()));
            if heard.len() < 5 { Ok(()) } else { Err(StoreError::new(StoreErrorKind::TooLarge, "faces")) }
        });
        let photo = PhotoId::generate();
        let matrix = with_memory_observer(growth, async {
            let mut matrix = FaceMatrix::default();
            while push(&mut matrix, photo, "net@1", &[1.0, 0.0]).is_ok() {}
            matrix
        })
        .await;
        let (bytes, chunks): (Vec<usize>, Vec<isize>) = told.lock().unwrap().iter().copied().unzip();
        // The first chunk is made and doubles twice, a second one is made, and a third one is refused.
        assert_eq!(chunks, [0, 1, 1, 1, 2]);
        assert!(bytes.is_sorted() && matrix.bytes() < bytes[4]);
        assert_eq!(matrix.len(), 2 * CHUNK_FACES);
    }
}
