//! The search against the recipe in its plainest form, which scores all faces of an album and sorts them.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use super::*;
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::BoundingBox;
use crate::search::scoring::{FaceBib, WornBib};

const SCALE: SelfieScale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };
const DIMENSION: usize = 12;

#[derive(Clone)]
struct ListedFace {
    photo: PhotoId,
    bounding_box: BoundingBox,
    vector: Vec<f32>,
    bib: Option<String>,
    taken_hour: Option<i32>,
}

impl ListedFace {
    fn worn(&self) -> Option<WornBib<'_>> {
        self.bib.as_deref().map(|text| WornBib { text, taken_hour: self.taken_hour })
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// An album in a list, in any order.
struct ListedFaces {
    faces: Vec<ListedFace>,
    /// How many faces the search was given.
    given: AtomicUsize,
}

impl ListedFaces {
    fn new(faces: Vec<ListedFace>) -> Self {
        Self { faces, given: AtomicUsize::new(0) }
    }

    fn find_photos(&self, search: &SelfieSearch<'_>) -> Vec<SelfieHit> {
        find_photos(self, search).now_or_never().expect("nothing to wait for").unwrap()
    }
}

impl AlbumFaces for ListedFaces {
    fn count(&self) -> usize {
        self.faces.len()
    }

    async fn search(&self, queries: Vec<FaceQuery>) -> Result<Vec<Vec<ScoredFace>>> {
        let mut found = Vec::new();
        for query in queries {
            let score = |(row, face): (usize, &ListedFace)| {
                let cosine = dot(&query.probe.vector, &face.vector);
                ScoredFace {
                    face: FaceId(row as i64),
                    photo: face.photo,
                    bounding_box: face.bounding_box,
                    bib: face
                        .bib
                        .as_deref()
                        .map(|text| FaceBib { text: text.into(), taken_hour: face.taken_hour }),
                    cosine,
                    score: query.rule.score(cosine, face.worn()),
                }
            };
            found.push(query.choose_hits(self.faces.iter().enumerate().map(score).collect()));
            self.given.fetch_add(found[found.len() - 1].len(), Ordering::SeqCst);
        }
        Ok(found)
    }

    async fn read_vectors(&self, faces: &[ScoredFace]) -> Result<Vec<Option<Vec<f32>>>> {
        Ok(faces.iter().map(|face| Some(self.faces[face.face.0 as usize].vector.clone())).collect())
    }
}

/// A ranking of all faces: best first, equal ones by photo and place.
fn rank_all(faces: &[ListedFace], score: impl Fn(&ListedFace) -> f64) -> Vec<(f64, &ListedFace)> {
    let mut ranking: Vec<(f64, &ListedFace)> = faces.iter().map(|face| (score(face), face)).collect();
    ranking.sort_by(|(a, one), (b, other)| {
        let place = |face: &ListedFace| (face.photo, face.bounding_box.top.to_bits());
        b.total_cmp(a).then_with(|| place(one).cmp(&place(other)))
    });
    ranking
}

/// The best face of each of the ten best photos among the sure faces.
fn ten_sure<'f>(ranking: &[(f64, &'f ListedFace)]) -> Vec<(f64, &'f ListedFace)> {
    let mut photos = Vec::new();
    let mut sure = Vec::new();
    for (score, face) in ranking.iter().filter(|(score, _)| *score >= 0.6) {
        if !photos.contains(&face.photo) && sure.len() < 10 {
            photos.push(face.photo);
            sure.push((*score, *face));
        }
    }
    sure
}

/// The recipe of docs/EVALUATION.md over all faces, whatever the score.
fn search_all(faces: &[ListedFace], probe: &[f32]) -> Vec<SelfieHit> {
    let by_cosine = |query: Vec<f32>| move |face: &ListedFace| f64::from(dot(&query, &face.vector));
    let mut ranking = rank_all(faces, by_cosine(probe.to_vec()));
    let strangers: Vec<f64> = ranking.iter().map(|(score, _)| *score).filter(|score| *score < 0.6).collect();
    let last = 40.min(faces.len() / 2);
    let ranks: Vec<f64> = strangers.into_iter().take(last).skip(10).collect();
    let level = if ranks.is_empty() { 0.0 } else { ranks.iter().sum::<f64>() / ranks.len() as f64 };
    let sure = ten_sure(&ranking);
    if !sure.is_empty() {
        let mut sum: Vec<f64> = probe.iter().map(|value| f64::from(*value)).collect();
        for (score, face) in sure {
            sum.iter_mut().zip(&face.vector).for_each(|(sum, value)| *sum += score * f64::from(*value));
        }
        let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
        ranking = rank_all(faces, by_cosine(sum.iter().map(|value| (value / length) as f32).collect()));
    }
    let votes = ten_sure(&ranking);
    let votes = votes.iter().filter_map(|(weight, face)| Some(Vote { bib: face.worn()?, weight: *weight }));
    let bib = elect_bib(votes);
    let mut hits: Vec<SelfieHit> = Vec::new();
    for (score, face) in &ranking {
        let evidence = bib.as_ref().zip(face.worn()).map(|(bib, worn)| bib.compare(worn));
        let (added, reason) = match evidence {
            Some(BibEvidence::Same) if *score < 0.6 => (0.2, HitReason::SameBib),
            Some(BibEvidence::Same) => (0.2, HitReason::Face),
            Some(BibEvidence::Different) => (-0.2, HitReason::Face),
            _ => (0.0, HitReason::Face),
        };
        let score = score + added - level / 2.0;
        hits.push(SelfieHit { photo: face.photo, score, bounding_box: face.bounding_box, reason });
    }
    hits.sort_by(|a, b| {
        let place = |hit: &SelfieHit| (hit.photo, hit.bounding_box.top.to_bits());
        b.score.total_cmp(&a.score).then_with(|| place(a).cmp(&place(b)))
    });
    let mut photos = Vec::new();
    hits.retain(|hit| {
        let is_best = !photos.contains(&hit.photo);
        photos.push(hit.photo);
        is_best
    });
    hits
}

