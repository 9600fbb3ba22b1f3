//! The face index: a cache of albums in memory that follows the database by change number.
//!
//! Each search reads the album's last change and has the album brought up to date if it is behind, so that a photo is
//! found from the moment its results are committed, by whichever process. All searches of an album await the same
//! update. A change number that went back, or that stands for a different change than before, means that the database
//! lost its last commits: the album is reloaded. Contains no SQL: [`FaceSource`] reads, and [`AlbumLoader`] decides
//! when.
//!
//! [`FaceCache::refresh`], called periodically, brings up to date what no search asks for: faces that another process
//! has deleted leave the memory of this one too.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use async_trait::async_trait;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use photofinish_kernels::quantised::Scanner;
use tokio::sync::OwnedRwLockReadGuard;

use super::loader::{AlbumLoader, Reload};
use super::matrix::shortlist::ShortlistedFace;
use super::ranking::Ranker;
use super::residency::{AlbumFaces, CacheSlot, ResidentAlbums, update_entry};
use super::source::{Change, FaceSource};
use crate::error::StoreError;
use crate::model::ids::{AlbumId, FaceId, PhotoId};
use crate::model::photo::Embedding;
use crate::traits::{FaceHit, FaceIndex, FaceQuery, Result};

/// An album of at most this many faces is searched on the calling thread: a fifth of a millisecond
/// (`cargo xtask bench search`), and nothing is gained by sharing that.
const INLINE_SCORING_FACES: usize = 10_000;

/// How often a search begins again when faces that it found have changed before it read their vectors. Each time it first
/// catches up with what changed; only a deletion in the milliseconds in between makes another one necessary.
const MAX_ATTEMPTS: usize = 4;

/// The albums in memory.
pub(crate) struct FaceCache {
    loader: Arc<AlbumLoader>,
    scanner: Scanner,
    scorer: Cosine,
}

impl FaceCache {
    /// Creates an empty cache of `limit_bytes`. An album larger than the limit is kept alone.
    pub(crate) fn new(source: Arc<dyn FaceSource>, limit_bytes: usize) -> Self {
        Self {
            loader: Arc::new(AlbumLoader::new(source, limit_bytes)),
            scanner: Scanner::new(&Device::Cpu),
            scorer: Cosine::new(&Device::Cpu),
        }
    }

