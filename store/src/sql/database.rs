//! The database of a store: a SQLite file or a Postgres server, its read connections and its transactions. Knows no
//! table.

use std::fs::File;

use futures_util::future::BoxFuture;
use sqlx::Executor;

use super::connection::migration;
use super::connection::postgres::{self, PostgresServer, ServerLimits};
use super::connection::schema::{self, SchemaState};
use super::connection::sqlite::{self, SqliteFile, SqliteReader, SqliteTransaction};
use super::connection::timed::TimedConnection;
use super::error::{is_lock_timeout, store_error};
use super::statement::{ConnectionRef, FromAnyRow, Query, query};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::now_micros;
use crate::traits::Result;

/// Around a statement that waits for locks of others for half a second at most, and before the transaction goes on without them.
const BEGIN_BRIEF_WAIT: &str = "savepoint brief_wait; set local lock_timeout = 500";
const END_BRIEF_WAIT: &str = "set local lock_timeout to default; release savepoint brief_wait";
const GIVE_UP_BRIEF_WAIT: &str = "rollback to savepoint brief_wait; release savepoint brief_wait";

/// An open database. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Database {
    Sqlite(SqliteFile),
    Postgres(PostgresServer),
}

/// The kind of database that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// One file, for the processes of one machine.
    Sqlite,
    /// A server, for processes on any machine.
    Postgres,
}

impl DatabaseKind {
    /// The kind of a `sqlite:`, `postgres:` or `postgresql:` URL; `None` for any other scheme.
    pub fn from_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// # Errors
    /// `Invalid` for any other scheme. The message does not repeat the URL: it may contain a password.
    fn require_from_url(url: &str) -> Result<Self> {
        let refused = "database url: must begin with sqlite: or postgres:";
        Self::from_url(url).ok_or_else(|| StoreError::new(StoreErrorKind::Invalid, refused))
    }
}

/// Locks a database file (`sqlite:`) for a service, until the returned file is dropped: exclusively, or shared with
/// other services that do not ask for it exclusively. `None` for a server, which any number of processes may use.
///
/// # Errors
/// `Conflict` when another process has locked it, `Unavailable` when the lock file beside it cannot be created,
/// `Invalid` for a URL of another scheme.
pub fn lock_database(database_url: &str, exclusive: bool) -> Result<Option<File>> {
    match DatabaseKind::require_from_url(database_url)? {
        DatabaseKind::Sqlite => sqlite::lock_for_service(database_url, exclusive).map(Some),
        DatabaseKind::Postgres => Ok(None),
    }
}

/// Applies the migrations that a database does not have yet; creates the database file when it is missing. Several
/// processes may do this at the same time.
///
/// # Errors
/// `Invalid` for a URL of another scheme, `Corrupt` for a file that is no database, `Unavailable` when the database
/// does not respond.
pub async fn migrate(database_url: &str) -> Result<()> {
    match DatabaseKind::require_from_url(database_url)? {
        DatabaseKind::Sqlite => sqlite::migrate(database_url).await,
        DatabaseKind::Postgres => migration::migrate(database_url).await,
    }
}

/// Returns how far the migrations of a database are, and changes nothing: creates no file and no folder, applies no migration.
/// For a diagnosis: whoever opens a store migrates.
///
/// # Errors
/// `Invalid` for a URL of another scheme, `Corrupt` for a file that is no database and for a migration that was applied with
/// another text, `Unavailable` when the database does not respond or accepts no writes.
pub async fn check_schema(database_url: &str) -> Result<SchemaState> {
    match DatabaseKind::require_from_url(database_url)? {
        DatabaseKind::Sqlite => schema::check_file(database_url).await,
        DatabaseKind::Postgres => schema::check_server(database_url).await,
    }
}

impl Database {
    /// Opens the database that the URL names, after its migrations.
    pub(crate) async fn open(url: &str, limits: &ServerLimits) -> Result<Self> {
        migrate(url).await?;
        match DatabaseKind::require_from_url(url)? {
            DatabaseKind::Sqlite => SqliteFile::open(url).await.map(Self::Sqlite),
            DatabaseKind::Postgres => PostgresServer::open(url, limits).await.map(Self::Postgres),
        }
    }

