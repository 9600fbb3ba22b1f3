//! Searches of a hot album on a device: the same hits as on the processor, whatever changes and whatever fails, and
//! nothing on the device that is not in memory.

use std::collections::HashMap;
use std::sync::PoisonError;

use photofinish_kernels::gpu::{Gpu, GpuError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::search::faces::gpu::tests::plain_gpu::{Fault, PlainGpu};

const DIMENSION: usize = 24;

/// More than are searched on the calling thread.
const ALBUM_FACES: usize = 700;

/// Searches at once; each is a probe of its own.
const SEARCHES: usize = 40;

/// An album whose photos come, are read again and go.
#[derive(Default)]
struct ChangingAlbum(Mutex<ChangingFaces>);

#[derive(Default)]
struct ChangingFaces {
    photos: Vec<PhotoId>,
    faces: HashMap<FaceId, StoredFace>,
    next_face: i64,
    /// The photo of each change, the first one's number is 1.
    log: Vec<PhotoId>,
}

#[derive(Clone)]
struct StoredFace {
    photo: PhotoId,
    vector: Vec<f32>,
}

impl ChangingAlbum {
    fn lock(&self) -> MutexGuard<'_, ChangingFaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn random(random: &mut StdRng) -> Arc<Self> {
        let album = Self::default();
        while album.lock().faces.len() < ALBUM_FACES {
            album.lock().read_photo(random, PhotoId::generate());
        }
        Arc::new(album)
    }
}

impl ChangingFaces {
    fn newest(&self) -> Change {
        Change { number: self.log.len() as i64, nonce: 7 }
    }

    /// Adds a photo with some faces, or gives it others.
    fn read_photo(&mut self, random: &mut StdRng, photo: PhotoId) {
        self.delete_photo(photo);
        self.photos.push(photo);
        for _ in 0..random.random_range(1..4) {
            self.next_face += 1;
            let vector = random_vector(random);
            self.faces.insert(FaceId(self.next_face), StoredFace { photo, vector });
        }
    }

    fn delete_photo(&mut self, photo: PhotoId) {
        self.photos.retain(|other| *other != photo);
        self.faces.retain(|_, face| face.photo != photo);
        self.log.push(photo);
    }

    fn change(&mut self, random: &mut StdRng) {
        let some = self.photos[random.random_range(0..self.photos.len())];
        match random.random_range(0..4) {
            0 if self.faces.len() > ALBUM_FACES - 50 => self.delete_photo(some),
            1 => self.read_photo(random, some),
            _ => self.read_photo(random, PhotoId::generate()),
        }
    }

    /// The faces of some photos, in the order of their ids.
    fn to_matrix(&self, is_wanted: impl Fn(PhotoId) -> bool) -> FaceMatrix {
        let mut matrix = FaceMatrix::default();
        let mut ids: Vec<FaceId> = self.faces.keys().copied().collect();
        ids.sort_unstable_by_key(|id| id.0);
        for id in ids {
            let StoredFace { photo, vector } = &self.faces[&id];
            let (vector, photo) = (vector_to_bytes(vector), *photo);
            let bounding_box = BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 };
            let face = IndexedFace { id, photo, bounding_box, model: "net@1", vector: &vector };
            if is_wanted(photo) {
                matrix.push(&face, &UnlimitedMemory).unwrap();
            }
        }
        matrix
    }
}

#[async_trait]
impl FaceSource for ChangingAlbum {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        Ok(Some(self.lock().newest()))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        Ok(albums.iter().map(|album| (*album, self.lock().newest())).collect())
    }

    async fn owner(&self, _: AlbumId) -> Result<Option<OrganizationId>> {
        Ok(Some(OrganizationId(uuid::Uuid::nil())))
    }

    async fn load_faces(&self, _: AlbumId, _: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        let faces = self.lock();
        Ok((faces.newest(), faces.to_matrix(|_| true)))
    }

    async fn changes_since(
        &self,
        _: AlbumId,
        seen: Change,
        _: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        let faces = self.lock();
        let mut photos = faces.log[seen.number as usize..].to_vec();
        photos.sort_unstable();
        photos.dedup();
        let fresh = faces.to_matrix(|photo| photos.contains(&photo));
        Ok(Some(FaceChanges { up_to: faces.newest(), photos, faces: fresh }))
    }

    async fn read_embeddings(&self, _: AlbumId, wanted: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        let faces = self.lock();
        let known = wanted.iter().filter_map(|id| Some((*id, faces.faces.get(id)?.vector.clone())));
        Ok(known.map(|(id, vector)| (id, to_embedding(vector))).collect())
    }
}

fn random_vector(random: &mut StdRng) -> Vec<f32> {
    let vector: Vec<f32> = (0..DIMENSION).map(|_| random.random_range(-1.0..1.0)).collect();
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.into_iter().map(|value| value / length).collect()
}

fn to_embedding(vector: Vec<f32>) -> Embedding {
    Embedding { model: "net@1".into(), vector }
}

fn cache_on(source: &Arc<ChangingAlbum>, gpu: &Arc<PlainGpu>) -> Arc<FaceCache> {
    let cache = FaceCache::new(Arc::clone(source) as _, usize::MAX);
    let gpu = Arc::clone(gpu);
    let find_gpu = move || Some(Arc::clone(&gpu) as Arc<dyn Gpu>);
    cache.search_on(GpuAlbums::new(Box::new(find_gpu), usize::MAX));
    Arc::new(cache)
}

