//! The vectors of albums in memory: a cache that follows the rows by change number.
//!
//! Each search first asks the rows for the album's change number and catches up when it is behind, so that a photo is
//! found from the moment its results are committed, by whichever process. One search of an album loads or catches up
//! at a time; those that come meanwhile wait for it. Numbers that go back, or name other changes than before, are those
//! of a database that lost its last commits: the album is loaded anew. Knows no SQL: [`FaceRows`] reads.
//!
//! How large an album is shows only while it is read. So albums are loaded one after the other, others leave as one
//! grows, and what was held of an album goes before it is loaded anew.

pub(crate) mod matrix;
pub(crate) mod residency;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use async_trait::async_trait;
use futures_util::task::AtomicWaker;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use tokio::sync::OwnedRwLockReadGuard;
use uuid::Uuid;

use self::residency::{
    AlbumFaces, CacheSlot, MemoryReservation, ResidencyGuard, ResidentAlbums, lock, update_entry,
};
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::Embedding;
use crate::search::faces::matrix::{FaceMatrix, FaceQuery, with_memory_observer};
use crate::traits::{FaceHit, FaceIndex, Result};

/// An album of at most this many faces is scored on the thread that asks: a quarter of a millisecond, by the 12 ms
/// measured for 100,000 vectors of 256 (`cargo xtask bench store`).
const INLINE_SCORING_FACES: usize = 2_000;

/// Changes of at most this many faces are taken in on the thread that asks: what a worker finishes at once, 2 MB of
/// vectors of 256.
const INLINE_UPDATE_FACES: usize = 2_000;

/// A catch-up reads at most this many bytes, or that part of the album where it is more: its faces are held beside
/// those they replace until all are read. An album with more changes is loaded anew.
const CATCH_UP_BYTES: usize = 16 << 20;
const CATCH_UP_FRACTION: usize = 8;

/// A change of an album's faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// One more than the change before; 0 before the first.
    pub(crate) number: i64,
    /// Random: after a failover or a restore another change may have the same number.
    pub(crate) nonce: i64,
}

impl Change {
    /// A new one of this number.
    pub(crate) fn new(number: i64) -> Self {
        // The lower half of a random id is random but for two bits.
        Self { number, nonce: Uuid::new_v4().as_u128() as i64 }
    }
}

/// What the index reads.
#[async_trait]
pub(crate) trait FaceSource: Send + Sync {
    /// The album's last change; `None` when there is no album.
    async fn last_change(&self, album: AlbumId) -> Result<Option<Change>>;
    /// All searchable faces of the album and the change up to which they are, seen at one moment.
    async fn load_faces(&self, album: AlbumId) -> Result<(Change, FaceMatrix)>;
    /// What changed after `seen`, seen at one moment; `None` when the rows do not know that change.
    async fn changes_since(&self, album: AlbumId, seen: Change) -> Result<Option<FaceChanges>>;
}

/// What happened to an album's faces.
pub(crate) struct FaceChanges {
    /// Up to and with this change.
    pub(crate) up_to: Change,
    /// The photos it happened to, deleted ones too.
    pub(crate) photos: Vec<PhotoId>,
    /// The faces these photos have now.
    pub(crate) faces: FaceMatrix,
}

/// The albums in memory.
pub(crate) struct FaceCache {
    source: Arc<dyn FaceSource>,
    scorer: Cosine,
    albums: Arc<Mutex<ResidentAlbums>>,
    /// Held by the load under way. Fair: who has waited the longest is next.
    load_turn: tokio::sync::Mutex<()>,
    /// Wakes the load under way when an album's faces are out of memory.
    memory_freed: Arc<AtomicWaker>,
}

impl FaceCache {
    /// An empty cache of `limit_bytes`. An album larger than that is held alone.
    pub(crate) fn new(source: Arc<dyn FaceSource>, limit_bytes: usize) -> Self {
        Self {
            source,
            scorer: Cosine::new(&Device::Cpu),
            albums: Arc::new(Mutex::new(ResidentAlbums::new(limit_bytes))),
            load_turn: tokio::sync::Mutex::default(),
            memory_freed: Arc::default(),
        }
    }

