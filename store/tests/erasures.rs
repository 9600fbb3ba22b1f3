//! Erasures on a Postgres server: what its pages still have, and who keeps it there.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::time::Duration;

use photofinish_servers::Postgres;
use photofinish_store::conformance::{self, AlbumFixture};
use photofinish_store::model::erasure::{
    ComparedSelfie, ErasureSubject, ExpiringPart, FacePlace, NewErasure, PhotoFate,
};
use photofinish_store::model::ids::{ErasureId, PhotoId, ProcessId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::DetectedFace;
use photofinish_store::model::process::Task;
use photofinish_store::model::watermark::{WatermarkChange, WatermarkPlacement, WatermarkPosition};
use photofinish_store::traits::ProbeOutcome;
use photofinish_store::{Store, StoreErrorKind};
use sqlx::{Connection, Executor, PgConnection};
use support::TestStore;

const LONG: Duration = Duration::from_secs(3600);

const RUNNER: [f32; 4] = [0.123, 0.456, 0.789, -0.321];
const OTHER: [f32; 4] = [-0.987, 0.654, 0.321, 0.111];

/// An album on a database of its own, and a connection beside its store.
struct ServerFixture {
    album: AlbumFixture,
    connection: PgConnection,
    /// Has the folder of the photos.
    _test_store: TestStore,
}

impl ServerFixture {
    /// `None` where there is no server to test with.
    async fn create() -> Option<Self> {
        let url = Postgres::shared()?.create_database();
        let test_store = TestStore::with_database(url.clone());
        let album = AlbumFixture::create(&test_store.open().await).await;
        let connection = PgConnection::connect(&url).await.unwrap();
        Some(Self { album, connection, _test_store: test_store })
    }
}

/// Counts the versions of rows, dead ones too, in which these bytes are.
async fn count_in_pages(connection: &mut PgConnection, wanted: &[u8]) -> i64 {
    let mut found = 0;
    for table in ["face", "seen_text", "probe", "photo", "start_list_entry", "bib_format"] {
        let count = "select count(*) from generate_series(0, pg_relation_size($1::text::regclass) / 8192 - 1) as page, \
                     heap_page_items(get_raw_page($1, page::int)) as item where position($2 in item.t_data) > 0";
        let (in_table,): (i64,) =
            sqlx::query_as(count).bind(table).bind(wanted).fetch_one(&mut *connection).await.unwrap();
        found += in_table;
    }
    found
}

fn stored_bytes(face: &DetectedFace) -> Vec<u8> {
    let vector = &face.embedding.as_ref().unwrap().vector;
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn faces_of(fixture: &AlbumFixture, photos: &[PhotoId], fate: PhotoFate) -> NewErasure {
    let runner = conformance::face(RUNNER);
    let bounding_box = runner.bounding_box;
    let places = photos.iter().map(|photo| FacePlace { photo: *photo, bounding_box }).collect();
    let selfie = runner.embedding.unwrap();
    let subject = ErasureSubject::Faces {
        places,
        selfie: Some(ComparedSelfie { embedding: selfie, min_cosine: 0.9 }),
        searched_at: i64::MAX,
    };
    of_album(fixture, subject, fate)
}

fn of_album(fixture: &AlbumFixture, subject: ErasureSubject, photos: PhotoFate) -> NewErasure {
    let (tenant, album, asked_by) = (fixture.tenant, fixture.album, fixture.key.id);
    NewErasure { tenant, album, asked_by, subject, photos, report: None }
}

async fn finish(store: &Store, id: ErasureId) {
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_version_of_a_row_in_the_pages_has_what_was_erased() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, inspector) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    inspector.execute("create extension pageinspect").await.unwrap();
    let (runner, stranger) = (conformance::face(RUNNER), conformance::face(OTHER));
    let mut photos = Vec::new();
    for i in 0..40 {
        let (face, bib) = if i % 2 == 0 { (runner.clone(), "71207") } else { (stranger.clone(), "88") };
        photos.push(fixture.add_ready_photo(vec![face], vec![conformance::text(bib, 0.97)]).await);
    }
    let probe = store.probes.create(fixture.album, LONG).await.unwrap();
    store
        .probes
        .set_outcome(probe.id, ProbeOutcome::Embedded(runner.embedding.clone().unwrap()))
        .await
        .unwrap();
    let (erased, kept) = (stored_bytes(&runner), stored_bytes(&stranger));
    assert!(count_in_pages(inspector, &erased).await >= 21);
    assert!(count_in_pages(inspector, b"71207").await >= 20);

    let of_runner: Vec<PhotoId> = photos.iter().copied().step_by(2).collect();
    let request = faces_of(fixture, &of_runner[..10], PhotoFate::Keep);
    finish(store, store.erasures.begin(request).await.unwrap()).await;
    let subject = ErasureSubject::Bib { bib: "71207".into(), with_faces: false };
    let request = of_album(fixture, subject, PhotoFate::Keep);
    finish(store, store.erasures.begin(request).await.unwrap()).await;
    assert_eq!(count_in_pages(inspector, b"71207").await, 0);
    let request = faces_of(fixture, &of_runner, PhotoFate::Delete);
    finish(store, store.erasures.begin(request).await.unwrap()).await;
    assert_eq!(count_in_pages(inspector, &erased).await, 0);
    for photo in &of_runner {
        assert_eq!(count_in_pages(inspector, photo.0.as_bytes()).await, 0);
    }
    assert!(count_in_pages(inspector, &kept).await >= 20, "those of others stay");

    let id = store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await.unwrap();
    finish(store, id).await;
    assert_eq!(count_in_pages(inspector, &kept).await, 0);
    for photo in photos {
        assert_eq!(count_in_pages(inspector, photo.0.as_bytes()).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_is_signed_while_a_transaction_still_sees_what_was_erased() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, reader) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    let photo = fixture.add_ready_photo(vec![conformance::face(RUNNER)], Vec::new()).await;
    reader.execute("begin isolation level repeatable read").await.unwrap();
    reader.execute("select count(*) from face").await.unwrap();
    let id = store.erasures.begin(faces_of(fixture, &[photo], PhotoFate::Keep)).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 0, "a backup that is being made would have it");
    let running = store.erasures.verify(&fixture.tenant, id).await.unwrap();
    assert!(running.left > 0, "{running:?}");
    reader.execute("rollback").await.unwrap();
    finish(store, id).await;
    assert_eq!(store.erasures.verify(&fixture.tenant, id).await.unwrap().left, 0);
}

/// Lets the time pass until which the workers of what an erasure deleted may write pictures.
async fn pass_leases(connection: &mut PgConnection, id: ErasureId) {
    let pass = "update erasure set plan = (plan::jsonb || '{\"leasedUntil\": 1}')::text where id = $1";
    assert_eq!(sqlx::query(pass).bind(id.0).execute(connection).await.unwrap().rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_is_signed_while_a_worker_may_write_pictures_of_what_was_deleted() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, connection) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    fixture.queue_photos(2).await;
    let [first, second] = &fixture.lease_fresh(2, LONG).await[..] else { panic!("both photos") };
    let of_photo = store.erasures.begin_photo(&tenant, album, first.photo, key).await.unwrap();
    store.erasures.remove_objects(of_photo).await.unwrap();
    let of_album = store.erasures.begin_album(&tenant, album, key).await.unwrap();
    // As long as the album has its rows.
    store.queue.renew(&[second.id], 2 * LONG).await.unwrap();
    store.erasures.remove_objects(of_album).await.unwrap();
    for (id, lease) in [(of_photo, first), (of_album, second)] {
        // The worker has not heard of it, and dies before it removes what it wrote.
        let preview = ObjectKey::photo(tenant.organization, album, lease.photo, ObjectRole::Preview);
        store.blobs.write(&preview, "image/jpeg", "a runner".into()).await.unwrap();
        store.erasures.remove_objects(id).await.unwrap();
        assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 0, "there may be another picture");
        store.blobs.write(&preview, "image/jpeg", "a runner".into()).await.unwrap();
        pass_leases(connection, id).await;
        assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 0, "there is one");
        finish(store, id).await;
        assert_eq!(store.blobs.head(&preview).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_is_signed_while_a_process_may_write_marked_pictures_of_what_was_deleted() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, connection) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    let photos =
        [fixture.add_ready_photo(vec![], vec![]).await, fixture.add_ready_photo(vec![], vec![]).await];
    assert!(store.tasks.take(Task::Marking, ProcessId::generate(), LONG).await.unwrap().is_some());
    // There is nothing to mark in this album.
    let unmarked = store.erasures.begin_photo(&tenant, album, photos[0], key).await.unwrap();
    finish(store, unmarked).await;
    let placement = WatermarkPlacement { position: WatermarkPosition::Center, opacity: 0.5, scale: 0.125 };
    let change = WatermarkChange { picture: Some("png".into()), placement };
    store.watermarks.set(album, change).await.unwrap();
    let of_photo = store.erasures.begin_photo(&tenant, album, photos[1], key).await.unwrap();
    let of_album = store.erasures.begin_album(&tenant, album, key).await.unwrap();
    for id in [of_photo, of_album] {
        store.erasures.remove_objects(id).await.unwrap();
        assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 0, "there may be another picture");
        pass_leases(connection, id).await;
        finish(store, id).await;
    }
}

