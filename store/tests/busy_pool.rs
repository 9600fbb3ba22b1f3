//! A Postgres server whose every connection of one process is busy: what must wait, and what must not.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::{ServerLimits, Store, StoreErrorKind, StoreSettings, on_behalf_of};
use sqlx::{Connection, PgConnection};
use support::TestStore;

/// How long a test waits for a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Locks the table of photos until the transaction ends, so that a call that reads one keeps its connection.
const LOCK_PHOTOS: &str = "lock table photo in access exclusive mode";

/// A store with so many connections, and another client of its server.
async fn open_store(server: &Postgres, connections: u32) -> (TestStore, Store, PgConnection) {
    let test_store = TestStore::with_database(server.create_database());
    let server_limits = ServerLimits {
        connections,
        acquire_timeout: Duration::from_secs(3),
        lock_timeout: WAIT_LIMIT,
        ..ServerLimits::default()
    };
    let settings = StoreSettings { server_limits, ..test_store.settings() };
    let connection = PgConnection::connect(&settings.database_url).await.unwrap();
    let store = Store::open(settings).await.unwrap();
    (test_store, store, connection)
}

#[tokio::test]
async fn an_exhausted_pool_is_an_outage_after_its_timeout() {
    let Some(server) = Postgres::shared() else { return };
    let (_test_store, store, mut connection) = open_store(server, 1).await;
    let fixture = AlbumFixture::create(&store).await;
    let mut holder = connection.begin().await.unwrap();
    sqlx::query(LOCK_PHOTOS).execute(&mut *holder).await.unwrap();
    let refused = tokio::select! {
        // Polled first, so that it acquires the only connection.
        biased;
        _ = store.photos.get(fixture.album, PhotoId::generate()) => panic!("the table is locked"),
        depth = store.queue.depth() => depth.unwrap_err(),
    };
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    holder.rollback().await.unwrap();
    let start = Instant::now();
    while let Err(error) = store.check_database().await {
        assert!(start.elapsed() < WAIT_LIMIT, "{error}");
    }
}

#[tokio::test]
async fn keys_are_looked_up_while_every_other_connection_is_busy() {
    let Some(server) = Postgres::shared() else { return };
    let (_test_store, store, mut connection) = open_store(server, 1).await;
    let fixture = AlbumFixture::create(&store).await;
    let mut holder = connection.begin().await.unwrap();
    sqlx::query(LOCK_PHOTOS).execute(&mut *holder).await.unwrap();
    tokio::select! {
        // Polled first, so that it acquires the only connection.
        biased;
        _ = store.photos.get(fixture.album, PhotoId::generate()) => panic!("the table is locked"),
        key = store.keys.find(&[7; 32]) => assert_eq!(key.unwrap(), None),
    }
    holder.rollback().await.unwrap();
}

#[tokio::test]
async fn an_organization_whose_calls_wait_leaves_a_connection_to_others() {
    let Some(server) = Postgres::shared() else { return };
    let (_test_store, store, mut connection) = open_store(server, 2).await;
    let (large, small) = (AlbumFixture::create(&store).await, AlbumFixture::create(&store).await);
    let mut holder = connection.begin().await.unwrap();
    sqlx::query(LOCK_PHOTOS).execute(&mut *holder).await.unwrap();
    let call = || on_behalf_of(large.tenant.organization, store.photos.get(large.album, PhotoId::generate()));
    tokio::select! {
        // Polled first, so that they acquire all connections that they may have.
        biased;
        _ = async { tokio::join!(call(), call(), call()) } => panic!("the table is locked"),
        found = on_behalf_of(small.tenant.organization, store.albums.get(&small.tenant, small.album)) => {
            assert_eq!(found.unwrap().id, small.album);
        }
    }
    holder.rollback().await.unwrap();
}
