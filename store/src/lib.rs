//! Remembers: albums, keys, photos, faces, texts, the work queue and the bytes.
//!
//! Knows nothing of HTTP, networks or pixels. The rest of the house asks through the traits of [`traits`];
//! [`Store::open`] builds the backends from URLs. Every backend runs the tests of [`suite`].

pub mod blobs;
pub mod conformance;
pub mod error;
pub mod folder;
pub mod metric_names;
pub mod model;
mod queue;
pub mod search;
mod sql;
pub mod traits;

use std::sync::Arc;

use time::OffsetDateTime;
use url::Url;

use blobs::cloud::CloudSettings;
use blobs::gc::GarbageCollector;
pub use blobs::gc::{GcOptions, GcReport};
use blobs::local::LocalFiles;
use blobs::storage::{Storage, StorageSettings};
pub use error::{StoreError, StoreErrorKind};
use queue::jetstream::JetStreamQueue;
pub use queue::jetstream::QueueSettings;
use search::faces::FaceCache;
use search::texts::TextSearch;
use sql::{Database, SqlAlbums, SqlFaces, SqlGcQueries, SqlKeys, SqlPhotos, SqlProbes, SqlQueue, SqlTexts};
pub use sql::{DatabaseKind, ServerLimits};

/// Everything that is remembered. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// Organizations and keys.
    pub keys: Arc<dyn traits::Keys>,
    /// Albums.
    pub albums: Arc<dyn traits::Albums>,
    /// Photos.
    pub photos: Arc<dyn traits::Photos>,
    /// The work queue.
    pub queue: Arc<dyn traits::Queue>,
    /// The queue's rows, for a message queue that carries their names.
    pub work_rows: Arc<dyn traits::OutboxQueue>,
    /// Selfies.
    pub probes: Arc<dyn traits::Probes>,
    /// Bytes.
    pub blobs: Arc<dyn traits::Blobs>,
    /// Faces in memory.
    pub faces: Arc<dyn traits::FaceIndex>,
    /// Bibs.
    pub texts: Arc<dyn traits::Texts>,
    /// What answers signed local URLs, where bytes lie on the local disk.
    pub local: Option<Arc<LocalFiles>>,
    storage: Storage,
    database: Database,
    sql_queue: Arc<SqlQueue>,
    /// The queue beside the database, where there is one.
    jetstream: Option<Arc<JetStreamQueue>>,
}

/// What only the embedded profile can be asked: one file for the rows, and one process that works on it.
pub struct Embedded<'a> {
    queue: &'a SqlQueue,
}

impl Embedded<'_> {
    /// Lets every running lease lapse at once; answers how many. Their attempts stay counted: these photos were in
    /// the hands of a process that ended without a word.
    ///
    /// Once, before the process leases for the first time. A server of rows has other workers, whose photos this would
    /// take from them: there the leases of a dead worker lapse by themselves.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn reclaim_leases(&self) -> Result<u64, StoreError> {
        self.queue.reclaim_leases().await
    }

    /// As [`Self::reclaim`], by the next call that leases photos, and again by the one after it when that fails: for a
    /// process that has to start also when the disk is full and nothing can be written.
    pub async fn schedule_reclaim(&self) {
        self.queue.schedule_reclaim().await;
    }
}

/// What [`Store::open`] needs.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// `sqlite:` and a path, or a `postgres:` URL.
    pub database_url: String,
    /// How much of a Postgres server to use; SQLite does not ask.
    pub server_limits: ServerLimits,
    /// `file:` and a folder; `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
    pub storage_url: String,
    /// What a bucket needs beyond its URL; nothing for a folder.
    pub cloud: CloudSettings,
    /// What presigned local URLs begin with, for example `http://127.0.0.1:8080`.
    pub public_url: Url,
    /// Signs local URLs; 32 bytes.
    pub signing_secret: [u8; 32],
    /// How many leases of one photo may end without a word before it has failed.
    pub attempt_limit: u32,
    /// Bytes of vectors the face index may hold.
    pub face_index_bytes: usize,
    /// The queue that offers photos to workers; the database itself when there is none.
    pub queue: Option<QueueSettings>,
}

