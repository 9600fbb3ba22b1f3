//! A pool's connection to a Postgres server on which no call waits for ever.
//!
//! A server that restarts ends its connections, and whoever waits on one hears of it at once. A network that goes away
//! ends nothing: until the system gives up, minutes later, a statement, a commit and the pool's own look at a connection
//! that comes back would wait, each with a place of the pool. So every step here has an end, and a connection that was
//! silent is closed without a farewell and never used again.
//!
//! A commit whose answer did not come may have happened. It is an outage like any other: who calls again must find the
//! same end either way.
//!
//! Nor is a connection used again whose server refused to write: it follows another one since a failover, and says so
//! for as long as the connection lives.

#[cfg(test)]
mod tests;

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

/// How long a connection may take to end its transaction and to answer that it is fit for the next call.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// What sqlx answers; the caller knows which call failed.
pub(crate) type SqlxResult<T> = Result<T, sqlx::Error>;

/// The connection, with or without a transaction. Dropped, it rolls back and returns to its pool.
#[derive(Debug)]
pub(crate) struct TimedConnection {
    /// There until it is dropped.
    connection: Option<PoolConnection<Postgres>>,
    /// How long one step of a call may take: an answer, or the next row of it.
    step_timeout: Duration,
    in_transaction: bool,
    /// A call got no answer: what the server has done is unknown, and what it sends next belongs to that call. Or the
    /// server takes no writes.
    is_unusable: bool,
}

impl TimedConnection {
    pub(crate) fn new(connection: PoolConnection<Postgres>, step_timeout: Duration) -> Self {
        Self { connection: Some(connection), step_timeout, in_transaction: false, is_unusable: false }
    }

    pub(crate) async fn begin(mut self, statement: &'static str) -> SqlxResult<Self> {
        // Before the answer: without one a transaction may run.
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

    /// Closes the connection in the end, instead of giving it back: its server is not the one to talk to.
    pub(crate) fn mark_unusable(&mut self) {
        self.is_unusable = true;
    }

    fn as_guarded(&mut self) -> Guarded<'_> {
        let Self { connection, step_timeout: patience, is_unusable: is_lost, .. } = self;
        let connection = connection.as_mut().expect("a connection until it is dropped");
        Guarded { connection, step_timeout: *patience, is_unusable: is_lost }
    }
}

/// What a call needs of the link.
struct Guarded<'c> {
    connection: &'c mut PgConnection,
    step_timeout: Duration,
    is_unusable: &'c mut bool,
}

/// The answer, if it comes in time.
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

/// 25006: a write in a transaction that only reads. We write in none of those: it is the server that takes no writes.
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

    /// Each row may take as long as a whole answer: an album is read for as long as rows come.
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
        match Handle::try_current() {
            Ok(runtime) if !self.is_unusable => {
                drop(runtime.spawn(return_to_pool(connection, self.in_transaction)))
            }
            _ => discard(connection),
        }
    }
}

/// Takes the connection out of its pool, which may make another in its place, and closes its socket.
fn discard(connection: PoolConnection<Postgres>) {
    drop(connection.detach());
}

async fn return_to_pool(mut connection: PoolConnection<Postgres>, in_transaction: bool) {
    if in_transaction && !matches!(timeout(RETURN_TIMEOUT, connection.execute("rollback")).await, Ok(Ok(_))) {
        return discard(connection);
    }
    // What sqlx does when a connection is dropped, which is to ask whether it is still there, but not for ever: this
    // future has the connection and its place, and dropped before its end it gives up both.
    if timeout(RETURN_TIMEOUT, connection.return_to_pool()).await.is_err() {
        tracing::debug!("a connection to the database was silent and is closed");
    }
}
