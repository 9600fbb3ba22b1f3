//! The matrix against a plain list, and its memory.

use std::sync::Mutex;

use photofinish_kernels::device::Device;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::model_faces::CHUNK_FACES;
use super::*;
use crate::model::encoding::vector_to_bytes;
use crate::traits::SelfieScale;

const SCALE: SelfieScale = SelfieScale { sure_cosine: 0.75, bib_weight: 0.2, few_faces_level: 0.0 };

const BOX: BoundingBox = BoundingBox { top: 0.1, left: 0.2, width: 0.3, height: 0.4 };

fn push(matrix: &mut FaceMatrix, photo: PhotoId, model: &str, vector: &[f32]) -> Result<()> {
    let vector = vector_to_bytes(vector);
    let face = IndexedFace { photo, bounding_box: BOX, model, vector: &vector, bib: None };
    matrix.push(&face, &UnlimitedMemory)
}

fn find_photos(matrix: &FaceMatrix, probe: &[f32], k: usize, min_cosine: f32) -> Vec<(PhotoId, f32)> {
    let probe = Embedding { model: "net@1".into(), vector: probe.to_vec() };
    let hits = matrix.nearest(&Cosine::new(&Device::Cpu), &FaceQuery { probe, k, min_cosine });
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
fn vectors_of_another_model_are_not_compared() {
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

/// A face of the plain list that the matrix is compared with; the list keeps its faces in the order of adding.
#[derive(Clone, Copy)]
struct ListedFace {
    photo: PhotoId,
    model: &'static str,
    vector: [f32; 2],
    bounding_box: BoundingBox,
    bib: Option<WornBib<'static>>,
}

/// Returns one of a few vectors, so that many scores are equal, with a bounding box that no other face has.
fn random_face(random: &mut StdRng, photo: PhotoId) -> ListedFace {
    const VECTORS: [[f32; 2]; 5] = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6], [-1.0, 0.0]];
    ListedFace {
        photo,
        model: if random.random_bool(0.2) { "net@2" } else { "net@1" },
        vector: VECTORS[random.random_range(0..VECTORS.len())],
        bounding_box: BoundingBox { top: random.random_range(0.0..1.0), ..BOX },
        bib: [None, Some("12"), Some("345"), Some("678")][random.random_range(0..4)]
            .map(|text| WornBib { text, taken_hour: random.random_bool(0.5).then_some(9) }),
    }
}

fn push_listed(matrix: &mut FaceMatrix, face: &ListedFace) {
    let ListedFace { photo, model, vector, bounding_box, bib } = *face;
    let vector = vector_to_bytes(&vector);
    let face = IndexedFace { photo, bounding_box, model, vector: &vector, bib };
    matrix.push(&face, &UnlimitedMemory).unwrap();
}

/// Returns the bib of every face, found by row and by text, in the order of the faces' boxes.
fn worn_bibs(matrix: &FaceMatrix) -> Vec<(u64, Option<WornBib<'_>>)> {
    let mut worn = Vec::new();
    for group in &matrix.groups {
        for row in 0..group.len() {
            let bib = group.bib(row);
            worn.push((group.face(row).bounding_box.top.to_bits(), bib));
            for text in ["12", "345", "678"] {
                let is_listed = group.wearers(text).contains(&row);
                assert_eq!(is_listed, bib.is_some_and(|bib| bib.text == text), "{text} in row {row}");
            }
        }
    }
    worn.sort_by_key(|(place, _)| *place);
    worn
}

fn nearest_in_list(faces: &[ListedFace], scorer: &Cosine, query: &FaceQuery) -> Vec<FaceHit> {
    let mut near: Vec<(f32, ListedFace)> = faces
        .iter()
        .filter(|face| face.model == query.probe.model)
        .map(|face| (scorer.score(&query.probe.vector, &face.vector), *face))
        .filter(|(score, _)| *score >= query.min_cosine)
        .collect();
    // A stable sort: equal scores stay in the order of adding.
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut returned = HashSet::new();
    near.retain(|(_, face)| returned.insert(face.photo));
    near.truncate(query.k);
    let hit = |(score, face): (f32, ListedFace)| FaceHit {
        photo: face.photo,
        cosine: score.clamp(-1.0, 1.0),
        bounding_box: face.bounding_box,
    };
    near.into_iter().map(hit).collect()
}

