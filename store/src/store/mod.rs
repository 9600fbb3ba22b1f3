//! The store: opens the backends that the settings name and hands them out as the traits of [`crate::traits`].

#[cfg(any(test, feature = "conformance"))]
mod ageing;
mod opening;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::MissedTickBehavior;
use url::Url;

use self::opening::{open_eraser, open_jetstream, open_storage, shared_rate_windows, start_queue};
use crate::blobs::cloud::CloudSettings;
use crate::blobs::gc::{GarbageCollector, GcOptions, GcReport};
use crate::blobs::local::LocalFiles;
use crate::blobs::storage::Storage;
use crate::error::{StoreError, StoreErrorKind};
use crate::key_cache::CachedKeys;
use crate::model::cost::SearchCosts;
use crate::model::credit::CreditSettings;
use crate::model::object_key::ObjectKey;
use crate::model::photo::CountMismatch;
use crate::queue::jetstream::{JetStreamQueue, QueueSettings};
use crate::sealing::{MasterSecret, VisitorSecret};
use crate::search::faces::{FaceCache, FindGpu, GpuAlbums};
use crate::search::texts::TextSearch;
use crate::sql;
use crate::sql::erasures::rows::ErasureRows;
use crate::sql::{
    Database, DatabaseKind, RulesCache, SealedSecrets, ServerLimits, SharedLedger, SqlAccounts, SqlAlbums,
    SqlCosts, SqlCredits, SqlDeliveryQueue, SqlDownloads, SqlEvents, SqlFaces, SqlGalleries, SqlGcQueries,
    SqlJudging, SqlKeys, SqlPhotos, SqlProbes, SqlProcesses, SqlQueue, SqlStartLists, SqlTaskLeases,
    SqlTexts, SqlUploadTargets, SqlWatermarks, SqlWebhooks,
};
use crate::traits::{self, UploadTarget};
use crate::turns::Turns;

/// Access to everything that is stored. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// Organizations and API keys.
    pub keys: Arc<dyn traits::Keys>,
    /// Accounts of people.
    pub accounts: Arc<dyn traits::Accounts>,
    /// Albums.
    pub albums: Arc<dyn traits::Albums>,
    /// Photos.
    pub photos: Arc<dyn traits::Photos>,
    /// The work queue.
    pub queue: Arc<dyn traits::Queue>,
    /// The database's side of a message queue that carries photo ids to workers.
    pub outbox_queue: Arc<dyn traits::OutboxQueue>,
    /// Selfies.
    pub probes: Arc<dyn traits::Probes>,
    /// Bytes of images.
    pub blobs: Arc<dyn traits::Blobs>,
    /// Face search, in memory.
    pub faces: Arc<dyn traits::FaceIndex>,
    /// Bib search.
    pub texts: Arc<dyn traits::Texts>,
    /// Start lists.
    pub start_lists: Arc<dyn traits::StartLists>,
    /// Judges photos again by start lists.
    pub judging: Arc<dyn traits::Judging>,
    /// What happened.
    pub events: Arc<dyn traits::Events>,
    /// Makes events of what happened.
    pub event_publisher: Arc<dyn traits::EventPublisher>,
    /// Webhooks.
    pub webhooks: Arc<dyn traits::Webhooks>,
    /// The work of sending events to webhooks.
    pub deliveries: Arc<dyn traits::DeliveryQueue>,
    /// What tenants have and use.
    pub credits: Arc<dyn traits::CreditLedger>,
    /// What processing photos has cost.
    pub costs: Arc<dyn traits::Costs>,
    /// What one process at a time does with credits.
    pub ledger_task: Arc<dyn traits::LedgerTask>,
    /// The rate limits that processes share; `None` where one process alone has requests.
    pub rate_windows: Option<Arc<dyn traits::RateWindows>>,
    /// Tasks that one process at a time does.
    pub tasks: Arc<dyn traits::TaskLeases>,
    /// What the processes of this database report.
    pub processes: Arc<dyn traits::Processes>,
    /// Galleries.
    pub galleries: Arc<dyn traits::Galleries>,
    /// Watermarks of albums.
    pub watermarks: Arc<dyn traits::Watermarks>,
    /// Permitted downloads of many photos.
    pub downloads: Arc<dyn traits::Downloads>,
    /// Erasures and their receipts.
    pub erasures: Arc<dyn traits::Erasures>,
    /// Serves signed local URLs; `None` when the bytes are in a bucket.
    pub local: Option<Arc<LocalFiles>>,
    pub(crate) face_cache: Arc<FaceCache>,
    /// As of when the face index is, by the database's clock in microseconds.
    faces_as_of: Arc<AtomicI64>,
    storage: Storage,
    database: Database,
    master_secret: Option<MasterSecret>,
    sql_queue: Arc<SqlQueue>,
    /// The message queue beside the database, if one is configured.
    jetstream: Option<Arc<JetStreamQueue>>,
}

