//! What is held of which album, counted: no more than the limit, while it is read too. Waits for nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::Change;
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::AlbumId;
use crate::search::faces::matrix::FaceMatrix;
use crate::traits::Result;

/// The albums that were asked for.
#[derive(Default)]
pub(crate) struct ResidentAlbums {
    limit_bytes: usize,
    pub(crate) entries: HashMap<AlbumId, ResidentAlbum>,
    /// Faces that were taken out, of which some may be in memory until the last search that looks at them ends.
    pending_evictions: Vec<Weak<ResidencyGuard>>,
    /// Counts searches: the smaller an entry's `used`, the longer it was not asked for.
    clock: u64,
}

/// An album that was asked for.
pub(crate) struct ResidentAlbum {
    pub(crate) slot: CacheSlot,
    /// Of the matrix.
    pub(crate) bytes: usize,
    /// Of what is being read, beside the matrix.
    loading_bytes: usize,
    /// Whether the matrix is in memory, and whoever looks at it.
    pub(crate) residency: Weak<ResidencyGuard>,
    last_used: u64,
}

/// Where an album's faces are. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CacheSlot {
    pub(crate) album: AlbumId,
    pub(crate) faces: Arc<RwLock<AlbumFaces>>,
    /// Held by the one search that loads the album or waits for its turn to. Not `faces`: who deletes a photo would
    /// have to wait for other albums.
    pub(crate) loading: Arc<tokio::sync::Mutex<()>>,
}

impl CacheSlot {
    /// The faces, held as they are until the answer is dropped.
    pub(crate) async fn read_faces(&self) -> OwnedRwLockReadGuard<AlbumFaces> {
        Arc::clone(&self.faces).read_owned().await
    }
}

/// An album's faces, up to a change of them.
#[derive(Default)]
pub(crate) struct AlbumFaces {
    /// What the matrix has seen; `None` before it was loaded.
    pub(crate) change: Option<Change>,
    pub(crate) matrix: FaceMatrix,
    /// Below the matrix, so that it goes after it.
    pub(crate) _residency: Option<Arc<ResidencyGuard>>,
}

/// Says when it goes.
pub(crate) struct ResidencyGuard(pub(crate) Arc<AtomicWaker>);

impl Drop for ResidencyGuard {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Faces that are being read, up to `most` bytes: counted while they grow, until this is dropped.
pub(crate) struct MemoryReservation {
    pub(crate) albums: Arc<Mutex<ResidentAlbums>>,
    pub(crate) slot: CacheSlot,
    pub(crate) max_bytes: usize,
}

impl MemoryReservation {
    /// Makes room for so many bytes.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<()> {
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

/// The albums, whatever happened to whoever had them before.
pub(crate) fn lock(albums: &Mutex<ResidentAlbums>) -> MutexGuard<'_, ResidentAlbums> {
    albums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes what is known of an album, unless it has another place or none by now; others leave until the rest fits.
pub(crate) fn update_entry(
    albums: &Mutex<ResidentAlbums>,
    place: &CacheSlot,
    change: impl FnOnce(&mut ResidentAlbum),
) {
    let mut albums = lock(albums);
    let entry = albums.entries.get_mut(&place.album);
    if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.slot.faces, &place.faces)) {
        change(entry);
    }
    let evicted = albums.evict(place.album);
    albums.record_metrics();
    drop(albums);
    // To free a large album takes long: nobody is to wait for the lock meanwhile.
    drop(evicted);
}

impl ResidentAlbums {
    /// None yet, and room for `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, ..Self::default() }
    }

    /// What is held and what is being read.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.bytes + entry.loading_bytes).sum()
    }

    /// The album's place in memory, made when there is none; notes that it was asked for.
    pub(crate) fn touch(&mut self, album: AlbumId) -> CacheSlot {
        self.clock += 1;
        let used = self.clock;
        let entry = self.entries.entry(album).or_insert_with(|| ResidentAlbum {
            slot: CacheSlot { album, faces: Arc::default(), loading: Arc::default() },
            bytes: 0,
            loading_bytes: 0,
            residency: Weak::new(),
            last_used: used,
        });
        entry.last_used = used;
        entry.slot.clone()
    }

    /// Takes out those not asked for the longest until the rest fits, but `kept`, and none that is being read: that
    /// would free nothing.
    fn evict(&mut self, kept: AlbumId) -> Vec<ResidentAlbum> {
        let mut evicted = Vec::new();
        while self.bytes() > self.limit_bytes {
            let others = self.entries.iter().filter(|(id, _)| **id != kept);
            let full = others.filter(|(_, entry)| entry.bytes > 0 && entry.loading_bytes == 0);
            let Some(oldest) = full.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| *id) else {
                break;
            };
            evicted.extend(self.remove(oldest));
            metrics::counter!(metric_names::FACE_INDEX_EVICTIONS).increment(1);
        }
        evicted
    }

    /// Takes an album out; its faces are in memory until nobody looks at them.
    pub(crate) fn remove(&mut self, album: AlbumId) -> Option<ResidentAlbum> {
        let entry = self.entries.remove(&album)?;
        self.pending_evictions.retain(|alive| alive.strong_count() > 0);
        self.pending_evictions.push(Weak::clone(&entry.residency));
        Some(entry)
    }

    /// Whether faces that were taken out are still in memory.
    pub(crate) fn has_pending_evictions(&mut self) -> bool {
        self.pending_evictions.retain(|alive| alive.strong_count() > 0);
        !self.pending_evictions.is_empty()
    }

    /// Says what is held.
    pub(crate) fn record_metrics(&self) {
        metrics::gauge!(metric_names::FACE_INDEX_BYTES).set(self.bytes() as f64);
    }
}