impl Store {
    /// Opens what the URLs name, makes it when missing (but no bucket), and brings the tables up to date. Needs a tokio runtime:
    /// confirmations are committed by a task, which ends with the last clone of the store.
    ///
    /// # Errors
    /// `Corrupt` for a URL of another kind or a file that is no database, `Unavailable` for a disk that refuses.
    pub async fn open(settings: StoreSettings) -> Result<Self, StoreError> {
        let database = Database::open(&settings.database_url, &settings.server_limits).await?;
        let storage = Storage::open(StorageSettings {
            url: &settings.storage_url,
            cloud: &settings.cloud,
            public_url: &settings.public_url,
            signing_secret: settings.signing_secret,
            has_photos: SqlGcQueries::new(database.clone()).has_photos().await?,
        })
        .await?;
        let face_rows = Arc::new(SqlFaces::new(database.clone()));
        let faces = Arc::new(FaceCache::new(face_rows, settings.face_index_bytes));
        let queue = Arc::new(SqlQueue::start(database.clone(), settings.attempt_limit));
        let jetstream = open_jetstream(settings.queue, Arc::clone(&queue) as _).await?;
        Ok(Self {
            keys: Arc::new(SqlKeys::new(database.clone())),
            albums: Arc::new(SqlAlbums::new(database.clone(), Arc::clone(&faces))),
            photos: Arc::new(SqlPhotos::new(database.clone(), Arc::clone(&faces))),
            queue: match &jetstream {
                Some(jetstream) => Arc::clone(jetstream) as _,
                None => Arc::clone(&queue) as _,
            },
            work_rows: Arc::clone(&queue) as _,
            probes: Arc::new(SqlProbes::new(database.clone())),
            blobs: storage.blobs(),
            faces,
            texts: Arc::new(TextSearch::new(Arc::new(SqlTexts::new(database.clone())))),
            local: storage.local(),
            storage,
            database,
            sql_queue: queue,
            jetstream,
        })
    }

    /// Whether the database answers and can be written.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn check_database(&self) -> Result<(), StoreError> {
        self.database.check().await
    }

    /// Whether bytes can be written.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_storage(&self) -> Result<(), StoreError> {
        self.storage.check().await
    }

    /// Measures the queue: how many photos wait, and for how long the oldest of them has.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn measure_queue(&self) -> Result<(), StoreError> {
        metrics::gauge!(metric_names::QUEUE_DEPTH).set(self.queue.depth().await? as f64);
        let since = self.queue.waiting_since().await?;
        // Clocks of other machines may be ahead of this one.
        let age = since.map_or(0.0, |since| (OffsetDateTime::now_utc() - since).as_seconds_f64().max(0.0));
        metrics::gauge!(metric_names::QUEUE_AGE_SECONDS).set(age);
        Ok(())
    }

    /// Whether the queue beside the database answers, where there is one. Without it photos can be confirmed all the
    /// same, but not leased.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_queue(&self) -> Result<(), StoreError> {
        match &self.jetstream {
            Some(jetstream) => jetstream.check_stream().await,
            None => Ok(()),
        }
    }

    /// What only the embedded profile can be asked; `None` where the rows lie on a server.
    pub fn embedded(&self) -> Option<Embedded<'_>> {
        (self.database.kind() == DatabaseKind::Sqlite).then_some(Embedded { queue: &self.sql_queue })
    }

    /// Removes objects that are no longer needed, and finishes interrupted deletions of albums.
    ///
    /// # Errors
    /// `Unavailable` if database or storage do not respond; what was removed by then was garbage.
    pub async fn collect_garbage(&self, options: GcOptions) -> Result<GcReport, StoreError> {
        // A database that only follows another one may lack rows that exist there.
        self.check_database().await?;
        self.garbage_collector().run(options).await
    }

    /// Finishes interrupted deletions of albums that began before `before`; returns how many. A deletion that fails does
    /// not prevent the others.
    ///
    /// # Errors
    /// `Unavailable`: the first error that occurred.
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

    /// Waits for running calls and closes the database; calls after it fail.
    pub async fn close(&self) {
        if let Some(jetstream) = &self.jetstream {
            jetstream.close().await;
        }
        self.database.close().await;
    }
}

/// Opens (and makes, at first start) the rows alone, for their organizations and keys.
///
/// # Errors
/// As [`Store::open`].
pub async fn open_keys(
    database_url: &str,
    server_limits: &ServerLimits,
) -> Result<Arc<dyn traits::Keys>, StoreError> {
    Ok(Arc::new(SqlKeys::new(Database::open(database_url, server_limits).await?)))
}

/// The queue beside the database, which takes photos from the rows to the workers.
async fn open_jetstream(
    settings: Option<QueueSettings>,
    rows: Arc<dyn traits::OutboxQueue>,
) -> Result<Option<Arc<JetStreamQueue>>, StoreError> {
    let Some(settings) = settings else { return Ok(None) };
    Ok(Some(Arc::new(JetStreamQueue::open(settings, rows).await?)))
}

/// Keeps a file of rows (`sqlite:`) for this process, as long as the answer lives: alone, or with others that do not ask
/// to be alone. `None` for rows on a server, which any number of processes may work on.
///
/// # Errors
/// `Conflict` when another process has it, `Unavailable` when the lock beside the file cannot be made, `Corrupt` for
/// another kind of URL.
pub fn lock_database(database_url: &str, alone: bool) -> Result<Option<std::fs::File>, StoreError> {
    sql::lock_database(database_url, alone)
}

/// Brings the tables of a database up to date; [`Store::open`] does it too.
///
/// # Errors
/// As [`Store::open`].
pub async fn migrate(database_url: &str) -> Result<(), StoreError> {
    sql::migrate(database_url).await
}
