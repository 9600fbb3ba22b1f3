//! What is loaded when, what is evicted, and that two versions of an album are never in memory at once.

mod gpu;
mod loads;
mod persons;
mod rankings;
mod refresh;
mod turns;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicIsize, AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::error::StoreErrorKind;
use crate::model::encoding::vector_to_bytes;
use crate::model::ids::{FaceId, OrganizationId};
use crate::model::photo::BoundingBox;
use crate::search::faces::loader::CATCH_UP_BYTES;
use crate::search::faces::matrix::{FaceMatrix, IndexedFace, MemoryObserver, UnlimitedMemory, live_chunks};
use crate::search::faces::source::FaceChanges;

const ONLY_CHANGE: Change = Change { number: 1, nonce: 7 };

/// Albums of one face each; counts how often they are loaded.
#[derive(Default)]
struct CountingSource {
    loads: AtomicUsize,
}

#[async_trait]
impl FaceSource for CountingSource {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        Ok(Some(ONLY_CHANGE))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        Ok(albums.iter().map(|album| (*album, ONLY_CHANGE)).collect())
    }

    async fn owner(&self, _: AlbumId) -> Result<Option<OrganizationId>> {
        Ok(Some(OrganizationId(uuid::Uuid::nil())))
    }

    async fn load_faces(&self, _: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        let mut matrix = FaceMatrix::default();
        push(&mut matrix, &[1.0, 0.0], memory)?;
        Ok((ONLY_CHANGE, matrix))
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
        Ok(faces.iter().map(|face| (*face, probe())).collect())
    }
}

/// The photo of the first face of each album.
const DELETED_PHOTO: PhotoId = PhotoId(uuid::Uuid::max());

/// Adds a face of a new photo.
fn push(matrix: &mut FaceMatrix, vector: &[f32], memory: &dyn MemoryObserver) -> Result<()> {
    let face = IndexedFace {
        id: FaceId(matrix.len() as i64),
        photo: if matrix.len() == 0 { DELETED_PHOTO } else { PhotoId::generate() },
        bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
        model: "net@1",
        vector: &vector_to_bytes(vector),
    };
    matrix.push(&face, memory)
}

/// Faces of an album of [`ObservedSource`], in three chunks.
const FACES: usize = 96;
const CHUNKS: isize = 3;

/// Albums of some chunks, read a face at a time; records how many chunks and loads exist meanwhile.
struct ObservedSource {
    /// The number of the last change.
    newest: AtomicI64,
    /// How many faces changed; 0 if the database no longer knows what the cache has seen.
    changed: usize,
    /// Each load takes a permit before it reads.
    permits: Semaphore,
    /// Each read of vectors takes a permit, if there are any to take.
    read_permits: Option<Semaphore>,
    /// How many reads of vectors there are now.
    reading: AtomicUsize,
    /// How many faces an album has.
    faces: usize,
    is_deleted: AtomicBool,
    /// The album of another organization than that of all other albums.
    small_album: Mutex<Option<AlbumId>>,
    /// How often the last changes of all albums in memory were read.
    refreshes: AtomicUsize,
    loads: AtomicUsize,
    loading: AtomicUsize,
    max_loading: AtomicUsize,
    max_chunks: AtomicIsize,
}

impl ObservedSource {
    fn new(permits: usize) -> Self {
        Self {
            newest: AtomicI64::new(1),
            changed: 0,
            permits: Semaphore::new(permits),
            read_permits: None,
            reading: AtomicUsize::new(0),
            faces: FACES,
            is_deleted: AtomicBool::new(false),
            small_album: Mutex::default(),
            refreshes: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            loading: AtomicUsize::new(0),
            max_loading: AtomicUsize::new(0),
            max_chunks: AtomicIsize::new(0),
        }
    }

    fn current_change(&self) -> Change {
        Change { number: self.newest.load(Ordering::SeqCst), nonce: 7 }
    }
}