    /// Ends what is being read; searches that wait for it fail.
    pub(crate) fn close(&self) {
        self.loader.close();
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
            update_entry(&self.loader.albums, &slot, |entry| entry.bytes = bytes);
        }
    }

    /// Brings every album in memory up to the database, with one query for those that have not changed. Albums that were
    /// deleted, or changed so much that they must be reloaded, leave memory, and so do entries without faces that were
    /// not searched since the last call.
    ///
    /// # Errors
    /// The first error, after all albums were tried.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let resident = self.lock_albums().start_refresh();
        if resident.is_empty() {
            return Ok(());
        }
        let ids: Vec<AlbumId> = resident.iter().map(|slot| slot.album).collect();
        let changes: HashMap<AlbumId, Change> =
            self.loader.source.last_changes(&ids).await?.into_iter().collect();
        let mut outcome = Ok(());
        for slot in resident {
            let Some(newest) = changes.get(&slot.album) else {
                self.forget_album(slot.album);
                continue;
            };
            // While an album is being read, what is deleted meanwhile may still get into memory: the next call sees it.
            let seen = slot.faces.try_read().ok().and_then(|faces| faces.change);
            if seen.is_some_and(|seen| seen != *newest) {
                let updated = self.loader.update(&slot, Reload::WhenSearched).wait().await;
                outcome = outcome.and(updated);
            }
        }
        outcome
    }

    /// Returns the faces of an album as of the last commit before this call; `None` if it has had none so far.
    async fn current_faces(&self, album: AlbumId) -> Result<Option<OwnedRwLockReadGuard<AlbumFaces>>> {
        let Some(newest) = self.loader.source.last_change(album).await? else {
            self.forget_album(album);
            return Err(StoreError::not_found(format!("album {album}")));
        };
        if newest.number == 0 {
            // Nothing was ever read in it: it needs no entry, and no turn to be loaded.
            self.forget_album(album);
            return Ok(None);
        }
        let asked_at = Instant::now();
        loop {
            let slot = self.lock_albums().touch(album);
            if let Some(faces) = self.faces_after(&slot, newest, asked_at).await? {
                return Ok(Some(faces));
            }
            // The album was evicted before it could be read: what is loaded must be counted, so it needs a new entry.
        }
    }

    /// Returns the faces of a slot once they include everything that was committed before `asked_at`, when the last
    /// change was `newest`; `None` if they were dropped meanwhile.
    async fn faces_after(
        &self,
        slot: &CacheSlot,
        newest: Change,
        asked_at: Instant,
    ) -> Result<Option<OwnedRwLockReadGuard<AlbumFaces>>> {
        let mut is_current = false;
        loop {
            // An update holds the lock: its outcome is awaited instead, so that it knows how many searches wait.
            if is_current || !slot.updates.is_running() {
                let faces = slot.read_faces().await;
                match faces.change {
                    // Possibly later than `newest`, because the update began later.
                    Some(seen) if is_current || seen == newest => return Ok(Some(faces)),
                    None if is_current => return Ok(None),
                    _ => {}
                }
            }
            let update = self.loader.update(slot, Reload::Now);
            is_current = update.began_after(asked_at);
            update.wait().await?;
        }
    }

    /// Returns the faces that may be answers to each of the queries.
    async fn shortlist(
        &self,
        faces: OwnedRwLockReadGuard<AlbumFaces>,
        queries: &[FaceQuery],
    ) -> Result<Vec<Vec<ShortlistedFace>>> {
        if faces.matrix.len() <= INLINE_SCORING_FACES {
            return Ok(faces.matrix.shortlist(self.scanner, &queries.iter().collect::<Vec<_>>(), 1));
        }
        let passes = Arc::clone(&faces.passes);
        passes.shortlist(self.scanner, faces, queries.to_vec()).await
    }

    /// Returns the number of an album's faces in memory; `None` without an entry.
    #[cfg(test)]
    pub(crate) async fn count_resident_faces(&self, album: AlbumId) -> Option<usize> {
        let slot = self.lock_albums().entries.get(&album)?.slot.clone();
        let count = slot.read_faces().await.matrix.len();
        Some(count)
    }

    fn lock_albums(&self) -> MutexGuard<'_, ResidentAlbums> {
        self.loader.lock_albums()
    }
}

#[async_trait]
impl FaceIndex for FaceCache {
    async fn search(&self, album: AlbumId, queries: Vec<FaceQuery>) -> Result<Vec<Vec<FaceHit>>> {
        let source = &*self.loader.source;
        let ranker = Ranker { source, album, scorer: self.scorer };
        let mut attempt = 1;
        loop {
            let Some(faces) = self.current_faces(album).await? else {
                return Ok(vec![Vec::new(); queries.len()]);
            };
            // From here on the faces may change: reading from the database holds up no update of the album.
            let shortlists = self.shortlist(faces, &queries).await?;
            let (mut hits, mut is_current) = (Vec::with_capacity(queries.len()), true);
            for (query, shortlist) in queries.iter().zip(shortlists) {
                let ranking = ranker.rank(query, shortlist).await?;
                hits.push(ranking.hits);
                is_current &= ranking.is_current;
            }
            if is_current || attempt == MAX_ATTEMPTS {
                return Ok(hits);
            }
            attempt += 1;
        }
    }

    async fn read_embeddings(&self, album: AlbumId, faces: &[FaceId]) -> Result<Vec<(FaceId, Embedding)>> {
        if self.loader.source.last_change(album).await?.is_none() {
            return Err(StoreError::not_found(format!("album {album}")));
        }
        self.loader.source.read_embeddings(album, faces).await
    }

    async fn score_faces(
        &self,
        album: AlbumId,
        probe: &Embedding,
        faces: &[FaceId],
    ) -> Result<Vec<Option<f32>>> {
        let embeddings = self.read_embeddings(album, faces).await?;
        let is_comparable =
            |found: &Embedding| found.model == probe.model && found.vector.len() == probe.vector.len();
        let scores: HashMap<FaceId, f32> = embeddings
            .into_iter()
            .filter(|(_, found)| is_comparable(found))
            .map(|(face, found)| (face, self.scorer.score(&probe.vector, &found.vector).clamp(-1.0, 1.0)))
            .collect();
        Ok(faces.iter().map(|face| scores.get(face).copied()).collect())
    }
}

#[cfg(test)]
mod tests;
