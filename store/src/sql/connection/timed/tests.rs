//! Network failures in front of a real server: packets are dropped and connections stay open.

use std::time::{Duration, Instant};

use photofinish_servers::{Postgres, Proxy, ProxyFault};
use sqlx::{Connection, PgConnection};

use crate::error::StoreErrorKind;
use crate::model::ids::OrganizationId;
use crate::sql::connection::postgres::PostgresServer;
use crate::sql::database::{Database, Transaction};
use crate::sql::statement::query;
use crate::sql::{ServerLimits, migrate};
use crate::traits::Result;
use crate::turns::on_behalf_of;

/// More than any call may wait here for a connection, a statement and the return to the pool.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Statement timeouts: one that is to expire when nothing answers, but not while a busy machine does, and one that is not.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(5);

const CONNECTIONS: u32 = 3;

const OPERATION: &str = "test";

/// A server whose database is reached through a proxy.
struct ProxiedServer {
    proxy: Proxy,
    /// Through the proxy.
    url: String,
    /// Past the proxy.
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

    /// Opens the database through the proxy with this statement timeout.
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

/// Awaits a call that must end.
async fn within_limit<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL_LIMIT, call).await.expect("a call never ended")
}

#[track_caller]
fn assert_outage<T>(answer: Result<T>) {
    let error = answer.err().expect("nothing answers");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}: {:?}", error.source);
}

