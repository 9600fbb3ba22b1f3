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

mod person_search;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use photofinish_kernels::cosine::Cosine;
use photofinish_kernels::device::Device;
use photofinish_kernels::quantised::Scanner;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::timeout;

use self::person_search::PersonSearch;
use super::gpu::GpuAlbums;
use super::loader::{AlbumLoader, Reload};
use super::matrix::pass::Pass;
use super::matrix::shortlist::ShortlistedFace;
use super::passes::{PassDevices, Progress, Shortlists};
use super::ranking::Ranker;
use super::residency::{AlbumFaces, CacheSlot, ResidentAlbums, update_entry};
use super::source::{Change, FaceSource};
use crate::error::StoreError;
use crate::model::cost::{FACE_SEARCH_STAGE, SearchCosts, Spent, thread_cpu_time};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::Embedding;
use crate::search::scoring::{FaceQuery, HitsPer, ScoreRule, ScoredFace};
use crate::search::selfie::{self, SelfieSearch};
use crate::traits::{FaceHit, FaceIndex, Result, SelfieHit, SelfieQuery};
use crate::turns::{OrganizationTurns, Turn, current_organization};

/// An album of at most this many faces is searched on the calling thread: a fifth of a millisecond
/// (`cargo xtask bench search`), and nothing is gained by sharing that. Few in tests.
const INLINE_SCORING_FACES: usize = if cfg!(test) { 512 } else { 10_000 };

/// How long a deletion or an erasure waits until faces have left memory. Short in tests.
const REMOVAL_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 250 });

/// How often a search begins again when faces that it found have changed before it read their vectors. Each time it first
/// catches up with what changed; only a deletion in the milliseconds in between makes another one necessary.
const MAX_ATTEMPTS: usize = 4;

/// How many small albums are searched at once, one on each core. More would take as long together and be answered later: where
/// more searches come than can be made, each gets so little of the cores that its client has left before it ends.
fn count_inline_places() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// The faces of an album, and the turn in which they are searched if they are few.
struct FacesInTurn {
    faces: OwnedRwLockReadGuard<AlbumFaces>,
    _turn: Option<Turn>,
}

/// The albums in memory.
pub(crate) struct FaceCache {
    loader: Arc<AlbumLoader>,
    scanner: Scanner,
    scorer: Cosine,
    /// Where hot albums are too.
    gpu: OnceLock<Arc<GpuAlbums>>,
    /// For searches of small albums, which are made on the calling threads and wait for the database in between: so each
    /// organization has turns of its own, and none waits for what another waits for.
    inline_turns: OrganizationTurns,
    /// To whom searches are charged.
    costs: Arc<SearchCosts>,
}

impl FaceCache {
    /// Creates an empty cache of `limit_bytes`. An album larger than the limit is kept alone.
    pub(crate) fn new(source: Arc<dyn FaceSource>, limit_bytes: usize) -> Self {
        Self {
            loader: Arc::new(AlbumLoader::new(source, limit_bytes)),
            scanner: Scanner::new(&Device::Cpu),
            scorer: Cosine::new(&Device::Cpu),
            gpu: OnceLock::new(),
            inline_turns: OrganizationTurns::for_impatient(count_inline_places()),
            costs: Arc::default(),
        }
    }

    /// Charges searches to these costs.
    pub(crate) fn charging(mut self, costs: Arc<SearchCosts>) -> Self {
        self.costs = costs;
        self
    }

