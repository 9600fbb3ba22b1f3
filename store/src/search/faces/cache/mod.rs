//! The face index: a cache of albums in memory that follows the database by change number.
//!
//! Each search reads the album's last change and catches up if it is behind, so that a photo is found from the moment
//! its results are committed, by whichever process. One search of an album loads it or catches up at a time; the others
//! wait for it. A change number that went back, or that stands for a different change than before, means that the
//! database lost its last commits: the album is reloaded. Contains no SQL: [`FaceSource`] reads.
//!
//! The size of an album is known only while it is read. Therefore albums are loaded one after the other, others are
//! evicted as one grows, and the previous faces of an album are dropped before it is reloaded.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use async_trait::async_trait;
use futures_util::task::AtomicWaker;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use tokio::sync::OwnedRwLockReadGuard;

use super::matrix::{FaceMatrix, FaceQuery};
use super::residency::{
    AlbumFaces, CacheSlot, MemoryReservation, ResidencyGuard, ResidentAlbums, lock, update_entry,
};
use super::source::{Change, FaceSource};
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::Embedding;
use crate::traits::{FaceHit, FaceIndex, Result};

/// An album of at most this many faces is scored on the calling thread: a quarter of a millisecond, given the 12 ms
/// measured for 100,000 vectors of 256 (`cargo xtask bench store`).
const INLINE_SCORING_FACES: usize = 2_000;

/// Changes of at most this many faces are applied on the calling thread: what a worker finishes at once, 2 MB of
/// vectors of 256.
const INLINE_UPDATE_FACES: usize = 2_000;

/// A catch-up reads at most this many bytes, or this fraction of the album if that is more: the changed faces are in
/// memory beside those that they replace until all are read. An album with more changes is reloaded.
const CATCH_UP_BYTES: usize = 16 << 20;
const CATCH_UP_FRACTION: usize = 8;

/// The albums in memory.
pub(crate) struct FaceCache {
    source: Arc<dyn FaceSource>,
    scorer: Cosine,
    albums: Arc<Mutex<ResidentAlbums>>,
    /// Locked by the running load. Fair: the load that has waited longest is next.
    load_turn: tokio::sync::Mutex<()>,
    /// Wakes the running load when the faces of an album have left memory.
    memory_freed: Arc<AtomicWaker>,
}

impl FaceCache {
    /// Creates an empty cache of `limit_bytes`. An album larger than the limit is kept alone.
    pub(crate) fn new(source: Arc<dyn FaceSource>, limit_bytes: usize) -> Self {
        Self {
            source,
            scorer: Cosine::new(&Device::Cpu),
            albums: Arc::new(Mutex::new(ResidentAlbums::new(limit_bytes))),
            load_turn: tokio::sync::Mutex::default(),
            memory_freed: Arc::default(),
        }
    }

    /// Removes an album from memory.
    pub(crate) fn forget_album(&self, album: AlbumId) {
        let mut albums = self.lock_albums();
        let forgotten = albums.remove(album);
        albums.record_metrics();
        drop(albums);
        drop(forgotten);
    }

    /// Removes the faces of a deleted photo from memory now, not at the next search.
    pub(crate) async fn forget_photo(&self, album: AlbumId, photo: PhotoId) {
        let slot = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
        if let Some(slot) = slot {
            // A catch-up keeps this lock from its read to its update, so none can bring the photo back.
            let mut faces = slot.faces.write().await;
            faces.matrix.remove(&[photo]);
            let bytes = faces.matrix.bytes();
            update_entry(&self.albums, &slot, |entry| entry.bytes = bytes);
        }
    }

    /// Returns the faces of an album as of the last commit before this call.
    async fn current_faces(&self, album: AlbumId) -> Result<OwnedRwLockReadGuard<AlbumFaces>> {
        let Some(newest) = self.source.last_change(album).await? else {
            self.forget_album(album);
            return Err(StoreError::not_found(format!("album {album}")));
        };
        let mut slot = self.lock_albums().touch(album);
        let mut faces = slot.read_faces().await;
        if faces.change != Some(newest) {
            drop(faces);
            self.catch_up(&slot, newest).await?;
            faces = slot.read_faces().await;
        }
        // Once, or again if another search has found meanwhile that the album must be reloaded.
        while faces.change.is_none() {
            drop(faces);
            // The slot may have been evicted meanwhile: what is loaded must be counted.
            slot = self.lock_albums().touch(album);
            self.load(&slot).await?;
            faces = slot.read_faces().await;
        }
        Ok(faces)
    }

