//! Which albums are in memory and how many bytes they occupy, including those that are still loading. Never waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::gpu::GpuAlbum;
use super::matrix::{FaceMatrix, MemoryObserver};
use super::passes::SharedPasses;
use super::source::Change;
use super::updates::AlbumUpdates;
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::AlbumId;
use crate::traits::Result;

/// The albums in memory, evicted in the order of their last use.
#[derive(Default)]
pub(super) struct ResidentAlbums {
    limit_bytes: usize,
    pub(super) entries: HashMap<AlbumId, ResidentAlbum>,
    /// Removed albums whose faces may still be in memory until the last search that uses them ends.
    pending_evictions: Vec<Weak<ResidencyGuard>>,
    /// Number of searches so far; orders the albums by their last use.
    clock: u64,
    /// Value of the clock at the last refresh.
    refreshed_at: u64,
}

/// The entry of one album.
pub(super) struct ResidentAlbum {
    pub(super) slot: CacheSlot,
    /// Size of the matrix.
    pub(super) bytes: usize,
    /// Size of what is being read, in addition to the matrix.
    loading_bytes: usize,
    /// Alive as long as the matrix is in memory.
    pub(super) residency: Weak<ResidencyGuard>,
    /// Value of the clock at the last use.
    last_used: u64,
}

impl ResidentAlbum {
    /// Whether the slot is this entry's, not that of an earlier entry of the same album.
    fn owns(&self, slot: &CacheSlot) -> bool {
        Arc::ptr_eq(&self.slot.faces, &slot.faces)
    }
}

/// The faces of one album, shared by its searches. Cheap to clone.
#[derive(Clone)]
pub(super) struct CacheSlot {
    pub(super) album: AlbumId,
    pub(super) faces: Arc<RwLock<AlbumFaces>>,
    /// The update that reads the album or waits for its turn to load. Separate from `faces`, so that deleting a photo
    /// does not wait for other albums to load.
    pub(super) updates: Arc<AlbumUpdates>,
    /// As of when the faces are at least, those that are being read too: see [`Self::reach`].
    as_of: Arc<AtomicI64>,
}

impl CacheSlot {
    /// Notes that the faces in memory have everything that was committed before `time`, by the database's clock in microseconds,
    /// and that whatever is still read begins after it. That stays true: faces are only replaced by later ones.
    pub(super) fn reach(&self, time: i64) {
        self.as_of.fetch_max(time, Ordering::Relaxed);
    }

    /// Returns the latest time that was reached; 0 before the first.
    pub(super) fn as_of(&self) -> i64 {
        self.as_of.load(Ordering::Relaxed)
    }

    /// Returns the faces, which do not change until the guard is dropped.
    pub(super) async fn read_faces(&self) -> OwnedRwLockReadGuard<AlbumFaces> {
        Arc::clone(&self.faces).read_owned().await
    }
}

/// The faces of an album as of one change.
#[derive(Default)]
pub(super) struct AlbumFaces {
    /// The last change in the matrix; `None` until the album is loaded.
    pub(super) change: Option<Change>,
    pub(super) matrix: FaceMatrix,
    /// The searches that wait for a pass over the matrix.
    pub(super) passes: Arc<SharedPasses>,
    /// What a GPU has of the matrix.
    pub(super) on_gpu: Arc<GpuAlbum>,
    /// Declared after the matrix, so that it is dropped after it.
    pub(super) _residency: Option<Arc<ResidencyGuard>>,
}

impl AlbumFaces {
    /// Drops the faces, to be read again. Searches that wait for a pass wait on.
    pub(super) fn clear(&mut self) {
        *self = Self { passes: Arc::clone(&self.passes), ..Self::default() };
    }
}

/// Wakes the waiting load when it is dropped.
pub(super) struct ResidencyGuard(pub(super) Arc<AtomicWaker>);

