//! Rows in one SQLite file (the embedded profile) or on a Postgres server (the cluster), by one code.
//!
//! [`Database`] is which of the two; a [`Transaction`] and a [`Reader`] of it run the [`statement`]s of this folder. What
//! is done to many photos at once is written for each ([`bulk`]): a statement costs SQLite microseconds and Postgres a
//! round trip.
//!
//! **Rows are locked in one order**, or two workers wait for each other: photos by their whole key, then albums by their
//! id, and nothing after an album but another transaction. SQLite has one lock for all; Postgres has one a row.

mod albums;
pub(crate) mod connection;
pub(crate) mod dialect;
pub(crate) mod error;
mod faces;
pub(crate) mod gc_queries;
mod keys;
mod photos;
mod probes;
mod queue;
pub(crate) mod row_types;
mod statement;
#[cfg(test)]
mod tests;
mod texts;

use sqlx::Sqlite;
use sqlx::pool::PoolConnection;

pub(crate) use self::albums::SqlAlbums;
pub(crate) use self::connection::postgres::MIN_IDLE_IN_TRANSACTION;
use self::connection::postgres::PostgresServer;
pub use self::connection::postgres::ServerLimits;
use self::connection::sqlite::SqliteFile;
use self::connection::timed::TimedConnection;
use self::error::fault;
pub(crate) use self::faces::SqlFaces;
pub(crate) use self::gc_queries::SqlGcQueries;
pub(crate) use self::keys::SqlKeys;
pub(crate) use self::photos::SqlPhotos;
pub(crate) use self::probes::SqlProbes;
pub(crate) use self::queue::SqlQueue;
use self::statement::{ConnectionRef, Statement, query};
pub(crate) use self::texts::SqlTexts;
use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// The database, open.
#[derive(Clone)]
pub(crate) enum Database {
    Sqlite(SqliteFile),
    Postgres(PostgresServer),
}

/// Which database a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// One file, for the processes of one machine.
    Sqlite,
    /// A server, for processes anywhere.
    Postgres,
}

impl DatabaseKind {
    /// The kind of a `sqlite:`, `postgres:` or `postgresql:` URL.
    pub fn from_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// # Errors
    /// `Corrupt` for a URL of another kind; it is not repeated, for it may hold a password.
    fn require_from_url(url: &str) -> Result<Self> {
        let refused = "database url: must begin with sqlite: or postgres:";
        Self::from_url(url).ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, refused))
    }
}

/// Keeps other services away from a file of rows; nothing to do for a server.
pub(crate) fn lock_database(url: &str, alone: bool) -> Result<Option<std::fs::File>> {
    match DatabaseKind::require_from_url(url)? {
        DatabaseKind::Sqlite => connection::sqlite::lock_for_service(url, alone).map(Some),
        DatabaseKind::Postgres => Ok(None),
    }
}

/// Brings the tables of a database up to date, several processes at once if need be.
pub(crate) async fn migrate(url: &str) -> Result<()> {
    match DatabaseKind::require_from_url(url)? {
        DatabaseKind::Sqlite => connection::sqlite::migrate(url).await,
        DatabaseKind::Postgres => connection::postgres::migrate(url).await,
    }
}

impl Database {
    /// Opens what the URL names and brings its tables up to date.
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

    /// A transaction that writes.
    async fn write(&self, what: &'static str) -> Result<Transaction> {
        match self {
            Self::Sqlite(file) => file.write().await.map(Transaction::Sqlite),
            Self::Postgres(server) => server.write().await.map(Transaction::Postgres),
        }
        .map_err(fault(what))
    }

    /// A transaction in which every statement sees the same state.
    async fn begin_snapshot(&self, what: &'static str) -> Result<Transaction> {
        match self {
            Self::Sqlite(file) => file.begin_snapshot().await.map(Transaction::Sqlite),
            Self::Postgres(server) => server.begin_snapshot().await.map(Transaction::Postgres),
        }
        .map_err(fault(what))
    }

    /// A connection for one statement that reads.
    async fn reader(&self, what: &'static str) -> Result<Reader> {
        match self {
            Self::Sqlite(file) => file.reader().await.map(Reader::Sqlite),
            Self::Postgres(server) => server.reader().await.map(Reader::Postgres),
        }
        .map_err(fault(what))
    }

    /// Whether the database answers and can be written.
    pub(crate) async fn check(&self) -> Result<()> {
        const OPERATION: &str = "check the database";
        let mut transaction = self.write(OPERATION).await?;
        let one = "select count(*) from (select 1 from organization limit 1) as one";
        let _: (i64,) = query(OPERATION, one).fetch_one(&mut transaction).await?;
        if let Transaction::Postgres(link) = &mut transaction {
            let takes_writes = query(OPERATION, connection::postgres::ACCEPTS_WRITES);
            let (takes_writes,): (bool,) = takes_writes.fetch_one(ConnectionRef::Postgres(link)).await?;
            if !takes_writes {
                link.mark_unusable();
                let refused = "the database takes no writes: it is a standby, or was set to be read only";
                return Err(StoreError::new(StoreErrorKind::Unavailable, refused));
            }
        }
        transaction.rollback(OPERATION).await
    }

    /// Waits for running calls and closes the connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(file) => file.close().await,
            Self::Postgres(server) => server.close().await,
        }
    }
}

/// A connection that reads.
enum Reader {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(TimedConnection),
}

impl<'c> From<&'c mut Reader> for ConnectionRef<'c> {
    fn from(reader: &'c mut Reader) -> Self {
        match reader {
            Reader::Sqlite(connection) => Self::Sqlite(connection),
            Reader::Postgres(link) => Self::Postgres(link),
        }
    }
}

/// A running transaction; rolled back when dropped.
enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(TimedConnection),
}

impl<'c> From<&'c mut Transaction> for ConnectionRef<'c> {
    fn from(transaction: &'c mut Transaction) -> Self {
        match transaction {
            Transaction::Sqlite(transaction) => Self::Sqlite(transaction),
            Transaction::Postgres(link) => Self::Postgres(link),
        }
    }
}

impl Transaction {
    async fn commit(self, what: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(link) => link.commit().await,
        }
        .map_err(fault(what))
    }

    async fn rollback(self, what: &'static str) -> Result<()> {
        match self {
            Self::Sqlite(transaction) => transaction.rollback().await,
            Self::Postgres(link) => link.rollback().await,
        }
        .map_err(fault(what))
    }

    /// Now, in microseconds, by the one clock that all who work on this database share: the server's. The clocks of two
    /// workers may be minutes apart, and a lease must not lapse by the wrong one.
    async fn read_clock(&mut self, what: &'static str) -> Result<i64> {
        if let Self::Sqlite(_) = self {
            return Ok(row_types::now());
        }
        let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let (now,): (i64,) = query(what, clock).fetch_one(self).await?;
        Ok(now)
    }

    /// Lets the next statements take as long as they take, as long as rows come. For reading an album whole.
    async fn disable_statement_timeout(&mut self, what: &'static str) -> Result<()> {
        if let Self::Postgres(_) = self {
            query(what, "set local statement_timeout = 0").execute(self).await?;
        }
        Ok(())
    }
}
