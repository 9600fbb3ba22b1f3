//! Rows that somebody else has locked, or writes all the time: who does not wait for them, and what is not left out because of
//! them.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::event::{EventQuery, EventType};
use photofinish_store::model::gallery::{Visitor, VisitorSearch};
use photofinish_store::model::ids::{AlbumId, ProcessId};
use photofinish_store::model::process::Task;
use photofinish_store::{ServerLimits, Store, StoreErrorKind, StoreSettings};
use sqlx::{Connection, PgConnection};
use support::TestStore;
use tokio::task::JoinHandle;

/// How long a test waits for a condition.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A search of a visitor who may make two on a day.
fn search(album: AlbumId) -> VisitorSearch {
    let visitor = Visitor { cookie: [1; 32], network: [2; 32] };
    VisitorSearch { album, visitor, day: 20_000, cookie_limit: 2, network_limit: 20 }
}

/// How often a gallery was opened and searched.
async fn visits(store: &Store, album: AlbumId) -> [u64; 2] {
    let gallery = store.galleries.get(album).await.unwrap().unwrap();
    [gallery.opened, gallery.searches]
}

/// The limit of a visitor holds in all processes together, whatever is written by then.
async fn check_that_visits_are_written_together(test_store: &TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    let fixture = AlbumFixture::create(&one).await;
    fixture.open_gallery().await;
    let album = fixture.album;
    for _ in 0..3 {
        one.galleries.count_opened(album);
    }
    for (store, may_search) in [(&one, true), (&other, true), (&one, false), (&other, false)] {
        assert_eq!(store.galleries.count_search(search(album)).await.unwrap(), may_search);
    }
    assert_eq!((visits(&one, album).await, visits(&other, album).await), ([3, 1], [0, 1]));
    for _ in 0..2 {
        one.galleries.flush_visits().await.unwrap();
        other.galleries.flush_visits().await.unwrap();
        assert_eq!((visits(&one, album).await, visits(&other, album).await), ([3, 2], [3, 2]));
    }
}

#[tokio::test]
async fn visits_are_counted_in_memory_and_written_together() {
    check_that_visits_are_written_together(&TestStore::new()).await;
    let Some(server) = Postgres::shared() else { return };
    check_that_visits_are_written_together(&TestStore::with_database(server.create_database())).await;
}

#[tokio::test]
async fn visitors_do_not_wait_for_the_row_of_their_gallery() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let server_limits = ServerLimits { lock_timeout: Duration::from_secs(1), ..ServerLimits::default() };
    let settings = StoreSettings { server_limits, ..test_store.settings() };
    let mut connection = PgConnection::connect(&settings.database_url).await.unwrap();
    let mut observer = PgConnection::connect(&settings.database_url).await.unwrap();
    let store = Store::open(settings).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    fixture.open_gallery().await;
    let album = fixture.album;
    let mut holder = connection.begin().await.unwrap();
    let lock = "select album from gallery where album = $1 for update";
    sqlx::query(lock).bind(album).execute(&mut *holder).await.unwrap();
    store.galleries.count_opened(album);
    assert!(store.galleries.count_search(search(album)).await.unwrap());
    let galleries = Arc::clone(&store.galleries);
    let writing = tokio::spawn(async move { galleries.flush_visits().await });
    wait_until_blocked(&mut observer, 1, &writing).await;
    assert_eq!(visits(&store, album).await, [1, 1], "they do not fall while they are written");
    let refused = writing.await.unwrap().unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    assert_eq!(visits(&store, album).await, [1, 1]);
    holder.rollback().await.unwrap();
    store.galleries.flush_visits().await.unwrap();
    assert_eq!(visits(&store, album).await, [1, 1]);
    assert_eq!(visits(&test_store.open().await, album).await, [1, 1]);
}

/// Begins another change of an album, as a worker that finishes a photo: it waits while another writer has the album.
fn begin_change(mut connection: PgConnection, album: AlbumId) -> JoinHandle<PgConnection> {
    tokio::spawn(async move {
        sqlx::query("begin").execute(&mut connection).await.unwrap();
        let change = "update album set changes = changes + 1 where id = $1";
        sqlx::query(change).bind(album).execute(&mut connection).await.unwrap();
        connection
    })
}

/// Waits until so many statements wait for locks, or the task has ended.
async fn wait_until_blocked<T>(observer: &mut PgConnection, blocked: i64, unless_ended: &JoinHandle<T>) {
    let count = "select count(*) from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock'";
    let start = Instant::now();
    while !unless_ended.is_finished() {
        let waiting: i64 = sqlx::query_scalar(count).fetch_one(&mut *observer).await.unwrap();
        if waiting >= blocked {
            return;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "{waiting} wait");
    }
}

/// With many workers on an album its row in the feed is never free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_album_that_somebody_always_writes_is_told_once_it_is_overdue() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let album = fixture.album;
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    store.age_events(album, Duration::from_secs(10)).await.unwrap();
    let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), WAIT_LIMIT).await;
    let lease = lease.unwrap().unwrap();
    let url = test_store.settings().database_url;
    let connect = async || PgConnection::connect(&url).await.unwrap();
    let mut observer = connect().await;
    let mut holder = begin_change(connect().await, album).await.unwrap();
    let mut next = begin_change(connect().await, album);
    wait_until_blocked(&mut observer, 1, &next).await;
    let publisher = Arc::clone(&store.event_publisher);
    // It waits again at its next turn where the writers have kept the row for longer than it waits at one.
    let publishing = tokio::spawn(async move {
        loop {
            let events = publisher.publish(lease).await.unwrap().events;
            if events > 0 {
                return events;
            }
        }
    });
    while !publishing.is_finished() {
        // The next writer and the publisher.
        wait_until_blocked(&mut observer, 2, &publishing).await;
        sqlx::query("commit").execute(&mut holder).await.unwrap();
        let former = std::mem::replace(&mut holder, next.await.unwrap());
        next = begin_change(former, album);
    }
    assert_eq!(publishing.await.unwrap(), 1);
}

#[tokio::test]
async fn others_are_told_while_somebody_keeps_an_album_that_is_overdue() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let (kept, other) = (AlbumFixture::create(&store).await, AlbumFixture::create(&store).await);
    for (fixture, seconds) in [(&kept, 20), (&other, 10)] {
        fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        store.age_events(fixture.album, Duration::from_secs(seconds)).await.unwrap();
    }
    let connection = PgConnection::connect(&test_store.settings().database_url).await.unwrap();
    let mut holder = begin_change(connection, kept.album).await.unwrap();
    let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), WAIT_LIMIT).await;
    let lease = lease.unwrap().unwrap();
    let told = async |fixture: &AlbumFixture| {
        let types = vec![EventType::PhotoReady];
        let query = EventQuery { after: 0, types, album: Some(fixture.album), limit: 10 };
        store.events.list(&fixture.tenant, query).await.unwrap().events.len()
    };
    store.event_publisher.publish(lease).await.unwrap();
    assert_eq!((told(&kept).await, told(&other).await), (0, 1));
    sqlx::query("rollback").execute(&mut holder).await.unwrap();
    store.event_publisher.publish(lease).await.unwrap();
    assert_eq!((told(&kept).await, told(&other).await), (1, 1));
}