/// Calls that only the embedded profile offers: one database file, and one process that works on it.
pub struct Embedded<'a> {
    queue: &'a SqlQueue,
}

impl Embedded<'_> {
    /// Expires every running lease now; returns how many. Their attempts stay counted: the process that held them crashed.
    ///
    /// To be called once, before the process leases for the first time. A database server has other workers, whose
    /// photos this would take from them: there the leases of a dead worker expire by themselves.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn reclaim_leases(&self) -> Result<u64, StoreError> {
        self.queue.reclaim_leases().await
    }

    /// Makes the next call that leases photos begin with [`Self::reclaim_leases`], and the calls after it as long as
    /// that fails: for a process that must be able to start while the disk is full and nothing can be written.
    pub async fn schedule_reclaim(&self) {
        self.queue.schedule_reclaim().await;
    }
}

/// The arguments of [`Store::open`].
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// `sqlite:` and a path, or a `postgres:` URL.
    pub database_url: String,
    /// How much of a Postgres server to use; ignored for SQLite.
    pub server_limits: ServerLimits,
    /// `file:` and a folder; `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
    pub storage_url: String,
    /// What a bucket needs beyond its URL; empty for a folder.
    pub cloud: CloudSettings,
    /// The beginning of presigned local URLs, for example `http://127.0.0.1:8080`.
    pub public_url: Url,
    /// Signs local URLs; 32 bytes.
    pub signing_secret: [u8; 32],
    /// Seals secrets in the database. Without one there can be none.
    pub master_secret: Option<MasterSecret>,
    /// For how many days backups of database and storage are kept, for receipts of erasures; `None` if that is not known.
    pub backup_days: Option<u32>,
    /// How many leases of one photo may expire, their worker crashed, before the photo fails.
    pub attempt_limit: u32,
    /// On how many cells of a photo a network runs at most: bounds the estimated cost of photos of a grid, by which
    /// organizations share the work.
    pub max_cells: u32,
    /// What things cost, and what is declined.
    pub credits: CreditSettings,
    /// Upper bound of the vectors in the face index, bytes.
    pub face_index_bytes: usize,
    /// The message queue that offers photos to workers; without one they poll the database.
    pub queue: Option<QueueSettings>,
}

