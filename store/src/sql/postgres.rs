//! A Postgres server, connected: the database of the cluster.
//!
//! Connections are few and shared; each carries its own limits, so that no statement and no lock holds a call for ever.
//! A server that restarts is found again by itself: calls fail as `Unavailable` meanwhile.

use std::str::FromStr;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgPool, Postgres, Transaction};

use super::fault::fault;
use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// A connection that rested longer than this is asked whether it is still there before it is used. One in steady use is
/// not: the question is a round trip.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

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

/// The server, connected.
#[derive(Clone)]
pub(crate) struct PostgresServer {
    pool: PgPool,
}

/// What sqlx answers; the caller knows which call failed.
type Answer<T> = std::result::Result<T, sqlx::Error>;

impl PostgresServer {
    /// Connects to the server that a `postgres:` URL names. Its tables are up to date.
    pub(super) async fn open(url: &str, limits: &ServerLimits) -> Result<Self> {
        let milliseconds = |limit: Duration| limit.as_millis().to_string();
        let options = options(url)?.options([
            ("statement_timeout", milliseconds(limits.statement_timeout)),
            ("lock_timeout", milliseconds(limits.lock_timeout)),
            // A process that stopped in the middle of a transaction keeps its locks no longer than a statement may run.
            ("idle_in_transaction_session_timeout", milliseconds(limits.statement_timeout)),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(limits.connections)
            .acquire_timeout(limits.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(|connection, rested| {
                Box::pin(async move {
                    if rested.idle_for > TRUSTED_FOR {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            });
        let pool = pool.connect_with(options).await.map_err(fault("connect to the database"))?;
        Ok(Self { pool })
    }

    /// Each statement sees what was committed before it: what a transaction reads to decide upon, it locks.
    pub(super) async fn write(&self) -> Answer<Transaction<'static, Postgres>> {
        self.pool.begin().await
    }

    pub(super) async fn snapshot(&self) -> Answer<Transaction<'static, Postgres>> {
        self.pool.begin_with("begin isolation level repeatable read read only").await
    }

    pub(super) async fn reader(&self) -> Answer<PoolConnection<Postgres>> {
        self.pool.acquire().await
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Brings the tables of a `postgres:` URL up to date. Replicas that start together do it one after the other, by an
/// advisory lock.
pub(super) async fn migrate(url: &str) -> Result<()> {
    const WHAT: &str = "migrate the database";
    // Without the limits of the service: an index over a large table takes its time, and so does whoever waits for it.
    let mut connection = options(url)?.connect().await.map_err(fault(WHAT))?;
    sqlx::migrate!("migrations/postgres")
        // While replicas are updated one by one, an older one may start on tables that a newer one has brought further.
        .set_ignore_missing(true)
        .run(&mut connection)
        .await
        .map_err(|cause| fault(WHAT)(sqlx::Error::from(cause)))?;
    connection.close().await.map_err(fault(WHAT))
}

/// How the URL is connected to. It is not repeated in an error: it may hold a password.
fn options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|cause| StoreError::new(StoreErrorKind::Corrupt, "database url").because(cause))?;
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
        let error = options("postgres://photofinish:secret@host:port/rows").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
