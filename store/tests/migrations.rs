//! Migrations of a Postgres server that others use meanwhile: from the tables of the first release to today's.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::traits::Result;
use photofinish_store::{SchemaState, StoreErrorKind, check_schema, migrate};
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use support::TestStore;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The last migration of the first release. The next one changes the table of photos.
const FIRST_RELEASE: i64 = 3;

/// All migrations, without the indexes that are built after them.
const ALL: i64 = i64::MAX;

/// How long a test waits for a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// The indexes that are built beside writes.
const INDEXES: [&str; 4] = ["photo_outbox", "photo_unjudged", "photo_waiting", "seen_text_found"];

/// Creates a database with the migrations up to this one, and a photo in it.
async fn create_database(server: &Postgres, version: i64) -> (String, PgConnection) {
    let url = server.create_database();
    let mut connection = connect(&url).await;
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres"));
    Migrator::new(folder).await.unwrap().run_to(version, &mut connection).await.unwrap();
    let insert = format!(
        "with owner as (insert into organization (id, name, created_at) values ('{organization}', 'first', 1)), \
         event as (insert into album (id, organization, mode, created_by, title, title_folded, tags, config, \
         created_at, updated_at) values ('{album}', '{organization}', 'live', '{organization}', 'A', 'a', '[]', '{{}}', \
         1, 1)) insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
         values ('{album}', '{photo}', 'a.jpg', 'image/jpeg', 'awaiting_upload', 1, 1)",
        organization = Uuid::now_v7(),
        album = Uuid::now_v7(),
        photo = Uuid::now_v7(),
    );
    connection.execute(AssertSqlSafe(insert)).await.unwrap();
    (url, connection)
}

/// Connects as a process does that waits for no lock longer than for anything else here.
async fn connect(url: &str) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute("set lock_timeout = '60s'").await.unwrap();
    connection
}

/// Migrates as another process does.
fn start_migration(url: &str) -> JoinHandle<Result<()>> {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || Handle::current().block_on(migrate(&url)))
}

async fn write_photo(connection: &mut PgConnection) {
    let written = connection.execute("update photo set updated_at = updated_at + 1").await.unwrap();
    assert_eq!(written.rows_affected(), 1);
}