impl Store {
    /// Opens the database and the storage that the URLs name, creates them when missing (except buckets), and applies
    /// migrations. Needs a tokio runtime: confirmations are committed by a task, which ends with the last clone of the
    /// store.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used, `Corrupt` for a file that is no database, `Unavailable` when the
    /// database or the disk fails.
    pub async fn open(settings: StoreSettings) -> Result<Self, StoreError> {
        let database = Database::open(&settings.database_url, &settings.server_limits).await?;
        let storage = open_storage(&settings, &database).await?;
        let events = Arc::new(SqlEvents::new(database.clone()));
        let faces = Arc::new(SqlFaces::new(database.clone()));
        let searches = Arc::new(SearchCosts::default());
        let face_cache =
            Arc::new(FaceCache::new(faces, settings.face_index_bytes).charging(Arc::clone(&searches)));
        let ledger = SharedLedger::new(settings.credits);
        let credits = Arc::new(SqlCredits::new(database.clone(), Arc::clone(&ledger)));
        let rules = Arc::new(RulesCache::default());
        let scans = Turns::default();
        let sql_queue = start_queue(&settings, &database, Arc::clone(&ledger), Arc::clone(&rules));
        let jetstream = open_jetstream(settings.queue.clone(), Arc::clone(&sql_queue) as _).await?;
        let eraser = open_eraser(&settings, &database, &storage, &face_cache, jetstream.as_ref());
        Ok(Self {
            galleries: Arc::new(SqlGalleries::new(database.clone(), settings.master_secret.clone())),
            watermarks: Arc::new(SqlWatermarks::new(database.clone(), Arc::clone(&ledger), scans.clone())),
            downloads: Arc::new(SqlDownloads::new(database.clone())),
            accounts: Arc::new(SqlAccounts::new(database.clone())),
            keys: Arc::new(CachedKeys::new(SqlKeys::new(database.clone()))),
            albums: Arc::new(SqlAlbums::new(database.clone(), Arc::clone(&face_cache))),
            photos: Arc::new(SqlPhotos::new(database.clone(), Arc::clone(&face_cache), scans.clone())),
            queue: match &jetstream {
                Some(jetstream) => Arc::clone(jetstream) as _,
                None => Arc::clone(&sql_queue) as _,
            },
            outbox_queue: Arc::clone(&sql_queue) as _,
            probes: Arc::new(SqlProbes::new(database.clone())),
            blobs: storage.blobs(),
            faces: Arc::clone(&face_cache) as _,
            texts: Arc::new(TextSearch::new(Arc::new(SqlTexts::new(database.clone())))),
            start_lists: Arc::new(SqlStartLists::new(
                database.clone(),
                Arc::clone(&rules),
                settings.master_secret.clone(),
                scans,
            )),
            judging: Arc::new(SqlJudging::new(database.clone(), rules, settings.master_secret.clone())),
            events: Arc::clone(&events) as _,
            event_publisher: events,
            webhooks: Arc::new(SqlWebhooks::new(database.clone(), settings.master_secret.clone())),
            deliveries: Arc::new(SqlDeliveryQueue::new(database.clone(), settings.master_secret.clone())),
            master_secret: settings.master_secret,
            costs: Arc::new(SqlCosts::new(database.clone(), Arc::clone(&ledger), searches)),
            credits: Arc::clone(&credits) as _,
            ledger_task: credits,
            rate_windows: shared_rate_windows(&database),
            tasks: Arc::new(SqlTaskLeases::new(database.clone())),
            processes: Arc::new(SqlProcesses::new(database.clone())),
            erasures: Arc::new(eraser),
            local: storage.local(),
            face_cache,
            faces_as_of: Arc::new(AtomicI64::new(0)),
            storage,
            database,
            sql_queue,
            jetstream,
        })
    }

