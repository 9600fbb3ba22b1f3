//! The matrix against a plain list, and its memory.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::model_faces::CHUNK_FACES;
use super::*;
use crate::model::encoding::vector_to_bytes;
use crate::model::ids::{AlbumId, OrganizationId};
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
        let shortlist = self.matrix.shortlist(Scanner::new(&Device::Cpu), &[query], threads).pop().unwrap();
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

/// A face of the plain list that the matrix is compared with; the list keeps its faces in the order of adding.
#[derive(Clone)]
struct ListedFace {
    id: FaceId,
    photo: PhotoId,
    model: &'static str,
    vector: Vec<f32>,
    bounding_box: BoundingBox,
    bib: Option<WornBib<'static>>,
}

/// Returns one of a few vectors, so that many scores are equal, with a bounding box that no other face has.
fn random_face(random: &mut StdRng, photo: PhotoId) -> ListedFace {
    const VECTORS: [[f32; 2]; 5] = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6], [-1.0, 0.0]];
    ListedFace {
        id: FaceId(0),
        photo,
        model: if random.random_bool(0.2) { "net@2" } else { "net@1" },
        vector: VECTORS[random.random_range(0..VECTORS.len())].to_vec(),
        bounding_box: BoundingBox { top: random.random_range(0.0..1.0), ..BOX },
        bib: [None, Some("12"), Some("345"), Some("678")][random.random_range(0..4)]
            .map(|text| WornBib { text, taken_hour: random.random_bool(0.5).then_some(9) }),
    }
}

fn push_listed(matrix: &mut FaceMatrix, face: &ListedFace) {
    let ListedFace { id, photo, model, bounding_box, bib, .. } = *face;
    let vector = vector_to_bytes(&face.vector);
    let face = IndexedFace { id, photo, bounding_box, model, vector: &vector };
    matrix.push(&face, &UnlimitedMemory).unwrap();
    if let Some(bib) = bib {
        let group = matrix.groups.iter_mut().find(|group| group.model() == model).unwrap();
        group.set_bib(group.len() - 1, bib);
    }
}

/// Returns the hits of comparing all faces in full.
fn search_list(faces: &[ListedFace], scorer: &Cosine, query: &FaceQuery) -> Vec<ScoredFace> {
    let comparable = faces.iter().filter(|face| face.model == query.probe.model);
    let mut near: Vec<ScoredFace> = comparable
        .map(|face| {
            let cosine = scorer.score(&query.probe.vector, &face.vector);
            let evidence = query.rule.score(cosine, face.bib);
            let bib = face.bib.map(|bib| FaceBib { text: bib.text.into(), taken_hour: bib.taken_hour });
            let ListedFace { id, photo, bounding_box, .. } = *face;
            ScoredFace { face: id, photo, bounding_box, bib, cosine, score: evidence }
        })
        .filter(|face| face.score >= query.scores.start && face.score < query.scores.end)
        .collect();
    near.sort_by(|a, b| {
        let place = |face: &ScoredFace| (face.photo, face.bounding_box.top.to_bits());
        b.score.total_cmp(&a.score).then_with(|| place(a).cmp(&place(b)))
    });
    let mut returned = HashSet::new();
    near.retain(|face| query.per == HitsPer::Face || returned.insert(face.photo));
    near.truncate(query.k);
    near
}

/// A rule in which a bib counts, or one in which none does.
fn random_rule(random: &mut StdRng) -> ScoreRule {
    let voted = ["12", "345"][random.random_range(0..2)];
    let vote = Vote { bib: WornBib { text: voted, taken_hour: Some(9) }, weight: 1.0 };
    let person: Option<PersonBib> = elect_bib(random.random_bool(0.7).then_some(vote).into_iter());
    ScoreRule::subtracting([0.0, 0.07][random.random_range(0..2)]).with_bib(person, 0.2)
}

fn random_query(random: &mut StdRng, probe: Vec<f32>) -> FaceQuery {
    let least = [-2.0, 0.0, 0.2, 0.7, 0.95, 0.999_999][random.random_range(0..6)];
    let end = [f64::INFINITY, 0.9, 0.75][random.random_range(0..3)];
    let per = [HitsPer::Photo, HitsPer::Face][random.random_range(0..2)];
    FaceQuery {
        probe: Embedding { model: "net@1".into(), vector: probe },
        k: [0, 1, 5, 10, 40, 500, 100_000][random.random_range(0..7)],
        per,
        // Only faces are asked for below a score.
        scores: least..if per == HitsPer::Face { end } else { f64::INFINITY },
        rule: random_rule(random),
    }
}

/// Removes some photos from both, replaces their faces, or adds one face.
fn apply_random_change(
    random: &mut StdRng,
    photos: &[PhotoId],
    faces: &mut SearchedFaces,
    list: &mut Vec<ListedFace>,
) {
    let count = random.random_range(1..4);
    let some: Vec<PhotoId> = (0..count).map(|_| photos[random.random_range(0..photos.len())]).collect();
    let choice = random.random_range(0..4);
    if choice == 0 {
        let face = random_listed(random, some[0], faces);
        push_listed(&mut faces.matrix, &face);
        return list.push(face);
    }
    list.retain(|face| !some.contains(&face.photo));
    if choice == 1 {
        return faces.matrix.remove(&some);
    }
    let mut fresh = FaceMatrix::default();
    for _ in 0..random.random_range(0..40) {
        let photo = some[random.random_range(0..some.len())];
        let face = random_listed(random, photo, faces);
        push_listed(&mut fresh, &face);
        list.push(face);
    }
    faces.matrix.replace(&some, fresh).unwrap();
}

