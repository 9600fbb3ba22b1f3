//! What is found in the matrix, and its memory.

mod plain_list;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use photofinish_kernels::quantised::Scanner;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::model_faces::CHUNK_FACES;
use super::pass::GpuPass;
use super::*;
use crate::model::encoding::vector_to_bytes;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::search::faces::gpu::tests::plain_gpu::PlainGpu;
use crate::search::faces::ranking::Ranker;
use crate::search::faces::source::{Change, FaceChanges, FaceSource};
use crate::search::scoring::{FaceBib, HitsPer, PersonBib, ScoreRule, ScoredFace, Vote, WornBib, elect_bib};

const BOX: BoundingBox = BoundingBox { top: 0.1, left: 0.2, width: 0.3, height: 0.4 };

/// The vectors of a matrix, as a database has them; counts how many are read.
#[derive(Default)]
struct StoredVectors {
    vectors: HashMap<FaceId, Embedding>,
    reads: Mutex<usize>,
}

#[async_trait]
impl FaceSource for StoredVectors {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        panic!("a search of a matrix reads only vectors")
    }

    async fn owner(&self, _: AlbumId) -> Result<Option<OrganizationId>> {
        panic!("a search of a matrix reads only vectors")
    }

    async fn last_changes(&self, _: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        panic!("a search of a matrix reads only vectors")
    }

    async fn load_faces(&self, _: AlbumId, _: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        panic!("a search of a matrix reads only vectors")
    }

    async fn changes_since(
        &self,
        _: AlbumId,
        _: Change,
        _: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        panic!("a search of a matrix reads only vectors")
    }

    async fn read_embeddings(&self, _: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        *self.reads.lock().unwrap() += faces.len();
        Ok(faces.iter().map(|face| (*face, self.vectors[face].clone())).collect())
    }
}

/// A matrix and its vectors.
#[derive(Default)]
struct SearchedFaces {
    matrix: FaceMatrix,
    stored: StoredVectors,
    next_id: i64,
    gpu: Arc<PlainGpu>,
}

impl SearchedFaces {
    fn push(&mut self, photo: PhotoId, model: &str, vector: &[f32]) -> Result<()> {
        let id = self.add_vector(model, vector);
        push(&mut self.matrix, id, photo, model, vector)
    }

    /// Stores a vector under a new id.
    fn add_vector(&mut self, model: &str, vector: &[f32]) -> FaceId {
        self.next_id += 1;
        let id = FaceId(self.next_id);
        self.stored.vectors.insert(id, Embedding { model: model.to_owned(), vector: vector.to_vec() });
        id
    }

    fn search(&self, query: &FaceQuery, threads: usize) -> Vec<ScoredFace> {
        let scanner = Scanner::new(&Device::Cpu);
        let found = self.rank(query, &Pass { scanner, threads, gpu: None });
        let reads = *self.stored.reads.lock().unwrap();
        let gpu = GpuPass::new(Device::Gpu(Arc::clone(&self.gpu) as _));
        let on_gpu = self.rank(query, &Pass { scanner, threads, gpu: Some(&gpu) });
        assert!(gpu.into_failure().is_none() && on_gpu == found, "a device finds the same");
        *self.stored.reads.lock().unwrap() = reads;
        found
    }

    fn rank(&self, query: &FaceQuery, pass: &Pass<'_>) -> Vec<ScoredFace> {
        let shortlist = self.matrix.shortlist(pass, &[query]).pop().unwrap();
        let scorer = Cosine::new(&Device::Cpu);
        let mut ranker = Ranker::new(&self.stored, AlbumId::generate(), scorer);
        let ranking = ranker.rank(query, shortlist).now_or_never().expect("nothing to wait for").unwrap();
        assert!(ranker.is_current());
        ranking
    }

    fn find_photos(&self, probe: &[f32], k: usize, min_cosine: f64) -> Vec<(PhotoId, f32)> {
        let probe = Embedding { model: "net@1".into(), vector: probe.to_vec() };
        let (scores, rule) = (min_cosine..f64::INFINITY, ScoreRule::default());
        let hits = self.search(&FaceQuery { probe, k, per: HitsPer::Photo, scores, rule }, 1);
        hits.into_iter().map(|hit| (hit.photo, hit.cosine)).collect()
    }
}

fn push(matrix: &mut FaceMatrix, id: FaceId, photo: PhotoId, model: &str, vector: &[f32]) -> Result<()> {
    let vector = vector_to_bytes(vector);
    matrix.push(&IndexedFace { id, photo, bounding_box: BOX, model, vector: &vector }, &UnlimitedMemory)
}

#[test]
fn each_photo_is_returned_once_with_its_best_face() {
    let mut faces = SearchedFaces::default();
    let (a, b) = (PhotoId::generate(), PhotoId::generate());
    faces.push(a, "net@1", &[0.6, 0.8]).unwrap();
    faces.push(a, "net@1", &[1.0, 0.0]).unwrap();
    faces.push(b, "net@1", &[0.8, 0.6]).unwrap();
    assert_eq!(faces.find_photos(&[1.0, 0.0], 10, 0.5), [(a, 1.0), (b, 0.8)]);
    assert_eq!(faces.find_photos(&[1.0, 0.0], 1, 0.5), [(a, 1.0)]);
    assert_eq!(faces.find_photos(&[1.0, 0.0], 10, 0.9), [(a, 1.0)]);
    assert_eq!(faces.find_photos(&[1.0, 0.0], 0, 0.5), []);
}