/// Waits until a transaction of this database waits for a lock.
async fn wait_until_blocked(connection: &mut PgConnection) {
    let blocked = "select exists (select from pg_stat_activity where datname = current_database() \
                   and wait_event_type = 'Lock')";
    let wait = async {
        loop {
            // Else a transaction sees the same all the time.
            connection.execute("select pg_stat_clear_snapshot()").await.unwrap();
            if sqlx::query_scalar::<_, bool>(blocked).fetch_one(&mut *connection).await.unwrap() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("somebody waits for a lock");
}

/// Begins a transaction that has the table of the faces: counting an album takes as long as this.
async fn hold_faces(connection: &mut PgConnection) {
    connection.execute("begin").await.unwrap();
    connection.execute("lock table face in access exclusive mode").await.unwrap();
}

/// While somebody counts the rows of an album and waits for the faces that this connection has.
async fn check_that_nobody_waits(
    connection: &mut PgConnection,
    counted: &AlbumFixture,
    other: &AlbumFixture,
    photos: &[PhotoId],
) {
    wait_until_blocked(connection).await;
    assert_eq!(other.store.queue.confirm(other.album, photos).await.unwrap(), photos);
    // As a worker does that finishes a photo of the album.
    let lock = sqlx::query("select from album where id = $1 for update nowait").bind(counted.album.0);
    lock.execute(&mut *connection).await.unwrap();
    connection.execute("rollback").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_album_whose_rows_are_counted() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, connection) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    let (tenant, album, key) = (fixture.tenant, fixture.album, fixture.key.id);
    fixture.add_ready_photo(vec![conformance::face(RUNNER)], vec![conformance::text("88", 0.97)]).await;
    let other = fixture.create_album(conformance::album_config()).await;
    let stranger = AlbumFixture::create(store).await;
    let photos = other.create_photos(2).await;
    hold_faces(connection).await;
    let beginning = {
        let store = store.clone();
        tokio::spawn(async move { store.erasures.begin_album(&tenant, album, key).await })
    };
    check_that_nobody_waits(connection, fixture, &other, &photos[..1]).await;
    let id = beginning.await.unwrap().unwrap();
    hold_faces(connection).await;
    // Neither an album that is closed nor that of another tenant is counted.
    assert_eq!(store.erasures.begin_album(&tenant, album, key).await.unwrap(), id);
    let refused = store.erasures.begin_album(&stranger.tenant, other.album, stranger.key.id).await;
    assert_eq!(refused.unwrap_err().kind, StoreErrorKind::NotFound);
    let removing = {
        let store = store.clone();
        tokio::spawn(async move { store.erasures.remove_objects(id).await })
    };
    check_that_nobody_waits(connection, fixture, &other, &photos[1..]).await;
    removing.await.unwrap().unwrap();
    finish(store, id).await;
    let removed = store.erasures.get(&tenant, id).await.unwrap().removed;
    assert_eq!((removed.photos, removed.faces, removed.vectors, removed.texts), (1, 1, 1, 1));
}

/// Whoever erases one person locks the album before its selfies.
#[tokio::test(flavor = "multi_thread")]
async fn all_faces_of_an_album_and_one_person_are_erased_without_a_deadlock() {
    let Some(mut server) = ServerFixture::create().await else { return };
    let (fixture, connection) = (&server.album, &mut server.connection);
    let store = &fixture.store;
    let probe = store.probes.create(fixture.album, LONG).await.unwrap();
    let read = store.erasures.get_ageing(&fixture.tenant, fixture.album).await.unwrap();
    connection.execute("begin").await.unwrap();
    let lock = sqlx::query("update album set erasures = erasures where id = $1").bind(fixture.album.0);
    lock.execute(&mut *connection).await.unwrap();
    let begun = {
        let store = store.clone();
        tokio::spawn(async move { store.erasures.begin_expired(&read, ExpiringPart::Faces).await })
    };
    wait_until_blocked(connection).await;
    let delete = sqlx::query("delete from probe where id = $1").bind(probe.id.0);
    delete.execute(&mut *connection).await.unwrap();
    connection.execute("commit").await.unwrap();
    let id = begun.await.unwrap().unwrap();
    finish(store, id).await;
}