/// Removes some photos from both, replaces their faces, or adds one face.
fn apply_random_change(
    random: &mut StdRng,
    photos: &[PhotoId],
    matrix: &mut FaceMatrix,
    list: &mut Vec<ListedFace>,
) {
    let count = random.random_range(1..4);
    let some: Vec<PhotoId> = (0..count).map(|_| photos[random.random_range(0..photos.len())]).collect();
    let choice = random.random_range(0..4);
    if choice == 0 {
        let face = random_face(random, some[0]);
        push_listed(matrix, &face);
        return list.push(face);
    }
    list.retain(|face| !some.contains(&face.photo));
    if choice == 1 {
        return matrix.remove(&some);
    }
    let mut fresh = FaceMatrix::default();
    for _ in 0..random.random_range(0..12) {
        let photo = some[random.random_range(0..some.len())];
        let face = random_face(random, photo);
        push_listed(&mut fresh, &face);
        list.push(face);
    }
    matrix.replace(&some, fresh).unwrap();
}

#[test]
fn after_any_changes_a_search_returns_what_a_plain_list_returns() {
    let scorer = Cosine::new(&Device::Cpu);
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let photos: Vec<PhotoId> = (0..12).map(|_| PhotoId::generate()).collect();
        let (mut matrix, mut list) = (FaceMatrix::default(), Vec::new());
        for step in 0..100 {
            apply_random_change(&mut random, &photos, &mut matrix, &mut list);
            assert_eq!(matrix.len(), list.len(), "seed {seed}, step {step}");
            let query = FaceQuery {
                probe: Embedding {
                    model: "net@1".into(),
                    vector: random_face(&mut random, photos[0]).vector.to_vec(),
                },
                k: random.random_range(0..14),
                min_cosine: [-1.0, 0.0, 0.7][random.random_range(0..3)],
            };
            let found = matrix.nearest(&scorer, &query);
            assert_eq!(found, nearest_in_list(&list, &scorer, &query), "seed {seed}, step {step}");
            // Loaded at once, in any order, the same faces give the same answer, and every face has kept its bib.
            let (mut cold, mut shuffled) = (FaceMatrix::default(), list.clone());
            shuffled.shuffle(&mut random);
            shuffled.iter().for_each(|face| push_listed(&mut cold, face));
            assert_eq!(worn_bibs(&matrix), worn_bibs(&cold), "seed {seed}, step {step}");
            let person = SelfieQuery { probe: query.probe, scale: SCALE, min_score: 0.0, limit: query.k };
            let found = matrix.find_person(&scorer, &person);
            assert_eq!(found, cold.find_person(&scorer, &person), "seed {seed}, step {step}");
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
    let before = matrix.groups[0].list_rows();
    let mut fresh = FaceMatrix::default();
    for _ in 0..3 {
        push(&mut fresh, photos[0], "net@1", &[0.0, 1.0]).unwrap();
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
    push(&mut matrix, a, "net@1", &[1.0, 0.0]).unwrap();
    for _ in 0..10 * CHUNK_FACES {
        push(&mut matrix, b, "net@1", &[0.8, 0.6]).unwrap();
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
    let face = IndexedFace { photo, bounding_box: BOX, model: "net@1", vector: &vector, bib: None };
    let mut matrix = FaceMatrix::default();
    while matrix.push(&face, &observer).is_ok() {}
    let (bytes, chunks): (Vec<usize>, Vec<isize>) =
        observer.requests.into_inner().unwrap().into_iter().unzip();
    // The first chunk is allocated and doubles twice, a second one is allocated, and a third one is refused.
    assert_eq!(chunks, [0, 1, 1, 1, 2]);
    assert!(bytes.is_sorted() && matrix.bytes() < bytes[4]);
    assert_eq!(matrix.len(), 2 * CHUNK_FACES);
}