    /// Drops everything known of an album.
    pub(crate) fn forget_album(&self, album: AlbumId) {
        let mut albums = self.lock_albums();
        let forgotten = albums.remove(album);
        albums.record_metrics();
        drop(albums);
        drop(forgotten);
    }

    /// Takes a deleted photo's faces out of memory now, not at the next search.
    pub(crate) async fn forget_photo(&self, album: AlbumId, photo: PhotoId) {
        let place = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
        if let Some(place) = place {
            // The lock is what a catch-up holds from its reading to its writing: none can bring the photo back.
            let mut held = place.faces.write().await;
            held.matrix.remove(&[photo]);
            let bytes = held.matrix.bytes();
            update_entry(&self.albums, &place, |entry| entry.bytes = bytes);
        }
    }

    /// The album's faces as of the last commit before this call.
    async fn current_faces(&self, album: AlbumId) -> Result<OwnedRwLockReadGuard<AlbumFaces>> {
        let Some(newest) = self.source.last_change(album).await? else {
            self.forget_album(album);
            return Err(StoreError::not_found(format!("album {album}")));
        };
        let mut place = self.lock_albums().touch(album);
        let mut faces = place.read_faces().await;
        if faces.change != Some(newest) {
            drop(faces);
            self.catch_up(&place, newest).await?;
            faces = place.read_faces().await;
        }
        // Once, or again when another search has found meanwhile that the album is to be loaded anew.
        while faces.change.is_none() {
            drop(faces);
            // It may have been taken out meanwhile: what is loaded has to be counted.
            place = self.lock_albums().touch(album);
            self.load(&place).await?;
            faces = place.read_faces().await;
        }
        Ok(faces)
    }

    /// Brings the album's faces up to `newest`, or lets go of them when they are to be loaded anew.
    async fn catch_up(&self, place: &CacheSlot, newest: Change) -> Result<()> {
        let mut held = Arc::clone(&place.faces).write_owned().await;
        let changes = match held.change {
            None => return Ok(()),
            Some(seen) if seen == newest => return Ok(()),
            // A caller that is dropped while it reads leaves what was there: all is read before anything is changed.
            // Ahead of `newest`, as when another search has caught up meanwhile, it finds that nothing is missing.
            Some(seen) => {
                let most = CATCH_UP_BYTES.max(held.matrix.bytes() / CATCH_UP_FRACTION);
                match self.read_within_limit(place, most, self.source.changes_since(place.album, seen)).await
                {
                    Err(error) if error.kind == StoreErrorKind::TooLarge => None,
                    read => read?,
                }
            }
        };
        let Some(changes) = changes else {
            // Now, and not when the new ones are there: the two are never held at once.
            *held = AlbumFaces::default();
            update_entry(&self.albums, place, |entry| entry.bytes = 0);
            return Ok(());
        };
        let is_small = changes.faces.len().max(changes.photos.len()) <= INLINE_UPDATE_FACES;
        let (albums, place) = (Arc::clone(&self.albums), place.clone());
        let take_in = move || -> Result<()> {
            held.matrix.replace(&changes.photos, changes.faces)?;
            held.change = Some(changes.up_to);
            let bytes = held.matrix.bytes();
            update_entry(&albums, &place, |entry| entry.bytes = bytes);
            Ok(())
        };
        if is_small { take_in() } else { offload("take in changed faces", take_in).await? }
    }