impl Drop for ResidencyGuard {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Counts faces that are being read, up to `max_bytes`, until it is dropped.
pub(super) struct MemoryReservation {
    pub(super) albums: Arc<Mutex<ResidentAlbums>>,
    pub(super) slot: CacheSlot,
    pub(super) max_bytes: usize,
}

impl MemoryObserver for MemoryReservation {
    /// Evicts other albums until `bytes` fit.
    fn reserve(&self, bytes: usize) -> Result<()> {
        if bytes > self.max_bytes {
            let what = format!("changes of album {}", self.slot.album);
            return Err(StoreError::new(StoreErrorKind::TooLarge, what));
        }
        update_entry(&self.albums, &self.slot, |entry| entry.loading_bytes = bytes);
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        update_entry(&self.albums, &self.slot, |entry| entry.loading_bytes = 0);
    }
}

/// Locks the albums, also after a panic of another holder: each change of an entry is complete in itself.
pub(super) fn lock(albums: &Mutex<ResidentAlbums>) -> MutexGuard<'_, ResidentAlbums> {
    albums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the entry of an album, unless it has been removed or replaced, then evicts others until the rest fits.
pub(super) fn update_entry(
    albums: &Mutex<ResidentAlbums>,
    slot: &CacheSlot,
    change: impl FnOnce(&mut ResidentAlbum),
) {
    let mut albums = lock(albums);
    let entry = albums.entries.get_mut(&slot.album);
    if let Some(entry) = entry.filter(|entry| entry.owns(slot)) {
        change(entry);
    }
    let evicted = albums.evict(slot.album);
    albums.record_metrics();
    drop(albums);
    // Freeing a large album takes long: nothing may wait for the lock meanwhile.
    drop(evicted);
}

impl ResidentAlbums {
    /// Creates an empty set with room for `limit_bytes`.
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, ..Self::default() }
    }

    /// Returns the bytes in memory, including what is being read.
    pub(super) fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes + entry.loading_bytes).sum()
    }

    /// Returns the slot of an album, creates it if missing, and marks it as used now.
    pub(super) fn touch(&mut self, album: AlbumId) -> CacheSlot {
        self.clock += 1;
        let last_used = self.clock;
        let entry = self.entries.entry(album).or_insert_with(|| ResidentAlbum {
            slot: CacheSlot { album, faces: Arc::default(), updates: Arc::default(), as_of: Arc::default() },
            bytes: 0,
            loading_bytes: 0,
            residency: Weak::new(),
            last_used,
        });
        entry.last_used = last_used;
        entry.slot.clone()
    }

    /// Whether the faces of the slot are counted: its album was neither removed nor replaced.
    pub(super) fn contains(&self, slot: &CacheSlot) -> bool {
        self.entries.get(&slot.album).is_some_and(|entry| entry.owns(slot))
    }

    /// Removes entries without faces that no search has used since the last call; returns the slots of the others.
    pub(super) fn start_refresh(&mut self) -> Vec<CacheSlot> {
        let last_refresh = std::mem::replace(&mut self.refreshed_at, self.clock);
        self.entries.retain(|_, entry| {
            entry.bytes > 0 || entry.last_used > last_refresh || entry.slot.updates.is_running()
        });
        self.entries.values().map(|entry| entry.slot.clone()).collect()
    }

    /// Removes the least recently used albums except `kept` until the rest fits. Albums that are being read stay:
    /// removing them frees nothing.
    fn evict(&mut self, kept: AlbumId) -> Vec<ResidentAlbum> {
        let mut evicted = Vec::new();
        while self.bytes() > self.limit_bytes {
            let others = self.entries.iter().filter(|(id, _)| **id != kept);
            let loaded = others.filter(|(_, entry)| entry.bytes > 0 && entry.loading_bytes == 0);
            let Some(oldest) = loaded.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| *id) else {
                break;
            };
            evicted.extend(self.remove(oldest));
            metrics::counter!(metric_names::FACE_INDEX_EVICTIONS).increment(1);
        }
        evicted
    }

    /// Removes an album. Its faces stay in memory until no search uses them.
    pub(super) fn remove(&mut self, album: AlbumId) -> Option<ResidentAlbum> {
        let entry = self.entries.remove(&album)?;
        self.pending_evictions.retain(|residency| residency.strong_count() > 0);
        self.pending_evictions.push(Weak::clone(&entry.residency));
        Some(entry)
    }

    /// Returns whether faces of removed albums are still in memory.
    pub(super) fn has_pending_evictions(&mut self) -> bool {
        self.pending_evictions.retain(|residency| residency.strong_count() > 0);
        !self.pending_evictions.is_empty()
    }

    pub(super) fn record_metrics(&self) {
        metrics::gauge!(metric_names::FACE_INDEX_BYTES).set(self.bytes() as f64);
    }
}