    /// Searches hot albums on a GPU from now on; only the first call counts.
    pub(crate) fn search_on(&self, gpu: GpuAlbums) {
        self.gpu.get_or_init(|| Arc::new(gpu));
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

    /// Removes the faces of a deleted photo from memory now, not at the next search. While the album is being read, which may
    /// take seconds, they go when it has been read: the deletion does not wait for that, and until then no search finds the
    /// photo, because its vectors are no longer in the database.
    pub(crate) async fn forget_photo(&self, album: AlbumId, photo: PhotoId) {
        let slot = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
        let Some(slot) = slot else { return };
        let albums = Arc::clone(&self.loader.albums);
        let removal = tokio::spawn(async move {
            // A catch-up keeps this lock from its read to its update, so none can bring the photo back.
            let mut faces = slot.faces.write().await;
            faces.matrix.remove(&[photo]);
            let bytes = faces.matrix.bytes();
            update_entry(&albums, &slot, |entry| entry.bytes = bytes);
        });
        // It goes on when this stops waiting for it.
        if let Ok(Err(error)) = timeout(REMOVAL_PATIENCE, removal).await {
            tracing::error!(album.id = %album, %error, "failed to remove a deleted photo from memory");
        }
    }

    /// Brings the faces of an album in memory up to the database now, not at the next search: after an erasure, whose photos may
    /// still show others. Only an update can remove some faces of a photo: it knows as of which change they are, and whoever
    /// removed all after it would remove those who stay for good. Like [`Self::forget_photo`] this does not wait for an album
    /// that is being read.
    pub(crate) async fn update_album(&self, album: AlbumId) {
        let slot = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
        let Some(slot) = slot else { return };
        let asked_at = Instant::now();
        let update = async {
            loop {
                let update = self.loader.update(&slot, Reload::WhenSearched);
                let is_current = update.began_after(asked_at);
                update.wait().await?;
                if is_current {
                    return Ok::<_, StoreError>(());
                }
            }
        };
        // What has begun goes on when this stops waiting for it; else the next search or refresh does it.
        if let Ok(Err(error)) = timeout(REMOVAL_PATIENCE, update).await {
            let error = error.to_string_with_causes();
            tracing::warn!(album.id = %album, error, "failed to remove erased faces from memory, the next search does it");
        }
    }

    /// Brings every album in memory up to the database, with one query for those that have not changed. Albums that were
    /// deleted, or changed so much that they must be reloaded, leave memory, and so do entries without faces that were
    /// not searched since the last call. `now` is what the database's clock said before this call, microseconds. Returns as of
    /// when all albums are, `now` or earlier: nothing that was deleted before is answered any more, because each album
    /// has reached that time ([`CacheSlot::reach`]), and what is loaded later is read later. A load that has begun counts as of
    /// its beginning, one that waits for its turn not at all: loads that follow one another hold up no receipt for long.
    ///
    /// # Errors
    /// The first error, after all albums were tried.
    pub(crate) async fn refresh(&self, now: i64) -> Result<i64> {
        self.loader.note_time(now);
        let resident = self.lock_albums().start_refresh();
        if resident.is_empty() {
            return Ok(now);
        }
        let ids: Vec<AlbumId> = resident.iter().map(|slot| slot.album).collect();
        let changes: HashMap<AlbumId, Change> =
            self.loader.source.last_changes(&ids).await?.into_iter().collect();
        let mut outcome = Ok(now);
        for slot in resident {
            let Some(newest) = changes.get(&slot.album) else {
                self.forget_album(slot.album);
                continue;
            };
            let refreshed = self.refresh_album(&slot, *newest, now).await;
            outcome = outcome.and_then(|as_of| refreshed.map(|reached| as_of.min(reached)));
        }
        if let Some(gpu) = self.gpu.get() {
            gpu.record_metrics();
        }
        outcome
    }

    /// Brings an album up to its last change, which was read after `now`; returns as of when it is. Does not wait while it is
    /// being read: what is deleted meanwhile may still get into memory.
    async fn refresh_album(&self, slot: &CacheSlot, newest: Change, now: i64) -> Result<i64> {
        let Ok(seen) = slot.faces.try_read().map(|faces| faces.change) else { return Ok(slot.as_of()) };
        if seen.is_some_and(|seen| seen != newest) {
            self.loader.update(slot, Reload::WhenSearched).wait().await?;
        } else {
            // It has the last change, or nothing yet.
            slot.reach(now);
        }
        Ok(slot.as_of())
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
            let running = if is_current { None } else { slot.updates.join() };
            let update = match running {
                Some(update) => update,
                None => {
                    let faces = slot.read_faces().await;
                    match faces.change {
                        // Possibly later than `newest`, because the update began later.
                        Some(seen) if is_current || seen == newest => return Ok(Some(faces)),
                        None if is_current => return Ok(None),
                        _ => {}
                    }
                    drop(faces);
                    self.loader.update(slot, Reload::Now)
                }
            };
            is_current = update.began_after(asked_at);
            update.wait().await?;
        }
    }

    /// Returns the faces of an album as [`Self::current_faces`] does, for a search; if it is small, with the turn in which it is
    /// searched.
    async fn faces_to_search(&self, album: AlbumId) -> Result<Option<FacesInTurn>> {
        loop {
            let Some(faces) = self.current_faces(album).await? else { return Ok(None) };
            if faces.matrix.len() > INLINE_SCORING_FACES {
                return Ok(Some(FacesInTurn { faces, _turn: None }));
            }
            // Whoever waits holds up no update of the album. What it made meanwhile counts too.
            drop(faces);
            let turn = self.inline_turns.take(current_organization()).await;
            let slot = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
            let Some(slot) = slot else { continue };
            // An update may be reading the album, which takes long: the turn is for those who can go on.
            let Ok(faces) = Arc::clone(&slot.faces).try_read_owned() else { continue };
            if faces.change.is_some() {
                return Ok(Some(FacesInTurn { faces, _turn: Some(turn) }));
            }
        }
    }

