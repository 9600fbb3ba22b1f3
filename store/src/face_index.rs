//! The vectors of albums in memory: a cache that follows the rows by change number.
//!
//! Each search first asks the rows for the album's change number and catches up when it is behind, so that a photo is
//! found from the moment its results are committed, by whichever process. One search of an album loads or catches up
//! at a time; those that come meanwhile wait for it. Numbers that go back, or name other changes than before, are those
//! of a database that lost its last commits: the album is loaded anew. Knows no SQL: [`FaceRows`] reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use tokio::sync::RwLock;
use uuid::Uuid;

use crate::error::{StoreError, StoreErrorKind};
use crate::face_matrix::{FaceMatrix, Nearest};
use crate::ids::{AlbumId, PhotoId};
use crate::meters;
use crate::photo::Embedding;
use crate::traits::{FaceHit, FaceIndex, Result};

/// An album of at most this many faces is scored on the thread that asks: a quarter of a millisecond, by the 12 ms
/// measured for 100,000 vectors of 256 (`cargo xtask bench store`).
const SCORED_IN_PLACE: usize = 2_000;

/// A change of an album's faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// One more than the change before; 0 before the first.
    pub(crate) number: i64,
    /// Random: after a failover or a restore another change may have the same number.
    pub(crate) mark: i64,
}

impl Change {
    /// A new one of this number.
    pub(crate) fn numbered(number: i64) -> Self {
        // The lower half of a random id is random but for two bits.
        Self { number, mark: Uuid::new_v4().as_u128() as i64 }
    }
}

/// What the index reads.
#[async_trait]
pub(crate) trait FaceRows: Send + Sync {
    /// The album's last change; `None` when there is no album.
    async fn newest(&self, album: AlbumId) -> Result<Option<Change>>;
    /// All searchable faces of the album and the change up to which they are, seen at one moment.
    async fn load(&self, album: AlbumId) -> Result<(Change, FaceMatrix)>;
    /// What changed after `seen`, seen at one moment; `None` when the rows do not know that change.
    async fn since(&self, album: AlbumId, seen: Change) -> Result<Option<FaceChanges>>;
}

/// What happened to an album's faces.
pub(crate) struct FaceChanges {
    /// Up to and with this change.
    pub(crate) upto: Change,
    /// The photos it happened to, deleted ones too.
    pub(crate) photos: Vec<PhotoId>,
    /// The faces these photos have now.
    pub(crate) faces: FaceMatrix,
}

/// The albums in memory.
pub(crate) struct FaceCache {
    rows: Arc<dyn FaceRows>,
    scorer: Cosine,
    limit_bytes: usize,
    albums: Mutex<Albums>,
}

#[derive(Default)]
struct Albums {
    entries: HashMap<AlbumId, Entry>,
    /// Counts searches: the smaller an entry's `used`, the longer it was not asked for.
    clock: u64,
}

struct Entry {
    faces: Arc<RwLock<AlbumFaces>>,
    bytes: usize,
    used: u64,
}

#[derive(Default)]
struct AlbumFaces {
    /// What the matrix has seen; `None` before it was loaded.
    change: Option<Change>,
    matrix: FaceMatrix,
}

impl FaceCache {
    /// An empty cache of `limit_bytes`. An album larger than that is held alone.
    pub(crate) fn new(rows: Arc<dyn FaceRows>, limit_bytes: usize) -> Self {
        Self { rows, scorer: Cosine::new(&Device::Cpu), limit_bytes, albums: Mutex::default() }
    }

    /// Drops everything known of an album.
    pub(crate) fn forget_album(&self, album: AlbumId) {
        let mut albums = self.albums();
        albums.entries.remove(&album);
        albums.meter();
    }

    /// Takes a deleted photo's faces out of memory now, not at the next search.
    pub(crate) async fn forget_photo(&self, album: AlbumId, photo: PhotoId) {
        let faces = self.albums().entries.get(&album).map(|entry| Arc::clone(&entry.faces));
        if let Some(faces) = faces {
            // The lock is what a catch-up holds from its reading to its writing: none can bring the photo back.
            faces.write().await.matrix.remove(&[photo]);
        }
    }

    /// The album's faces as of the last commit before this call.
    async fn current(&self, album: AlbumId) -> Result<Arc<RwLock<AlbumFaces>>> {
        let Some(newest) = self.rows.newest(album).await? else {
            self.forget_album(album);
            return Err(StoreError::not_found(format!("album {album}")));
        };
        let faces = self.touch(album);
        let seen = faces.read().await.change;
        if seen != Some(newest) {
            self.catch_up(album, &faces, newest).await?;
        }
        Ok(faces)
    }