/// Searches for all probes at once; some want few hits, some all that are good enough.
async fn search_all(cache: &Arc<FaceCache>, album: AlbumId, probes: &[Vec<f32>]) -> Vec<Vec<FaceHit>> {
    let searches: Vec<_> = (0_usize..)
        .zip(probes)
        .map(|(number, vector)| {
            let (cache, probe) = (Arc::clone(cache), to_embedding(vector.clone()));
            let (k, at_least) = [(1, -1.0), (10, -1.0), (1000, 0.4), (3, 0.9)][number % 4];
            tokio::spawn(async move { cache.nearest(album, &probe, k, at_least).await.unwrap() })
        })
        .collect();
    let mut found = Vec::new();
    for search in searches {
        found.push(search.await.unwrap());
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_finds_what_the_processor_finds_before_and_after_random_changes() {
    let mut random = StdRng::seed_from_u64(1);
    let source = ChangingAlbum::random(&mut random);
    let gpu = Arc::new(PlainGpu::default());
    let on_gpu = cache_on(&source, &gpu);
    let on_cpu = Arc::new(FaceCache::new(Arc::clone(&source) as _, usize::MAX));
    let album = AlbumId::generate();
    for round in 0..15 {
        for _ in 0..random.random_range(0..6) {
            source.lock().change(&mut random);
        }
        let mut probes: Vec<Vec<f32>> = (0..SEARCHES).map(|_| random_vector(&mut random)).collect();
        probes[0] = source.lock().faces.values().next().unwrap().vector.clone();
        let expected = search_all(&on_cpu, album, &probes).await;
        assert!(expected.iter().any(|hits| hits.len() > 10));
        let programs = gpu.count_programs();
        assert!(search_all(&on_gpu, album, &probes).await == expected, "round {round}");
        // The first pass finds the album cold; there may be only one.
        assert!(round == 0 || gpu.count_programs() > programs, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_changes_no_answer() {
    let errors = [
        GpuError::Failed("a kernel was rejected".into()),
        GpuError::OutOfMemory("none left".into()),
        GpuError::Lost("it fell off the bus".into()),
        GpuError::TooLarge { bytes: 2, limit: 1 },
    ];
    let mut random = StdRng::seed_from_u64(2);
    let source = ChangingAlbum::random(&mut random);
    let on_cpu = Arc::new(FaceCache::new(Arc::clone(&source) as _, usize::MAX));
    let album = AlbumId::generate();
    let probes: Vec<Vec<f32>> = (0..SEARCHES).map(|_| random_vector(&mut random)).collect();
    let expected = search_all(&on_cpu, album, &probes).await;
    for error in errors {
        // Uploads of both stages and their programs: in the middle of a pass too.
        for call in [1, 3, 8, 9, 12, 20] {
            let gpu = Arc::new(PlainGpu::default());
            gpu.fail(Fault { call, error: error.clone() });
            let cache = cache_on(&source, &gpu);
            for pass in 0..4 {
                assert!(search_all(&cache, album, &probes).await == expected, "{error} {call} {pass}");
            }
            assert_eq!((gpu.count_calls(), gpu.bytes()), (call, 0), "{error}: it is left alone");
        }
    }
}

/// Searches until the album is on the device.
async fn make_hot(cache: &Arc<FaceCache>, album: AlbumId, gpu: &PlainGpu) {
    let probes = [vec![1.0; DIMENSION]];
    for _ in 0..2 {
        search_all(cache, album, &probes).await;
    }
    assert!(gpu.bytes() > 0);
}

#[tokio::test]
async fn a_deleted_face_is_not_on_the_device_once_its_deletion_is_seen() {
    let mut random = StdRng::seed_from_u64(3);
    let source = ChangingAlbum::random(&mut random);
    let gpu = Arc::new(PlainGpu::default());
    let cache = cache_on(&source, &gpu);
    let album = AlbumId::generate();
    make_hot(&cache, album, &gpu).await;
    for round in 0..6 {
        let deleted = {
            let faces = source.lock();
            let on_gpu = faces.faces.values().filter(|face| gpu.holds(&face.vector));
            on_gpu.max_by_key(|face| face.photo).unwrap().clone()
        };
        source.lock().delete_photo(deleted.photo);
        if round % 2 == 0 {
            // By this process.
            cache.forget_photo(album, deleted.photo).await;
        } else {
            // By another one: what a receipt of an erasure waits for.
            assert!(gpu.holds(&deleted.vector));
            assert_eq!(cache.refresh(round).await.unwrap(), round);
        }
        assert!(!gpu.holds(&deleted.vector), "round {round}");
        make_hot(&cache, album, &gpu).await;
        assert!(!gpu.holds(&deleted.vector), "round {round}");
    }
    cache.forget_album(album);
    assert_eq!(gpu.bytes(), 0);
}

#[tokio::test]
async fn an_album_that_is_evicted_from_memory_leaves_the_device() {
    let mut random = StdRng::seed_from_u64(4);
    let source = ChangingAlbum::random(&mut random);
    let gpu = Arc::new(PlainGpu::default());
    let cache = FaceCache::new(Arc::clone(&source) as _, 1);
    let lent = Arc::clone(&gpu);
    cache.search_on(GpuAlbums::new(Box::new(move || Some(Arc::clone(&lent) as Arc<dyn Gpu>)), usize::MAX));
    let (cache, other) = (Arc::new(cache), AlbumId::generate());
    make_hot(&cache, AlbumId::generate(), &gpu).await;
    search_all(&cache, other, &[vec![1.0; DIMENSION]]).await;
    assert_eq!(gpu.bytes(), 0);
}
