//! Garbage collection of the storage: finds objects that are no longer needed and removes them.
//!
//! A deletion removes both the objects and the database rows, but an upload with a presigned URL can create an object
//! again afterwards, and a process can die in between. Therefore the whole storage is listed and compared with the
//! database in batches; the largest bucket takes a day at most. An object is removed only if it is
//!
//! - named by an [`ObjectKey`] of an organization in this database, or of one that was erased from it: objects of another
//!   database, or of something else that shares the storage, are never touched,
//! - older than every upload or lease that may still be in progress,
//! - without a row, or a picture of a photo that shows none, both checked immediately before. If the database cannot be
//!   read, the collection ends.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use futures_util::{StreamExt, TryStreamExt};
use time::OffsetDateTime;

use crate::blobs::object_ops::ListedObject;
use crate::blobs::storage::Storage;
use crate::error::StoreErrorKind;
use crate::model::album::Tenant;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::object_key::{ObjectKey, ObjectOwner, ObjectRole};
use crate::model::photo::PhotoState;
use crate::sql::{MIN_IDLE_IN_TRANSACTION, SqlGcQueries};
use crate::traits::{Albums, Blobs, Result};

/// How many objects are compared with the database at once: as many as in a page of an S3 list.
const BATCH_SIZE: usize = 1000;

/// How many deletions of albums may fail in one round: each may wait for a storage that does not respond, and other
/// maintenance waits for it.
const MAX_FAILURES: u32 = 3;

/// How many objects are removed concurrently.
const CONCURRENT_REMOVALS: usize = 16;

/// How many photos are locked while their pictures are removed, and for how long at most: Postgres ends a transaction
/// that is idle for [`MIN_IDLE_IN_TRANSACTION`] or longer, and with it the lock.
const LOCKED_BATCH_SIZE: usize = 16;
const MAX_LOCK_TIME: Duration = Duration::from_millis(2_000);
const _: () = assert!(
    MAX_LOCK_TIME.as_millis() < MIN_IDLE_IN_TRANSACTION.as_millis(),
    "photos are locked for longer than their transaction may be idle"
);

/// How to collect garbage.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// Younger objects are kept. Must be longer than an upload URL is valid and a lease lasts.
    pub min_age: Duration,
    /// Reports what would be removed and removes nothing.
    pub is_dry_run: bool,
}

/// The result of a garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Number of objects in the storage.
    pub listed: u64,
    /// Number of objects removed, or that a dry run would have removed.
    pub removed: u64,
    /// Size of the removed objects in bytes.
    pub removed_bytes: u64,
    /// Number of objects that were kept because their name is not an [`ObjectKey`] or their organization is unknown.
    pub unrecognised: u64,
    /// Number of albums whose interrupted deletion was finished.
    pub finished_albums: u64,
}

/// Where garbage is collected.
pub(crate) struct GarbageCollector<'s> {
    pub(crate) albums: &'s dyn Albums,
    pub(crate) blobs: &'s Arc<dyn Blobs>,
    pub(crate) storage: &'s Storage,
    pub(crate) queries: SqlGcQueries,
}

impl GarbageCollector<'_> {
    /// Removes objects that are no longer needed, and finishes interrupted deletions of albums.
    ///
    /// # Errors
    /// `Unavailable` if database or storage do not respond; what was removed by then was garbage.
    pub(crate) async fn run(&self, options: GcOptions) -> Result<GcReport> {
        let before = OffsetDateTime::now_utc() - options.min_age;
        let mut collection = GarbageCollection {
            collector: self,
            is_dry_run: options.is_dry_run,
            report: GcReport::default(),
        };
        if !options.is_dry_run {
            collection.report.finished_albums = self.finish_deletions(before).await?;
        }
        let organizations = self.queries.list_organizations().await?;
        let mut objects = self.storage.list();
        let mut batch = CandidateBatch::default();
        while let Some(object) = objects.try_next().await? {
            collection.report.listed += 1;
            if !batch.add(object, before, &organizations) {
                collection.report.unrecognised += 1;
            }
            if batch.count == BATCH_SIZE {
                collection.remove_garbage(std::mem::take(&mut batch)).await?;
            }
        }
        collection.remove_garbage(batch).await?;
        Ok(collection.report)
    }

    /// Finishes interrupted deletions of albums that began before `before`; returns how many. A deletion that fails does
    /// not prevent the others.
    ///
    /// # Errors
    /// `Unavailable`: the first error that occurred.
    pub(crate) async fn finish_deletions(&self, before: OffsetDateTime) -> Result<u64> {
        let (mut finished, mut failures, mut first_error) = (0, 0, None);
        let mut closed = self.albums.list_closed(before).await?;
        // Each round begins with a different album, so that those that fail are not always the first.
        let first = OffsetDateTime::now_utc().microsecond() as usize % closed.len().max(1);
        closed.rotate_left(first);
        for (tenant, album) in closed {
            if failures == MAX_FAILURES {
                break;
            }
            match self.finish_deletion(&tenant, album).await {
                Ok(()) => {
                    finished += 1;
                    tracing::info!(album.id = %album, "finished interrupted deletion of album");
                }
                Err(error) => {
                    let cause = error.to_string_with_causes();
                    tracing::warn!(album.id = %album, error = cause, "failed to finish interrupted deletion of album");
                    failures += 1;
                    first_error = first_error.or(Some(error));
                }
            }
        }
        first_error.map_or(Ok(finished), Err)
    }

    /// Takes the same steps as the call that began the deletion.
    async fn finish_deletion(&self, tenant: &Tenant, album: AlbumId) -> Result<()> {
        self.blobs.delete_album(tenant.organization, album).await?;
        match self.albums.delete(tenant, album).await {
            // Another process has finished it meanwhile.
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            deleted => deleted?,
        }
        self.blobs.delete_album(tenant.organization, album).await
    }
}

