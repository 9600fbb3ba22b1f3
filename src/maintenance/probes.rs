//! Removal of expired selfies, in one process at a time: each would delete the same objects.

use std::time::Duration;

use futures_util::StreamExt;
use photofinish_store::model::ids::{ProbeId, ProcessId};
use photofinish_store::model::object_key::ObjectKey;
use photofinish_store::model::process::Task;
use photofinish_store::traits::{Blobs, ExpiredPosition, Probe, Probes, TaskLeases};
use photofinish_store::{Store, StoreError};

/// Pause after everything that had expired was tried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// How long a process has the task after it last took it, which it does before each batch. It keeps it from one run to the
/// next while selfies expire: it knows which could not be deleted. It gives it back when it can delete none.
const LEASE_TTL: Duration = Duration::from_secs(30);

/// Objects deleted at once. A key can make hundreds of selfies a second, and a bucket takes tens of milliseconds to
/// delete one object.
const DELETIONS_AT_ONCE: usize = 16;

/// Removes expired selfies, until it is dropped.
pub async fn remove_expired_forever(store: &Store, holder: ProcessId) {
    let mut removal = ProbeRemoval::new(store, holder);
    loop {
        let removed = removal.run().await;
        let pause = removed.as_ref().map_or(RETRY_INTERVAL, Removed::pause);
        match removed {
            Ok(Removed { failed: 0, .. }) => {}
            Ok(Removed { failed, .. }) => {
                tracing::warn!(failed, "failed to delete expired selfies, retrying in {} s", pause.as_secs());
            }
            Err(error) => tracing::warn!(%error, "failed to remove expired selfies, retrying in 10 s"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Removed {
    removed: usize,
    /// Selfies whose objects could not be deleted. They stay, and are tried again.
    failed: usize,
}

impl Removed {
    /// The pause after the run. Where nothing could be deleted, perhaps it is only this process that does not reach the storage:
    /// it leaves the task to others meanwhile.
    fn pause(&self) -> Duration {
        if self.removed == 0 && self.failed > 0 { LEASE_TTL } else { RETRY_INTERVAL }
    }
}

struct ProbeRemoval<'a> {
    probes: &'a dyn Probes,
    blobs: &'a dyn Blobs,
    tasks: &'a dyn TaskLeases,
    holder: ProcessId,
    /// Where the next run begins: after selfies that could not be deleted, so that they keep no others waiting. `None`
    /// at the beginning.
    after: Option<ExpiredPosition>,
}

impl<'a> ProbeRemoval<'a> {
    fn new(store: &'a Store, holder: ProcessId) -> Self {
        Self { probes: &*store.probes, blobs: &*store.blobs, tasks: &*store.tasks, holder, after: None }
    }

    /// Removes expired selfies, one batch after the other, until none is left that was not tried. Ends early when nothing
    /// of a batch can be deleted, because the storage is probably down, or this process does not reach it; and when another
    /// process does it.
    async fn run(&mut self) -> Result<Removed, StoreError> {
        let mut total = Removed::default();
        // Taking the task writes. The batch is read again with it: its holder may have removed this one.
        if self.probes.list_expired(self.after).await?.is_empty() {
            self.after = None;
            return Ok(total);
        }
        while let Some(taken) = self.tasks.take(Task::Selfies, self.holder, LEASE_TTL).await.transpose() {
            let batch = self.probes.list_expired(self.after).await?;
            let Some(last) = batch.last() else {
                self.after = None;
                return taken.map(|_| total);
            };
            self.after = Some(ExpiredPosition { expires_at: last.expires_at, id: last.id });
            let size = batch.len();
            // Also where the database cannot be written: the bytes do not wait for it, and on a full disk they make space. That
            // another process may delete the same does no harm.
            let deleted = self.delete_objects(batch).await;
            let lease = taken?;
            self.probes.remove(&deleted).await?;
            total.removed += deleted.len();
            total.failed += size - deleted.len();
            if deleted.is_empty() {
                self.tasks.release(lease).await?;
                break;
            }
        }
        Ok(total)
    }

    /// Deletes the bytes first, then the caller the rows, so that the next run finds what an interrupted one left.
    /// Includes selfies that have their embedding: deleting their bytes may have failed then, or a presigned URL may have
    /// brought bytes again. Returns those whose bytes are gone.
    async fn delete_objects(&self, batch: Vec<Probe>) -> Vec<ProbeId> {
        let deletions = batch.into_iter().map(|probe| async move {
            let key = ObjectKey::probe(probe.organization, probe.album, probe.id);
            match self.blobs.delete(&key).await {
                Ok(()) => Some(probe.id),
                Err(error) => {
                    tracing::debug!(probe.id = %probe.id, %error, "failed to delete an expired selfie");
                    None
                }
            }
        });
        let deletions = futures_util::stream::iter(deletions).buffer_unordered(DELETIONS_AT_ONCE);
        deletions.filter_map(std::future::ready).collect().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use async_trait::async_trait;
    use bytes::Bytes;
    use photofinish_store::conformance::AlbumFixture;
    use photofinish_store::model::ids::{AlbumId, OrganizationId};
    use photofinish_store::model::photo::Embedding;
    use photofinish_store::model::process::{HeldTask, TaskLease};
    use photofinish_store::traits::{ProbeOutcome, Result, UploadConditions};
    use photofinish_store::{StoreErrorKind, conformance};
    use tokio::sync::Semaphore;
    use url::Url;
    use uuid::Uuid;

    use super::*;

    const HOLDER: ProcessId = ProcessId(Uuid::nil());

    async fn open_store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(conformance::test_settings(folder.path())).await.unwrap();
        (folder, store)
    }

    fn removal<'a>(store: &'a Store, blobs: &'a dyn Blobs) -> ProbeRemoval<'a> {
        ProbeRemoval { blobs, ..ProbeRemoval::new(store, HOLDER) }
    }

    async fn create_expired(store: &Store, album: AlbumId, count: usize) -> Vec<Probe> {
        let mut probes = Vec::new();
        for _ in 0..count {
            probes.push(store.probes.create(album, Duration::ZERO).await.unwrap());
        }
        probes
    }

    /// Objects of which some cannot be deleted; counts deletions.
    struct FaultyBlobs {
        undeletable: Vec<ObjectKey>,
        deleted: AtomicUsize,
        running: AtomicUsize,
        max_running: AtomicUsize,
        /// Each deletion takes a permit.
        permits: Semaphore,
    }

    impl FaultyBlobs {
        fn new(undeletable: &[Probe], permits: usize) -> Self {
            let key = |probe: &Probe| ObjectKey::probe(probe.organization, probe.album, probe.id);
            Self {
                undeletable: undeletable.iter().map(key).collect(),
                deleted: AtomicUsize::new(0),
                running: AtomicUsize::new(0),
                max_running: AtomicUsize::new(0),
                permits: Semaphore::new(permits),
            }
        }
    }

    #[async_trait]
    impl Blobs for FaultyBlobs {
        async fn read(&self, _: &ObjectKey, _: u64) -> Result<Bytes> {
            unreachable!("the removal reads nothing")
        }
        async fn write(&self, _: &ObjectKey, _: &str, _: Bytes) -> Result<()> {
            unreachable!("the removal writes nothing")
        }
        async fn upload_url(&self, _: &ObjectKey, _: UploadConditions<'_>) -> Result<Url> {
            unreachable!("the removal signs nothing")
        }
        async fn download_url(&self, _: &ObjectKey, _: Duration) -> Result<Url> {
            unreachable!("the removal signs nothing")
        }
        async fn head(&self, _: &ObjectKey) -> Result<Option<u64>> {
            unreachable!("the removal reads nothing")
        }
        async fn delete(&self, key: &ObjectKey) -> Result<()> {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_running.fetch_max(running, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            self.running.fetch_sub(1, Ordering::SeqCst);
            if self.undeletable.contains(key) {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "delete an object"));
            }
            self.deleted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        async fn delete_album(&self, _: OrganizationId, _: AlbumId) -> Result<()> {
            unreachable!("the removal deletes no album")
        }
    }

    /// The tasks of a database that cannot be written.
    struct UnwritableTasks;

    #[async_trait]
    impl TaskLeases for UnwritableTasks {
        async fn take(&self, _: Task, _: ProcessId, _: Duration) -> Result<Option<TaskLease>> {
            Err(StoreError::new(StoreErrorKind::Unavailable, "take a task"))
        }
        async fn renew(&self, _: TaskLease, _: Duration) -> Result<bool> {
            unreachable!("the removal has no task")
        }
        async fn release(&self, _: TaskLease) -> Result<()> {
            unreachable!("the removal has no task")
        }
        async fn list(&self) -> Result<Vec<HeldTask>> {
            unreachable!("the removal lists no tasks")
        }
    }

    #[tokio::test]
    async fn an_expired_selfie_is_removed_whether_it_was_used_or_not() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let mut keys = Vec::new();
        // A selfie stores an embedding only before it expires: 10 s outlast a commit on a busy disk.
        for (seconds, is_used) in [(2, false), (10, true), (3600, true)] {
            let probe = store.probes.create(fixture.album, Duration::from_secs(seconds)).await.unwrap();
            if is_used {
                let embedding = Embedding { model: "test@1".to_owned(), vector: vec![1.0, 0.0] };
                store.probes.set_outcome(probe.id, ProbeOutcome::Embedded(embedding)).await.unwrap();
            }
            let key = ObjectKey::probe(probe.organization, probe.album, probe.id);
            store.blobs.write(&key, "image/jpeg", Bytes::from_static(b"a face")).await.unwrap();
            keys.push((key, probe.id));
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.probes.list_expired(None).await.unwrap().len() < 2 {
            assert!(Instant::now() < deadline, "the selfies do not expire");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let removed = removal(&store, &*store.blobs).run().await.unwrap();
        assert_eq!(removed, Removed { removed: 2, failed: 0 });
        let mut left = Vec::new();
        for (key, _) in &keys {
            left.push(store.blobs.head(key).await.unwrap().is_some());
        }
        assert_eq!(left, [false, false, true]);
        assert!(store.probes.get(fixture.album, keys[2].1).await.is_ok());
        assert!(store.probes.list_expired(None).await.unwrap().is_empty());
        store.close().await;
    }

    #[tokio::test]
    async fn one_run_removes_everything_but_the_objects_that_cannot_be_deleted() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let expired = create_expired(&store, fixture.album, 600).await;
        // The first that expired, so that every batch of the first selfies would contain it.
        let mut blobs = FaultyBlobs::new(&expired[..1], 10_000);
        let removed = removal(&store, &blobs).run().await.unwrap();
        assert_eq!(removed, Removed { removed: 599, failed: 1 });
        assert_eq!(store.probes.list_expired(None).await.unwrap(), expired[..1]);
        blobs.undeletable.clear();
        assert_eq!(removal(&store, &blobs).run().await.unwrap(), Removed { removed: 1, failed: 0 });
        assert_eq!(blobs.deleted.load(Ordering::SeqCst), 600);
    }

    #[tokio::test]
    async fn a_batch_that_cannot_be_deleted_does_not_stop_the_next_run() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let expired = create_expired(&store, fixture.album, 300).await;
        let stuck = store.probes.list_expired(None).await.unwrap();
        assert!(stuck.len() < expired.len(), "one batch has all of them");
        let blobs = FaultyBlobs::new(&stuck, 10_000);
        let mut removal = removal(&store, &blobs);
        assert_eq!(removal.run().await.unwrap(), Removed { removed: 0, failed: stuck.len() });
        let rest = expired.len() - stuck.len();
        assert_eq!(removal.run().await.unwrap(), Removed { removed: rest, failed: 0 });
        assert_eq!(removal.run().await.unwrap(), Removed { removed: 0, failed: stuck.len() });
    }

    #[tokio::test]
    async fn one_process_at_a_time_removes_selfies() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        create_expired(&store, fixture.album, 3).await;
        let blobs = FaultyBlobs::new(&[], 10_000);
        let ttl = Duration::from_secs(600);
        let lease = store.tasks.take(Task::Selfies, ProcessId::generate(), ttl).await.unwrap().unwrap();
        assert_eq!(removal(&store, &blobs).run().await.unwrap(), Removed::default());
        assert_eq!(blobs.deleted.load(Ordering::SeqCst), 0);
        store.tasks.release(lease).await.unwrap();
        assert_eq!(removal(&store, &blobs).run().await.unwrap(), Removed { removed: 3, failed: 0 });
        create_expired(&store, fixture.album, 1).await;
        let mut other = ProbeRemoval { holder: ProcessId::generate(), ..removal(&store, &blobs) };
        assert_eq!(other.run().await.unwrap(), Removed::default(), "the first has the task");
        assert_eq!(removal(&store, &blobs).run().await.unwrap(), Removed { removed: 1, failed: 0 });
    }

    /// The rows stay, and nobody is shown what has expired.
    #[tokio::test]
    async fn the_bytes_of_selfies_are_deleted_while_the_database_cannot_be_written() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        create_expired(&store, fixture.album, 300).await;
        let batch = store.probes.list_expired(None).await.unwrap().len();
        assert!(batch < 300, "one batch has all of them");
        let blobs = FaultyBlobs::new(&[], 10_000);
        let mut hindered = ProbeRemoval { tasks: &UnwritableTasks, ..removal(&store, &blobs) };
        for deleted in [batch, 300] {
            assert_eq!(hindered.run().await.unwrap_err().kind, StoreErrorKind::Unavailable);
            assert_eq!(blobs.deleted.load(Ordering::SeqCst), deleted);
        }
        assert_eq!(removal(&store, &blobs).run().await.unwrap(), Removed { removed: 300, failed: 0 });
    }

    #[tokio::test]
    async fn a_process_that_does_not_reach_the_storage_leaves_selfies_to_another() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let expired = create_expired(&store, fixture.album, 3).await;
        let (broken, working) = (FaultyBlobs::new(&expired, 10_000), FaultyBlobs::new(&[], 10_000));
        let failed = removal(&store, &broken).run().await.unwrap();
        assert_eq!(failed, Removed { removed: 0, failed: 3 });
        assert_eq!(failed.pause(), LEASE_TTL, "it would take the task again before another does");
        let mut other = ProbeRemoval { holder: ProcessId::generate(), ..removal(&store, &working) };
        let removed = other.run().await.unwrap();
        assert_eq!((removed, removed.pause()), (Removed { removed: 3, failed: 0 }, RETRY_INTERVAL));
    }

    #[tokio::test]
    async fn sixteen_objects_are_deleted_at_once() {
        let (_folder, store) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        create_expired(&store, fixture.album, 40).await;
        let blobs = Arc::new(FaultyBlobs::new(&[], 0));
        let run = async { removal(&store, &*blobs).run().await.unwrap() };
        let release = async {
            let all_run = || blobs.running.load(Ordering::SeqCst) == DELETIONS_AT_ONCE;
            let deadline = Instant::now() + Duration::from_secs(60);
            while !all_run() {
                assert!(Instant::now() < deadline, "fewer are deleted at once");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            blobs.permits.add_permits(40);
        };
        let (removed, ()) = tokio::join!(run, release);
        assert_eq!(removed, Removed { removed: 40, failed: 0 });
        assert_eq!(blobs.max_running.load(Ordering::SeqCst), DELETIONS_AT_ONCE);
    }
}
