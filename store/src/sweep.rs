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
use crate::album::Tenant;
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::object::{ObjectKey, ObjectRole, Owner};
use crate::photo::PhotoState;
use crate::sql::SqlOwners;
use crate::storage::Stored;
use crate::traits::Result;

/// How many objects are compared with the rows at once: as many as a page of S3's list.
const AT_ONCE: usize = 1000;

/// How many deletions of albums may break off again in one round: each may wait for a storage that does not answer, and
/// other chores wait for it.
const FAILURES_AT_MOST: u32 = 3;

/// How many objects are removed at once.
const REMOVED_AT_ONCE: usize = 16;

/// How many photos are held while their pictures are removed, and for how long at most: Postgres ends a transaction in
/// which nothing is said, and with it the hold, after [`crate::sql::LEAST_IDLE`] or more.
const HELD_AT_ONCE: usize = 16;
const HELD_FOR: Duration = Duration::from_millis(2_000);
const _: () =
    assert!(HELD_FOR.as_millis() < crate::sql::LEAST_IDLE.as_millis(), "a hold outlasts its transaction");

/// How to sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepTerms {
    /// Younger objects stay, whatever the rows say. Longer than an upload URL holds and a lease lasts.
    pub older_than: Duration,
    /// Removes nothing, and says what would go.
    pub is_dry: bool,
}

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects that there were.
    pub listed: u64,
    /// Those removed, or that a dry sweep would have removed.
    pub removed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that no name of this store fits or whose organization is unknown here; they stay.
    pub strange: u64,
    /// Albums whose deletion had broken off and was finished.
    pub albums: u64,
}

/// An object of a known kind that is old enough.
struct Found {
    key: ObjectKey,
    bytes: u64,
}

/// What was found of one album.
#[derive(Default)]
struct OfAlbum {
    photos: Vec<(PhotoId, ObjectRole, Found)>,
    probes: Vec<(ProbeId, Found)>,
}

impl Store {
    /// Removes what no row needs, and finishes deletions of albums that broke off.
    ///
    /// # Errors
    /// `Unavailable` when rows or storage do not answer; what was removed by then was rightly removed.
    pub async fn sweep(&self, terms: SweepTerms) -> std::result::Result<Swept, StoreError> {
        // Not by a server that only follows another one: rows may be there already and not here.
        self.check_database().await?;
        let before = OffsetDateTime::now_utc() - terms.older_than;
        let mut sweep = Sweep {
            store: self,
            rows: SqlOwners::new(self.database.clone()),
            is_dry: terms.is_dry,
            swept: Swept::default(),
        };
        if !terms.is_dry {
            sweep.swept.albums = self.finish_deletions(before).await?;
        }
        let organizations = sweep.rows.organizations().await?;
        let mut objects = self.storage.list();
        let mut batch = Batch::default();
        while let Some(object) = objects.try_next().await? {
            sweep.swept.listed += 1;
            if !batch.take(object, before, &organizations) {
                sweep.swept.strange += 1;
            }
            if batch.count == AT_ONCE {
                sweep.compare(std::mem::take(&mut batch)).await?;
            }
        }
        sweep.compare(batch).await?;
        Ok(sweep.swept)
    }

