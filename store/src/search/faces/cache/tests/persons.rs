//! Selfie searches of the index against the same search over all vectors in full, and how many vectors they read.

use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::model::photo::PhotoSize;
use crate::search::face_bibs::{BibReading, PhotoReadings};
use crate::search::scoring::FaceBib;
use crate::traits::SelfieScale;

const SCALE: SelfieScale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };
const DIMENSION: usize = 48;
/// A photo has three runners side by side.
const FACES_PER_PHOTO: usize = 3;

struct StoredFace {
    photo: PhotoId,
    bounding_box: BoundingBox,
    vector: Vec<f32>,
    bib: Option<&'static str>,
}

/// An album in a list; a face's id is its place in it.
struct StoredAlbum {
    faces: Vec<StoredFace>,
    reads: AtomicUsize,
}

fn unit(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.into_iter().map(|value| value / length).collect()
}

fn near(random: &mut StdRng, centre: &[f32], spread: f32) -> Vec<f32> {
    unit(centre.iter().map(|value| value + spread * random.random_range(-1.0_f32..1.0)).collect())
}

fn at(left: f64, top: f64) -> BoundingBox {
    BoundingBox { top, left, width: 0.1, height: 0.1 }
}

impl StoredAlbum {
    /// Makes photos of a few persons, most with their bib, some with another; some faces are equal. Returns a probe too.
    fn random(seed: u64, photos: usize) -> (Self, Embedding) {
        let mut random = StdRng::seed_from_u64(seed);
        let zero = vec![0.0; DIMENSION];
        let persons: Vec<Vec<f32>> =
            (0..random.random_range(3..40)).map(|_| near(&mut random, &zero, 1.0)).collect();
        let bibs = ["1234", "1239", "88", "881", "4077", "3105", "99", "771"];
        let mut faces: Vec<StoredFace> = Vec::new();
        for _ in 0..photos {
            let photo = PhotoId::generate();
            for place in 0..FACES_PER_PHOTO {
                let person = random.random_range(0..persons.len());
                let spread = [0.05, 0.15, 0.3, 1.0][random.random_range(0..4)];
                let vector = match faces.last() {
                    Some(last) if random.random_bool(0.05) => last.vector.clone(),
                    _ => near(&mut random, &persons[person], spread),
                };
                let bib = match random.random_range(0..10) {
                    0..5 => Some(bibs[person % bibs.len()]),
                    5 => Some(bibs[random.random_range(0..bibs.len())]),
                    _ => None,
                };
                // A text that two faces of a photo would wear is nobody's.
                let is_worn = |bib: &&str| {
                    let others = faces.iter().rev().take(place);
                    others.filter_map(|other| other.bib).any(|other| other == *bib)
                };
                let bib = bib.filter(|bib| !is_worn(bib));
                let bounding_box = at(0.1 + 0.3 * place as f64, 0.1);
                faces.push(StoredFace { photo, bounding_box, vector, bib });
            }
        }
        let probe = Embedding { model: "net@1".into(), vector: near(&mut random, &persons[0], 0.2) };
        (Self { faces, reads: AtomicUsize::new(0) }, probe)
    }

    /// Returns the faces in an order of its own each time, with the bibs that were read below them.
    fn load(&self, memory: &dyn MemoryObserver) -> Result<FaceMatrix> {
        let mut order: Vec<usize> = (0..self.faces.len()).collect();
        order.shuffle(&mut rand::rng());
        let mut matrix = FaceMatrix::default();
        for number in order {
            let StoredFace { photo, bounding_box, vector, .. } = &self.faces[number];
            let (id, vector) = (FaceId(number as i64), vector_to_bytes(vector));
            let (photo, bounding_box) = (*photo, *bounding_box);
            matrix.push(&IndexedFace { id, photo, bounding_box, model: "net@1", vector: &vector }, memory)?;
        }
        for runners in self.faces.chunks(FACES_PER_PHOTO) {
            let mut readings = PhotoReadings::new(PhotoSize { width: 1000, height: 1000 }, None);
            for runner in runners {
                let bounding_box = at(runner.bounding_box.left, 0.3);
                let text = runner.bib.map(str::to_owned);
                text.into_iter().for_each(|text| {
                    readings.add(BibReading { text, confidence: 0.99, bounding_box });
                });
            }
            matrix.assign_bibs(runners[0].photo, &readings, &[]);
        }
        Ok(matrix)
    }
}

