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
use crate::error::StoreError;
use crate::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::object::{ObjectKey, ObjectRole, Owner};
use crate::photo::PhotoState;
use crate::sql::SqlOwners;
use crate::storage::Stored;
use crate::traits::Result;

/// How many objects are compared with the rows at once: as many as a page of S3's list.
const AT_ONCE: usize = 1000;

/// How many objects are removed at once.
const REMOVED_AT_ONCE: usize = 16;

/// How many photos are held while their pictures are removed, and for how long at most.
const HELD_AT_ONCE: usize = 32;
const HELD_FOR: Duration = Duration::from_secs(10);

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

    /// Finishes deletions of albums that began before `before` and broke off; answers how many.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn finish_deletions(&self, before: OffsetDateTime) -> std::result::Result<u64, StoreError> {
        let closed = self.albums.closed(before).await?;
        for (tenant, album) in &closed {
            // As the call that began it.
            self.blobs.delete_album(tenant.organization, *album).await?;
            match self.albums.delete(tenant, *album).await {
                // Somebody else was quicker.
                Err(error) if error.kind == crate::StoreErrorKind::NotFound => {}
                deleted => deleted?,
            }
            self.blobs.delete_album(tenant.organization, *album).await?;
            tracing::info!(album.id = %album, "the deletion of an album that had broken off is finished");
        }
        Ok(closed.len() as u64)
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
        held.release().await?;
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
