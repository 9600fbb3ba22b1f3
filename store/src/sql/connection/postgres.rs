//! A Postgres server, connected: the database of the cluster.
//!
//! Connections are few and shared; each carries its own limits, so that no statement and no lock holds a call for ever,
//! and neither does a server that falls silent ([`Link`]). One that restarts is found again by itself: calls fail as
//! `Unavailable` meanwhile.

use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool, Row};
use tokio::time::timeout;

use crate::error::{StoreError, StoreErrorKind};
use crate::sql::connection::timed::{SqlxResult, TimedConnection};
use crate::sql::error::fault;
use crate::traits::Result;

/// A connection that rested longer than this is asked whether it is still there before it is used. One in steady use is
/// not: the question is a round trip.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);

/// How long it may take to answer that. Shorter than what a call waits for a connection: the call takes another one.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a migration goes on without a word from the server, beginning with its connection.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// How often a migration is looked after.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The server ends a transaction in which nothing is said for half of the time that a lock is waited for, but never
/// before this: a busy process may pause between two statements, and a sweep holds photos while it removes pictures.
pub(crate) const MIN_IDLE_IN_TRANSACTION: Duration = Duration::from_secs(4);

/// Whether the server takes writes: it follows no other one, and nobody told it to take none.
pub(crate) const ACCEPTS_WRITES: &str =
    "select not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean";

/// How much of a Postgres server one process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at most.
    pub connections: u32,
    /// How long a call waits for one of them.
    pub acquire_timeout: Duration,
    /// How long a statement may run.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a row that another transaction has locked.
    pub lock_timeout: Duration,
}

impl Default for ServerLimits {
    /// Half a dozen processes fit into a server's usual hundred connections.
    fn default() -> Self {
        Self {
            connections: 16,
            acquire_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
        }
    }
}

impl ServerLimits {
    /// How long an answer is waited for. The server ends its statements itself, and says so: this is only for one that
    /// does not say anything any more.
    fn step_timeout(&self) -> Duration {
        self.statement_timeout + self.statement_timeout / 4 + Duration::from_secs(1)
    }
}

/// The server, connected.
#[derive(Clone)]
pub(crate) struct PostgresServer {
    pub(crate) pool: PgPool,
    step_timeout: Duration,
}

impl PostgresServer {
    /// Connects to the server that a `postgres:` URL names. Its tables are up to date.
    pub(crate) async fn open(url: &str, limits: &ServerLimits) -> Result<Self> {
        let milliseconds = |limit: Duration| limit.as_millis().to_string();
        let options = connect_options(url)?.options([
            ("statement_timeout", milliseconds(limits.statement_timeout)),
            ("lock_timeout", milliseconds(limits.lock_timeout)),
            // A process that hangs in the middle of a transaction loses its locks before those who wait for them give up,
            // where they wait for longer than `LEAST_IDLE`.
            (
                "idle_in_transaction_session_timeout",
                milliseconds((limits.lock_timeout / 2).max(MIN_IDLE_IN_TRANSACTION)),
            ),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(limits.connections)
            .acquire_timeout(limits.acquire_timeout)
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(require_writable(connection)))
            .before_acquire(|connection, rested| {
                Box::pin(async move {
                    if rested.idle_for > IDLE_BEFORE_PING {
                        timeout(PING_TIMEOUT, connection.ping()).await.map_err(io::Error::from)??;
                    }
                    Ok(true)
                })
            });
        let pool = pool.connect_with(options).await.map_err(fault("connect to the database"))?;
        Ok(Self { pool, step_timeout: limits.step_timeout() })
    }

    /// Each statement sees what was committed before it: what a transaction reads to decide upon, it locks.
    pub(crate) async fn write(&self) -> SqlxResult<TimedConnection> {
        self.reader().await?.begin("begin").await
    }

    pub(crate) async fn begin_snapshot(&self) -> SqlxResult<TimedConnection> {
        self.reader().await?.begin("begin isolation level repeatable read read only").await
    }

    pub(crate) async fn reader(&self) -> SqlxResult<TimedConnection> {
        Ok(TimedConnection::new(self.pool.acquire().await?, self.step_timeout))
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Refuses a server that takes no writes. After a failover a name or a balancer may lead to the standby for a while;
/// a connection to it would be kept for half an hour, long after the name leads to the new server.
async fn require_writable(connection: &mut PgConnection) -> SqlxResult<()> {
    // Not prepared: a single round trip.
    let row = connection.fetch_one(ACCEPTS_WRITES).await?;
    if row.try_get::<bool, _>(0)? {
        return Ok(());
    }
    Err(io::Error::other("the server takes no writes: it is a standby, or was set to be read only").into())
}

/// Brings the tables of a `postgres:` URL up to date. Replicas that start together do it one after the other, by an
/// advisory lock.
pub(crate) async fn migrate(url: &str) -> Result<()> {
    const OPERATION: &str = "migrate the database";
    let options = connect_options(url)?;
    // Without the limits of the service: an index over a large table takes its time, and so does whoever waits for it.
    let (mut connection, pid) = connect_writable(&options).await.map_err(fault(OPERATION))?;
    let mut migrator = sqlx::migrate!("migrations/postgres");
    // While replicas are updated one by one, an older one may start on tables that a newer one has brought further.
    migrator.set_ignore_missing(true);
    tokio::select! {
        migrated = migrator.run(&mut connection) => migrated.map_err(|cause| fault(OPERATION)(sqlx::Error::from(cause)))?,
        () = wait_until_backend_lost(&options, pid) => {
            let lost = StoreError::new(StoreErrorKind::Unavailable, format!("{OPERATION}: the server fell silent"));
            return Err(lost);
        }
    }
    let closed = timeout(SILENCE_LIMIT, connection.close()).await;
    closed.map_err(io::Error::from).map_err(sqlx::Error::from).flatten().map_err(fault(OPERATION))
}

/// A connection to a server that takes writes, and which process of the server it is.
async fn connect_writable(options: &PgConnectOptions) -> SqlxResult<(PgConnection, i32)> {
    let connected = async {
        let mut connection = options.connect().await?;
        require_writable(&mut connection).await?;
        let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        Ok((connection, pid))
    };
    timeout(SILENCE_LIMIT, connected).await.map_err(io::Error::from)?
}

/// Returns when the server's process has not been seen at work for [`SILENCE`]: the server does not answer, or the
/// process has ended or has nothing to do, while its answer is waited for here.
async fn wait_until_backend_lost(options: &PgConnectOptions, pid: i32) {
    const IS_ACTIVE: &str = "select exists (select 1 from pg_stat_activity where pid = $1 and (state = 'active' \
         or state_change > clock_timestamp() - interval '10 seconds'))";
    let mut seen = Instant::now();
    while seen.elapsed() < SILENCE_LIMIT {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let look = async {
            let (mut connection, _) = connect_writable(options).await?;
            sqlx::query_scalar(IS_ACTIVE).bind(pid).fetch_one(&mut connection).await
        };
        // A look that fails by itself (no connection left ..) says nothing.
        if let Ok(Ok(true)) = timeout(SILENCE_LIMIT, look).await {
            seen = Instant::now();
        }
    }
}

/// How the URL is connected to. It is not repeated in an error: it may hold a password.
fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|cause| StoreError::new(StoreErrorKind::Corrupt, "database url").with_source(cause))?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("photofinish"),
    };
    Ok(options.disable_statement_logging())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_url_does_not_show_its_password() {
        let error = connect_options("postgres://photofinish:secret@host:port/rows").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
