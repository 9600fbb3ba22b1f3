//! A network that goes away under a real server: nothing passes, and nothing ends.

use std::time::{Duration, Instant};

use photofinish_servers::{Postgres, Proxy, ProxyFault};
use sqlx::{Connection, PgConnection};

use crate::error::StoreErrorKind;
use crate::sql::connection::postgres::PostgresServer;
use crate::sql::{Database, ServerLimits, migrate, query};
use crate::traits::Result;

/// Above everything that a call may wait for here: a connection, a statement, and a connection's way back.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Patience for a statement that is to use it up, and for one that is not.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(5);

const CONNECTIONS: u32 = 3;

const OPERATION: &str = "test";

/// A server, and its database behind a proxy.
struct ProxiedServer {
    proxy: Proxy,
    /// Through the proxy.
    url: String,
    /// Past it.
    direct_url: String,
}

impl ProxiedServer {
    async fn start() -> Option<Self> {
        let server = Postgres::shared()?;
        let direct = server.create_database();
        let name = direct.rsplit('/').next().unwrap();
        let proxy = Proxy::in_front_of(server.address()).await;
        Some(Self { url: server.url_through(name, proxy.address()), proxy, direct_url: direct })
    }

    /// With patience for one statement.
    async fn open_database(&self, patience: Duration) -> (Database, sqlx::PgPool) {
        let limits = ServerLimits {
            connections: CONNECTIONS,
            acquire_timeout: Duration::from_secs(10),
            statement_timeout: patience,
            lock_timeout: patience,
        };
        let server = PostgresServer::open(&self.url, &limits).await.unwrap();
        let pool = server.pool.clone();
        (Database::Postgres(server), pool)
    }
}

/// What came of a call that has to end.
async fn within_limit<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL_LIMIT, call).await.expect("a call never ended")
}

#[track_caller]
fn assert_outage<T>(answer: Result<T>) {
    let error = answer.err().expect("nothing answers");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}: {:?}", error.source);
}