    /// Finishes deletions of albums that began before `before` and broke off; answers how many. One that cannot be
    /// finished keeps no other from it.
    ///
    /// # Errors
    /// `Unavailable`: the first of those that were met.
    pub async fn finish_deletions(&self, before: OffsetDateTime) -> std::result::Result<u64, StoreError> {
        let (mut finished, mut failures, mut failed) = (0, 0, None);
        let mut closed = self.albums.closed(before).await?;
        // Each round begins with another one: those that fail are not always the first.
        let first = OffsetDateTime::now_utc().microsecond() as usize % closed.len().max(1);
        closed.rotate_left(first);
        for (tenant, album) in closed {
            if failures == FAILURES_AT_MOST {
                break;
            }
            match self.finish_deletion(&tenant, album).await {
                Ok(()) => {
                    finished += 1;
                    tracing::info!(album.id = %album, "the deletion of an album that had broken off is finished");
                }
                Err(error) => {
                    let cause = error.with_causes();
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
struct Batch {
    albums: BTreeMap<AlbumId, OfAlbum>,
    count: usize,
}

impl Batch {
    /// Takes an object that may have to go; answers whether it is one of ours.
    fn take(&mut self, object: Stored, before: OffsetDateTime, known: &HashSet<OrganizationId>) -> bool {
        let Some(key) = ObjectKey::parse(&object.path) else { return false };
        let Some((organization, album, owner)) = key.owner() else { return false };
        if !known.contains(&organization) {
            return false;
        }
        if object.modified < before {
            self.count += 1;
            let (found, of_album) =
                (Found { key, bytes: object.bytes }, self.albums.entry(album).or_default());
            match owner {
                Owner::Photo(photo, role) => of_album.photos.push((photo, role, found)),
                Owner::Probe(probe) => of_album.probes.push((probe, found)),
            }
        }
        true
    }
}

/// A sweep on its way.
struct Sweep<'s> {
    store: &'s Store,
    rows: SqlOwners,
    is_dry: bool,
    swept: Swept,
}

impl Sweep<'_> {
    /// Removes what has no row, and pictures that their photo does not show.
    async fn compare(&mut self, batch: Batch) -> Result<()> {
        for (album, OfAlbum { photos, probes }) in batch.albums {
            let ids: Vec<PhotoId> = photos.iter().map(|(photo, ..)| *photo).collect();
            let states = self.rows.photos(album, &ids).await?;
            let ids: Vec<ProbeId> = probes.iter().map(|(probe, _)| *probe).collect();
            let alive = self.rows.probes(album, &ids).await?;
            let mut orphans: Vec<Found> = probes
                .into_iter()
                .filter(|(probe, _)| !alive.contains(probe))
                .map(|(_, found)| found)
                .collect();
            let mut unshown = Vec::new();
            for (photo, role, found) in photos {
                match states.get(&photo) {
                    None => orphans.push(found),
                    Some(state) if role != ObjectRole::Original && shows_nothing(*state) => {
                        unshown.push((photo, found));
                    }
                    Some(_) => {}
                }
            }
            self.remove(orphans).await?;
            while !unshown.is_empty() {
                let rest = unshown.split_off(unshown.len().min(HELD_AT_ONCE));
                self.remove_unshown(album, std::mem::replace(&mut unshown, rest)).await?;
            }
        }
        Ok(())
    }

    /// Removes pictures of photos that show none, while nobody can put those back in the queue: a worker would write
    /// new pictures under the same names.
    async fn remove_unshown(&mut self, album: AlbumId, pictures: Vec<(PhotoId, Found)>) -> Result<()> {
        let ids: Vec<PhotoId> = pictures.iter().map(|(photo, _)| *photo).collect();
        let held = self.rows.hold(album, &ids).await?;
        let still = |photo: &PhotoId| held.states.get(photo).is_some_and(|state| shows_nothing(*state));
        let unshown =
            pictures.into_iter().filter(|(photo, _)| still(photo)).map(|(_, found)| found).collect();
        let removed = tokio::time::timeout(HELD_FOR, self.remove(unshown)).await;
        if let Err(error) = held.release().await {
            // The rows have released the photos then, by themselves. That is no reason to leave the rest unswept.
            let cause = error.with_causes();
            tracing::warn!(album.id = %album, cause, "photos were not held until their pictures were removed");
        }
        // What is left after that time is found by the next sweep.
        removed.unwrap_or(Ok(()))
    }

    async fn remove(&mut self, found: Vec<Found>) -> Result<()> {
        if !self.is_dry {
            let keys: Vec<ObjectKey> = found.iter().map(|found| found.key.clone()).collect();
            let removals = stream::iter(keys).map(|key| {
                let blobs = Arc::clone(&self.store.blobs);
                async move { blobs.delete(&key).await }
            });
            removals.buffer_unordered(REMOVED_AT_ONCE).try_collect::<()>().await?;
        }
        self.swept.removed += found.len() as u64;
        self.swept.bytes += found.iter().map(|found| found.bytes).sum::<u64>();
        Ok(())
    }
}

/// Whether a photo in this state has no preview and no thumbnail. One that is read anew shows the old ones.
fn shows_nothing(state: PhotoState) -> bool {
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
    use crate::suite::{Event, settings_in};
    use crate::traits::{Blobs, UploadTerms};

    /// Storage beside which something goes wrong.
    struct Unlucky {
        blobs: Arc<dyn Blobs>,
        /// An album whose objects cannot be deleted.
        stuck: Option<AlbumId>,
        /// A database whose open transactions are lost before an object is deleted.
        database: Option<String>,
    }

    #[async_trait]
    impl Blobs for Unlucky {
        async fn read(&self, key: &ObjectKey, at_most: u64) -> Result<Bytes> {
            self.blobs.read(key, at_most).await
        }

        async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
            self.blobs.write(key, content_type, bytes).await
        }

        async fn upload_url(&self, key: &ObjectKey, upload: UploadTerms<'_>) -> Result<Url> {
            self.blobs.upload_url(key, upload).await
        }

        async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
            self.blobs.download_url(key, ttl).await
        }

        async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
            self.blobs.head(key).await
        }

        async fn delete(&self, key: &ObjectKey) -> Result<()> {
            if let Some(url) = &self.database {
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
    async fn a_hold_that_is_lost_does_not_end_the_sweep() {
        let Some(server) = Postgres::shared() else { return };
        let folder = tempfile::tempdir().unwrap();
        let url = server.database();
        let settings = StoreSettings { database_url: url.clone(), ..settings_in(folder.path()) };
        let mut store = Store::open(settings).await.unwrap();
        let event = Event::make(&store).await;
        let photo = event.expected(1).await[0];
        let organization = event.tenant.organization;
        let preview = ObjectKey::photo(organization, event.album, photo, ObjectRole::Preview);
        store.blobs.write(&preview, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
        store.blobs = Arc::new(Unlucky { blobs: Arc::clone(&store.blobs), stuck: None, database: Some(url) });
        store.sweep(SweepTerms { older_than: Duration::ZERO, is_dry: false }).await.unwrap();
    }

    #[tokio::test]
    async fn an_album_that_cannot_be_deleted_keeps_no_other_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(settings_in(folder.path())).await.unwrap();
        let (stuck, other) = (Event::make(&store).await, Event::make(&store).await);
        for event in [&stuck, &other] {
            store.albums.close(&event.tenant, event.album).await.unwrap();
        }
        let blobs = Arc::clone(&store.blobs);
        store.blobs = Arc::new(Unlucky { blobs, stuck: Some(stuck.album), database: None });
        let later = OffsetDateTime::now_utc() + time::Duration::minutes(1);
        let refused = store.finish_deletions(later).await.unwrap_err();
        assert_eq!((refused.kind, refused.what.as_str()), (StoreErrorKind::Unavailable, "storage"));
        assert_eq!(store.albums.closed(later).await.unwrap(), [(stuck.tenant, stuck.album)]);
    }
}
