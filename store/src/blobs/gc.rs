//! Finds bytes that nobody will ask for any more, and removes them.
//!
//! Whoever deletes removes bytes and rows, but a presigned URL can bring bytes again afterwards, and a process can die
//! between the two. So the storage is listed whole and compared with the rows, batch by batch, a day's work at most for
//! the largest bucket. What is removed must be
//!
//! - named as [`ObjectKey`] names things, in an organization that these rows know: a storage that belongs to another
//!   database, or is shared with something else, stays as it is,
//! - older than everything that may be on its way,
//! - without a row, or a picture of a photo that shows none, looked up a moment before. Rows that cannot be asked end
//!   the sweep.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use futures_util::{StreamExt, TryStreamExt};
use time::OffsetDateTime;

use crate::Store;
use crate::blobs::storage::ListedObject;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::object_key::{ObjectKey, ObjectOwner, ObjectRole};
use crate::model::photo::PhotoState;
use crate::sql::SqlGcQueries;
use crate::traits::Result;

/// How many objects are compared with the rows at once: as many as a page of S3's list.
const BATCH_SIZE: usize = 1000;

/// How many deletions of albums may break off again in one round: each may wait for a storage that does not answer, and
/// other chores wait for it.
const MAX_FAILURES: u32 = 3;

/// How many objects are removed at once.
const CONCURRENT_REMOVALS: usize = 16;

/// How many photos are held while their pictures are removed, and for how long at most: Postgres ends a transaction in
/// which nothing is said, and with it the hold, after [`crate::sql::LEAST_IDLE`] or more.
const LOCKED_BATCH_SIZE: usize = 16;
const MAX_LOCK_TIME: Duration = Duration::from_millis(2_000);
const _: () = assert!(
    MAX_LOCK_TIME.as_millis() < crate::sql::MIN_IDLE_IN_TRANSACTION.as_millis(),
    "a hold outlasts its transaction"
);

/// How to sweep.
#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// Younger objects stay, whatever the rows say. Longer than an upload URL holds and a lease lasts.
    pub min_age: Duration,
    /// Removes nothing, and says what would go.
    pub is_dry_run: bool,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Objects that there were.
    pub listed: u64,
    /// Those removed, or that a dry sweep would have removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Those that no name of this store fits or whose organization is unknown here; they stay.
    pub unrecognised: u64,
    /// Albums whose deletion had broken off and was finished.
    pub albums: u64,
}

/// An object of a known kind that is old enough.
struct GcCandidate {
    key: ObjectKey,
    size_bytes: u64,
}

/// What was found of one album.
#[derive(Default)]
struct AlbumCandidates {
    photos: Vec<(PhotoId, ObjectRole, GcCandidate)>,
    probes: Vec<(ProbeId, GcCandidate)>,
}

impl Store {
    /// Removes what no row needs, and finishes deletions of albums that broke off.
    ///
    /// # Errors
    /// `Unavailable` when rows or storage do not answer; what was removed by then was rightly removed.
    pub async fn sweep(&self, terms: GcOptions) -> std::result::Result<GcReport, StoreError> {
        // Not by a server that only follows another one: rows may be there already and not here.
        self.check_database().await?;
        let before = OffsetDateTime::now_utc() - terms.min_age;
        let mut sweep = GarbageCollection {
            store: self,
            queries: SqlGcQueries::new(self.database.clone()),
            is_dry_run: terms.is_dry_run,
            report: GcReport::default(),
        };
        if !terms.is_dry_run {
            sweep.report.albums = self.finish_deletions(before).await?;
        }
        let organizations = sweep.queries.list_organizations().await?;
        let mut objects = self.storage.list();
        let mut batch = CandidateBatch::default();
        while let Some(object) = objects.try_next().await? {
            sweep.report.listed += 1;
            if !batch.add(object, before, &organizations) {
                sweep.report.unrecognised += 1;
            }
            if batch.count == BATCH_SIZE {
                sweep.remove_garbage(std::mem::take(&mut batch)).await?;
            }
        }
        sweep.remove_garbage(batch).await?;
        Ok(sweep.report)
    }

