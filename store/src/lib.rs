//! Remembers: albums, keys, photos, faces, texts, the work queue and the bytes.
//!
//! Knows nothing of HTTP, networks or pixels. The rest of the house asks through the traits of [`traits`];
//! [`Store::open`] builds the backends from URLs. Every backend runs the tests of [`suite`].

use std::path::PathBuf;
use std::sync::Arc;

use time::OffsetDateTime;
use url::Url;

pub mod album;
pub mod calibration;
pub mod error;
mod face_index;
mod face_matrix;
pub mod ids;
pub mod key;
pub mod local;
pub mod meters;
pub mod object;
mod objects;
pub mod photo;
mod rows;
mod sqlite;
pub mod suite;
mod text_search;
pub mod traits;
pub mod variants;

pub use error::{StoreError, StoreErrorKind};
use face_index::FaceCache;
use local::{LocalFiles, LocalSettings};
use sqlite::{
    Database, SqliteAlbums, SqliteFaces, SqliteKeys, SqlitePhotos, SqliteProbes, SqliteQueue, SqliteTexts,
};
use text_search::TextSearch;

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
    embedded: Embedded,
}

/// The backends of the embedded profile, for what only it can be asked.
#[derive(Clone)]
struct Embedded {
    database: Database,
    queue: Arc<SqliteQueue>,
    files: Arc<LocalFiles>,
}

/// What [`Store::open`] needs.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// `sqlite:` and a path.
    pub database_url: String,
    /// `file:` and a folder.
    pub storage_url: String,
    /// What presigned local URLs begin with, for example `http://127.0.0.1:8080`.
    pub public_url: Url,
    /// Signs local URLs; 32 bytes.
    pub signing_secret: [u8; 32],
    /// How many leases of one photo may end without a word before it has failed.
    pub attempt_limit: u32,
    /// Bytes of vectors the face index may hold.
    pub face_index_bytes: usize,
    /// Where temporary files of uploads lie; on the same file system as the storage.
    pub scratch: PathBuf,
}

impl Store {
    /// Opens what the URLs name, makes it when missing, and brings the tables up to date. Needs a tokio runtime:
    /// confirmations are committed by a task, which ends with the last clone of the store.
    ///
    /// # Errors
    /// `Corrupt` for a URL of another kind or a file that is no database, `Unavailable` for a disk that refuses.
    pub async fn open(settings: StoreSettings) -> Result<Self, StoreError> {
        let database = Database::open(&settings.database_url).await?;
        let files = LocalFiles::open_folder(LocalSettings {
            root: local::folder_of(&settings.storage_url)?,
            scratch: settings.scratch,
            public_url: settings.public_url,
            signing_secret: settings.signing_secret,
        });
        let files = Arc::new(files.await?);
        let face_rows = Arc::new(SqliteFaces::new(database.clone()));
        let faces = Arc::new(FaceCache::new(face_rows, settings.face_index_bytes));
        let queue = Arc::new(SqliteQueue::open(database.clone(), settings.attempt_limit));
        Ok(Self {
            keys: Arc::new(SqliteKeys::new(database.clone())),
            albums: Arc::new(SqliteAlbums::new(database.clone(), Arc::clone(&faces))),
            photos: Arc::new(SqlitePhotos::new(database.clone(), Arc::clone(&faces))),
            queue: Arc::clone(&queue) as _,
            probes: Arc::new(SqliteProbes::new(database.clone())),
            blobs: Arc::clone(&files) as _,
            faces,
            texts: Arc::new(TextSearch::new(Arc::new(SqliteTexts::new(database.clone())))),
            local: Some(Arc::clone(&files)),
            embedded: Embedded { database, queue, files },
        })
    }

    /// Whether the database answers and can be written.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn check_database(&self) -> Result<(), StoreError> {
        self.embedded.database.check().await
    }

    /// Whether bytes can be written.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn check_storage(&self) -> Result<(), StoreError> {
        self.embedded.files.check().await
    }

    /// Measures the queue: how many photos wait, and for how long the oldest of them has.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn measure_queue(&self) -> Result<(), StoreError> {
        metrics::gauge!(meters::QUEUE_DEPTH).set(self.queue.depth().await? as f64);
        let since = self.queue.waiting_since().await?;
        // Clocks of other machines may be ahead of this one.
        let age = since.map_or(0.0, |since| (OffsetDateTime::now_utc() - since).as_seconds_f64().max(0.0));
        metrics::gauge!(meters::QUEUE_AGE_SECONDS).set(age);
        Ok(())
    }

    /// Lets every running lease lapse at once; answers how many. Their attempts stay counted: these photos were in
    /// the hands of a process that ended without a word.
    ///
    /// Only for the one worker process of the embedded profile, once, before it leases: with other workers alive it
    /// would take their photos from them.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn reclaim(&self) -> Result<u64, StoreError> {
        self.embedded.queue.reclaim().await
    }

    /// Waits for running calls and closes the database; calls after it fail.
    pub async fn close(&self) {
        self.embedded.database.close().await;
    }
}

/// Brings the tables of a database up to date; [`Store::open`] does it too.
///
/// # Errors
/// As [`Store::open`].
pub async fn migrate(database_url: &str) -> Result<(), StoreError> {
    sqlite::migrate_url(database_url).await
}