#[async_trait]
impl FaceSource for ObservedSource {
    async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
        Ok(Some(self.current_change()))
    }

    async fn last_changes(&self, albums: &[AlbumId]) -> Result<Vec<(AlbumId, Change)>> {
        self.refreshes.fetch_add(1, Ordering::SeqCst);
        let existing = if self.is_deleted.load(Ordering::SeqCst) { &[] } else { albums };
        Ok(existing.iter().map(|album| (*album, self.current_change())).collect())
    }

    async fn owner(&self, album: AlbumId) -> Result<Option<OrganizationId>> {
        let is_small = *self.small_album.lock().unwrap() == Some(album);
        Ok(Some(OrganizationId(if is_small { uuid::Uuid::max() } else { uuid::Uuid::nil() })))
    }

    async fn load_faces(&self, _: AlbumId, memory: &dyn MemoryObserver) -> Result<(Change, FaceMatrix)> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        let loading = self.loading.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_loading.fetch_max(loading, Ordering::SeqCst);
        let permit = self.permits.acquire().await;
        permit.map_err(|_| StoreError::new(StoreErrorKind::Unavailable, "the database is down"))?.forget();
        let mut matrix = FaceMatrix::default();
        for _ in 0..self.faces {
            push(&mut matrix, &[1.0, 0.0], memory)?;
            self.max_chunks.fetch_max(live_chunks::count(), Ordering::SeqCst);
            yield_now().await;
        }
        self.loading.fetch_sub(1, Ordering::SeqCst);
        Ok((self.current_change(), matrix))
    }

    async fn changes_since(
        &self,
        _: AlbumId,
        _: Change,
        memory: &dyn MemoryObserver,
    ) -> Result<Option<FaceChanges>> {
        if self.changed == 0 {
            return Ok(None);
        }
        let mut faces = FaceMatrix::default();
        for _ in 0..self.changed {
            push(&mut faces, &[0.5; 1024], memory)?;
        }
        Ok(Some(FaceChanges { up_to: self.current_change(), photos: Vec::new(), faces }))
    }

    async fn read_embeddings(&self, _: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        self.reading.fetch_add(1, Ordering::SeqCst);
        if let Some(permits) = &self.read_permits {
            permits.acquire().await.unwrap().forget();
        }
        self.reading.fetch_sub(1, Ordering::SeqCst);
        Ok(faces.iter().map(|face| (*face, probe())).collect())
    }
}

/// Returns the size of an album of [`ObservedSource`] in bytes.
fn album_bytes() -> usize {
    let mut matrix = FaceMatrix::default();
    for _ in 0..FACES {
        push(&mut matrix, &[1.0, 0.0], &UnlimitedMemory).unwrap();
    }
    assert_eq!(live_chunks::count(), CHUNKS);
    matrix.bytes()
}

/// Starts a search, which returns how many faces it found.
fn spawn_search(cache: &Arc<FaceCache>, album: AlbumId) -> JoinHandle<usize> {
    let cache = Arc::clone(cache);
    tokio::spawn(async move { cache.nearest(album, &probe(), 100, 0.5).await.unwrap().len() })
}

/// Runs the other tasks of this thread until all of them wait for something.
async fn run_until_idle() {
    for _ in 0..1000 {
        yield_now().await;
    }
}