    /// Checks that the database responds and accepts writes.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn check_database(&self) -> Result<(), StoreError> {
        self.database.check().await
    }

    /// Checks that the storage accepts writes.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_storage(&self) -> Result<(), StoreError> {
        self.storage.check().await
    }

    /// Whether the storage keeps older versions of objects, as [`Self::check_storage`] found out last; `None` when that is not known.
    #[must_use]
    pub fn storage_keeps_versions(&self) -> Option<bool> {
        self.storage.keeps_versions()
    }

    /// Returns the kept counts of photos that are not those of the rows. Reads the states of all photos.
    ///
    /// # Errors
    /// `Unavailable` when the database fails.
    pub async fn find_count_mismatches(&self) -> Result<Vec<CountMismatch>, StoreError> {
        crate::sql::find_count_mismatches(&self.database).await
    }

    /// Brings the albums in memory up to the database every `period`, until it is dropped, for what no search asks for:
    /// faces that another process has deleted leave the memory of this one too. Costs one query for all albums, and
    /// reads for those that have changed.
    pub async fn refresh_faces_every(&self, period: Duration) {
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if let Err(error) = self.refresh_faces().await {
                tracing::warn!(%error, "failed to refresh the face index, retrying in {} s", period.as_secs());
            }
        }
    }

    /// Searches faces of hot albums on the GPU that `find_gpu` returns once it is open, with at most `limit_bytes` of its
    /// memory. Answers stay the same. To be called at most once.
    pub fn search_faces_on(&self, find_gpu: Box<FindGpu>, limit_bytes: usize) {
        self.face_cache.search_on(GpuAlbums::new(find_gpu, limit_bytes));
    }

    /// Brings the albums in memory up to the database now.
    async fn refresh_faces(&self) -> Result<(), StoreError> {
        let now = ErasureRows::new(self.database.clone()).read_clock().await?;
        let as_of = self.face_cache.refresh(now).await?;
        self.faces_as_of.fetch_max(as_of, Ordering::Relaxed);
        Ok(())
    }

    /// Returns as of when the face index is, by the database's clock in microseconds. Brings it up to date first if an
    /// erasure waits for that.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn faces_as_of(&self) -> Result<i64, StoreError> {
        let as_of = self.faces_as_of.load(Ordering::Relaxed);
        if ErasureRows::new(self.database.clone()).has_running_since(as_of).await? {
            self.refresh_faces().await?;
        }
        Ok(self.faces_as_of.load(Ordering::Relaxed))
    }

    /// Checks that the message queue beside the database responds, if one is configured. Without it photos can still be
    /// confirmed, but not leased.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_queue(&self) -> Result<(), StoreError> {
        match &self.jetstream {
            Some(jetstream) => jetstream.check_stream().await,
            None => Ok(()),
        }
    }

    /// Returns whether the photo or the selfie exists for which an object is uploaded. A URL for an upload is valid for
    /// minutes; what it was signed for may be deleted meanwhile.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn find_upload_target(&self, key: &ObjectKey) -> Result<UploadTarget, StoreError> {
        SqlUploadTargets::new(self.database.clone()).find(key).await
    }

    /// Removes objects that no database row needs, and what uploads left in a folder whose process was killed; finishes deletions of
    /// albums that were interrupted.
    ///
    /// # Errors
    /// `Unavailable` when database or storage do not respond; what was removed by then was rightly removed.
    pub async fn collect_garbage(&self, options: GcOptions) -> Result<GcReport, StoreError> {
        // Refuses a standby server: it may not have the rows of the newest photos yet.
        self.check_database().await?;
        let report = self.garbage_collector().run(options).await?;
        if let (Some(files), false) = (&self.local, options.is_dry_run)
            && let Err(error) = files.remove_abandoned_uploads().await
        {
            tracing::warn!(%error, "failed to remove what uploads left, trying again at the next collection");
        }
        Ok(report)
    }

    /// Finishes deletions of albums that began before `before`, were interrupted and have no running erasure, which finishes its
    /// own; returns how many. One that fails does not keep the others from being finished.
    ///
    /// # Errors
    /// `Unavailable`: the first failure.
    pub async fn finish_deletions(&self, before: OffsetDateTime) -> Result<u64, StoreError> {
        self.garbage_collector().finish_deletions(before).await
    }

    fn garbage_collector(&self) -> GarbageCollector<'_> {
        GarbageCollector {
            albums: &*self.albums,
            blobs: &self.blobs,
            storage: &self.storage,
            queries: SqlGcQueries::new(self.database.clone()),
        }
    }

    /// Returns whether the secrets in the database can be opened.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_sealed_secrets(&self) -> Result<SealedSecrets, StoreError> {
        sql::check_sealed_secrets(&self.database, self.master_secret.as_ref()).await
    }

    /// Seals every secret with the current master secret that is sealed with the old one; returns how many.
    ///
    /// # Errors
    /// `Corrupt` when a secret was sealed with neither of them, `Invalid` without a master secret, `Unavailable`.
    pub async fn reseal(&self) -> Result<u64, StoreError> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        sql::reseal(&self.database, self.master_secret.as_ref().ok_or_else(missing)?).await
    }

    /// Returns the secret of digests that are counted in place of visitors and networks; one of this process alone where there
    /// is no master secret.
    pub fn visitor_secret(&self) -> VisitorSecret {
        self.master_secret.as_ref().map_or_else(VisitorSecret::random, MasterSecret::visitor_secret)
    }

    /// The calls of the embedded profile; `None` when the database is a server.
    pub fn embedded(&self) -> Option<Embedded<'_>> {
        (self.database.kind() == DatabaseKind::Sqlite).then_some(Embedded { queue: &self.sql_queue })
    }

    /// Waits for running calls and closes the database; later calls fail.
    pub async fn close(&self) {
        // First: reading a large album would keep the database from closing.
        self.face_cache.close();
        if let Some(jetstream) = &self.jetstream {
            jetstream.close().await;
        }
        self.sql_queue.close().await;
        self.database.close().await;
    }
}