/// An object with a valid key that is old enough to be removed.
struct GcCandidate {
    key: ObjectKey,
    size_bytes: u64,
}

/// The candidates of one album.
#[derive(Default)]
struct AlbumCandidates {
    photos: Vec<(PhotoId, ObjectRole, GcCandidate)>,
    probes: Vec<(ProbeId, GcCandidate)>,
    /// Read when they became a watermark, or never.
    watermarks: Vec<GcCandidate>,
}

/// Candidates to compare with the database, by album.
#[derive(Default)]
struct CandidateBatch {
    albums: BTreeMap<AlbumId, AlbumCandidates>,
    count: usize,
}

impl CandidateBatch {
    /// Adds an object if it is old enough; returns whether it belongs to this database.
    fn add(&mut self, object: ListedObject, before: OffsetDateTime, known: &HashSet<OrganizationId>) -> bool {
        let Some(key) = ObjectKey::parse(&object.path) else { return false };
        let Some((organization, album, owner)) = key.owner() else { return false };
        if !known.contains(&organization) {
            return false;
        }
        if object.modified_at < before {
            self.count += 1;
            let candidate = GcCandidate { key, size_bytes: object.size_bytes };
            let of_album = self.albums.entry(album).or_default();
            match owner {
                ObjectOwner::Photo(photo, role) => of_album.photos.push((photo, role, candidate)),
                ObjectOwner::Probe(probe) => of_album.probes.push((probe, candidate)),
                ObjectOwner::Watermark(_) => of_album.watermarks.push(candidate),
            }
        }
        true
    }
}

/// A collection in progress.
struct GarbageCollection<'s> {
    collector: &'s GarbageCollector<'s>,
    is_dry_run: bool,
    report: GcReport,
}

impl GarbageCollection<'_> {
    /// Removes objects without a row, and pictures that their photo does not show.
    async fn remove_garbage(&mut self, batch: CandidateBatch) -> Result<()> {
        let queries = &self.collector.queries;
        for (album, AlbumCandidates { photos, probes, watermarks }) in batch.albums {
            let ids: Vec<PhotoId> = photos.iter().map(|(photo, ..)| *photo).collect();
            let states = queries.load_photo_states(album, &ids).await?;
            let ids: Vec<ProbeId> = probes.iter().map(|(probe, _)| *probe).collect();
            let existing = queries.filter_existing_probes(album, &ids).await?;
            let mut orphans: Vec<GcCandidate> = probes
                .into_iter()
                .filter(|(probe, _)| !existing.contains(probe))
                .map(|(_, candidate)| candidate)
                .chain(watermarks)
                .collect();
            let mut stale = Vec::new();
            for (photo, role, candidate) in photos {
                match states.get(&photo) {
                    None => orphans.push(candidate),
                    Some(state) if role != ObjectRole::Original && has_no_pictures(*state) => {
                        stale.push((photo, candidate));
                    }
                    Some(_) => {}
                }
            }
            self.remove_objects(orphans).await?;
            while !stale.is_empty() {
                let rest = stale.split_off(stale.len().min(LOCKED_BATCH_SIZE));
                self.remove_stale_pictures(album, std::mem::replace(&mut stale, rest)).await?;
            }
        }
        Ok(())
    }

    /// Removes pictures of photos that show none, while these photos are locked: a photo put back in the queue meanwhile
    /// would get new pictures under the same names.
    async fn remove_stale_pictures(
        &mut self,
        album: AlbumId,
        pictures: Vec<(PhotoId, GcCandidate)>,
    ) -> Result<()> {
        let ids: Vec<PhotoId> = pictures.iter().map(|(photo, _)| *photo).collect();
        let locked = self.collector.queries.lock_photos(album, &ids).await?;
        let is_stale =
            |photo: &PhotoId| locked.states.get(photo).is_some_and(|state| has_no_pictures(*state));
        let stale =
            pictures.into_iter().filter(|(photo, _)| is_stale(photo)).map(|(_, found)| found).collect();
        let removed = tokio::time::timeout(MAX_LOCK_TIME, self.remove_objects(stale)).await;
        if let Err(error) = locked.release().await {
            // The database has released the lock itself. That is no reason to skip the other objects.
            let cause = error.to_string_with_causes();
            tracing::warn!(album.id = %album, error = cause, "lost lock on photos while removing their pictures");
        }
        // What is left after the timeout is found by the next collection.
        removed.unwrap_or(Ok(()))
    }

    async fn remove_objects(&mut self, candidates: Vec<GcCandidate>) -> Result<()> {
        if !self.is_dry_run {
            let keys: Vec<ObjectKey> = candidates.iter().map(|candidate| candidate.key.clone()).collect();
            let removals = stream::iter(keys).map(|key| {
                let blobs = Arc::clone(self.collector.blobs);
                async move { blobs.delete(&key).await }
            });
            removals.buffer_unordered(CONCURRENT_REMOVALS).try_collect::<()>().await?;
        }
        self.report.removed += candidates.len() as u64;
        self.report.removed_bytes += candidates.iter().map(|candidate| candidate.size_bytes).sum::<u64>();
        Ok(())
    }
}

/// Returns whether a photo in this state has no preview and no thumbnail. A photo that is processed again keeps the old
/// ones.
fn has_no_pictures(state: PhotoState) -> bool {
    matches!(state, PhotoState::Failed | PhotoState::AwaitingUpload)
}
