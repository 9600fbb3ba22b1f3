//! A network that goes away under a real server: nothing passes, and nothing ends.

use std::time::{Duration, Instant};

use photofinish_servers::{Fault, Postgres, Proxy};
use sqlx::{Connection, PgConnection};

use crate::error::StoreErrorKind;
use crate::sql::postgres::PostgresServer;
use crate::sql::{Database, ServerLimits, migrate, sql};
use crate::traits::Result;

/// Above everything that a call may wait for here: a connection, a statement, and a connection's way back.
const BOUND: Duration = Duration::from_secs(60);

/// Patience for a statement that is to use it up, and for one that is not.
const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(5);

const CONNECTIONS: u32 = 3;

const WHAT: &str = "test";

/// A server, and its database behind a proxy.
struct Behind {
    proxy: Proxy,
    /// Through the proxy.
    url: String,
    /// Past it.
    direct: String,
}

impl Behind {
    async fn proxy() -> Option<Self> {
        let server = Postgres::shared()?;
        let direct = server.database();
        let name = direct.rsplit('/').next().unwrap();
        let proxy = Proxy::before(server.address()).await;
        Some(Self { url: server.url_through(name, proxy.address()), proxy, direct })
    }

    /// With patience for one statement.
    async fn database(&self, patience: Duration) -> (Database, sqlx::PgPool) {
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
async fn ends<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(BOUND, call).await.expect("a call never ended")
}

#[track_caller]
fn is_outage<T>(answer: Result<T>) {
    let error = answer.err().expect("nothing answers");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}: {:?}", error.source);
}

async fn one(database: &Database) -> Result<i64> {
    let (one,): (i64,) = sql(WHAT, "select 1::bigint").fetch_one(&mut database.reader(WHAT).await?).await?;
    Ok(one)
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < BOUND, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As many connections at once as there may be, each of them working.
async fn all_are_there(database: &Database) {
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        readers.push(ends(database.reader(WHAT)).await.unwrap());
    }
    for reader in &mut readers {
        let (one,): (i64,) = ends(sql(WHAT, "select 1::bigint").fetch_one(reader)).await.unwrap();
        assert_eq!(one, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_went_away_ends_every_call_and_frees_every_connection() {
    let Some(behind) = Behind::proxy().await else { return };
    let (database, pool) = behind.database(SHORT).await;
    // In the middle of a transaction, before its commit, and on the way back to the pool.
    let mut in_statement = database.write(WHAT).await.unwrap();
    let before_commit = database.write(WHAT).await.unwrap();
    let back = database.write(WHAT).await.unwrap();
    assert_eq!(pool.size(), CONNECTIONS);
    behind.proxy.set(Fault::Blackhole);
    drop(back);
    let statement = sql(WHAT, "select 1").execute(&mut in_statement);
    let (statement, commit) = tokio::join!(ends(statement), ends(before_commit.commit(WHAT)));
    is_outage(statement);
    is_outage(commit);
    drop(in_statement);
    until("the silent connections are closed", async || pool.size() == 0).await;
    is_outage(ends(database.write(WHAT)).await);
    is_outage(ends(one(&database)).await);
    behind.proxy.set(Fault::None);
    until("the server is reached again", async || ends(one(&database)).await.is_ok()).await;
    all_are_there(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_died_while_they_rested_cost_no_call() {
    let Some(behind) = Behind::proxy().await else { return };
    let (database, pool) = behind.database(SHORT).await;
    all_are_there(&database).await;
    until("they rest", async || pool.num_idle() == CONNECTIONS as usize).await;
    behind.proxy.set(Fault::Forgotten);
    // For so long that the pool does not trust them.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    all_are_there(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_dropped_in_the_middle_is_rolled_back_and_its_connection_used_again() {
    let Some(behind) = Behind::proxy().await else { return };
    let (database, pool) = behind.database(LONG).await;
    for _ in 0..5 {
        let mut transaction = database.write(WHAT).await.unwrap();
        sql(WHAT, "create table if not exists never (id bigint)").execute(&mut transaction).await.unwrap();
        // A statement that is given up while it runs.
        let sleep = sql(WHAT, "select pg_sleep(1)").execute(&mut transaction);
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            _ = sleep => panic!("it was not given up"),
        }
    }
    let there = "select count(*) from pg_tables where tablename = 'never'";
    let (there,): (i64,) =
        sql(WHAT, there).fetch_one(&mut database.reader(WHAT).await.unwrap()).await.unwrap();
    assert_eq!(there, 0);
    assert!(pool.size() <= CONNECTIONS);
    until("all rest", async || pool.num_idle() == pool.size() as usize && pool.size() > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_server_takes_no_writes_any_more_is_not_used_again() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database();
    migrate(&url).await.unwrap();
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let database = Database::Postgres(PostgresServer::open(&url, &limits).await.unwrap());
    // What a server that is told to take no writes does to the connections that there are.
    let refuse_writes = async || {
        let mut reader = database.reader(WHAT).await.unwrap();
        sql(WHAT, "set default_transaction_read_only = on").execute(&mut reader).await.unwrap();
    };
    let write = async || -> Result<()> {
        let mut transaction = database.write(WHAT).await?;
        sql(WHAT, "create table if not exists written (id bigint)").execute(&mut transaction).await?;
        transaction.commit(WHAT).await
    };
    refuse_writes().await;
    is_outage(write().await);
    write().await.unwrap();
    refuse_writes().await;
    is_outage(database.check().await);
    database.check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_a_server_at_work_and_not_for_one_that_is_gone() {
    const PATIENT: Duration = Duration::from_secs(25);
    const MIGRATION_BOUND: Duration = Duration::from_secs(60);
    let Some(behind) = Behind::proxy().await else { return };
    migrate(&behind.direct).await.unwrap();
    let mut other = PgConnection::connect(&behind.direct).await.unwrap();
    let mut holder = other.begin().await.unwrap();
    sqlx::query("lock table _sqlx_migrations in access exclusive mode").execute(&mut *holder).await.unwrap();
    let mut waiting = Box::pin(migrate(&behind.url));
    let early = tokio::time::timeout(PATIENT, &mut waiting).await;
    assert!(early.is_err(), "it did not wait: {early:?}");
    behind.proxy.set(Fault::Blackhole);
    let gone = tokio::time::timeout(MIGRATION_BOUND, waiting).await.expect("it never ended");
    is_outage(gone);
    // One that begins now finds nobody.
    is_outage(tokio::time::timeout(MIGRATION_BOUND, migrate(&behind.url)).await.expect("it never ended"));
    holder.rollback().await.unwrap();
    behind.proxy.set(Fault::None);
    migrate(&behind.url).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_the_locks_of_a_process_that_hangs_gets_them() {
    let Some(server) = Postgres::shared() else { return };
    let limits = ServerLimits { lock_timeout: Duration::from_secs(10), ..ServerLimits::default() };
    let database = Database::Postgres(PostgresServer::open(&server.database(), &limits).await.unwrap());
    let mut first = database.write(WHAT).await.unwrap();
    sql(WHAT, "create table contested (id bigint)").execute(&mut first).await.unwrap();
    first.commit(WHAT).await.unwrap();
    let lock = || sql(WHAT, "lock table contested in access exclusive mode");
    let mut hanging = database.write(WHAT).await.unwrap();
    lock().execute(&mut hanging).await.unwrap();
    let mut waiting = database.write(WHAT).await.unwrap();
    lock().execute(&mut waiting).await.unwrap();
    is_outage(hanging.commit(WHAT).await);
    waiting.commit(WHAT).await.unwrap();
}