#[test]
fn vectors_of_another_model_are_not_compared() {
    let mut faces = SearchedFaces::default();
    faces.push(PhotoId::generate(), "net@2", &[1.0, 0.0]).unwrap();
    assert_eq!(faces.find_photos(&[1.0, 0.0], 10, -1.0), []);
}

#[test]
fn a_vector_of_another_length_is_refused() {
    let mut faces = SearchedFaces::default();
    faces.push(PhotoId::generate(), "net@1", &[1.0, 0.0]).unwrap();
    assert!(faces.push(PhotoId::generate(), "net@1", &[1.0, 0.0, 0.0]).is_err());
    assert_eq!(faces.matrix.len(), 1);
}

#[test]
fn a_photo_read_again_is_found_by_its_new_faces_alone() {
    let mut faces = SearchedFaces::default();
    let (a, b) = (PhotoId::generate(), PhotoId::generate());
    faces.push(a, "net@1", &[1.0, 0.0]).unwrap();
    faces.push(b, "net@1", &[0.8, 0.6]).unwrap();
    let mut fresh = FaceMatrix::default();
    let id = faces.add_vector("net@1", &[0.0, 1.0]);
    push(&mut fresh, id, a, "net@1", &[0.0, 1.0]).unwrap();
    faces.matrix.replace(&[a], fresh).unwrap();
    assert_eq!(faces.find_photos(&[1.0, 0.0], 10, 0.5), [(b, 0.8)]);
    assert_eq!(faces.find_photos(&[0.0, 1.0], 10, 0.7), [(a, 1.0)]);
    faces.matrix.remove(&[a, b]);
    assert_eq!(faces.matrix.len(), 0);
}

#[test]
fn reading_a_photo_again_moves_one_row_per_face() {
    let mut matrix = FaceMatrix::default();
    let mut ids = (0..).map(FaceId);
    let photos: Vec<PhotoId> = (0..1000).map(|_| PhotoId::generate()).collect();
    for photo in photos.iter().flat_map(|photo| [photo; 3]) {
        push(&mut matrix, ids.next().unwrap(), *photo, "net@1", &[1.0, 0.0]).unwrap();
    }
    let before = matrix.groups[0].list_rows();
    let mut fresh = FaceMatrix::default();
    for _ in 0..3 {
        push(&mut fresh, ids.next().unwrap(), photos[0], "net@1", &[0.0, 1.0]).unwrap();
    }
    matrix.replace(&[photos[0]], fresh).unwrap();
    let after = matrix.groups[0].list_rows();
    assert_eq!(after.len(), before.len());
    let written = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    // The last three rows fill the three gaps, and the three new faces follow.
    assert_eq!(written, 6);
}

#[test]
fn removed_faces_free_their_memory() {
    let mut matrix = FaceMatrix::default();
    let (a, b) = (PhotoId::generate(), PhotoId::generate());
    push(&mut matrix, FaceId(0), a, "net@1", &[1.0, 0.0]).unwrap();
    for number in 1..=10 * CHUNK_FACES as i64 {
        push(&mut matrix, FaceId(number), b, "net@1", &[0.8, 0.6]).unwrap();
    }
    assert_eq!(live_chunks::count(), 11);
    matrix.remove(&[b]);
    assert_eq!(live_chunks::count(), 1);
    matrix.remove(&[a]);
    assert_eq!(live_chunks::count(), 0);
}

/// Records each request with the number of chunks at that time, and refuses the fifth.
#[derive(Default)]
struct RefusingObserver {
    requests: Mutex<Vec<(usize, isize)>>,
}

impl MemoryObserver for RefusingObserver {
    fn reserve(&self, bytes: usize) -> Result<()> {
        let mut requests = self.requests.lock().unwrap();
        requests.push((bytes, live_chunks::count()));
        if requests.len() < 5 { Ok(()) } else { Err(StoreError::new(StoreErrorKind::TooLarge, "faces")) }
    }
}

#[test]
fn the_observer_is_called_before_memory_is_allocated_and_can_refuse() {
    let observer = RefusingObserver::default();
    let vector = vector_to_bytes(&[1.0, 0.0]);
    let photo = PhotoId::generate();
    let face = IndexedFace { id: FaceId(1), photo, bounding_box: BOX, model: "net@1", vector: &vector };
    let mut matrix = FaceMatrix::default();
    while matrix.push(&face, &observer).is_ok() {}
    let (bytes, chunks): (Vec<usize>, Vec<isize>) =
        observer.requests.into_inner().unwrap().into_iter().unzip();
    // The first chunk is allocated and doubles, a second and a third one are allocated, and a fourth one is refused.
    assert_eq!(chunks, [0, 1, 1, 2, 3]);
    assert!(bytes.is_sorted() && matrix.bytes() < bytes[4]);
    assert_eq!(matrix.len(), 3 * CHUNK_FACES);
}