    /// Loads an album of which nothing is held, in its turn.
    async fn load(&self, place: &CacheSlot) -> Result<()> {
        let _only = place.loading.lock().await;
        if place.read_faces().await.change.is_some() {
            // Another search loaded it after this one had looked, and so all that this one is to see.
            return Ok(());
        }
        let _turn = self.load_turn.lock().await;
        let mut held = place.faces.write().await;
        let loading = self.read_within_limit(place, usize::MAX, self.source.load_faces(place.album));
        let (change, matrix) = self.run_when_memory_is_free(loading).await?;
        let bytes = matrix.bytes();
        let alive = Arc::new(ResidencyGuard(Arc::clone(&self.memory_freed)));
        let noted = Arc::downgrade(&alive);
        *held = AlbumFaces { change: Some(change), matrix, _residency: Some(alive) };
        metrics::counter!(metric_names::FACE_INDEX_LOADS).increment(1);
        update_entry(&self.albums, place, |entry| (entry.bytes, entry.residency) = (bytes, noted));
        Ok(())
    }

    /// Runs `rows`, which reads faces of this album. Others leave while they grow; beyond `most` bytes they are
    /// `TooLarge`.
    async fn read_within_limit<T>(
        &self,
        place: &CacheSlot,
        most: usize,
        rows: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let reading =
            MemoryReservation { albums: Arc::clone(&self.albums), slot: place.clone(), max_bytes: most };
        with_memory_observer(Box::new(move |bytes| reading.reserve(bytes)), rows).await
    }

    /// Runs `loading`, which rests while searches still look at faces that were taken out. These searches need no turn,
    /// so they end.
    async fn run_when_memory_is_free<T>(&self, loading: impl Future<Output = T>) -> T {
        let mut loading = pin!(loading);
        poll_fn(|polled| {
            // Before it looks: faces that go afterwards wake it.
            self.memory_freed.register(polled.waker());
            if self.lock_albums().has_pending_evictions() {
                return Poll::Pending;
            }
            loading.as_mut().poll(polled)
        })
        .await
    }

    fn lock_albums(&self) -> MutexGuard<'_, ResidentAlbums> {
        lock(&self.albums)
    }
}

/// Runs what takes longer than a task may keep its thread; `what` says what for.
async fn offload<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| StoreError::new(StoreErrorKind::Unavailable, what).with_source(cause))
}

