//! One SQLite file: the database of the embedded profile.
//!
//! One connection writes, several read (write-ahead log): writers never wait for a lock within the process, and readers
//! see the last commit. Writers and readers take turns by organization, so that one with many calls delays its own.

use std::fs::{File, TryLockError};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::time::timeout;

use crate::error::{StoreError, StoreErrorKind};
use crate::folder::make_folder;
use crate::metric_names;
use crate::private::{private_file, restrict_to_owner};
use crate::sql::error::store_error;
use crate::traits::Result;
use crate::turns::{Turn, Turns, current_organization};

/// How long a statement waits for another process (a command beside the service) to commit.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long emptying the log waits for readers, and with it every writer.
const TRUNCATE_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a call waits for a connection: writers queue for one connection in front of a slow disk.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of reading connections, one of which is left to others while an organization uses the rest. Each is a thread that
/// sleeps unless it reads; searches and lists come a few at a time.
pub(in crate::sql) const READERS: u32 = 5;

/// Number of connections that only look up API keys, so that no request waits for the lists and searches of others
/// before it is known whose it is. A look-up takes microseconds.
const KEY_READERS: u32 = 1;

/// Number of connections that read the photos of whole albums, one after the other.
const SCANNERS: u32 = 1;

/// Number of connections that read the faces of whole albums into memory, one after the other. Not those of the photos: a
/// large album takes seconds.
const FACE_LOADERS: u32 = 1;

/// How much lower the priority of a thread that reads a whole album is: half a million photos take it a tenth of a second,
/// and others that read a few rows want the core at the same time. More than that of the stages of the pipeline.
const SCAN_NICENESS: i32 = 5;

/// Steps of a statement after which a new connection's thread lowers its priority.
const STEPS_BEFORE_LOWERING: i32 = 100;

/// The write-ahead log is checkpointed at this many pages (16 MB). At the default of 1000 a batch of 64 photos with
/// their embeddings fills it every few commits, and each checkpoint costs two more syncs.
const CHECKPOINT_PAGES: &str = "4000";

/// The pools of connections to the file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SqliteFile {
    pub(crate) writer: SqlitePool,
    pub(crate) reader: SqlitePool,
    key_reader: SqlitePool,
    scanner: SqlitePool,
    face_loader: SqlitePool,
    write_turns: Turns,
    read_turns: Turns,
    path: PathBuf,
}

/// A running transaction; rolled back when dropped.
pub(crate) struct SqliteTransaction {
    transaction: Transaction<'static, Sqlite>,
    /// Declared after the transaction, so that the next writer has its turn when this one has ended.
    _turn: Option<Turn>,
}

impl SqliteTransaction {
    pub(crate) async fn commit(self) -> SqlxResult<()> {
        self.transaction.commit().await
    }

