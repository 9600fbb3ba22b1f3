//! A Postgres server: the database of the cluster.
//!
//! Connections are few and shared, by the organizations in turn. Each has its own limits, so that no statement, no lock
//! and no silent server ([`TimedConnection`]) blocks a call forever. After a restart of the server the pool reconnects by
//! itself; calls fail as `Unavailable` meanwhile.

use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, PgPool, Row};
use tokio::time::timeout;

use crate::error::{StoreError, StoreErrorKind};
use crate::sql::connection::timed::{SqlxResult, TimedConnection};
use crate::sql::connection::vacuum::vacuum;
use crate::sql::error::store_error;
use crate::traits::Result;
use crate::turns::{Turns, current_organization};

/// A connection that was idle for longer than this is pinged before it is used. One in steady use is not: a ping costs
/// a round trip.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);

/// How long that ping may take. Shorter than the wait for a connection, so that the call can use another one.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of connections that only look up API keys, so that no request waits for the lists and searches of others
/// before it is known whose it is. Two, so that one that was lost silently does not stop the look-ups.
const KEY_READERS: u32 = 2;

/// How long a migration continues while the server does not respond, including its connection.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// How often to check that the server still works on a migration.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The server ends a transaction that is idle for half of the lock timeout, but never earlier than this: a busy process
/// may pause between two statements, and garbage collection locks photos while it deletes their pictures.
pub(crate) const MIN_IDLE_IN_TRANSACTION: Duration = Duration::from_secs(4);

/// Whether the server accepts writes: it is no standby and not set to read-only.
pub(crate) const ACCEPTS_WRITES: &str =
    "select not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean";

/// How much of a Postgres server one process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum number of connections, one of which is left to others while an organization uses the rest. A process that
    /// looks up API keys opens up to two more for them.
    pub connections: u32,
    /// How long a call waits for a connection.
    pub acquire_timeout: Duration,
    /// How long a statement may run.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a row that another transaction has locked.
    pub lock_timeout: Duration,
}

impl Default for ServerLimits {
    /// Allows for half a dozen processes within a server's usual hundred connections.
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
    /// How long to wait for a response. The server enforces its own limits and reports them; this one is for a server
    /// that does not respond at all.
    fn step_timeout(&self) -> Duration {
        self.statement_timeout + self.statement_timeout / 4 + Duration::from_secs(1)
    }
}

/// A pool of connections to the server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PostgresServer {
    pub(crate) pool: PgPool,
    /// Opens its connections at the first look-up: a process without an API has none.
    key_readers: PgPool,
    /// As many as there are connections in the pool.
    turns: Turns,
    acquire_timeout: Duration,
    step_timeout: Duration,
}

