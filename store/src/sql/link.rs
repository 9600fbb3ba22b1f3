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
const PUT_BACK: Duration = Duration::from_secs(5);

/// What sqlx answers; the caller knows which call failed.
pub(super) type Answer<T> = Result<T, sqlx::Error>;

/// The connection, with or without a transaction. Dropped, it rolls back and returns to its pool.
#[derive(Debug)]
pub(crate) struct Link {
    /// There until it is dropped.
    connection: Option<PoolConnection<Postgres>>,
    /// How long one step of a call may take: an answer, or the next row of it.
    patience: Duration,
    in_transaction: bool,
    /// A call got no answer: what the server has done is unknown, and what it sends next belongs to that call. Or the
    /// server takes no writes.
    is_lost: bool,
}

impl Link {
    pub(super) fn over(connection: PoolConnection<Postgres>, patience: Duration) -> Self {
        Self { connection: Some(connection), patience, in_transaction: false, is_lost: false }
    }

    pub(super) async fn begin(mut self, statement: &'static str) -> Answer<Self> {
        // Before the answer: without one a transaction may run.
        self.in_transaction = true;
        self.execute(statement).await?;
        Ok(self)
    }

    pub(super) async fn commit(self) -> Answer<()> {
        self.end("commit").await
    }

    pub(super) async fn rollback(self) -> Answer<()> {
        self.end("rollback").await
    }

    async fn end(mut self, statement: &'static str) -> Answer<()> {
        self.execute(statement).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Closes the connection in the end, instead of giving it back: its server is not the one to talk to.
    pub(super) fn give_up(&mut self) {
        self.is_lost = true;
    }

    fn parts(&mut self) -> Step<'_> {
        let Self { connection, patience, is_lost, .. } = self;
        let connection = connection.as_mut().expect("a connection until it is dropped");
        Step { connection, patience: *patience, is_lost }
    }
}

/// What a call needs of the link.
struct Step<'c> {
    connection: &'c mut PgConnection,
    patience: Duration,
    is_lost: &'c mut bool,
}

/// The answer, if it comes in time.
async fn bounded<T>(
    patience: Duration,
    is_lost: &mut bool,
    call: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    let answer = timeout(patience, call).await.unwrap_or_else(|_elapsed| {
        *is_lost = true;
        Err(silent())
    });
    *is_lost |= is_refused_write(&answer);
    answer
}

/// 25006: a write in a transaction that only reads. We write in none of those: it is the server that takes no writes.
fn is_refused_write<T>(answer: &Answer<T>) -> bool {
    match answer {
        Err(sqlx::Error::Database(cause)) => cause.code().is_some_and(|code| code == "25006"),
        _ => false,
    }
}

fn silent() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time"))
}

impl<'c> Executor<'c> for &'c mut Link {
    type Database = Postgres;

    /// Each row may take as long as a whole answer: an album is read for as long as rows come.
    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Answer<Either<PgQueryResult, PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Step { connection, patience, is_lost } = self.parts();
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
                    Some((Err(silent()), None))
                }
            }
        })
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Answer<Option<PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Step { connection, patience, is_lost } = self.parts();
        bounded(patience, is_lost, connection.fetch_optional(query)).boxed()
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Answer<PgStatement>>
    where
        'c: 'e,
    {
        let Step { connection, patience, is_lost } = self.parts();
        bounded(patience, is_lost, connection.prepare_with(sql, parameters)).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Answer<Describe<Postgres>>>
    where
        'c: 'e,
    {
        let Step { connection, patience, is_lost } = self.parts();
        bounded(patience, is_lost, connection.describe(sql)).boxed()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        match Handle::try_current() {
            Ok(runtime) if !self.is_lost => drop(runtime.spawn(put_back(connection, self.in_transaction))),
            _ => close_hard(connection),
        }
    }
}

/// Takes the connection out of its pool, which may make another in its place, and closes its socket.
fn close_hard(connection: PoolConnection<Postgres>) {
    drop(connection.detach());
}

async fn put_back(mut connection: PoolConnection<Postgres>, in_transaction: bool) {
    if in_transaction && !matches!(timeout(PUT_BACK, connection.execute("rollback")).await, Ok(Ok(_))) {
        return close_hard(connection);
    }
    // What sqlx does when a connection is dropped, which is to ask whether it is still there, but not for ever: this
    // future has the connection and its place, and dropped before its end it gives up both.
    if timeout(PUT_BACK, connection.return_to_pool()).await.is_err() {
        tracing::debug!("a connection to the database was silent and is closed");
    }
}

#[cfg(test)]
mod tests;