fn probe() -> Embedding {
    Embedding { model: "net@1".into(), vector: vec![1.0, 0.0] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_searches_of_a_cold_album_load_it_once() {
    let source = Arc::new(CountingSource::default());
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    let searches: Vec<_> = (0..100)
        .map(|_| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move { cache.nearest(album, &probe(), 10, 0.5).await.unwrap().len() })
        })
        .collect();
    for search in searches {
        assert_eq!(search.await.unwrap(), 1);
    }
    assert_eq!(source.loads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_least_recently_used_album_is_evicted_first() {
    let source = Arc::new(CountingSource::default());
    let one = source.load_faces(AlbumId::generate(), &UnlimitedMemory).await.unwrap().1.bytes();
    let cache = FaceCache::new(source.clone(), 2 * one);
    let (a, b, c) = (AlbumId::generate(), AlbumId::generate(), AlbumId::generate());
    for album in [a, b, a, c] {
        cache.nearest(album, &probe(), 10, 0.5).await.unwrap();
    }
    let is_resident = |album| cache.lock_albums().entries.contains_key(&album);
    assert!(is_resident(a) && !is_resident(b) && is_resident(c));
    assert!(cache.lock_albums().bytes() <= 2 * one);
}

#[tokio::test]
async fn an_album_larger_than_the_limit_is_kept_alone() {
    let cache = FaceCache::new(Arc::new(CountingSource::default()), 1);
    let (a, b) = (AlbumId::generate(), AlbumId::generate());
    for album in [a, b] {
        assert_eq!(cache.nearest(album, &probe(), 10, 0.5).await.unwrap().len(), 1);
    }
    assert_eq!(cache.lock_albums().entries.len(), 1);
}

#[tokio::test]
async fn ten_cold_albums_are_loaded_one_after_the_other_within_the_limit() {
    let source = Arc::new(ObservedSource::new(10));
    let cache = Arc::new(FaceCache::new(source.clone(), 2 * album_bytes()));
    let searches: Vec<_> = (0..10).map(|_| spawn_search(&cache, AlbumId::generate())).collect();
    for search in searches {
        assert_eq!(search.await.unwrap(), FACES);
    }
    assert_eq!(source.loads.load(Ordering::SeqCst), 10);
    assert_eq!(source.max_loading.load(Ordering::SeqCst), 1);
    assert_eq!(source.max_chunks.load(Ordering::SeqCst), 2 * CHUNKS);
}

/// Searches an album, changes it and searches it again; both searches load it.
async fn search_before_and_after_a_change(source: &Arc<ObservedSource>) -> Arc<FaceCache> {
    let cache = Arc::new(FaceCache::new(Arc::clone(source) as _, usize::MAX));
    let album = AlbumId::generate();
    for number in [1, 2] {
        source.newest.store(number, Ordering::SeqCst);
        assert_eq!(spawn_search(&cache, album).await.unwrap(), FACES);
    }
    assert_eq!(source.loads.load(Ordering::SeqCst), 2);
    cache
}

#[tokio::test]
async fn an_album_that_is_reloaded_is_not_in_memory_twice() {
    let source = Arc::new(ObservedSource::new(2));
    search_before_and_after_a_change(&source).await;
    assert_eq!(source.max_chunks.load(Ordering::SeqCst), CHUNKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_search_uses_an_album_that_another_search_dropped() {
    let source = Arc::new(ObservedSource::new(10_000));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let album = AlbumId::generate();
    for number in 1..=50 {
        // From now on the database does not know what the cache has seen.
        source.newest.store(number, Ordering::SeqCst);
        let searches: Vec<_> = (0..16).map(|_| spawn_search(&cache, album)).collect();
        source.newest.fetch_add(1000, Ordering::SeqCst);
        for search in searches {
            assert_eq!(search.await.unwrap(), FACES);
        }
    }
}

#[tokio::test]
async fn an_album_with_too_many_changes_is_reloaded() {
    let one = album_bytes();
    let source = ObservedSource { changed: 2 * CATCH_UP_BYTES / 1024, ..ObservedSource::new(2) };
    let cache = search_before_and_after_a_change(&Arc::new(source)).await;
    assert_eq!(cache.lock_albums().bytes(), one);
}

#[tokio::test]
async fn a_load_blocks_neither_loaded_albums_nor_deletions_in_waiting_ones() {
    let source = Arc::new(ObservedSource::new(1));
    let cache = Arc::new(FaceCache::new(source.clone(), usize::MAX));
    let [loaded, loading, waiting] = [(); 3].map(|()| AlbumId::generate());
    assert_eq!(spawn_search(&cache, loaded).await.unwrap(), FACES);
    let waiting_searches = [spawn_search(&cache, loading), spawn_search(&cache, waiting)];
    run_until_idle().await;
    assert_eq!(source.loads.load(Ordering::SeqCst), 2);
    let again = spawn_search(&cache, loaded);
    let deleting_cache = Arc::clone(&cache);
    let deletion =
        tokio::spawn(async move { deleting_cache.forget_photo(waiting, PhotoId::generate()).await });
    run_until_idle().await;
    assert!(again.is_finished() && deletion.is_finished());
    source.permits.add_permits(2);
    for search in waiting_searches {
        assert_eq!(search.await.unwrap(), FACES);
    }
}

#[tokio::test]
async fn a_load_waits_until_no_search_uses_the_evicted_faces() {
    let source = Arc::new(ObservedSource::new(2));
    let cache = Arc::new(FaceCache::new(source.clone(), 1));
    let evicted = AlbumId::generate();
    assert_eq!(spawn_search(&cache, evicted).await.unwrap(), FACES);
    let faces_in_use = cache.current_faces(evicted).await.unwrap().unwrap();
    let search = spawn_search(&cache, AlbumId::generate());
    run_until_idle().await;
    assert!(!search.is_finished());
    drop(faces_in_use);
    assert_eq!(search.await.unwrap(), FACES);
    // The evicted album, which was in use, and only the first chunk of the album that was loading.
    assert_eq!(source.max_chunks.load(Ordering::SeqCst), CHUNKS + 1);
}

#[tokio::test]
async fn an_album_without_changes_gets_no_entry() {
    let source = Arc::new(ObservedSource::new(0));
    source.newest.store(0, Ordering::SeqCst);
    let cache = FaceCache::new(source.clone(), usize::MAX);
    assert_eq!(cache.nearest(AlbumId::generate(), &probe(), 100, 0.5).await.unwrap(), []);
    assert!(cache.lock_albums().entries.is_empty());
    assert_eq!(source.loads.load(Ordering::SeqCst), 0);
}
