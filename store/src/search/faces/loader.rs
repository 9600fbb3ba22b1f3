//! Brings the faces of albums up to date: reads what changed, or the whole album. Runs as a task per album that no
//! request owns: a search whose client has gone leaves the faces to the next one.
//!
//! The size of an album is known only while it is read. Therefore albums are loaded one after the other, the organizations
//! in turn, others are evicted as one grows, and the previous faces of an album are dropped before it is reloaded.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Instant;

use futures_util::task::AtomicWaker;
use tokio::sync::watch;

use super::matrix::FaceMatrix;
use super::residency::{
    AlbumFaces, CacheSlot, MemoryReservation, ResidencyGuard, ResidentAlbums, lock, update_entry,
};
use super::source::{Change, FaceSource};
use super::updates::{PendingUpdate, UpdateTicket};
use crate::error::{StoreError, StoreErrorKind};
use crate::metric_names;
use crate::model::ids::AlbumId;
use crate::traits::Result;
use crate::turns::{Turn, Turns, spawn_on_same_behalf};

/// Changes of at most this many faces are applied on the calling thread: what a worker finishes at once, half a megabyte of
/// vectors of 256.
const INLINE_UPDATE_FACES: usize = 2_000;

/// A catch-up reads at most this many bytes, or this fraction of the album if that is more: the changed faces are in
/// memory beside those that they replace until all are read. An album with more changes is reloaded.
pub(super) const CATCH_UP_BYTES: usize = 16 << 20;
const CATCH_UP_FRACTION: usize = 8;

/// What an update does with an album that must be read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// It is read: a search waits for it.
    Now,
    /// It is dropped from memory: the next search reads it.
    WhenSearched,
}

/// Reads albums into memory.
pub(super) struct AlbumLoader {
    pub(super) source: Arc<dyn FaceSource>,
    pub(super) albums: Arc<Mutex<ResidentAlbums>>,
    turns: Turns,
    /// Wakes the running load when the faces of an album have left memory.
    memory_freed: Arc<AtomicWaker>,
    /// The latest time that was read from the database's clock, microseconds: what is read from now on is as of it or later.
    database_time: AtomicI64,
    is_closed: watch::Sender<bool>,
}

impl AlbumLoader {
    pub(super) fn new(source: Arc<dyn FaceSource>, limit_bytes: usize) -> Self {
        Self {
            source,
            albums: Arc::new(Mutex::new(ResidentAlbums::new(limit_bytes))),
            turns: Turns::default(),
            memory_freed: Arc::default(),
            database_time: AtomicI64::new(0),
            is_closed: watch::Sender::new(false),
        }
    }

