//! Photos from before credits: they are free, and the first time that they are ready is told as the first.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::path::Path;
use std::time::Duration;

use photofinish_servers::Postgres;
use photofinish_store::conformance::{AlbumFixture, album_config};
use photofinish_store::model::event::{EventQuery, EventType};
use photofinish_store::model::ids::{AlbumId, PhotoId, ProcessId};
use photofinish_store::model::photo::PhotoSize;
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::traits::{PhotoResults, PictureSizes};
use serde_json::{Value, json};
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use support::{TestStore, reopen_fixture};
use uuid::Uuid;

/// The last migrations before credits.
const SQLITE_VERSION: i64 = 10;
const POSTGRES_VERSION: i64 = 11;

const LONG: Duration = Duration::from_secs(3600);

/// Creates the database of a version without credits, with a photo that waits for its upload.
async fn create_old_database(test_store: &TestStore) -> (AlbumId, PhotoId) {
    let (organization, key, album, photo) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let config = serde_json::to_string(&album_config()).unwrap();
    let url = test_store.settings().database_url;
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let insert = |literal: fn(Uuid) -> String, digest: &str| {
        let [organization, key, album, photo] = [organization, key, album, photo].map(literal);
        AssertSqlSafe(format!(
            "insert into organization (id, name, created_at) values ({organization}, 'first', 1); \
             insert into api_key (id, organization, mode, label, hint, digest, scopes, created_at) \
             values ({key}, {organization}, 'live', '', '', {digest}, '[]', 1); \
             insert into album (id, organization, mode, created_by, title, title_folded, tags, config, created_at, \
             updated_at) values ({album}, {organization}, 'live', {key}, 'A', 'a', '[]', '{config}', 1, 1); \
             insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
             values ({album}, {photo}, 'a.jpg', 'image/jpeg', 'awaiting_upload', 1, 1)"
        ))
    };
    if let Some(path) = url.strip_prefix("sqlite:") {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let mut connection = options.foreign_keys(true).connect().await.unwrap();
        let migrator = Migrator::new(migrations.join("sqlite")).await.unwrap();
        migrator.run_to(SQLITE_VERSION, &mut connection).await.unwrap();
        let rows = insert(|id| format!("x'{}'", id.simple()), "zeroblob(32)");
        sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let migrator = Migrator::new(migrations.join("postgres")).await.unwrap();
        migrator.run_to(POSTGRES_VERSION, &mut connection).await.unwrap();
        let rows = insert(|id| format!("'{id}'"), "decode(repeat('00', 32), 'hex')");
        sqlx::raw_sql(rows).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
    (AlbumId(album), PhotoId(photo))
}

/// Processes the photo, which is queued.
async fn process(fixture: &AlbumFixture) {
    let lease = fixture.lease_fresh(1, LONG).await.pop().unwrap();
    let results = PhotoResults {
        lease,
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        watermark_version: 0,
        skipped_runners: 0,
        pictures: PictureSizes::default(),
        faces: Vec::new(),
        texts: Vec::new(),
    };
    fixture.store.queue.finish(vec![results]).await.unwrap();
}

/// Publishes until so many events are told; returns what each says of its photos.
async fn publish(fixture: &AlbumFixture, lease: TaskLease, count: usize) -> Vec<Value> {
    for _ in 0..600 {
        fixture.store.event_publisher.publish(lease).await.unwrap();
        let query = EventQuery { after: 0, types: vec![EventType::PhotoReady], album: None, limit: 10 };
        let events = fixture.store.events.list(&fixture.tenant, query).await.unwrap().events;
        if events.len() >= count {
            return events.into_iter().map(|event| event.data["photos"].clone()).collect();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not told");
}

async fn check(test_store: TestStore) {
    let (album, photo) = create_old_database(&test_store).await;
    // The folder of its objects is there, and empty.
    let objects = test_store.path().join("objects");
    std::fs::create_dir_all(&objects).unwrap();
    std::fs::write(objects.join("folders.lock"), "").unwrap();
    let store = test_store.open().await;
    let fixture = reopen_fixture(&store, album).await;
    let taken = store.tasks.take(Task::EventPublisher, ProcessId::generate(), LONG).await;
    let lease = taken.unwrap().unwrap();
    assert_eq!(store.queue.confirm(album, &[photo]).await.unwrap(), [photo]);
    process(&fixture).await;
    let first = json!([{ "photoId": photo, "again": false }]);
    assert_eq!(publish(&fixture, lease, 1).await, std::slice::from_ref(&first));
    assert_eq!(store.queue.reprocess(album).await.unwrap().queued, 1);
    process(&fixture).await;
    let second = json!([{ "photoId": photo, "again": true }]);
    assert_eq!(publish(&fixture, lease, 2).await, [first, second]);
    let balance = store.credits.balance(&fixture.tenant).await.unwrap();
    assert_eq!(balance.spent.thousandths(), 0, "it is free");
}

#[tokio::test]
async fn the_first_time_that_a_photo_from_before_credits_is_ready_is_told_as_the_first() {
    check(TestStore::new()).await;
    if let Some(server) = Postgres::shared() {
        check(TestStore::with_database(server.create_database())).await;
    }
}