/// Waits until the query returns `true`.
async fn wait_until(connection: &mut PgConnection, query: &'static str) {
    let start = Instant::now();
    while !sqlx::query_scalar::<_, bool>(query).fetch_one(&mut *connection).await.unwrap() {
        assert!(start.elapsed() < WAIT_LIMIT, "{query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn valid_indexes(connection: &mut PgConnection) -> Vec<String> {
    let query = "select relname::text from pg_index join pg_class on pg_class.oid = indexrelid \
                 where indisvalid and relname = any ($1) order by relname";
    sqlx::query_scalar(query).bind(INDEXES.as_slice()).fetch_all(connection).await.unwrap()
}

const WAITS_FOR_THE_TABLE: &str =
    "select exists (select from pg_locks where relation = 'photo'::regclass and not granted)";
const BUILDS_AN_INDEX: &str = "select exists (select from pg_index where indrelid = 'photo'::regclass \
                               and not indisvalid)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_do_not_wait_for_a_migration_that_waits_for_a_transaction() {
    let Some(server) = Postgres::shared() else { return };
    let (url, mut reader) = create_database(server, FIRST_RELEASE).await;
    let (mut writer, mut observer) = (connect(&url).await, connect(&url).await);
    let mut reading = reader.begin().await.unwrap();
    reading.execute("select * from photo").await.unwrap();
    let migration = start_migration(&url);
    // More than once, because the migration tries again.
    for _ in 0..2 {
        wait_until(&mut observer, WAITS_FOR_THE_TABLE).await;
        // It ends although the reader, whom the migration waits for, does not.
        write_photo(&mut writer).await;
    }
    assert!(!migration.is_finished());
    reading.commit().await.unwrap();
    migration.await.unwrap().unwrap();
    assert_eq!(valid_indexes(&mut observer).await, INDEXES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn indexes_are_built_beside_transactions_that_write() {
    let Some(server) = Postgres::shared() else { return };
    let (url, mut first) = create_database(server, ALL).await;
    let (mut second, mut observer) = (connect(&url).await, connect(&url).await);
    let mut writing = first.begin().await.unwrap();
    writing.execute("lock table photo in row exclusive mode").await.unwrap();
    // All wait for the one that builds, which waits for the transaction and not for them.
    let replicas: Vec<_> = (0..4).map(|_| start_migration(&url)).collect();
    wait_until(&mut observer, BUILDS_AN_INDEX).await;
    for _ in 0..3 {
        write_photo(&mut second).await;
    }
    assert!(replicas.iter().all(|replica| !replica.is_finished()), "the transaction still writes");
    writing.commit().await.unwrap();
    for replica in replicas {
        replica.await.unwrap().unwrap();
    }
    assert_eq!(valid_indexes(&mut observer).await, INDEXES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_index_whose_build_was_interrupted_is_built_again() {
    let Some(server) = Postgres::shared() else { return };
    let (url, mut first) = create_database(server, ALL).await;
    let mut observer = connect(&url).await;
    let mut writing = first.begin().await.unwrap();
    writing.execute("lock table photo in row exclusive mode").await.unwrap();
    let migration = start_migration(&url);
    wait_until(&mut observer, BUILDS_AN_INDEX).await;
    // As when the process or its server dies.
    let kill = "select pg_terminate_backend(pid, 30000) from pg_stat_activity \
                where datname = current_database() and query like 'create index concurrently%'";
    observer.execute(kill).await.unwrap();
    assert_eq!(migration.await.unwrap().unwrap_err().kind, StoreErrorKind::Unavailable);
    writing.commit().await.unwrap();
    wait_until(&mut observer, BUILDS_AN_INDEX).await;
    assert!(valid_indexes(&mut observer).await.is_empty());
    migrate(&url).await.unwrap();
    assert_eq!(valid_indexes(&mut observer).await, INDEXES);
}

/// A version that is newer than the tables' may be building an index for hours.
#[tokio::test]
async fn a_start_that_finds_nothing_to_migrate_does_not_wait_for_one_that_migrates() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    migrate(&url).await.unwrap();
    let mut other = connect(&url).await;
    // The turn of those who migrate: "photofin" in ASCII.
    other.execute("select pg_advisory_lock(x'70686f746f66696e'::bigint)").await.unwrap();
    tokio::time::timeout(WAIT_LIMIT / 4, migrate(&url)).await.expect("it waits for no turn").unwrap();
    other.execute("drop index photo_waiting").await.unwrap();
    let migration = start_migration(&url);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!migration.is_finished(), "it waits for its turn");
    other.close().await.unwrap();
    migration.await.unwrap().unwrap();
    let mut observer = connect(&url).await;
    assert_eq!(valid_indexes(&mut observer).await, INDEXES);
}

/// The head of the queue is sought among them, however many photos there are.
#[tokio::test]
async fn dead_versions_of_photos_are_removed_by_their_number() {
    let Some(server) = Postgres::shared() else { return };
    let (_, mut connection) = create_database(server, ALL).await;
    let limit = "select reloptions @> array['autovacuum_vacuum_threshold=1000', 'autovacuum_vacuum_scale_factor=0.002'] \
                 from pg_class where oid = 'photo'::regclass";
    assert!(sqlx::query_scalar::<_, bool>(limit).fetch_one(&mut connection).await.unwrap());
}

#[tokio::test]
async fn photos_that_an_older_version_confirms_are_leased() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.create_photos(2).await;
    let mut connection = PgConnection::connect(&test_store.settings().database_url).await.unwrap();
    let confirm = "update photo set state = 'queued', confirmed_at = $2, updated_at = $2, published_at = null \
                   where album = $1 and state = 'awaiting_upload'";
    sqlx::query(confirm).bind(fixture.album).bind(1_i64).execute(&mut connection).await.unwrap();
    let unpublished = store.outbox_queue.list_unpublished(10).await.unwrap().photos;
    assert_eq!(unpublished.iter().map(|unpublished| unpublished.photo.photo).collect::<Vec<_>>(), photos);
    let leases = fixture.lease_fresh(10, Duration::from_secs(60)).await;
    assert_eq!(leases.iter().map(|lease| lease.photo).collect::<Vec<_>>(), photos);
    assert!(leases.iter().all(|lease| lease.organization == fixture.tenant.organization));
}

#[tokio::test]
async fn what_a_server_lacks_is_listed_and_not_made() {
    let Some(server) = Postgres::shared() else { return };
    assert_eq!(check_schema(&server.create_database()).await.unwrap(), SchemaState::Absent);
    let (url, mut observer) = create_database(server, FIRST_RELEASE).await;
    let lacking = check_schema(&url).await.unwrap();
    let SchemaState::Present { pending, unknown } = &lacking else { panic!("{lacking:?}") };
    assert_eq!((pending[0].as_str(), unknown.len()), ("0004 fair shares", 0));
    for index in INDEXES {
        assert!(pending.contains(&format!("index {index}")), "{pending:?}");
    }
    assert_eq!(check_schema(&url).await.unwrap(), lacking);
    assert!(valid_indexes(&mut observer).await.is_empty());
    migrate(&url).await.unwrap();
    let current = SchemaState::Present { pending: Vec::new(), unknown: Vec::new() };
    assert_eq!(check_schema(&url).await.unwrap(), current);
    observer.execute("drop index photo_waiting").await.unwrap();
    let without_index =
        SchemaState::Present { pending: vec!["index photo_waiting".into()], unknown: Vec::new() };
    assert_eq!(check_schema(&url).await.unwrap(), without_index);
}
