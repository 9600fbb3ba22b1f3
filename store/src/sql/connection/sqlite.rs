//! One SQLite file, open: the database of the embedded profile.
//!
//! One connection writes, several read (write-ahead log): writers never wait for a lock inside the process, and a
//! reader sees the last commit.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::error::{StoreError, StoreErrorKind};
use crate::folder::make_folder;
use crate::sql::error::fault;
use crate::traits::Result;

/// How long a statement waits for another process (a command beside the service) to commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a call waits for a connection: the writer's queue in front of a slow disk.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reading connections. Each is a thread that sleeps unless it reads; searches and lists come a few at a time.
const READERS: u32 = 4;

/// The log is folded into the file at this many pages (16 MB). At the default of 1000 a batch of 64 photos with
/// their vectors fills it every few commits, and each folding costs two syncs more.
const CHECKPOINT_PAGES: &str = "4000";

/// The file, open.
#[derive(Clone)]
pub(crate) struct SqliteFile {
    pub(crate) writer: SqlitePool,
    pub(crate) reader: SqlitePool,
}

/// What sqlx answers; the caller knows which call failed.
type SqlxResult<T> = std::result::Result<T, sqlx::Error>;

impl SqliteFile {
    /// Opens the file that a `sqlite:` URL names. Its tables are up to date.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let path = database_path(url)?;
        let pool = |connections: u32| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .max_lifetime(None)
                .idle_timeout(None)
                // The connection is to a file in this process: there is nothing that could have gone away.
                .test_before_acquire(false)
                .after_release(|connection, _| Box::pin(has_no_transaction(connection)))
        };
        let writer =
            pool(1).connect_with(connect_options(&path)).await.map_err(fault("open the database"))?;
        let reader = pool(READERS)
            .connect_with(connect_options(&path).read_only(true))
            .await
            .map_err(fault("open the database for reading"))?;
        Ok(Self { writer, reader })
    }

    /// A transaction that holds the write lock from its first statement: one that began as a reader and then wrote
    /// could find that another process wrote meanwhile, and would have to be run again.
    pub(crate) async fn write(&self) -> SqlxResult<Transaction<'static, Sqlite>> {
        self.writer.begin_with("begin immediate").await
    }

    pub(crate) async fn begin_snapshot(&self) -> SqlxResult<Transaction<'static, Sqlite>> {
        self.reader.begin().await
    }

    pub(crate) async fn reader(&self) -> SqlxResult<PoolConnection<Sqlite>> {
        self.reader.acquire().await
    }

    /// The log is folded in.
    pub(crate) async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

/// Whether a connection may serve the next call. SQLite ends a transaction by itself when the disk is full or refuses;
/// sqlx 0.9 then finds nothing to roll back, takes the transaction for open, and begins no other on this connection:
/// without this the writer would stay useless when there is room again.
async fn has_no_transaction(connection: &mut SqliteConnection) -> SqlxResult<bool> {
    if connection.is_in_transaction() {
        // One that was dropped is rolled back by now, if it can be.
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// Brings the tables of a `sqlite:` URL up to date; makes the file when missing.
pub(crate) async fn migrate(url: &str) -> Result<()> {
    const OPERATION: &str = "migrate the database";
    let path = database_path(url)?;
    // Held until the end: a command and the service may start on a new folder at the same moment.
    let _lock = lock_for_migration(path.clone()).await?;
    let mut connection =
        connect_options(&path).create_if_missing(true).connect().await.map_err(fault(OPERATION))?;
    sqlx::migrate!("migrations/sqlite")
        .run(&mut connection)
        .await
        .map_err(|cause| fault(OPERATION)(sqlx::Error::from(cause)))?;
    connection.close().await.map_err(fault(OPERATION))
}

/// The exclusive lock on `<file>.lock`, waited for.
async fn lock_for_migration(path: PathBuf) -> Result<File> {
    const OPERATION: &str = "lock the database for migration";
    let locked = tokio::task::spawn_blocking(move || {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let mut name = path.into_os_string();
        name.push(".lock");
        let file = File::options().create(true).append(true).open(name)?;
        file.lock()?;
        Ok::<_, std::io::Error>(file)
    });
    let unavailable = || StoreError::new(StoreErrorKind::Unavailable, OPERATION);
    match locked.await {
        Ok(opened) => opened.map_err(|cause| unavailable().with_source(cause)),
        Err(cause) => Err(unavailable().with_source(cause)),
    }
}

/// The lock on `<file>.serving`, not waited for: by whatever way a service comes to the file, it meets the others there.
pub(crate) fn lock_for_service(url: &str, alone: bool) -> Result<File> {
    let path = database_path(url)?;
    let failed = |cause| StoreError::new(StoreErrorKind::Unavailable, "lock the database").with_source(cause);
    let file = open_service_lock(&path).map_err(failed)?;
    match if alone { file.try_lock() } else { file.try_lock_shared() } {
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
    // A link to the file is another name of it. One that is not there yet has no links.
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push(".serving");
    File::options().create(true).append(true).open(name)
}

fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // What `confirm` answers must survive a power cut: the log is synced at every commit.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .disable_statement_logging()
}

/// The file of `sqlite:data/photofinish.db` or `sqlite:///var/lib/photofinish.db`.
pub(crate) fn database_path(url: &str) -> Result<PathBuf> {
    let refused = || StoreError::new(StoreErrorKind::Corrupt, format!("database url {url}"));
    let path = url.strip_prefix("sqlite:").ok_or_else(refused)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    // Several connections have to see the same database: one in memory would be several.
    if path.is_empty() || path.contains(":memory:") || path.contains('?') {
        return Err(refused());
    }
    Ok(PathBuf::from(path))
}