async fn select_one(database: &Database) -> Result<i64> {
    let (one,): (i64,) = query(OPERATION, "select 1::bigint")
        .fetch_one(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    Ok(one)
}

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < CALL_LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Begins a transaction of another organization each time: none has all connections.
async fn begin_of_any(database: &Database) -> Transaction {
    on_behalf_of(OrganizationId::generate(), database.begin_write(OPERATION)).await.unwrap()
}

/// Asserts that all connections of the pool work at the same time.
async fn assert_all_connections_work(database: &Database) {
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        let reader = on_behalf_of(OrganizationId::generate(), database.acquire_reader(OPERATION));
        readers.push(within_limit(reader).await.unwrap());
    }
    for reader in &mut readers {
        let (one,): (i64,) =
            within_limit(query(OPERATION, "select 1::bigint").fetch_one(reader)).await.unwrap();
        assert_eq!(one, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_network_fails_every_call_and_frees_every_connection() {
    let Some(server) = ProxiedServer::start().await else { return };
    let (database, pool) = server.open_database(SHORT).await;
    // In the middle of a transaction, before its commit, and while being returned to the pool.
    let mut in_statement = begin_of_any(&database).await;
    let before_commit = begin_of_any(&database).await;
    let returned = begin_of_any(&database).await;
    assert_eq!(pool.size(), CONNECTIONS);
    server.proxy.set_fault(ProxyFault::Blackhole);
    drop(returned);
    let statement = query(OPERATION, "select 1").execute(&mut in_statement);
    let (statement, commit) =
        tokio::join!(within_limit(statement), within_limit(before_commit.commit(OPERATION)));
    assert_outage(statement);
    assert_outage(commit);
    drop(in_statement);
    wait_until("the silent connections are closed", async || pool.size() == 0).await;
    assert_outage(within_limit(database.begin_write(OPERATION)).await);
    assert_outage(within_limit(select_one(&database)).await);
    server.proxy.set_fault(ProxyFault::None);
    wait_until("the server is reached again", async || within_limit(select_one(&database)).await.is_ok())
        .await;
    assert_all_connections_work(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_died_fail_no_call() {
    let Some(server) = ProxiedServer::start().await else { return };
    let (database, pool) = server.open_database(SHORT).await;
    assert_all_connections_work(&database).await;
    wait_until("they rest", async || pool.num_idle() == CONNECTIONS as usize).await;
    server.proxy.set_fault(ProxyFault::ConnectionsForgotten);
    // Long enough for the pool to ping them before use.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_all_connections_work(&database).await;
}

/// What it did before stays, and it waits for other locks as long as any other does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_goes_on_without_the_lock_that_it_waited_for_briefly() {
    let Some(server) = ProxiedServer::start().await else { return };
    let (database, _pool) = server.open_database(LONG).await;
    let lock = || query(OPERATION, "select pg_advisory_xact_lock(1)");
    let mut holder = begin_of_any(&database).await;
    lock().execute(&mut holder).await.unwrap();
    let mut waiting = begin_of_any(&database).await;
    query(OPERATION, "create temporary table earlier (id bigint)").execute(&mut waiting).await.unwrap();
    assert!(!within_limit(waiting.lock_briefly(OPERATION, lock())).await.unwrap());
    holder.rollback(OPERATION).await.unwrap();
    for has_lock in [false, true] {
        if has_lock {
            assert!(within_limit(waiting.lock_briefly(OPERATION, lock())).await.unwrap());
        }
        let limit = query(OPERATION, "select current_setting('lock_timeout')");
        let (limit,): (String,) = limit.fetch_one(&mut waiting).await.unwrap();
        assert_eq!(limit, format!("{}s", LONG.as_secs()), "has the lock: {has_lock}");
        query(OPERATION, "insert into earlier values (1)").execute(&mut waiting).await.unwrap();
    }
    waiting.commit(OPERATION).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_dropped_in_the_middle_is_rolled_back_and_its_connection_used_again() {
    let Some(server) = ProxiedServer::start().await else { return };
    let (database, pool) = server.open_database(LONG).await;
    for _ in 0..5 {
        let mut transaction = database.begin_write(OPERATION).await.unwrap();
        query(OPERATION, "create table if not exists never (id bigint)")
            .execute(&mut transaction)
            .await
            .unwrap();
        // A statement that is dropped while it runs.
        let sleep = query(OPERATION, "select pg_sleep(1)").execute(&mut transaction);
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            _ = sleep => panic!("it was not given up"),
        }
    }
    let there = "select count(*) from pg_tables where tablename = 'never'";
    let (there,): (i64,) = query(OPERATION, there)
        .fetch_one(&mut database.acquire_reader(OPERATION).await.unwrap())
        .await
        .unwrap();
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
    // What setting a server to read-only does to its existing connections.
    let refuse_writes = async || {
        let mut reader = database.acquire_reader(OPERATION).await.unwrap();
        query(OPERATION, "set default_transaction_read_only = on").execute(&mut reader).await.unwrap();
    };
    let write = async || -> Result<()> {
        let mut transaction = database.begin_write(OPERATION).await?;
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
    let Some(server) = ProxiedServer::start().await else { return };
    migrate(&server.direct_url).await.unwrap();
    let mut other = PgConnection::connect(&server.direct_url).await.unwrap();
    let mut holder = other.begin().await.unwrap();
    sqlx::query("lock table _sqlx_migrations in access exclusive mode").execute(&mut *holder).await.unwrap();
    let mut waiting = Box::pin(migrate(&server.url));
    let early = tokio::time::timeout(PATIENT, &mut waiting).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    server.proxy.set_fault(ProxyFault::Blackhole);
    let gone = tokio::time::timeout(MIGRATION_BOUND, waiting).await.expect("it never ended");
    assert_outage(gone);
    // A migration that begins now finds no server.
    assert_outage(tokio::time::timeout(MIGRATION_BOUND, migrate(&server.url)).await.expect("it never ended"));
    holder.rollback().await.unwrap();
    server.proxy.set_fault(ProxyFault::None);
    migrate(&server.url).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_hung_process_are_released_to_waiters() {
    let Some(server) = Postgres::shared() else { return };
    let limits = ServerLimits { lock_timeout: Duration::from_secs(10), ..ServerLimits::default() };
    let database =
        Database::Postgres(PostgresServer::open(&server.create_database(), &limits).await.unwrap());
    let mut first = database.begin_write(OPERATION).await.unwrap();
    query(OPERATION, "create table contested (id bigint)").execute(&mut first).await.unwrap();
    first.commit(OPERATION).await.unwrap();
    let lock = || query(OPERATION, "lock table contested in access exclusive mode");
    let mut hanging = database.begin_write(OPERATION).await.unwrap();
    lock().execute(&mut hanging).await.unwrap();
    let mut waiting = database.begin_write(OPERATION).await.unwrap();
    lock().execute(&mut waiting).await.unwrap();
    assert_outage(hanging.commit(OPERATION).await);
    waiting.commit(OPERATION).await.unwrap();
}