    /// Notes what the database's clock said.
    pub(super) fn note_time(&self, now: i64) {
        self.database_time.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns a time that has passed, by the database's clock.
    fn passed_time(&self) -> i64 {
        self.database_time.load(Ordering::Relaxed)
    }

    /// Ends all updates, the running ones at their next wait for the database.
    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Starts an update of the album, or returns the one that is running.
    pub(super) fn update(self: &Arc<Self>, slot: &CacheSlot, reload: Reload) -> PendingUpdate {
        slot.updates.join_or_start(|ticket| {
            let (loader, slot) = (Arc::clone(self), slot.clone());
            // An album has one organization, in whose turns its changes are read: those of others do not wait for them.
            spawn_on_same_behalf(async move { loader.run_update(&slot, reload, ticket).await });
        })
    }

    async fn run_update(&self, slot: &CacheSlot, reload: Reload, ticket: UpdateTicket) {
        let mut closed = self.is_closed.subscribe();
        let outcome = tokio::select! {
            outcome = self.catch_up_or_load(slot, reload, &ticket) => outcome,
            // Fails only when the sender is dropped, and `self` owns it.
            _ = closed.wait_for(|is_closed| *is_closed) => Err(unavailable("the face index is closed")),
        };
        let error = outcome.as_ref().err().map(StoreError::to_string_with_causes);
        let is_awaited = ticket.finish(outcome);
        if let Some(error) = error.filter(|_| !is_awaited) {
            // Otherwise the search that gets the error reports it.
            tracing::warn!(album.id = %slot.album, error, "failed to read faces, the next search tries again");
        }
    }

    async fn catch_up_or_load(&self, slot: &CacheSlot, reload: Reload, ticket: &UpdateTicket) -> Result<()> {
        if self.catch_up(slot).await? {
            return Ok(());
        }
        if reload == Reload::WhenSearched {
            self.forget(slot);
            return Ok(());
        }
        self.load(slot, ticket).await
    }

    /// Brings the faces of an album up to the database. If they must be reloaded, drops them and returns false.
    async fn catch_up(&self, slot: &CacheSlot) -> Result<bool> {
        let mut faces = Arc::clone(&slot.faces).write_owned().await;
        let Some(seen) = faces.change else { return Ok(false) };
        // Before the snapshot begins.
        let begun_at = self.passed_time();
        let changes = {
            // Everything is read before anything is changed: a failure changes nothing.
            let max_bytes = CATCH_UP_BYTES.max(faces.matrix.bytes() / CATCH_UP_FRACTION);
            let memory = self.reserve_memory(slot, max_bytes);
            match self.source.changes_since(slot.album, seen, &memory).await {
                Err(error) if error.kind == StoreErrorKind::TooLarge => None,
                read => read?,
            }
        };
        let Some(changes) = changes else {
            // Dropped before the reload, so that both are never in memory at once.
            faces.clear();
            slot.reach(begun_at);
            update_entry(&self.albums, slot, |entry| entry.bytes = 0);
            return Ok(false);
        };
        let is_small = changes.faces.len().max(changes.photos.len()) <= INLINE_UPDATE_FACES;
        let (albums, slot) = (Arc::clone(&self.albums), slot.clone());
        let apply_changes = move || -> Result<()> {
            faces.matrix.replace(&changes.photos, changes.faces)?;
            faces.change = Some(changes.up_to);
            slot.reach(begun_at);
            let bytes = faces.matrix.bytes();
            update_entry(&albums, &slot, |entry| entry.bytes = bytes);
            Ok(())
        };
        let applied =
            if is_small { apply_changes() } else { offload("apply changed faces", apply_changes).await? };
        applied.map(|()| true)
    }

    /// Loads an album that is not in memory, when its turn has come. While it waits, it is given up once no search
    /// awaits it; from then on it is read to the end.
    async fn load(&self, slot: &CacheSlot, ticket: &UpdateTicket) -> Result<()> {
        let Some(_turn) = self.wait_for_turn(slot.album, ticket).await? else { return Ok(()) };
        if !self.lock_albums().contains(slot) {
            // Its faces would not be counted: the search that awaits this makes a new entry.
            return Ok(());
        }
        let mut faces = slot.faces.write().await;
        let begun = Instant::now();
        // Nothing is in memory, and the snapshot begins after this.
        slot.reach(self.passed_time());
        let memory = self.reserve_memory(slot, usize::MAX);
        let loading = self.source.load_faces(slot.album, &memory);
        let (change, matrix): (Change, FaceMatrix) = self.run_when_memory_is_free(loading).await?;
        // Before the entry is updated: the matrix is not counted twice.
        drop(memory);
        let bytes = matrix.bytes();
        let residency = Arc::new(ResidencyGuard(Arc::clone(&self.memory_freed)));
        let weak = Arc::downgrade(&residency);
        let (change, passes) = (Some(change), Arc::clone(&faces.passes));
        *faces = AlbumFaces { change, matrix, passes, _residency: Some(residency), ..AlbumFaces::default() };
        metrics::histogram!(metric_names::FACE_INDEX_LOAD_SECONDS).record(begun.elapsed().as_secs_f64());
        update_entry(&self.albums, slot, |entry| (entry.bytes, entry.residency) = (bytes, weak));
        Ok(())
    }

    async fn wait_for_turn(&self, album: AlbumId, ticket: &UpdateTicket) -> Result<Option<Turn>> {
        let owner = self.source.owner(album).await?;
        let owner = owner.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
        Ok(tokio::select! {
            biased;
            turn = self.turns.take(Some(owner)) => Some(turn),
            () = ticket.wait_until_abandoned() => None,
        })
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

    /// Removes the entry of an album from memory, unless it has been replaced.
    fn forget(&self, slot: &CacheSlot) {
        let mut albums = self.lock_albums();
        let forgotten = if albums.contains(slot) { albums.remove(slot.album) } else { None };
        albums.record_metrics();
        drop(albums);
        drop(forgotten);
    }

    pub(super) fn lock_albums(&self) -> MutexGuard<'_, ResidentAlbums> {
        lock(&self.albums)
    }
}

/// Runs work that would block the runtime's thread for too long; `operation` names it in errors.
async fn offload<T: Send + 'static>(operation: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| unavailable(operation).with_source(cause))
}

fn unavailable(context: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, context)
}