fn unit(vector: Vec<f32>) -> Vec<f32> {
    let length = dot(&vector, &vector).sqrt();
    vector.into_iter().map(|value| value / length).collect()
}

/// Adds noise to a direction: `spread` 0 gives the same vector, 1 one that is hardly similar.
fn near(random: &mut StdRng, centre: &[f32], spread: f32) -> Vec<f32> {
    unit(centre.iter().map(|value| value + spread * random.random_range(-1.0_f32..1.0)).collect())
}

fn direction(random: &mut StdRng) -> Vec<f32> {
    unit((0..DIMENSION).map(|_| random.random_range(-1.0_f32..1.0)).collect())
}

/// An album of a few persons, each with a bib that is sometimes read, sometimes misread. Some faces are equal.
struct RandomAlbum {
    faces: Vec<ListedFace>,
    probe: Embedding,
}

fn embedding(vector: Vec<f32>) -> Embedding {
    Embedding { model: "net@1".into(), vector }
}

fn random_album(seed: u64) -> RandomAlbum {
    let mut random = StdRng::seed_from_u64(seed);
    let count = [0, 1, 15, 25, 60, 130, 400][random.random_range(0..7)];
    let persons: Vec<Vec<f32>> = (0..random.random_range(1..9)).map(|_| direction(&mut random)).collect();
    let photos: Vec<PhotoId> = (0..count / 2 + 1).map(|i| PhotoId(Uuid::from_u128(i as u128))).collect();
    let bibs = ["1234", "1239", "88", "881", "4077", "3105", "99", "771"];
    let mut faces: Vec<ListedFace> = Vec::new();
    for number in 0..count {
        let person = random.random_range(0..persons.len());
        let spread = [0.0, 0.3, 0.5, 0.8, 2.0][random.random_range(0..5)];
        let bib = match random.random_range(0..10) {
            0..5 => Some(bibs[person]),
            5 => Some(bibs[random.random_range(0..bibs.len())]),
            _ => None,
        };
        let vector = match faces.last() {
            Some(last) if random.random_bool(0.05) => last.vector.clone(),
            _ => near(&mut random, &persons[person], spread),
        };
        faces.push(ListedFace {
            photo: photos[random.random_range(0..photos.len())],
            bounding_box: BoundingBox { top: number as f64 / 1000.0, left: 0.1, width: 0.1, height: 0.1 },
            vector,
            bib: bib.map(str::to_owned),
            taken_hour: [None, Some(10), Some(11), Some(40)][random.random_range(0..4)],
        });
    }
    faces.shuffle(&mut random);
    let spread = [0.0, 0.4, 1.0][random.random_range(0..3)];
    let probe = embedding(near(&mut random, &persons[0], spread));
    RandomAlbum { faces, probe }
}

#[test]
fn a_search_returns_what_the_recipe_over_all_faces_returns() {
    let mut by_bib = 0;
    for seed in 0..2000 {
        let RandomAlbum { faces, probe } = random_album(seed);
        let all = search_all(&faces, &probe.vector);
        let album = ListedFaces::new(faces);
        for (min_score, limit) in [(-2.0, usize::MAX), (-2.0, 7), (0.1, 3), (0.372, usize::MAX), (0.7, 20)] {
            let search = SelfieSearch { probe: &probe, scale: SCALE, min_score, limit };
            let expected: Vec<_> = all.iter().filter(|hit| hit.score >= min_score).take(limit).collect();
            let found = album.find_photos(&search);
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "seed {seed}, {limit} from {min_score}");
            by_bib += expected.iter().filter(|hit| hit.reason == HitReason::SameBib).count();
        }
    }
    assert!(by_bib > 1000, "{by_bib} hits by their bib");
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    for seed in 0..300 {
        let RandomAlbum { mut faces, probe } = random_album(seed);
        let search = SelfieSearch { probe: &probe, scale: SCALE, min_score: 0.2, limit: 50 };
        let answer = |faces: &[ListedFace]| ListedFaces::new(faces.to_vec()).find_photos(&search);
        let before = answer(&faces);
        faces.shuffle(&mut StdRng::seed_from_u64(seed + 1));
        assert_eq!(answer(&faces), before, "seed {seed}");
    }
}