    /// Finishes deletions of albums that began before `before` and broke off; answers how many. One that cannot be
    /// finished keeps no other from it.
    ///
    /// # Errors
    /// `Unavailable`: the first of those that were met.
    pub async fn finish_deletions(&self, before: OffsetDateTime) -> std::result::Result<u64, StoreError> {
        let (mut finished, mut failures, mut failed) = (0, 0, None);
        let mut closed = self.albums.list_closed(before).await?;
        // Each round begins with another one: those that fail are not always the first.
        let first = OffsetDateTime::now_utc().microsecond() as usize % closed.len().max(1);
        closed.rotate_left(first);
        for (tenant, album) in closed {
            if failures == MAX_FAILURES {
                break;
            }
            match self.finish_deletion(&tenant, album).await {
                Ok(()) => {
                    finished += 1;
                    tracing::info!(album.id = %album, "the deletion of an album that had broken off is finished");
                }
                Err(error) => {
                    let cause = error.to_string_with_causes();
                    tracing::warn!(album.id = %album, cause, "the deletion of an album breaks off again");
                    failures += 1;
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(finished), Err)
    }

    /// As the call that began it.
    async fn finish_deletion(&self, tenant: &Tenant, album: AlbumId) -> Result<()> {
        self.blobs.delete_album(tenant.organization, album).await?;
        match self.albums.delete(tenant, album).await {
            // Somebody else was quicker.
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            deleted => deleted?,
        }
        self.blobs.delete_album(tenant.organization, album).await
    }
}

/// Objects to compare, album by album.
#[derive(Default)]
struct CandidateBatch {
    albums: BTreeMap<AlbumId, AlbumCandidates>,
    count: usize,
}

impl CandidateBatch {
    /// Takes an object that may have to go; answers whether it is one of ours.
    fn add(&mut self, object: ListedObject, before: OffsetDateTime, known: &HashSet<OrganizationId>) -> bool {
        let Some(key) = ObjectKey::parse(&object.path) else { return false };
        let Some((organization, album, owner)) = key.owner() else { return false };
        if !known.contains(&organization) {
            return false;
        }
        if object.modified_at < before {
            self.count += 1;
            let (found, of_album) =
                (GcCandidate { key, size_bytes: object.size_bytes }, self.albums.entry(album).or_default());
            match owner {
                ObjectOwner::Photo(photo, role) => of_album.photos.push((photo, role, found)),
                ObjectOwner::Probe(probe) => of_album.probes.push((probe, found)),
            }
        }
        true
    }
}

/// A sweep on its way.
struct GarbageCollection<'s> {
    store: &'s Store,
    queries: SqlGcQueries,
    is_dry_run: bool,
    report: GcReport,
}

impl GarbageCollection<'_> {
    /// Removes what has no row, and pictures that their photo does not show.
    async fn remove_garbage(&mut self, batch: CandidateBatch) -> Result<()> {
        for (album, AlbumCandidates { photos, probes }) in batch.albums {
            let ids: Vec<PhotoId> = photos.iter().map(|(photo, ..)| *photo).collect();
            let states = self.queries.photos(album, &ids).await?;
            let ids: Vec<ProbeId> = probes.iter().map(|(probe, _)| *probe).collect();
            let alive = self.queries.probes(album, &ids).await?;
            let mut orphans: Vec<GcCandidate> = probes
                .into_iter()
                .filter(|(probe, _)| !alive.contains(probe))
                .map(|(_, found)| found)
                .collect();
            let mut unshown = Vec::new();
            for (photo, role, found) in photos {
                match states.get(&photo) {
                    None => orphans.push(found),
                    Some(state) if role != ObjectRole::Original && has_no_pictures(*state) => {
                        unshown.push((photo, found));
                    }
                    Some(_) => {}
                }
            }
            self.remove_objects(orphans).await?;
            while !unshown.is_empty() {
                let rest = unshown.split_off(unshown.len().min(LOCKED_BATCH_SIZE));
                self.remove_stale_pictures(album, std::mem::replace(&mut unshown, rest)).await?;
            }
        }
        Ok(())
    }

    /// Removes pictures of photos that show none, while nobody can put those back in the queue: a worker would write
    /// new pictures under the same names.
    async fn remove_stale_pictures(
        &mut self,
        album: AlbumId,
        pictures: Vec<(PhotoId, GcCandidate)>,
    ) -> Result<()> {
        let ids: Vec<PhotoId> = pictures.iter().map(|(photo, _)| *photo).collect();
        let held = self.queries.lock_photos(album, &ids).await?;
        let still = |photo: &PhotoId| held.states.get(photo).is_some_and(|state| has_no_pictures(*state));
        let unshown =
            pictures.into_iter().filter(|(photo, _)| still(photo)).map(|(_, found)| found).collect();
        let removed = tokio::time::timeout(MAX_LOCK_TIME, self.remove_objects(unshown)).await;
        if let Err(error) = held.release().await {
            // The rows have released the photos then, by themselves. That is no reason to leave the rest unswept.
            let cause = error.to_string_with_causes();
            tracing::warn!(album.id = %album, cause, "photos were not held until their pictures were removed");
        }
        // What is left after that time is found by the next sweep.
        removed.unwrap_or(Ok(()))
    }