#[async_trait]
impl FaceSource for StoredAlbum {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        Ok(Some(ONLY_CHANGE))
    }

    async fn owner(&self, _: AlbumId) -> Result<Option<OrganizationId>> {
        Ok(Some(OrganizationId(uuid::Uuid::nil())))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        Ok(albums.iter().map(|album| (*album, ONLY_CHANGE)).collect())
    }

    async fn load_faces(&self, _: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        Ok((ONLY_CHANGE, self.load(memory)?))
    }

    async fn changes_since(
        &self,
        _: AlbumId,
        _: Change,
        _: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        panic!("this album does not change")
    }

    async fn read_embeddings(&self, _: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        self.reads.fetch_add(faces.len(), Ordering::SeqCst);
        let embedding = |face: &FaceId| {
            let vector = self.faces[face.0 as usize].vector.clone();
            (*face, Embedding { model: "net@1".into(), vector })
        };
        Ok(faces.iter().map(embedding).collect())
    }
}

/// All faces of an album, each scored in full by every search.
struct InFull<'a>(&'a StoredAlbum);

impl selfie::AlbumFaces for InFull<'_> {
    fn count(&self) -> usize {
        self.0.faces.len()
    }

    async fn search(&self, queries: Vec<FaceQuery>) -> Result<Vec<Vec<ScoredFace>>> {
        let scorer = Cosine::new(&Device::Cpu);
        let search = |query: &FaceQuery| {
            let score = |(number, face): (usize, &StoredFace)| {
                let cosine = scorer.score(&query.probe.vector, &face.vector);
                let bib = face.bib.map(|text| FaceBib { text: text.into(), taken_hour: None });
                let score = query.rule.score(cosine, bib.as_ref().map(FaceBib::worn));
                let (photo, bounding_box) = (face.photo, face.bounding_box);
                ScoredFace { face: FaceId(number as i64), photo, bounding_box, bib, cosine, score }
            };
            query.choose_hits(self.0.faces.iter().enumerate().map(score).collect())
        };
        Ok(queries.iter().map(search).collect())
    }

    async fn read_vectors(&self, faces: &[ScoredFace]) -> Result<Vec<Option<Vec<f32>>>> {
        Ok(faces.iter().map(|face| Some(self.0.faces[face.face.0 as usize].vector.clone())).collect())
    }
}

#[tokio::test]
async fn a_person_is_found_as_by_comparing_all_vectors_in_full() {
    let (mut hits, mut by_bib) = (0, 0);
    for seed in 0..60 {
        // Small albums are searched on the calling thread, large ones in passes.
        let photos = [3, 9, 30, 300][seed as usize % 4];
        let (album, probe) = StoredAlbum::random(seed, photos);
        let album = Arc::new(album);
        let cache = FaceCache::new(Arc::clone(&album) as _, usize::MAX);
        for (min_score, limit) in [(-2.0, 1000), (-2.0, 5), (0.1, 30), (0.372, 1000), (0.7, 1000)] {
            let search = SelfieSearch { probe: &probe, scale: SCALE, min_score, limit };
            let expected = selfie::find_photos(&InFull(&album), &search).now_or_never().unwrap().unwrap();
            let query = SelfieQuery { probe: probe.clone(), scale: SCALE, min_score, limit };
            let found = cache.find_person(AlbumId::generate(), query).await.unwrap();
            assert_eq!(found, expected, "seed {seed}, {limit} from {min_score}");
            hits += found.len();
            by_bib += found.iter().filter(|hit| hit.reason == crate::traits::HitReason::SameBib).count();
        }
    }
    assert!(hits > 5000 && by_bib > 100, "{hits} hits, {by_bib} by their bib");
}

#[tokio::test]
async fn a_search_that_all_faces_are_good_enough_for_reads_only_those_that_it_may_show() {
    let (album, probe) = StoredAlbum::random(3, 2000);
    let album = Arc::new(album);
    let cache = FaceCache::new(Arc::clone(&album) as _, usize::MAX);
    let query = SelfieQuery { probe, scale: SCALE, min_score: -2.0, limit: 20 };
    assert_eq!(cache.find_person(AlbumId::generate(), query).await.unwrap().len(), 20);
    let reads = album.reads.load(Ordering::SeqCst);
    assert!((20..600).contains(&reads), "{reads} of {} vectors", album.faces.len());
}