    pub(crate) async fn rollback(self) -> SqlxResult<()> {
        self.transaction.rollback().await
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

/// A connection for statements that read, for as long as its turn is.
pub(crate) struct SqliteReader {
    connection: PoolConnection<Sqlite>,
    /// Declared after the connection, so that there is one for whoever has the next turn.
    _turn: Option<Turn>,
}

impl Deref for SqliteReader {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for SqliteReader {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

/// A result of sqlx; the caller adds which operation failed.
type SqlxResult<T> = std::result::Result<T, sqlx::Error>;

impl SqliteFile {
    /// Opens the file of a `sqlite:` URL whose migrations have been applied.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let path = database_path(url)?;
        let pool = |connections: u32| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .max_lifetime(None)
                .idle_timeout(None)
                // The connection is to a file within this process and cannot be lost.
                .test_before_acquire(false)
                .after_release(|connection, _| Box::pin(has_no_transaction(connection)))
        };
        let writer =
            pool(1).connect_with(connect_options(&path)).await.map_err(store_error("open the database"))?;
        let open_pool = async |pool: SqlitePoolOptions| {
            let readers = pool.connect_with(connect_options(&path).read_only(true)).await;
            readers.map_err(store_error("open the database for reading"))
        };
        let low_priority = |connections: u32| {
            pool(connections).after_connect(|connection, _| Box::pin(lower_priority_of_thread(connection)))
        };
        Ok(Self {
            writer,
            reader: open_pool(pool(READERS)).await?,
            key_reader: open_pool(pool(KEY_READERS)).await?,
            scanner: open_pool(low_priority(SCANNERS)).await?,
            face_loader: open_pool(low_priority(FACE_LOADERS)).await?,
            write_turns: Turns::default(),
            read_turns: Turns::with_one_for_others(READERS),
            path,
        })
    }

    /// Begins a transaction that holds the write lock from its first statement. One that began as a reader and then
    /// wrote could fail because another process wrote meanwhile.
    pub(crate) async fn begin_write(&self) -> SqlxResult<SqliteTransaction> {
        let asked_at = Instant::now();
        let turn = wait_for_turn(&self.write_turns).await?;
        let transaction = self.writer.begin_with("begin immediate").await?;
        metrics::histogram!(metric_names::WRITE_WAIT_SECONDS).record(asked_at.elapsed().as_secs_f64());
        Ok(SqliteTransaction { transaction, _turn: Some(turn) })
    }

    pub(crate) async fn begin_snapshot(&self) -> SqlxResult<SqliteTransaction> {
        let turn = wait_for_turn(&self.read_turns).await?;
        Ok(SqliteTransaction { transaction: self.reader.begin().await?, _turn: Some(turn) })
    }

    /// Waits for the connection that reads whole albums. Whoever asks for it takes turns before: see `SqlPhotos`.
    pub(crate) async fn begin_scan(&self) -> SqlxResult<SqliteTransaction> {
        Ok(SqliteTransaction { transaction: self.scanner.begin().await?, _turn: None })
    }

    /// Waits for the connection that reads the faces of whole albums. Whoever asks for it takes turns before: see `AlbumLoader`.
    pub(crate) async fn begin_face_load(&self) -> SqlxResult<SqliteTransaction> {
        Ok(SqliteTransaction { transaction: self.face_loader.begin().await?, _turn: None })
    }

    pub(crate) async fn acquire_reader(&self) -> SqlxResult<SqliteReader> {
        let turn = wait_for_turn(&self.read_turns).await?;
        Ok(SqliteReader { connection: self.reader.acquire().await?, _turn: Some(turn) })
    }

    pub(crate) async fn acquire_key_reader(&self) -> SqlxResult<SqliteReader> {
        Ok(SqliteReader { connection: self.key_reader.acquire().await?, _turn: None })
    }

    /// Writes the whole log to the file and empties it, so that nothing that was overwritten in the file is left in the log.
    /// Returns whether it did: not while somebody still reads an older state. Does not wait for readers, because writers
    /// would wait too.
    pub(crate) async fn truncate_log(&self) -> SqlxResult<bool> {
        let options = connect_options(&self.path).busy_timeout(TRUNCATE_TIMEOUT);
        let mut connection = options.connect().await?;
        let truncate = sqlx::query_as("pragma wal_checkpoint(truncate)");
        let (busy, _, _): (i64, i64, i64) = truncate.fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(busy == 0)
    }

    /// Closes the connections, which checkpoints the log.
    pub(crate) async fn close(&self) {
        self.face_loader.close().await;
        self.scanner.close().await;
        self.key_reader.close().await;
        self.reader.close().await;
        self.writer.close().await;
    }
}

/// Waits for a turn of the organization on whose behalf the task runs.
async fn wait_for_turn(turns: &Turns) -> SqlxResult<Turn> {
    let turn = timeout(ACQUIRE_TIMEOUT, turns.take(current_organization())).await;
    turn.map_err(|_elapsed| sqlx::Error::PoolTimedOut)
}

/// Makes the thread of a connection lower its priority in its first statement: sqlx runs on it what SQLite calls while it
/// works, and nothing else of ours.
async fn lower_priority_of_thread(connection: &mut SqliteConnection) -> SqlxResult<()> {
    let mut is_lowered = false;
    connection.lock_handle().await?.set_progress_handler(STEPS_BEFORE_LOWERING, move || {
        // On Linux it is the thread's own; elsewhere it is the process's.
        if !std::mem::replace(&mut is_lowered, true)
            && cfg!(target_os = "linux")
            && let Err(error) = rustix::process::nice(SCAN_NICENESS)
        {
            tracing::debug!(%error, "failed to lower the priority of a thread that reads albums");
        }
        true
    });
    Ok(())
}

/// Whether a connection may be used for the next call. SQLite ends a transaction by itself when the disk is full or
/// fails. sqlx 0.9 then finds nothing to roll back, considers the transaction open, and begins no other on this
/// connection: without this check the writer would stay unusable when there is space again.
async fn has_no_transaction(connection: &mut SqliteConnection) -> SqlxResult<bool> {
    if connection.is_in_transaction() {
        // Completes the rollback of a dropped transaction, if possible.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// Applies the migrations to the file of a `sqlite:` URL; creates it when missing.
pub(crate) async fn migrate(url: &str) -> Result<()> {
    const OPERATION: &str = "migrate the database";
    let path = database_path(url)?;
    // Held until the end: a command and the service may start in a new folder at the same time.
    let _lock = lock_for_migration(path.clone()).await?;
    let mut connection =
        connect_options(&path).create_if_missing(true).connect().await.map_err(store_error(OPERATION))?;
    migrator()
        .run(&mut connection)
        .await
        .map_err(|cause| store_error(OPERATION)(sqlx::Error::from(cause)))?;
    connection.close().await.map_err(store_error(OPERATION))
}

pub(super) fn migrator() -> Migrator {
    sqlx::migrate!("migrations/sqlite")
}

/// Waits for the exclusive lock on `<file>.lock`.
async fn lock_for_migration(path: PathBuf) -> Result<File> {
    const OPERATION: &str = "lock the database for migration";
    let locked = tokio::task::spawn_blocking(move || {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let file = private_file().create(true).append(true).open(with_suffix(&path, ".lock"))?;
        file.lock()?;
        create_database_file(&path)?;
        for suffix in ["", "-wal", "-shm", "-journal", ".lock", ".serving"] {
            restrict_to_owner(&with_suffix(&path, suffix));
        }
        Ok::<_, std::io::Error>(file)
    });
    let unavailable = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
    match locked.await {
        Ok(opened) => opened.map_err(|cause| unavailable().with_source(cause)),
        Err(cause) => Err(unavailable().with_source(cause)),
    }
}

/// Takes the lock on `<file>.serving` without waiting. Resolves links, so that services that open the file by different
/// paths meet at the same lock.
pub(crate) fn lock_for_service(url: &str, exclusive: bool) -> Result<File> {
    let path = database_path(url)?;
    let failed = |cause| StoreError::new(StoreErrorKind::Unavailable, "lock the database").with_source(cause);
    let file = open_service_lock(&path).map_err(failed)?;
    match if exclusive { file.try_lock() } else { file.try_lock_shared() } {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = format!("another photofinish works on the database {}", path.display());
            Err(StoreError::new(StoreErrorKind::Conflict, what))
        }
        Err(TryLockError::Error(cause)) => Err(failed(cause)),
    }
}

fn open_service_lock(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    // The database file may be a link. One that does not exist yet has no links.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    private_file().create(true).append(true).open(with_suffix(&path, ".serving"))
}

/// Creates an empty database for its owner alone, unless there is one; SQLite gives the files beside it the same
/// permissions. An existing database is not opened: closing it would release the locks of this process's connections.
fn create_database_file(path: &Path) -> std::io::Result<()> {
    match private_file().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Confirmations must survive a power cut: the log is synced at every commit.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        // What is deleted is overwritten with zeros: a face that was erased is not in the file any more.
        .pragma("secure_delete", "on")
        .disable_statement_logging()
}

/// The path in `sqlite:data/photofinish.db` or `sqlite:///var/lib/photofinish.db`.
pub(crate) fn database_path(url: &str) -> Result<PathBuf> {
    let refused = || StoreError::new(StoreErrorKind::Invalid, format!("database url {url}"));
    let path = url.strip_prefix("sqlite:").ok_or_else(refused)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    // No in-memory database: each of the connections would open its own.
    if path.is_empty() || path.contains(":memory:") || path.contains('?') {
        return Err(refused());
    }
    Ok(PathBuf::from(path))
}