    async fn catch_up(&self, album: AlbumId, faces: &RwLock<AlbumFaces>, newest: Change) -> Result<()> {
        let mut held = faces.write().await;
        // A caller that is dropped while it reads leaves what was there: everything is read before anything is changed.
        let changes = match held.change {
            Some(seen) if seen == newest => return Ok(()),
            // Ahead of `newest`, as when another search has caught up meanwhile, it finds that nothing is missing.
            Some(seen) => self.rows.since(album, seen).await?,
            None => None,
        };
        match changes {
            Some(changes) => {
                held.matrix.replace(&changes.photos, changes.faces)?;
                held.change = Some(changes.upto);
            }
            None => {
                let (change, matrix) = self.rows.load(album).await?;
                *held = AlbumFaces { change: Some(change), matrix };
                metrics::counter!(meters::FACE_INDEX_LOADS).increment(1);
            }
        }
        let bytes = held.matrix.bytes();
        drop(held);
        self.account(album, bytes);
        Ok(())
    }

    /// The album's place in memory, made when there is none; notes that it was asked for.
    fn touch(&self, album: AlbumId) -> Arc<RwLock<AlbumFaces>> {
        let mut albums = self.albums();
        albums.clock += 1;
        let used = albums.clock;
        let entry =
            albums.entries.entry(album).or_insert_with(|| Entry { faces: Arc::default(), bytes: 0, used });
        entry.used = used;
        Arc::clone(&entry.faces)
    }

    /// Notes the size of an album; those not asked for the longest leave until the rest fits.
    fn account(&self, album: AlbumId, bytes: usize) {
        let mut albums = self.albums();
        if let Some(entry) = albums.entries.get_mut(&album) {
            entry.bytes = bytes;
        }
        while albums.bytes() > self.limit_bytes {
            let others = albums.entries.iter().filter(|(id, entry)| **id != album && entry.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id) else {
                break;
            };
            albums.entries.remove(&oldest);
            metrics::counter!(meters::FACE_INDEX_EVICTIONS).increment(1);
        }
        albums.meter();
    }

    fn albums(&self) -> MutexGuard<'_, Albums> {
        self.albums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Albums {
    fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes).sum()
    }

    fn meter(&self) {
        metrics::gauge!(meters::FACE_INDEX_BYTES).set(self.bytes() as f64);
    }
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
        let faces = self.current(album).await?.read_owned().await;
        let wanted = Nearest { probe: probe.clone(), k, at_least };
        if faces.matrix.len() <= SCORED_IN_PLACE {
            return Ok(faces.matrix.nearest(&self.scorer, &wanted));
        }
        let scorer = self.scorer;
        let scored = tokio::task::spawn_blocking(move || faces.matrix.nearest(&scorer, &wanted));
        scored
            .await
            .map_err(|cause| StoreError::new(StoreErrorKind::Unavailable, "score faces").because(cause))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::face_matrix::IndexedFace;
    use crate::photo::BoundingBox;
    use crate::rows::bytes_of;

    const ONLY: Change = Change { number: 1, mark: 7 };

    /// Albums of one face each, that count how often they are read.
    #[derive(Default)]
    struct Counted {
        loads: AtomicUsize,
    }

    #[async_trait]
    impl FaceRows for Counted {
        async fn newest(&self, _: AlbumId) -> Result<Option<Change>> {
            Ok(Some(ONLY))
        }

        async fn load(&self, _: AlbumId) -> Result<(Change, FaceMatrix)> {
            self.loads.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let mut matrix = FaceMatrix::default();
            matrix.push(&IndexedFace {
                photo: PhotoId::generate(),
                bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
                model: "net@1",
                vector: &bytes_of(&[1.0, 0.0]),
            })?;
            Ok((ONLY, matrix))
        }

        async fn since(&self, _: AlbumId, _: Change) -> Result<Option<FaceChanges>> {
            panic!("nothing changes here")
        }
    }

    fn probe() -> Embedding {
        Embedding { model: "net@1".into(), vector: vec![1.0, 0.0] }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_searches_of_a_cold_album_load_it_once() {
        let rows = Arc::new(Counted::default());
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
    async fn the_album_not_asked_for_the_longest_leaves_first() {
        let rows = Arc::new(Counted::default());
        let one = rows.load(AlbumId::generate()).await.unwrap().1.bytes();
        let cache = FaceCache::new(rows.clone(), 2 * one);
        let (a, b, c) = (AlbumId::generate(), AlbumId::generate(), AlbumId::generate());
        for album in [a, b, a, c] {
            cache.nearest(album, &probe(), 10, 0.5).await.unwrap();
        }
        let held = |album| cache.albums().entries.contains_key(&album);
        assert!(held(a) && !held(b) && held(c));
        assert!(cache.albums().bytes() <= 2 * one);
    }

    #[tokio::test]
    async fn an_album_larger_than_the_limit_is_held_alone() {
        let cache = FaceCache::new(Arc::new(Counted::default()), 1);
        let (a, b) = (AlbumId::generate(), AlbumId::generate());
        for album in [a, b] {
            assert_eq!(cache.nearest(album, &probe(), 10, 0.5).await.unwrap().len(), 1);
        }
        assert_eq!(cache.albums().entries.len(), 1);
    }
}