    /// Returns the faces that may be answers to each of the queries, and charges the album for finding them.
    async fn shortlist(
        &self,
        album: AlbumId,
        faces: OwnedRwLockReadGuard<AlbumFaces>,
        queries: &[FaceQuery],
        progress: Progress,
    ) -> Result<Vec<Vec<ShortlistedFace>>> {
        let (mut faces, mut progress) = (faces, progress);
        let found = loop {
            if faces.matrix.len() <= INLINE_SCORING_FACES {
                let before = thread_cpu_time();
                let pass = Pass { scanner: self.scanner, threads: 1, gpu: None };
                let found = faces.matrix.shortlist(&pass, &queries.iter().collect::<Vec<_>>());
                break Shortlists { found, cpu: thread_cpu_time().saturating_sub(before) };
            }
            let (passes, lock) =
                (Arc::clone(&faces.passes), Arc::clone(OwnedRwLockReadGuard::rwlock(&faces)));
            // An update may change the faces while this waits for a pass: each pass sees all of them as of one change.
            drop(faces);
            let devices = PassDevices { scanner: self.scanner, gpu: self.gpu.get().cloned() };
            if let Some(found) = passes.shortlist(devices, lock, queries.to_vec(), progress).await? {
                break found;
            }
            // They were dropped meanwhile, because so much has changed that they must be read again.
            let Some(current) = self.current_faces(album).await? else {
                return Ok(vec![Vec::new(); queries.len()]);
            };
            (faces, progress) = (current, Progress::Continued);
        };
        self.costs.add(album, FACE_SEARCH_STAGE, Spent { cpu: found.cpu, ..Spent::default() });
        Ok(found.found)
    }

    fn ranker(&self, album: AlbumId) -> Ranker<'_> {
        Ranker::new(&*self.loader.source, album, self.scorer)
    }

    /// Returns the faces of an album as they are in memory, brought up to date only if they are not there.
    async fn faces_in_memory(&self, album: AlbumId) -> Result<Option<OwnedRwLockReadGuard<AlbumFaces>>> {
        let slot = self.lock_albums().entries.get(&album).map(|entry| entry.slot.clone());
        if let Some(slot) = slot {
            let faces = slot.read_faces().await;
            if faces.change.is_some() {
                return Ok(Some(faces));
            }
        }
        self.current_faces(album).await
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
    async fn nearest(
        &self,
        album: AlbumId,
        probe: &Embedding,
        k: usize,
        at_least: f32,
    ) -> Result<Vec<FaceHit>> {
        self.costs.count(album, FACE_SEARCH_STAGE);
        let scores = f64::from(at_least)..f64::INFINITY;
        let query =
            FaceQuery { probe: probe.clone(), k, per: HitsPer::Photo, scores, rule: ScoreRule::default() };
        let mut attempt = 1;
        loop {
            let Some(FacesInTurn { faces, _turn }) = self.faces_to_search(album).await? else {
                return Ok(Vec::new());
            };
            // From here on the faces may change: reading from the database holds up no update of the album.
            let progress = Progress::of_attempt(attempt);
            let shortlist = self.shortlist(album, faces, std::slice::from_ref(&query), progress).await?.pop();
            let mut ranker = self.ranker(album);
            let hits = ranker.rank(&query, shortlist.unwrap_or_default()).await?;
            if ranker.is_current() || attempt == MAX_ATTEMPTS {
                let to_hit = |face: ScoredFace| FaceHit {
                    photo: face.photo,
                    cosine: face.cosine.clamp(-1.0, 1.0),
                    bounding_box: face.bounding_box,
                };
                return Ok(hits.into_iter().map(to_hit).collect());
            }
            attempt += 1;
        }
    }

    async fn find_person(&self, album: AlbumId, query: SelfieQuery) -> Result<Vec<SelfieHit>> {
        self.costs.count(album, FACE_SEARCH_STAGE);
        let SelfieQuery { probe, scale, min_score, limit } = &query;
        let search = SelfieSearch { probe, scale: *scale, min_score: *min_score, limit: *limit };
        let mut attempt = 1;
        loop {
            let Some(FacesInTurn { faces, _turn }) = self.faces_to_search(album).await? else {
                return Ok(Vec::new());
            };
            let person = PersonSearch::new(self, album, faces, probe, Progress::of_attempt(attempt));
            let hits = selfie::find_photos(&person, &search).await?;
            if person.is_current().await || attempt == MAX_ATTEMPTS {
                return Ok(hits);
            }
            attempt += 1;
        }
    }
}

#[cfg(test)]
mod tests;