    pub(crate) fn kind(&self) -> DatabaseKind {
        match self {
            Self::Sqlite(_) => DatabaseKind::Sqlite,
            Self::Postgres(_) => DatabaseKind::Postgres,
        }
    }

    /// Begins a transaction that may write.
    pub(super) fn begin_write(&self, operation: &'static str) -> BoxFuture<'_, Result<Transaction>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.begin_write().await.map(Transaction::Sqlite),
                Self::Postgres(server) => server.begin_write().await.map(Transaction::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Runs one statement that writes, as a transaction of its own, and returns its row. A server commits it at the end of the
    /// statement: one round trip in place of three.
    pub(super) fn write_alone<R: FromAnyRow>(
        &self,
        operation: &'static str,
        statement: Query,
    ) -> BoxFuture<'_, Result<Option<R>>> {
        Box::pin(async move {
            if let Self::Postgres(server) = self {
                let mut connection = server.acquire().await.map_err(store_error(operation))?;
                return statement.fetch_optional(ConnectionRef::Postgres(&mut connection)).await;
            }
            let mut transaction = self.begin_write(operation).await?;
            let row = statement.fetch_optional(&mut transaction).await?;
            transaction.commit(operation).await?;
            Ok(row)
        })
    }

    /// Begins a transaction that only reads and in which every statement sees the same state.
    pub(super) fn begin_snapshot(&self, operation: &'static str) -> BoxFuture<'_, Result<Transaction>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.begin_snapshot().await.map(Transaction::Sqlite),
                Self::Postgres(server) => server.begin_snapshot().await.map(Transaction::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Begins a transaction that only reads, as [`Self::begin_snapshot`], for statements that read a whole album. In a file
    /// it has a connection of its own, whose thread lets all others go first.
    pub(super) fn begin_scan(&self, operation: &'static str) -> BoxFuture<'_, Result<Transaction>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.begin_scan().await.map(Transaction::Sqlite),
                Self::Postgres(server) => server.begin_snapshot().await.map(Transaction::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Begins a transaction that only reads, as [`Self::begin_scan`], to read all faces of an album. In a file it has another
    /// connection: this takes seconds, and those who scan do not wait for it.
    pub(super) fn begin_face_load(&self, operation: &'static str) -> BoxFuture<'_, Result<Transaction>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.begin_face_load().await.map(Transaction::Sqlite),
                Self::Postgres(server) => server.begin_snapshot().await.map(Transaction::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Acquires a connection for statements that read, outside of a transaction.
    pub(super) fn acquire_reader(&self, operation: &'static str) -> BoxFuture<'_, Result<Reader>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.acquire_reader().await.map(Reader::Sqlite),
                Self::Postgres(server) => server.acquire().await.map(Reader::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Acquires one of the connections that only look up API keys.
    pub(super) fn acquire_key_reader(&self, operation: &'static str) -> BoxFuture<'_, Result<Reader>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(file) => file.acquire_key_reader().await.map(Reader::Sqlite),
                Self::Postgres(server) => server.acquire_key_reader().await.map(Reader::Postgres),
            }
            .map_err(store_error(operation))
        })
    }

    /// Checks that the database responds and accepts writes.
    pub(crate) async fn check(&self) -> Result<()> {
        const OPERATION: &str = "check the database";
        let mut transaction = self.begin_write(OPERATION).await?;
        let one = "select count(*) from (select 1 from organization limit 1) as one";
        let _: (i64,) = query(OPERATION, one).fetch_one(&mut transaction).await?;
        if let Transaction::Postgres(connection) = &mut transaction {
            let accepts_writes = query(OPERATION, postgres::ACCEPTS_WRITES);
            let (accepts_writes,): (bool,) =
                accepts_writes.fetch_one(ConnectionRef::Postgres(connection)).await?;
            if !accepts_writes {
                connection.mark_unusable();
                let refused = "the database accepts no writes: it is a standby or set to read-only";
                return Err(StoreError::new(StoreErrorKind::Unavailable, refused));
            }
        }
        transaction.rollback(OPERATION).await
    }

    /// Makes what was overwritten or deleted leave the files of the database: the log of a database file, and dead rows of
    /// these tables on a server. Returns whether it has: neither goes while somebody reads an older state.
    pub(crate) async fn clean_files(&self, tables: &[&'static str]) -> Result<bool> {
        const OPERATION: &str = "clean the files of the database";
        match self {
            Self::Sqlite(file) => file.truncate_log().await,
            Self::Postgres(server) => server.vacuum(tables).await,
        }
        .map_err(store_error(OPERATION))
    }

    /// Waits for running calls and closes the connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(file) => file.close().await,
            Self::Postgres(server) => server.close().await,
        }
    }
}

/// A connection for statements that read.
pub(super) enum Reader {
    Sqlite(SqliteReader),
    Postgres(TimedConnection),
}

impl<'c> From<&'c mut Reader> for ConnectionRef<'c> {
    fn from(reader: &'c mut Reader) -> Self {
        match reader {
            Reader::Sqlite(connection) => Self::Sqlite(connection),
            Reader::Postgres(connection) => Self::Postgres(connection),
        }
    }
}

/// A running transaction; rolled back when dropped.
pub(super) enum Transaction {
    Sqlite(SqliteTransaction),
    Postgres(TimedConnection),
}

impl<'c> From<&'c mut Transaction> for ConnectionRef<'c> {
    fn from(transaction: &'c mut Transaction) -> Self {
        match transaction {
            Transaction::Sqlite(transaction) => Self::Sqlite(transaction),
            Transaction::Postgres(connection) => Self::Postgres(connection),
        }
    }
}

impl Transaction {
    pub(super) fn commit(self, operation: &'static str) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(transaction) => transaction.commit().await,
                Self::Postgres(connection) => connection.commit().await,
            }
            .map_err(store_error(operation))
        })
    }