    /// Brings the faces of an album up to `newest`, or drops them if they must be reloaded.
    async fn catch_up(&self, slot: &CacheSlot, newest: Change) -> Result<()> {
        let mut faces = Arc::clone(&slot.faces).write_owned().await;
        let changes = match faces.change {
            None => return Ok(()),
            Some(seen) if seen == newest => return Ok(()),
            // Everything is read before anything is changed: a caller that is dropped meanwhile changes nothing. If
            // `seen` is later than `newest`, because another search has caught up meanwhile, the read returns no changes.
            Some(seen) => {
                let max_bytes = CATCH_UP_BYTES.max(faces.matrix.bytes() / CATCH_UP_FRACTION);
                let memory = self.reserve_memory(slot, max_bytes);
                match self.source.changes_since(slot.album, seen, &memory).await {
                    Err(error) if error.kind == StoreErrorKind::TooLarge => None,
                    read => read?,
                }
            }
        };
        let Some(changes) = changes else {
            // Dropped before the reload, so that both are never in memory at once.
            *faces = AlbumFaces::default();
            update_entry(&self.albums, slot, |entry| entry.bytes = 0);
            return Ok(());
        };
        let is_small = changes.faces.len().max(changes.photos.len()) <= INLINE_UPDATE_FACES;
        let (albums, slot) = (Arc::clone(&self.albums), slot.clone());
        let apply_changes = move || -> Result<()> {
            faces.matrix.replace(&changes.photos, changes.faces)?;
            faces.change = Some(changes.up_to);
            let bytes = faces.matrix.bytes();
            update_entry(&albums, &slot, |entry| entry.bytes = bytes);
            Ok(())
        };
        if is_small { apply_changes() } else { offload("apply changed faces", apply_changes).await? }
    }

    /// Loads an album that is not in memory, when its turn has come.
    async fn load(&self, slot: &CacheSlot) -> Result<()> {
        let _only_loader = slot.loading.lock().await;
        if slot.read_faces().await.change.is_some() {
            // Another search has loaded it since this one checked, including everything that this one must see.
            return Ok(());
        }
        let _turn = self.load_turn.lock().await;
        let mut faces = slot.faces.write().await;
        let memory = self.reserve_memory(slot, usize::MAX);
        let loading = self.source.load_faces(slot.album, &memory);
        let (change, matrix): (Change, FaceMatrix) = self.run_when_memory_is_free(loading).await?;
        // Before the entry is updated: the matrix is not counted twice.
        drop(memory);
        let bytes = matrix.bytes();
        let residency = Arc::new(ResidencyGuard(Arc::clone(&self.memory_freed)));
        let weak = Arc::downgrade(&residency);
        *faces = AlbumFaces { change: Some(change), matrix, _residency: Some(residency) };
        metrics::counter!(metric_names::FACE_INDEX_LOADS).increment(1);
        update_entry(&self.albums, slot, |entry| (entry.bytes, entry.residency) = (bytes, weak));
        Ok(())
    }

    /// Counts the faces of this album that are read while the reservation exists.
    fn reserve_memory(&self, slot: &CacheSlot, max_bytes: usize) -> MemoryReservation {
        MemoryReservation { albums: Arc::clone(&self.albums), slot: slot.clone(), max_bytes }
    }

    /// Runs `loading`, and suspends it while searches still use evicted faces. These searches need no turn, so they
    /// end.
    async fn run_when_memory_is_free<T>(&self, loading: impl Future<Output = T>) -> T {
        let mut loading = pin!(loading);
        poll_fn(|context| {
            // Registered before the check: faces that are freed afterwards wake this task.
            self.memory_freed.register(context.waker());
            if self.lock_albums().has_pending_evictions() {
                return Poll::Pending;
            }
            loading.as_mut().poll(context)
        })
        .await
    }

    fn lock_albums(&self) -> MutexGuard<'_, ResidentAlbums> {
        lock(&self.albums)
    }
}

/// Runs work that would block the runtime's thread for too long; `operation` names it in errors.
async fn offload<T: Send + 'static>(operation: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| StoreError::new(StoreErrorKind::Unavailable, operation).with_source(cause))
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
        let query = FaceQuery { probe: probe.clone(), k, min_cosine: at_least };
        if faces.matrix.len() <= INLINE_SCORING_FACES {
            return Ok(faces.matrix.nearest(&self.scorer, &query));
        }
        let scorer = self.scorer;
        offload("score faces", move || faces.matrix.nearest(&scorer, &query)).await
    }
}

#[cfg(test)]
mod tests;