/// A random face that is stored.
fn random_listed(random: &mut StdRng, photo: PhotoId, faces: &mut SearchedFaces) -> ListedFace {
    let face = random_face(random, photo);
    ListedFace { id: faces.add_vector(face.model, &face.vector), ..face }
}

#[test]
fn after_any_changes_a_search_returns_what_a_plain_list_returns() {
    let scorer = Cosine::new(&Device::Cpu);
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let photos: Vec<PhotoId> = (0..12).map(|_| PhotoId::generate()).collect();
        let (mut faces, mut list) = (SearchedFaces::default(), Vec::new());
        for step in 0..100 {
            apply_random_change(&mut random, &photos, &mut faces, &mut list);
            assert_eq!(faces.matrix.len(), list.len(), "seed {seed}, step {step}");
            let probe = random_face(&mut random, photos[0]).vector;
            let query = random_query(&mut random, probe);
            let found = faces.search(&query, random.random_range(1..4));
            assert_eq!(found, search_list(&list, &scorer, &query), "seed {seed}, step {step}");
            // Loaded at once, in any order, the same faces give the same answer.
            let (mut cold, mut shuffled) = (FaceMatrix::default(), list.clone());
            shuffled.shuffle(&mut random);
            shuffled.iter().for_each(|face| push_listed(&mut cold, face));
            std::mem::swap(&mut faces.matrix, &mut cold);
            assert_eq!(faces.search(&query, 1), found, "seed {seed}, step {step}");
            std::mem::swap(&mut faces.matrix, &mut cold);
        }
        faces.matrix.remove(&photos);
        assert_eq!(faces.matrix.len(), 0, "seed {seed}");
    }
}

/// A vector of 256 in one of some directions, off by a random amount between almost nothing and almost everything; now and
/// then that of a face before, bit for bit.
fn random_vector(random: &mut StdRng, centres: &[Vec<f32>], list: &[ListedFace]) -> Vec<f32> {
    if !list.is_empty() && random.random_bool(0.2) {
        return list[random.random_range(0..list.len())].vector.clone();
    }
    let centre = &centres[random.random_range(0..centres.len())];
    let spread = 10.0_f32.powi(random.random_range(-7..1));
    let vector: Vec<f32> =
        centre.iter().map(|value| value + spread * random.random_range(-1.0..1.0)).collect();
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

#[test]
fn hits_and_their_scores_are_those_of_comparing_all_vectors_in_full() {
    let scorer = Cosine::new(&Device::Cpu);
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let centres: Vec<Vec<f32>> =
            (0..4).map(|_| (0..256).map(|_| random.random_range(-0.1..0.1)).collect()).collect();
        let photos: Vec<PhotoId> = (0..1_000).map(|_| PhotoId::generate()).collect();
        let (mut faces, mut list) = (SearchedFaces::default(), Vec::new());
        for _ in 0..3_000 {
            let vector = random_vector(&mut random, &centres, &list);
            let photo = photos[random.random_range(0..photos.len())];
            let face = random_face(&mut random, photo);
            let id = faces.add_vector("net@1", &vector);
            let face = ListedFace { id, vector, model: "net@1", ..face };
            push_listed(&mut faces.matrix, &face);
            list.push(face);
        }
        for number in 0..60 {
            let probe = random_vector(&mut random, &centres, &list);
            let query = random_query(&mut random, probe);
            let expected = search_list(&list, &scorer, &query);
            assert_eq!(faces.search(&query, 2), expected, "seed {seed}, search {number}");
        }
    }
}

#[test]
fn an_answer_reads_few_vectors_and_each_of_a_kind_once() {
    let mut random = StdRng::seed_from_u64(9);
    let mut faces = SearchedFaces::default();
    let (same, centres) = ([0.0625; 256], vec![vec![0.0; 256]]);
    for _ in 0..5_000 {
        faces.push(PhotoId::generate(), "net@1", &same).unwrap();
        faces.push(PhotoId::generate(), "net@1", &random_vector(&mut random, &centres, &[])).unwrap();
    }
    // Ten thousand faces, half of which have the probe's own vector.
    assert_eq!(faces.find_photos(&same, 10_000, 0.5).len(), 5_000);
    assert_eq!(*faces.stored.reads.lock().unwrap(), 1);
    *faces.stored.reads.lock().unwrap() = 0;
    let probe = random_vector(&mut random, &centres, &[]);
    assert_eq!(faces.find_photos(&probe, 100, -1.0).len(), 100);
    let reads = *faces.stored.reads.lock().unwrap();
    assert!((100..400).contains(&reads), "{reads} vectors for 100 hits");
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
