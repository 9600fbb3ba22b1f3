//! A pooled connection to a Postgres server on which every call is bounded in time.
//!
//! When a server restarts, its connections end and waiting calls fail at once. When the network is lost, nothing ends:
//! until the system gives up, minutes later, statements, commits and the check of returned connections would wait, each
//! with a slot of the pool. So every step has a timeout here, and a connection that timed out is closed without a
//! goodbye message and never used again.
//!
//! A commit that timed out may have happened. It is reported as an outage like any other: repeating the operation must
//! lead to the same state either way.
//!
//! A connection whose server refused a write is not used again either: since a failover that server is a standby, and
//! will refuse writes for as long as the connection lives.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, PgConnection, Postgres, SqlStr};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::turns::Turn;

/// How long a returned connection may take to roll back its transaction and to respond to a ping.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// A result of sqlx; the caller adds which operation failed.
pub(crate) type SqlxResult<T> = Result<T, sqlx::Error>;

/// The connection, with or without a transaction. When dropped, it rolls back and returns to its pool.
pub(crate) struct TimedConnection {
    /// `Some` until the drop.
    connection: Option<PoolConnection<Postgres>>,
    /// Passed on when the connection is back in its pool. `None` for one that is used without turns.
    turn: Option<Turn>,
    /// How long one step of a call may take: a response, or the next row of it.
    step_timeout: Duration,
    in_transaction: bool,
    /// Set when a call timed out: what the server has done is unknown, and what it sends next belongs to that call.
    /// Also set when the server accepts no writes.
    is_unusable: bool,
}

/// What an executor of sqlx has to be; its parts say nothing.
impl fmt::Debug for TimedConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TimedConnection").finish_non_exhaustive()
    }
}

impl TimedConnection {
    pub(crate) fn new(
        connection: PoolConnection<Postgres>,
        turn: Option<Turn>,
        step_timeout: Duration,
    ) -> Self {
        Self { connection: Some(connection), turn, step_timeout, in_transaction: false, is_unusable: false }
    }

    pub(crate) async fn begin(mut self, statement: &'static str) -> SqlxResult<Self> {
        // Set before the response: if it times out, a transaction may be open.
        self.in_transaction = true;
        self.execute(statement).await?;
        Ok(self)
    }

    pub(crate) async fn commit(self) -> SqlxResult<()> {
        self.end_transaction("commit").await
    }

    pub(crate) async fn rollback(self) -> SqlxResult<()> {
        self.end_transaction("rollback").await
    }

    async fn end_transaction(mut self, statement: &'static str) -> SqlxResult<()> {
        self.execute(statement).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Makes the drop close the connection instead of returning it to the pool.
    pub(crate) fn mark_unusable(&mut self) {
        self.is_unusable = true;
    }

    fn as_guarded(&mut self) -> Guarded<'_> {
        let Self { connection, step_timeout: patience, is_unusable: is_lost, .. } = self;
        let connection = connection.as_mut().expect("a connection until it is dropped");
        Guarded { connection, step_timeout: *patience, is_unusable: is_lost }
    }
}

/// The parts of a [`TimedConnection`] that a call borrows.
struct Guarded<'c> {
    connection: &'c mut PgConnection,
    step_timeout: Duration,
    is_unusable: &'c mut bool,
}

/// Awaits a call for at most `step_timeout`.
async fn with_timeout<T>(
    patience: Duration,
    is_lost: &mut bool,
    call: impl Future<Output = SqlxResult<T>>,
) -> SqlxResult<T> {
    let answer = timeout(patience, call).await.unwrap_or_else(|_elapsed| {
        *is_lost = true;
        Err(timeout_error())
    });
    *is_lost |= is_refused_write(&answer);
    answer
}

/// 25006: a write in a read-only transaction. The store writes in none of these, so the server itself is read-only.
fn is_refused_write<T>(answer: &SqlxResult<T>) -> bool {
    match answer {
        Err(sqlx::Error::Database(cause)) => cause.code().is_some_and(|code| code == "25006"),
        _ => false,
    }
}

fn timeout_error() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time"))
}

impl<'c> Executor<'c> for &'c mut TimedConnection {
    type Database = Postgres;

    /// The timeout applies to each row, not to the whole result: reading an album takes as long as rows keep arriving.
    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, SqlxResult<Either<PgQueryResult, PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Guarded { connection, step_timeout: patience, is_unusable: is_lost } = self.as_guarded();
        let rows = Some((connection.fetch_many(query), is_lost));
        stream::unfold(rows, move |rows| async move {
            let (mut rows, is_lost) = rows?;
            match timeout(patience, rows.next()).await {
                Ok(row) => row.map(|row| {
                    *is_lost |= is_refused_write(&row);
                    (row, Some((rows, is_lost)))
                }),
                Err(_elapsed) => {
                    *is_lost = true;
                    Some((Err(timeout_error()), None))
                }
            }
        })
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, SqlxResult<Option<PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Guarded { connection, step_timeout: patience, is_unusable: is_lost } = self.as_guarded();
        with_timeout(patience, is_lost, connection.fetch_optional(query)).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, SqlxResult<PgStatement>>
    where
        'c: 'e,
    {
        let Guarded { connection, step_timeout: patience, is_unusable: is_lost } = self.as_guarded();
        with_timeout(patience, is_lost, connection.prepare_with(sql, parameters)).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, SqlxResult<Describe<Postgres>>>
    where
        'c: 'e,
    {
        let Guarded { connection, step_timeout: patience, is_unusable: is_lost } = self.as_guarded();
        with_timeout(patience, is_lost, connection.describe(sql)).boxed()
    }
}

impl Drop for TimedConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let turn = self.turn.take();
        match Handle::try_current() {
            Ok(runtime) if !self.is_unusable => {
                drop(runtime.spawn(return_to_pool(connection, turn, self.in_transaction)))
            }
            _ => discard(connection),
        }
    }
}

/// Detaches the connection from its pool, which may then open another one, and closes its socket.
fn discard(connection: PoolConnection<Postgres>) {
    drop(connection.detach());
}

/// The turn ends last, so that there is a connection for whoever has the next one.
async fn return_to_pool(mut connection: PoolConnection<Postgres>, _turn: Option<Turn>, in_transaction: bool) {
    if in_transaction && !matches!(timeout(RETURN_TIMEOUT, connection.execute("rollback")).await, Ok(Ok(_))) {
        return discard(connection);
    }
    // What sqlx does when a connection is dropped (a ping), but with a timeout. This future owns the connection and its
    // slot in the pool; when it is dropped early, both are freed.
    if timeout(RETURN_TIMEOUT, connection.return_to_pool()).await.is_err() {
        tracing::debug!("closed a database connection that did not respond");
    }
}