impl PostgresServer {
    /// Connects to the server of a `postgres:` URL whose migrations have been applied.
    pub(crate) async fn open(url: &str, limits: &ServerLimits) -> Result<Self> {
        let milliseconds = |limit: Duration| limit.as_millis().to_string();
        let options = connect_options(url)?.options([
            ("statement_timeout", milliseconds(limits.statement_timeout)),
            ("lock_timeout", milliseconds(limits.lock_timeout)),
            // A process that hangs in the middle of a transaction loses its locks before those who wait for them give
            // up, if the lock timeout is longer than `MIN_IDLE_IN_TRANSACTION`.
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
            .before_acquire(|connection, metadata| {
                Box::pin(async move {
                    if metadata.idle_for > IDLE_BEFORE_PING {
                        timeout(PING_TIMEOUT, connection.ping()).await.map_err(io::Error::from)??;
                    }
                    Ok(true)
                })
            });
        let key_readers = pool.clone().max_connections(KEY_READERS).connect_lazy_with(options.clone());
        let pool = pool.connect_with(options).await.map_err(store_error("connect to the database"))?;
        Ok(Self {
            pool,
            key_readers,
            turns: Turns::with_one_for_others(limits.connections),
            acquire_timeout: limits.acquire_timeout,
            step_timeout: limits.step_timeout(),
        })
    }

    /// Begins a transaction whose statements each see what was committed before them: what a transaction bases a
    /// decision on, it must lock.
    pub(crate) async fn begin_write(&self) -> SqlxResult<TimedConnection> {
        self.acquire().await?.begin("begin").await
    }

    pub(crate) async fn begin_snapshot(&self) -> SqlxResult<TimedConnection> {
        self.acquire().await?.begin("begin isolation level repeatable read read only").await
    }

    /// Waits for a turn of the organization on whose behalf the task runs. Whoever has a connection must not ask for a second
    /// one: it could wait for itself.
    pub(crate) async fn acquire(&self) -> SqlxResult<TimedConnection> {
        let acquire = async {
            let turn = self.turns.take(current_organization()).await;
            let connection = self.pool.acquire().await?;
            Ok::<_, sqlx::Error>(TimedConnection::new(connection, Some(turn), self.step_timeout))
        };
        timeout(self.acquire_timeout, acquire).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    pub(crate) async fn acquire_key_reader(&self) -> SqlxResult<TimedConnection> {
        Ok(TimedConnection::new(self.key_readers.acquire().await?, None, self.step_timeout))
    }

    /// Removes the dead versions of the rows of these tables. Returns whether it has: none goes while an older transaction
    /// may still see it.
    pub(crate) async fn vacuum(&self, tables: &[&'static str]) -> SqlxResult<bool> {
        vacuum(&self.pool.connect_options(), tables).await
    }

    pub(crate) async fn close(&self) {
        self.key_readers.close().await;
        self.pool.close().await;
    }
}

/// Refuses a server that accepts no writes. After a failover a host name or load balancer may lead to the standby for a
/// while; a connection to it would be kept for half an hour, long after the name leads to the new primary.
async fn require_writable(connection: &mut PgConnection) -> SqlxResult<()> {
    // As a simple query, not a prepared one: a single round trip.
    let row = connection.fetch_one(ACCEPTS_WRITES).await?;
    if row.try_get::<bool, _>(0)? {
        return Ok(());
    }
    Err(io::Error::other("the server accepts no writes: it is a standby or set to read-only").into())
}

/// Opens a connection to a server that accepts writes; returns it with the process id of its backend.
pub(super) async fn connect_writable(options: &PgConnectOptions) -> SqlxResult<(PgConnection, i32)> {
    let connected = async {
        let mut connection = options.connect().await?;
        require_writable(&mut connection).await?;
        let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await?;
        Ok((connection, pid))
    };
    timeout(SILENCE_LIMIT, connected).await.map_err(io::Error::from)?
}

/// Returns once the backend has not been seen working for [`SILENCE_LIMIT`]: the server does not respond, or the
/// backend has ended or is idle while its response is awaited here.
pub(super) async fn wait_until_backend_lost(options: &PgConnectOptions, pid: i32) {
    const IS_ACTIVE: &str = "select exists (select 1 from pg_stat_activity where pid = $1 and (state = 'active' \
         or state_change > clock_timestamp() - interval '10 seconds'))";
    let mut last_seen = Instant::now();
    while last_seen.elapsed() < SILENCE_LIMIT {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let check = async {
            let (mut connection, _) = connect_writable(options).await?;
            sqlx::query_scalar(IS_ACTIVE).bind(pid).fetch_one(&mut connection).await
        };
        // A check that fails by itself (for example for lack of connections) proves nothing.
        if let Ok(Ok(true)) = timeout(SILENCE_LIMIT, check).await {
            last_seen = Instant::now();
        }
    }
}

/// The connection options of the URL. Errors do not repeat it: it may contain a password.
pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|cause| StoreError::new(StoreErrorKind::Invalid, "database url").with_source(cause))?;
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
        assert_eq!(error.kind, StoreErrorKind::Invalid);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
