//! The matrix against a plain list.

use super::*;

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