    async fn remove_objects(&mut self, found: Vec<GcCandidate>) -> Result<()> {
        if !self.is_dry_run {
            let keys: Vec<ObjectKey> = found.iter().map(|found| found.key.clone()).collect();
            let removals = stream::iter(keys).map(|key| {
                let blobs = Arc::clone(&self.store.blobs);
                async move { blobs.delete(&key).await }
            });
            removals.buffer_unordered(CONCURRENT_REMOVALS).try_collect::<()>().await?;
        }
        self.report.removed += found.len() as u64;
        self.report.removed_bytes += found.iter().map(|found| found.size_bytes).sum::<u64>();
        Ok(())
    }
}

/// Whether a photo in this state has no preview and no thumbnail. One that is read anew shows the old ones.
fn has_no_pictures(state: PhotoState) -> bool {
    matches!(state, PhotoState::Failed | PhotoState::AwaitingUpload)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use photofinish_servers::Postgres;
    use sqlx::{Connection, PgConnection};
    use url::Url;

    use super::*;
    use crate::StoreSettings;
    use crate::conformance::{Event, test_settings};
    use crate::traits::{Blobs, UploadConditions};

    /// Storage beside which something goes wrong.
    struct FailingBlobs {
        blobs: Arc<dyn Blobs>,
        /// An album whose objects cannot be deleted.
        stuck: Option<AlbumId>,
        /// A database whose open transactions are lost before an object is deleted.
        database_url: Option<String>,
    }

    #[async_trait]
    impl Blobs for FailingBlobs {
        async fn read(&self, key: &ObjectKey, at_most: u64) -> Result<Bytes> {
            self.blobs.read(key, at_most).await
        }

        async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
            self.blobs.write(key, content_type, bytes).await
        }

        async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
            self.blobs.upload_url(key, upload).await
        }

        async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
            self.blobs.download_url(key, ttl).await
        }

        async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
            self.blobs.head(key).await
        }

        async fn delete(&self, key: &ObjectKey) -> Result<()> {
            if let Some(url) = &self.database_url {
                end_transactions(url).await;
            }
            self.blobs.delete(key).await
        }

        async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
            if self.stuck == Some(album) {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "storage"));
            }
            self.blobs.delete_album(organization, album).await
        }
    }

    /// As the server does to those who say nothing for too long.
    async fn end_transactions(url: &str) {
        let mut connection = PgConnection::connect(url).await.unwrap();
        // Waits until they are gone.
        let ended: Vec<bool> = sqlx::query_scalar(
            "select pg_terminate_backend(pid, 30000) from pg_stat_activity \
             where datname = current_database() and state = 'idle in transaction'",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        assert_eq!(ended, [true], "nothing was held");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_row_lock_does_not_end_garbage_collection() {
        let Some(server) = Postgres::shared() else { return };
        let folder = tempfile::tempdir().unwrap();
        let url = server.database();
        let settings = StoreSettings { database_url: url.clone(), ..test_settings(folder.path()) };
        let mut store = Store::open(settings).await.unwrap();
        let event = Event::make(&store).await;
        let photo = event.expected(1).await[0];
        let organization = event.tenant.organization;
        let preview = ObjectKey::photo(organization, event.album, photo, ObjectRole::Preview);
        store.blobs.write(&preview, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
        store.blobs =
            Arc::new(FailingBlobs { blobs: Arc::clone(&store.blobs), stuck: None, database_url: Some(url) });
        store.sweep(GcOptions { min_age: Duration::ZERO, is_dry_run: false }).await.unwrap();
    }

    #[tokio::test]
    async fn an_album_that_cannot_be_deleted_does_not_block_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let (stuck, other) = (Event::make(&store).await, Event::make(&store).await);
        for event in [&stuck, &other] {
            store.albums.close(&event.tenant, event.album).await.unwrap();
        }
        let blobs = Arc::clone(&store.blobs);
        store.blobs = Arc::new(FailingBlobs { blobs, stuck: Some(stuck.album), database_url: None });
        let later = OffsetDateTime::now_utc() + time::Duration::minutes(1);
        let refused = store.finish_deletions(later).await.unwrap_err();
        assert_eq!((refused.kind, refused.context.as_str()), (StoreErrorKind::Unavailable, "storage"));
        assert_eq!(store.albums.list_closed(later).await.unwrap(), [(stuck.tenant, stuck.album)]);
    }
}