async fn select_one(database: &Database) -> Result<i64> {
    let (one,): (i64,) =
        query(OPERATION, "select 1::bigint").fetch_one(&mut database.reader(OPERATION).await?).await?;
    Ok(one)
}

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < CALL_LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As many connections at once as there may be, each of them working.
async fn assert_all_connections_work(database: &Database) {
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        readers.push(within_limit(database.reader(OPERATION)).await.unwrap());
    }
    for reader in &mut readers {
        let (one,): (i64,) =
            within_limit(query(OPERATION, "select 1::bigint").fetch_one(reader)).await.unwrap();
        assert_eq!(one, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_network_fails_every_call_and_frees_every_connection() {
    let Some(behind) = ProxiedServer::start().await else { return };
    let (database, pool) = behind.open_database(SHORT).await;
    // In the middle of a transaction, before its commit, and on the way back to the pool.
    let mut in_statement = database.write(OPERATION).await.unwrap();
    let before_commit = database.write(OPERATION).await.unwrap();
    let back = database.write(OPERATION).await.unwrap();
    assert_eq!(pool.size(), CONNECTIONS);
    behind.proxy.set_fault(ProxyFault::Blackhole);
    drop(back);
    let statement = query(OPERATION, "select 1").execute(&mut in_statement);
    let (statement, commit) =
        tokio::join!(within_limit(statement), within_limit(before_commit.commit(OPERATION)));
    assert_outage(statement);
    assert_outage(commit);
    drop(in_statement);
    wait_until("the silent connections are closed", async || pool.size() == 0).await;
    assert_outage(within_limit(database.write(OPERATION)).await);
    assert_outage(within_limit(select_one(&database)).await);
    behind.proxy.set_fault(ProxyFault::None);
    wait_until("the server is reached again", async || within_limit(select_one(&database)).await.is_ok())
        .await;
    assert_all_connections_work(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_died_fail_no_call() {
    let Some(behind) = ProxiedServer::start().await else { return };
    let (database, pool) = behind.open_database(SHORT).await;
    assert_all_connections_work(&database).await;
    wait_until("they rest", async || pool.num_idle() == CONNECTIONS as usize).await;
    behind.proxy.set_fault(ProxyFault::ConnectionsForgotten);
    // For so long that the pool does not trust them.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_all_connections_work(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_dropped_in_the_middle_is_rolled_back_and_its_connection_used_again() {
    let Some(behind) = ProxiedServer::start().await else { return };
    let (database, pool) = behind.open_database(LONG).await;
    for _ in 0..5 {
        let mut transaction = database.write(OPERATION).await.unwrap();
        query(OPERATION, "create table if not exists never (id bigint)")
            .execute(&mut transaction)
            .await
            .unwrap();
        // A statement that is given up while it runs.
        let sleep = query(OPERATION, "select pg_sleep(1)").execute(&mut transaction);
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            _ = sleep => panic!("it was not given up"),
        }
    }
    let there = "select count(*) from pg_tables where tablename = 'never'";
    let (there,): (i64,) =
        query(OPERATION, there).fetch_one(&mut database.reader(OPERATION).await.unwrap()).await.unwrap();
    assert_eq!(there, 0);
    assert!(pool.size() <= CONNECTIONS);
    wait_until("all rest", async || pool.num_idle() == pool.size() as usize && pool.size() > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_read_only_server_is_not_reused() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    migrate(&url).await.unwrap();
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let database = Database::Postgres(PostgresServer::open(&url, &limits).await.unwrap());
    // What a server that is told to take no writes does to the connections that there are.
    let refuse_writes = async || {
        let mut reader = database.reader(OPERATION).await.unwrap();
        query(OPERATION, "set default_transaction_read_only = on").execute(&mut reader).await.unwrap();
    };
    let write = async || -> Result<()> {
        let mut transaction = database.write(OPERATION).await?;
        query(OPERATION, "create table if not exists written (id bigint)").execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    };
    refuse_writes().await;
    assert_outage(write().await);
    write().await.unwrap();
    refuse_writes().await;
    assert_outage(database.check().await);
    database.check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_a_busy_server_and_not_for_a_lost_one() {
    const PATIENT: Duration = Duration::from_secs(25);
    const MIGRATION_BOUND: Duration = Duration::from_secs(60);
    let Some(behind) = ProxiedServer::start().await else { return };
    migrate(&behind.direct_url).await.unwrap();
    let mut other = PgConnection::connect(&behind.direct_url).await.unwrap();
    let mut holder = other.begin().await.unwrap();
    sqlx::query("lock table _sqlx_migrations in access exclusive mode").execute(&mut *holder).await.unwrap();
    let mut waiting = Box::pin(migrate(&behind.url));
    let early = tokio::time::timeout(PATIENT, &mut waiting).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    behind.proxy.set_fault(ProxyFault::Blackhole);
    let gone = tokio::time::timeout(MIGRATION_BOUND, waiting).await.expect("it never ended");
    assert_outage(gone);
    // One that begins now finds nobody.
    assert_outage(tokio::time::timeout(MIGRATION_BOUND, migrate(&behind.url)).await.expect("it never ended"));
    holder.rollback().await.unwrap();
    behind.proxy.set_fault(ProxyFault::None);
    migrate(&behind.url).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_hung_process_are_released_to_waiters() {
    let Some(server) = Postgres::shared() else { return };
    let limits = ServerLimits { lock_timeout: Duration::from_secs(10), ..ServerLimits::default() };
    let database =
        Database::Postgres(PostgresServer::open(&server.create_database(), &limits).await.unwrap());
    let mut first = database.write(OPERATION).await.unwrap();
    query(OPERATION, "create table contested (id bigint)").execute(&mut first).await.unwrap();
    first.commit(OPERATION).await.unwrap();
    let lock = || query(OPERATION, "lock table contested in access exclusive mode");
    let mut hanging = database.write(OPERATION).await.unwrap();
    lock().execute(&mut hanging).await.unwrap();
    let mut waiting = database.write(OPERATION).await.unwrap();
    lock().execute(&mut waiting).await.unwrap();
    assert_outage(hanging.commit(OPERATION).await);
    waiting.commit(OPERATION).await.unwrap();
}