    /// Whether a commit that fails was certainly not made: a file is rolled back then, as on a full disk. A server may have
    /// made it, and its answer was lost.
    fn is_undone_by_failed_commit(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    pub(super) fn rollback(self, operation: &'static str) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(transaction) => transaction.rollback().await,
                Self::Postgres(connection) => connection.rollback().await,
            }
            .map_err(store_error(operation))
        })
    }

    /// The current time in microseconds, by the one clock that all processes of this database share: the server's. The
    /// clocks of two workers may be minutes apart, and a lease must not expire by the wrong one.
    pub(super) fn read_clock(&mut self, operation: &'static str) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            if let Self::Sqlite(_) = self {
                return Ok(now_micros());
            }
            let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
            let (now,): (i64,) = query(operation, clock).fetch_one(self).await?;
            Ok(now)
        })
    }

    /// Runs a statement that locks rows, unless one of them is not free within half a second; returns whether it did. The
    /// transaction goes on either way. In a file nobody else has locked any.
    pub(super) fn lock_briefly(
        &mut self,
        operation: &'static str,
        statement: Query,
    ) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let connection = match self {
                Self::Sqlite(_) => return statement.execute(self).await.map(|_| true),
                Self::Postgres(connection) => connection,
            };
            connection.execute(BEGIN_BRIEF_WAIT).await.map_err(store_error(operation))?;
            let (end, has_locked) = match statement.execute(ConnectionRef::Postgres(connection)).await {
                Ok(_) => (END_BRIEF_WAIT, true),
                Err(error) if is_lock_timeout(&error) => (GIVE_UP_BRIEF_WAIT, false),
                Err(error) => return Err(error),
            };
            connection.execute(end).await.map_err(store_error(operation))?;
            Ok(has_locked)
        })
    }

    /// Lets the next statements run without a total limit, as long as rows keep arriving: for reading a whole album.
    pub(super) fn disable_statement_timeout(&mut self, operation: &'static str) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Self::Postgres(_) = self {
                query(operation, "set local statement_timeout = 0").execute(self).await?;
            }
            Ok(())
        })
    }
}

/// Commits what was `written` of counts that are kept in memory. Calls `put_back` where that has certainly failed: a commit that is
/// not answered may have been made, and writing the counts again would count twice.
pub(super) async fn commit_counts(
    written: Result<Transaction>,
    operation: &'static str,
    put_back: impl FnOnce() + Send,
) -> Result<()> {
    let (is_undone, committed) = match written {
        Ok(transaction) => (transaction.is_undone_by_failed_commit(), transaction.commit(operation).await),
        Err(error) => (true, Err(error)),
    };
    if committed.is_err() && is_undone {
        put_back();
    }
    committed
}
