//! The counts of photos by state: kept by the database itself, whoever writes the photos, and read without looking at
//! them. The random histories of `queue_model` check them after every operation of the queue.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use photofinish_servers::Postgres;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::photo::{FailureReason, StateCounts};
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, SqliteConnection};
use support::TestStore;
use uuid::Uuid;

/// The last migration before the counts.
const VERSION_BEFORE: i64 = 5;

/// The migration that creates the triggers.
const VERSION_OF_TRIGGERS: i64 = 6;

/// The duration of leases that must not expire during a test.
const LONG: Duration = Duration::from_secs(3600);

/// A connection beside the store, for statements that no store of this version makes.
enum OtherClient {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl OtherClient {
    async fn connect(test_store: &TestStore) -> Self {
        let url = test_store.settings().database_url;
        match url.strip_prefix("sqlite:") {
            Some(path) => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                Self::Sqlite(options.foreign_keys(true).connect().await.unwrap())
            }
            None => Self::Postgres(PgConnection::connect(&url).await.unwrap()),
        }
    }

    async fn execute(&mut self, statements: &str) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        match self {
            Self::Sqlite(connection) => statements.execute(connection).await.map(drop).unwrap(),
            Self::Postgres(connection) => statements.execute(connection).await.map(drop).unwrap(),
        }
    }

    /// Returns rows of a text and a number.
    async fn select(&mut self, statement: &str) -> BTreeMap<String, i64> {
        let text = AssertSqlSafe(statement.to_owned());
        let rows: Vec<(String, i64)> = match self {
            Self::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
            Self::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        };
        rows.into_iter().collect()
    }

    /// Applies the migrations up to a version, as an older binary does.
    async fn migrate_to(&mut self, version: i64) {
        let folder = match self {
            Self::Sqlite(_) => "migrations/sqlite",
            Self::Postgres(_) => "migrations/postgres",
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let all = Migrator::new(folder.as_path()).await.unwrap();
        let older = all.iter().filter(|migration| migration.version <= version).cloned().collect();
        let older = Migrator::with_migrations(older);
        match self {
            Self::Sqlite(connection) => older.run(connection).await.unwrap(),
            Self::Postgres(connection) => older.run(connection).await.unwrap(),
        }
    }

    /// Writes an id as a literal of the database.
    fn literal(&self, id: Uuid) -> String {
        match self {
            Self::Sqlite(_) => format!("x'{}'", id.simple()),
            Self::Postgres(_) => format!("'{id}'"),
        }
    }

    /// Inserts photos with the ids 1 to `count` of an album, as every version has done.
    async fn insert_photos(&mut self, album: Uuid, count: u128) {
        let album = self.literal(album);
        let ids = (1..=count).map(|number| self.literal(Uuid::from_u128(number)));
        let rows = ids.map(|id| format!("({album}, {id}, 'a.jpg', 'image/jpeg', 'awaiting_upload', 0, 0)"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let columns = "album, id, filename, content_type, state, created_at, updated_at";
        self.execute(&format!("insert into photo ({columns}) values {rows}")).await;
    }

    /// Changes photos of an album in one statement.
    async fn update_photos(&mut self, album: Uuid, ids: impl Iterator<Item = u128>, change: &str) {
        let album = self.literal(album);
        let ids: Vec<String> = ids.map(|number| self.literal(Uuid::from_u128(number))).collect();
        let ids = ids.join(", ");
        self.execute(&format!("update photo set {change} where album = {album} and id in ({ids})")).await;
    }

    /// Checks that the kept counts of every album are those of its rows.
    async fn check_all_counts(&mut self) {
        let album = match self {
            Self::Sqlite(_) => "hex(album)",
            Self::Postgres(_) => "album::text",
        };
        let name = format!("{album} || ' ' || state");
        let kept = format!(
            "select {name}, cast(sum(count) as bigint) from photo_count group by album, state \
             having sum(count) <> 0"
        );
        let counted = format!("select {name}, count(*) from photo group by album, state");
        assert_eq!(self.select(&kept).await, self.select(&counted).await);
        for (what, of_photo) in [("objects", OBJECTS_OF_PHOTO), ("bytes", BYTES_OF_PHOTO)] {
            let kept = format!("select {album}, cast(sum({what}) as bigint) from photo_count group by album");
            let stored = format!("select {album}, cast(sum({of_photo}) as bigint) from photo group by album");
            let (mut kept, mut stored) = (self.select(&kept).await, self.select(&stored).await);
            kept.retain(|_, sum| *sum != 0);
            stored.retain(|_, sum| *sum != 0);
            assert_eq!(kept, stored, "{what}");
        }
    }
}

const OBJECTS_OF_PHOTO: &str = "case when size_bytes is null then 0 else 1 end + case when picture_bytes > 0 then 2 else 0 end \
     + case when marked_bytes > 0 then 1 else 0 end";
const BYTES_OF_PHOTO: &str = "coalesce(size_bytes, 0) + picture_bytes + marked_bytes";

const TO_QUEUED: &str = "state = 'queued', confirmed_at = 0, size_bytes = 1000";
const TO_READY: &str = "state = 'ready', settled_at = 1, lease = null";
const TO_FAILED: &str = "state = 'failed', failure = 'TOO_LARGE', settled_at = 1, lease = null";

/// Runs a test on a store of each kind; without a server, on the file alone.
async fn on_each_database(test: impl AsyncFn(TestStore)) {
    test(TestStore::new()).await;
    if let Some(server) = Postgres::shared() {
        test(TestStore::with_database(server.create_database())).await;
    }
}

#[tokio::test]
async fn a_count_that_is_wrong_is_named() {
    on_each_database(async |test_store| {
        let store = test_store.open().await;
        let fixture = AlbumFixture::create(&store).await;
        fixture.create_photos(2).await;
        fixture.queue_photos(1).await;
        assert_eq!(store.find_count_mismatches().await.unwrap(), []);
        let mut client = OtherClient::connect(&test_store).await;
        client.execute("delete from photo_count where state = 'queued'").await;
        client.execute("update photo_count set count = count + 3 where state = 'awaiting_upload'").await;
        let mut found = store.find_count_mismatches().await.unwrap();
        found.sort_by(|one, other| one.state.cmp(&other.state));
        let mismatch = |state: &str, counted| (fixture.album, state.to_owned(), counted);
        let named: Vec<_> =
            found.iter().map(|wrong| (wrong.album, wrong.state.clone(), wrong.counted)).collect();
        assert_eq!(named, [mismatch("awaiting_upload", 2), mismatch("queued", 1)]);
        assert!(found[0].kept >= 5 && found[1].kept == 0, "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn the_writes_of_a_version_that_knows_no_counts_are_counted() {
    on_each_database(async |test_store| {
        let store = test_store.open().await;
        let fixture = AlbumFixture::create(&store).await;
        let (gone, other) = (AlbumFixture::create(&store).await, AlbumFixture::create(&store).await);
        other.create_photos(2).await;
        let mut client = OtherClient::connect(&test_store).await;
        let album = fixture.album.0;
        client.insert_photos(album, 10).await;
        client.insert_photos(gone.album.0, 3).await;
        client.update_photos(album, 1..=8, TO_QUEUED).await;
        for photo in [1, 2, 3, 4] {
            let lease = client.literal(Uuid::from_u128(photo));
            let leased = format!("state = 'processing', attempts = 1, lease = {lease}, lease_until = 9");
            client.update_photos(album, photo..=photo, &leased).await;
        }
        client.update_photos(album, 1..=4, "lease_until = 10").await;
        client.update_photos(album, 1..=2, TO_READY).await;
        client.update_photos(album, 1..=2, "picture_bytes = 300").await;
        client.update_photos(album, 2..=2, "marked_bytes = 200").await;
        client.update_photos(album, 2..=2, "picture_bytes = 250, marked_bytes = 210").await;
        client.update_photos(album, 3..=3, TO_FAILED).await;
        client.update_photos(album, 5..=10, TO_QUEUED).await;
        client.check_all_counts().await;
        let expected =
            StateCounts { queued: 6, processing: 1, ready: 2, failed: 1, ..StateCounts::default() };
        assert_eq!(fixture.check_counts().await, expected);
        let deleted = [client.literal(Uuid::from_u128(1)), client.literal(Uuid::from_u128(9))].join(", ");
        client.execute(&format!("delete from photo where id in ({deleted})")).await;
        assert_eq!(fixture.check_counts().await, StateCounts { queued: 5, ready: 1, ..expected });
        // An album whose photos go by cascade leaves no counts.
        let gone = client.literal(gone.album.0);
        client.execute(&format!("delete from album where id = {gone}")).await;
        let rows = format!("select 'rows', count(*) from photo_count where album = {gone}");
        assert_eq!(client.select(&rows).await["rows"], 0);
        client.check_all_counts().await;
    })
    .await;
}

#[tokio::test]
async fn photos_from_before_the_counts_are_counted_by_the_migration() {
    on_each_database(async |test_store| {
        let mut client = OtherClient::connect(&test_store).await;
        client.migrate_to(VERSION_BEFORE).await;
        let album = Uuid::from_u128(77);
        let id = client.literal(album);
        client
            .execute(&format!(
                "insert into organization (id, name, created_at) values ({id}, 'Lake Timing', 0); \
                 insert into album (id, organization, mode, created_by, title, title_folded, tags, config, \
                 created_at, updated_at) values ({id}, {id}, 'live', {id}, 'T', 't', '[]', '{{}}', 0, 0)"
            ))
            .await;
        client.insert_photos(album, 9).await;
        client.update_photos(album, 1..=6, TO_QUEUED).await;
        client.update_photos(album, 1..=3, TO_READY).await;
        // The version before still runs when the triggers are there and the photos are not counted yet.
        client.migrate_to(VERSION_OF_TRIGGERS).await;
        client.update_photos(album, 3..=4, TO_FAILED).await;
        let deleted = client.literal(Uuid::from_u128(9));
        client.execute(&format!("delete from photo where id = {deleted}")).await;
        // The folder of the photos, which a store with photos must find.
        std::fs::create_dir(test_store.path().join("objects")).unwrap();
        std::fs::write(test_store.path().join("objects/folders.lock"), "").unwrap();
        let store = test_store.open().await;
        client.check_all_counts().await;
        let counts =
            store.photos.count_by_state(photofinish_store::model::ids::AlbumId(album)).await.unwrap();
        let expected = StateCounts { awaiting_upload: 2, queued: 2, processing: 0, ready: 2, failed: 2 };
        assert_eq!(counts, expected);
    })
    .await;
}

#[tokio::test]
async fn photos_are_counted_without_looking_at_them() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.create_photos(3).await;
    let mut connection = PgConnection::connect(&test_store.settings().database_url).await.unwrap();
    let mut holder = connection.begin().await.unwrap();
    sqlx::query("lock table photo in access exclusive mode").execute(&mut *holder).await.unwrap();
    assert_eq!(store.photos.count_by_state(fixture.album).await.unwrap().awaiting_upload, 3);
    holder.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counts_are_right_after_many_have_written_at_the_same_time() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let fixtures = [AlbumFixture::create(&store).await, AlbumFixture::create(&store).await];
    let partner = async |number: usize| {
        for round in 0..40 {
            let fixture = &fixtures[(number + round) % 2];
            let photos = fixture.queue_photos(1 + round % 3).await;
            if round % 4 == 0 {
                store.photos.delete(fixture.album, photos[0]).await.unwrap();
            }
        }
    };
    let worker = async || {
        for _ in 0..60 {
            for lease in fixtures[0].lease_fresh(3, LONG).await {
                store.queue.fail(&lease, FailureReason::TooLarge, "by the test").await.unwrap();
            }
            store.queue.reprocess(fixtures[1].album).await.unwrap();
        }
    };
    tokio::join!(join_all((0..6).map(partner)), join_all((0..3).map(|_| worker())));
    for fixture in &fixtures {
        assert!(fixture.check_counts().await.total() > 0);
    }
    OtherClient::connect(&test_store).await.check_all_counts().await;
}

#[tokio::test]
async fn the_rows_of_the_counts_stay_few() {
    let Some(server) = Postgres::shared() else { return };
    let test_store = TestStore::with_database(server.create_database());
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let mut client = OtherClient::connect(&test_store).await;
    client.insert_photos(fixture.album.0, 1).await;
    let album = client.literal(fixture.album.0);
    // Without folding this would leave 8,000 rows. That none of 700 statements in a row folds does not happen.
    let toggle = format!(
        "do $$ begin for i in 1..4000 loop update photo set state = \
         case state when 'queued' then 'awaiting_upload' else 'queued' end where album = {album}; \
         end loop; end $$"
    );
    client.execute(&toggle).await;
    let rows = format!("select 'rows', count(*) from photo_count where album = {album}");
    let rows = client.select(&rows).await["rows"];
    assert!(rows < 1400, "{rows} rows");
    assert_eq!(fixture.check_counts().await.awaiting_upload, 1);
}