/// A face of a photo of its own.
fn lone_face(number: u32, vector: Vec<f32>, bib: Option<&str>) -> ListedFace {
    ListedFace {
        photo: PhotoId(Uuid::from_u128(u128::from(number))),
        bounding_box: BoundingBox { top: 0.1, left: 0.1, width: 0.1, height: 0.1 },
        vector,
        bib: bib.map(str::to_owned),
        taken_hour: None,
    }
}

/// A unit vector with this cosine to the first axis; its other part lies along another axis.
fn at_cosine(cosine: f32, axis: usize) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSION];
    (vector[0], vector[axis]) = (cosine, (1.0 - cosine * cosine).sqrt());
    vector
}

/// An album with a sure photo of the runner with bib 1207, a weak one, and one of a look-alike with bib 88.
fn album_with_bibs(weak: Option<&str>, look_alike: Option<&str>) -> Vec<SelfieHit> {
    let faces = vec![
        lone_face(1, at_cosine(0.8, 1), Some("1207")),
        lone_face(2, at_cosine(0.3, 2), weak),
        lone_face(3, at_cosine(0.45, 3), look_alike),
    ];
    let probe = embedding(at_cosine(1.0, 1));
    let search = SelfieSearch { probe: &probe, scale: SCALE, min_score: 0.372, limit: 10 };
    ListedFaces::new(faces).find_photos(&search)
}

#[test]
fn the_bib_of_sure_photos_finds_weak_ones_and_excludes_look_alikes() {
    let found = |hits: Vec<SelfieHit>| -> Vec<(u128, HitReason)> {
        hits.into_iter().map(|hit| (hit.photo.0.as_u128(), hit.reason)).collect()
    };
    let (face, bib) = (HitReason::Face, HitReason::SameBib);
    assert_eq!(found(album_with_bibs(None, None)), [(1, face), (3, face)]);
    assert_eq!(found(album_with_bibs(Some("1207"), Some("88"))), [(1, face), (2, bib)]);
    // A part of the bib is no other bib.
    assert_eq!(found(album_with_bibs(None, Some("120"))), [(1, face), (3, face)]);
}

#[test]
fn an_album_of_few_faces_has_the_level_of_the_network() {
    // A network whose vectors of strangers are similar: its cosines mean something only above that level.
    let scale = SelfieScale { sure_cosine: 0.96, few_faces_level: 0.91, ..SCALE };
    let found = |cosine: f32| {
        let faces = vec![lone_face(1, at_cosine(cosine, 1), None)];
        let probe = embedding(at_cosine(1.0, 1));
        let search = SelfieSearch { probe: &probe, scale, min_score: 0.491, limit: 10 };
        ListedFaces::new(faces).find_photos(&search).len()
    };
    assert_eq!((found(0.9), found(0.95)), (0, 1));
}

#[test]
fn strangers_do_not_pass_in_a_large_album_what_they_do_not_pass_in_a_small_one() {
    let mut random = StdRng::seed_from_u64(7);
    let mut shown = Vec::new();
    for size in [200, 3200] {
        let mut total = 0;
        for _ in 0..40 {
            let faces = (0..size).map(|number| lone_face(number, direction(&mut random), None)).collect();
            let probe = embedding(direction(&mut random));
            let scale = SelfieScale { sure_cosine: 0.99, ..SCALE };
            let search = SelfieSearch { probe: &probe, scale, min_score: 0.45, limit: usize::MAX };
            total += ListedFaces::new(faces).find_photos(&search).len();
        }
        shown.push(total);
    }
    // By cosine alone there would be 16 times as many.
    assert!(shown[0] > 0 && shown[1] < 6 * shown[0], "{shown:?}");
}

#[test]
fn a_search_asks_for_few_faces_of_a_large_album() {
    let mut random = StdRng::seed_from_u64(3);
    let mut faces: Vec<ListedFace> =
        (0..5000).map(|number| lone_face(number, direction(&mut random), None)).collect();
    let probe = direction(&mut random);
    for face in &mut faces[..30] {
        face.vector = near(&mut random, &probe, 0.1);
    }
    let (album, probe) = (ListedFaces::new(faces), embedding(probe));
    // Random directions of few dimensions are much more similar than strangers.
    let scale = SelfieScale { sure_cosine: 0.9, ..SCALE };
    let hits = album.find_photos(&SelfieSearch { probe: &probe, scale, min_score: 0.5, limit: 100 });
    assert!(hits.len() >= 30, "{} hits", hits.len());
    // Ten sure photos, forty strangers, ten votes.
    assert_eq!(album.given.into_inner(), 60 + hits.len());
}