#[async_trait]
impl FaceIndex for FaceCache {
    async fn nearest(
        &self,
        album: AlbumId,
        probe: &Embedding,
        k: usize,
        at_least: f32,
    ) -> Result<Vec<FaceHit>> {
        let faces = self.current_faces(album).await?;
        let wanted = FaceQuery { probe: probe.clone(), k, at_least };
        if faces.matrix.len() <= INLINE_SCORING_FACES {
            return Ok(faces.matrix.nearest(&self.scorer, &wanted));
        }
        let scorer = self.scorer;
        offload("score faces", move || faces.matrix.nearest(&scorer, &wanted)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicIsize, AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::model::photo::BoundingBox;
    use crate::search::faces::matrix::{IndexedFace, alive};
    use crate::sql::row_types::vector_to_bytes;

    const ONLY_CHANGE: Change = Change { number: 1, nonce: 7 };

    /// Albums of one face each, that count how often they are read.
    #[derive(Default)]
    struct CountingSource {
        loads: AtomicUsize,
    }

    #[async_trait]
    impl FaceSource for CountingSource {
        async fn last_change(&self, _: AlbumId) -> Result<Option<Change>> {
            Ok(Some(ONLY_CHANGE))
        }

        async fn load_faces(&self, _: AlbumId) -> Result<(Change, FaceMatrix)> {
            self.loads.fetch_add(1, Ordering::SeqCst);
            yield_now().await;
            let mut matrix = FaceMatrix::default();
            push(&mut matrix, &[1.0, 0.0])?;
            Ok((ONLY_CHANGE, matrix))
        }

        async fn changes_since(&self, _: AlbumId, _: Change) -> Result<Option<FaceChanges>> {
            panic!("nothing changes here")
        }
    }

    /// A face of a photo of its own.
    fn push(matrix: &mut FaceMatrix, vector: &[f32]) -> Result<()> {
        matrix.push(&IndexedFace {
            photo: PhotoId::generate(),
            bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
            model: "net@1",
            vector: &vector_to_bytes(vector),
        })
    }

    /// Of an album of [`Watched`]: in three chunks.
    const FACES: usize = 12;
    const CHUNKS: isize = 3;

    /// Albums of some chunks, read a face at a time, that look at what is held meanwhile.
    struct ObservedSource {
        /// The number of the last change.
        newest: AtomicI64,
        /// How many faces changed; 0 when that is not known.
        changed: usize,
        /// Each load takes one before it reads.
        permits: Semaphore,
        loads: AtomicUsize,
        loading: AtomicUsize,
        most_loading: AtomicUsize,
        most_chunks: AtomicIsize,
    }

    impl ObservedSource {
        fn new(permits: usize) -> Self {
            Self {
                newest: AtomicI64::new(1),
                changed: 0,
                permits: Semaphore::new(permits),
                loads: AtomicUsize::new(0),
                loading: AtomicUsize::new(0),
                most_loading: AtomicUsize::new(0),
                most_chunks: AtomicIsize::new(0),
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

        async fn load_faces(&self, _: AlbumId) -> Result<(Change, FaceMatrix)> {
            self.loads.fetch_add(1, Ordering::SeqCst);
            let loading = self.loading.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_loading.fetch_max(loading, Ordering::SeqCst);
            self.permits.acquire().await.expect("never closed").forget();
            let mut matrix = FaceMatrix::default();
            for _ in 0..FACES {
                push(&mut matrix, &[1.0, 0.0])?;
                self.most_chunks.fetch_max(alive::chunks(), Ordering::SeqCst);
                yield_now().await;
            }
            self.loading.fetch_sub(1, Ordering::SeqCst);
            Ok((self.current_change(), matrix))
        }

        async fn changes_since(&self, _: AlbumId, _: Change) -> Result<Option<FaceChanges>> {
            if self.changed == 0 {
                return Ok(None);
            }
            let mut faces = FaceMatrix::default();
            for _ in 0..self.changed {
                push(&mut faces, &[0.5; 1024])?;
            }
            Ok(Some(FaceChanges { up_to: self.current_change(), photos: Vec::new(), faces }))
        }
    }

    /// What an album of [`Watched`] takes, bytes.
    fn album_bytes() -> usize {
        let mut matrix = FaceMatrix::default();
        for _ in 0..FACES {
            push(&mut matrix, &[1.0, 0.0]).unwrap();
        }
        assert_eq!(alive::chunks(), CHUNKS);
        matrix.bytes()
    }

    /// A search of its own; answers how many faces it found.
    fn spawn_search(cache: &Arc<FaceCache>, album: AlbumId) -> JoinHandle<usize> {
        let cache = Arc::clone(cache);
        tokio::spawn(async move { cache.nearest(album, &probe(), 100, 0.5).await.unwrap().len() })
    }

    /// Lets every task of this thread go on until all wait for something.
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
        let rows = Arc::new(CountingSource::default());
        let cache = Arc::new(FaceCache::new(rows.clone(), usize::MAX));
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
        assert_eq!(rows.loads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_least_recently_used_album_is_evicted_first() {
        let rows = Arc::new(CountingSource::default());
        let one = rows.load_faces(AlbumId::generate()).await.unwrap().1.bytes();
        let cache = FaceCache::new(rows.clone(), 2 * one);
        let (a, b, c) = (AlbumId::generate(), AlbumId::generate(), AlbumId::generate());
        for album in [a, b, a, c] {
            cache.nearest(album, &probe(), 10, 0.5).await.unwrap();
        }
        let held = |album| cache.lock_albums().entries.contains_key(&album);
        assert!(held(a) && !held(b) && held(c));
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
        let rows = Arc::new(ObservedSource::new(10));
        let cache = Arc::new(FaceCache::new(rows.clone(), 2 * album_bytes()));
        let searches: Vec<_> = (0..10).map(|_| spawn_search(&cache, AlbumId::generate())).collect();
        for search in searches {
            assert_eq!(search.await.unwrap(), FACES);
        }
        assert_eq!(rows.loads.load(Ordering::SeqCst), 10);
        assert_eq!(rows.most_loading.load(Ordering::SeqCst), 1);
        assert_eq!(rows.most_chunks.load(Ordering::SeqCst), 2 * CHUNKS);
    }

    #[tokio::test]
    async fn an_album_that_is_reloaded_is_not_in_memory_twice() {
        let rows = Arc::new(ObservedSource::new(2));
        let cache = Arc::new(FaceCache::new(rows.clone(), usize::MAX));
        let album = AlbumId::generate();
        for number in [1, 2] {
            rows.newest.store(number, Ordering::SeqCst);
            assert_eq!(spawn_search(&cache, album).await.unwrap(), FACES);
        }
        assert_eq!(rows.loads.load(Ordering::SeqCst), 2);
        assert_eq!(rows.most_chunks.load(Ordering::SeqCst), CHUNKS);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_search_uses_an_album_that_another_search_dropped() {
        let rows = Arc::new(ObservedSource::new(10_000));
        let cache = Arc::new(FaceCache::new(rows.clone(), usize::MAX));
        let album = AlbumId::generate();
        for number in 0..50 {
            // What was seen is unknown from now on.
            rows.newest.store(number, Ordering::SeqCst);
            let searches: Vec<_> = (0..16).map(|_| spawn_search(&cache, album)).collect();
            rows.newest.fetch_add(1000, Ordering::SeqCst);
            for search in searches {
                assert_eq!(search.await.unwrap(), FACES);
            }
        }
    }

    #[tokio::test]
    async fn an_album_with_too_many_changes_is_reloaded() {
        let one = album_bytes();
        let rows = Arc::new(ObservedSource { changed: 2 * CATCH_UP_BYTES / 4096, ..ObservedSource::new(2) });
        let cache = Arc::new(FaceCache::new(rows.clone(), usize::MAX));
        let album = AlbumId::generate();
        for number in [1, 2] {
            rows.newest.store(number, Ordering::SeqCst);
            assert_eq!(spawn_search(&cache, album).await.unwrap(), FACES);
        }
        assert_eq!(rows.loads.load(Ordering::SeqCst), 2);
        assert_eq!(cache.lock_albums().bytes(), one);
    }

    #[tokio::test]
    async fn a_load_blocks_neither_loaded_albums_nor_deletions_in_waiting_ones() {
        let rows = Arc::new(ObservedSource::new(1));
        let cache = Arc::new(FaceCache::new(rows.clone(), usize::MAX));
        let [loaded, loading, waiting] = [(); 3].map(|()| AlbumId::generate());
        assert_eq!(spawn_search(&cache, loaded).await.unwrap(), FACES);
        let held_up = [spawn_search(&cache, loading), spawn_search(&cache, waiting)];
        run_until_idle().await;
        assert_eq!(rows.loads.load(Ordering::SeqCst), 2);
        let again = spawn_search(&cache, loaded);
        let deletes = Arc::clone(&cache);
        let deletion = tokio::spawn(async move { deletes.forget_photo(waiting, PhotoId::generate()).await });
        run_until_idle().await;
        assert!(again.is_finished() && deletion.is_finished());
        rows.permits.add_permits(2);
        for search in held_up {
            assert_eq!(search.await.unwrap(), FACES);
        }
    }

    #[tokio::test]
    async fn a_load_waits_until_no_search_uses_the_evicted_faces() {
        let rows = Arc::new(ObservedSource::new(2));
        let cache = Arc::new(FaceCache::new(rows.clone(), 1));
        let left = AlbumId::generate();
        assert_eq!(spawn_search(&cache, left).await.unwrap(), FACES);
        let looked_at = cache.current_faces(left).await.unwrap();
        let search = spawn_search(&cache, AlbumId::generate());
        run_until_idle().await;
        assert!(!search.is_finished());
        drop(looked_at);
        assert_eq!(search.await.unwrap(), FACES);
        // Of the album that was read, the first chunk alone beside the one looked at.
        assert_eq!(rows.most_chunks.load(Ordering::SeqCst), CHUNKS + 1);
    }
}
