//! Tests of the SQLite database that the conformance suite cannot make: the file, its limits, query plans.

use std::sync::{Arc, Mutex};

use sqlx::{AssertSqlSafe, Row};
use tempfile::TempDir;

use super::database::Database;
use super::dialect::sqlite;
use super::queue::lease::FRESH_PHOTOS;
use super::queue::outbox::UNPUBLISHED_PHOTOS;
use super::statement::Statement;
use super::{
    SqlFaces, SqlKeys, SqlPhotos, costs, credits, events, face_bibs, faces, galleries, photos, queue,
    start_lists, texts, webhooks,
};
use crate::conformance::webhooks::{Room, create};
use crate::conformance::{AlbumFixture, album_config, face, test_settings};
use crate::error::StoreErrorKind;
use crate::model::event::EventType;
use crate::model::ids::{OrganizationId, ProcessId};
use crate::model::process::Task;
use crate::model::webhook::{Attempt, AttemptOutcome};
use crate::sql::connection::sqlite::{SqliteFile, database_path};
use crate::sql::error::store_error;
use crate::store::Store;
use crate::turns::on_behalf_of;

/// Opens a store in a new folder, and its database file a second time.
pub(super) async fn open_store() -> (TempDir, Store, SqliteFile) {
    let folder = tempfile::tempdir().unwrap();
    let settings = test_settings(folder.path());
    let database_url = settings.database_url.clone();
    let store = Store::open(settings).await.unwrap();
    let database = SqliteFile::open(&database_url).await.unwrap();
    (folder, store, database)
}

#[test]
fn urls_name_files() {
    assert_eq!(database_path("sqlite:data/p.db").unwrap(), std::path::Path::new("data/p.db"));
    assert_eq!(database_path("sqlite:///var/p.db").unwrap(), std::path::Path::new("/var/p.db"));
    assert_eq!(database_path("sqlite:/var/p.db").unwrap(), std::path::Path::new("/var/p.db"));
    for refused in ["postgres://host/p", "sqlite:", "sqlite::memory:", "sqlite:p.db?mode=ro"] {
        assert!(database_path(refused).is_err(), "{refused}");
    }
}

const DEPTH_PLAN: &[&str] = &[
    "INDEX photo_fresh (album>?)",
    "photo_count USING PRIMARY KEY (album=? AND state=?)",
    "photo_suspect (lease_until<?)",
    "photo_fresh (album=?)",
];

/// Each hot statement, with parts of its plan.
fn hot_statements() -> [(Statement, &'static [&'static str]); 45] {
    [
        (FRESH_PHOTOS.organizations, &["COVERING INDEX photo_waiting (organization>?)"]),
        (FRESH_PHOTOS.albums, &["COVERING INDEX photo_waiting (organization=? AND album>?)"]),
        (FRESH_PHOTOS.photos, &["COVERING INDEX photo_waiting (organization=? AND album=? AND "]),
        (crate::sql::queue::lease::NEXT_CRASH_SUSPECT, &["photo_suspect (lease_until<?)"]),
        (sqlite::LOCK_PHOTOS.into(), &["PRIMARY KEY (album=? AND id=?)"]),
        (sqlite::QUEUE_PHOTOS.into(), &["PRIMARY KEY (album=? AND id=?)"]),
        (sqlite::ASSIGN_LEASES.into(), &["PRIMARY KEY (album=? AND id=?)"]),
        (sqlite::MARK_READY.into(), &["PRIMARY KEY (album=? AND id=?)"]),
        (sqlite::MARK_PUBLISHED.into(), &["PRIMARY KEY (album=? AND id=?)"]),
        (sqlite::RENEW_LEASES.into(), &["photo_lease (lease=?)"]),
        (sqlite::RELEASE_LEASES.into(), &["photo_lease (lease=?)"]),
        (sqlite::DELETE_FACES.into(), &["face_by_photo (album=? AND photo=?)"]),
        (sqlite::DELETE_TEXTS.into(), &["seen_text_by_photo (album=? AND photo=?)"]),
        (queue::RECLAIM_LEASES.into(), &["photo_suspect (lease_until>?)"]),
        (queue::DEPTH.into(), DEPTH_PLAN),
        (queue::WAITING_SINCE.into(), &["photo_fresh (album>?)", "photo_fresh (album=?)"]),
        (queue::requeue::LOCK_BATCH, &["PRIMARY KEY (album=? AND id>?)"]),
        (queue::requeue::REQUEUE_BATCH, &["PRIMARY KEY (album=? AND id=?)"]),
        (UNPUBLISHED_PHOTOS.organizations, &["INDEX photo_outbox (organization>?)"]),
        (UNPUBLISHED_PHOTOS.albums, &["INDEX photo_outbox (organization=? AND album>?)"]),
        (UNPUBLISHED_PHOTOS.photos, &["INDEX photo_outbox (organization=? AND album=? AND "]),
        (crate::sql::queue::outbox::REPUBLISH, &["photo_published (published_at<?)"]),
        (faces::ALBUM_FACES.into(), &["face_by_photo (album=?)"]),
        (faces::LATEST_CHANGES, &["PRIMARY KEY (id=?)", "PRIMARY KEY (album=? AND change=?)"]),
        (faces::EMBEDDINGS, &["SEARCH face USING INTEGER PRIMARY KEY (rowid=?)"]),
        (faces::CHANGED_FACES.into(), &["face_by_photo (album=? AND photo=?)"]),
        (
            face_bibs::ALBUM_READINGS.into(),
            &["seen_text_by_photo (album=?)", "PRIMARY KEY (album=? AND id=?)"],
        ),
        (face_bibs::CHANGED_READINGS.into(), &["seen_text_by_photo (album=? AND photo=?)"]),
        (texts::FIND_TEXTS, &["seen_text_found (album=? AND text=?)"]),
        (start_lists::judging::UNJUDGED_PHOTOS.into(), &["photo_unjudged (album=? AND list_version<?)"]),
        (start_lists::judging::TEXTS_OF_PHOTOS, &["seen_text_by_photo (album=? AND photo=?)"]),
        (start_lists::FIND_ENTRIES, &["PRIMARY KEY (album=? AND bib=?)"]),
        (start_lists::entries::FIND_SPELLINGS, &["PRIMARY KEY (album=? AND bib=?)"]),
        (start_lists::ENTRY_PAGE.into(), &["PRIMARY KEY (album=? AND bib>? AND bib<?)"]),
        (start_lists::COUNT_WITHOUT_LATTICE.into(), &["seen_text_without_lattice (album=?)"]),
        (photos::PHOTO_PAGE_BY_STATE.into(), &["photo_by_state (album=? AND state=? AND id>?)"]),
        (
            photos::SHOWN_PAGE.into(),
            &[
                "PRIMARY KEY (album=? AND id=?)",
                "COVERING INDEX photo_by_state (album=? AND state=? AND id>?)",
                "COVERING INDEX photo_waiting_with_pictures (album=? AND id>?)",
            ],
        ),
        (photos::COUNT_SHOWN_AGAIN.into(), &["COVERING INDEX photo_waiting_with_pictures (album=?)"]),
        (
            photos::TAKEN_PAGE_BY_CAMERA.into(),
            &["COVERING INDEX photo_by_camera (album=? AND camera=? AND id>?)"],
        ),
        (photos::COUNT_TAKEN_BY_CAMERA.into(), &["COVERING INDEX photo_by_camera (album=? AND camera=?)"]),
        (photos::PHOTOS_BY_ID, &["PRIMARY KEY (album=? AND id=?)"]),
        (photos::COUNT_BY_STATE.into(), &["photo_count USING PRIMARY KEY (album=?)"]),
        (costs::STORED.into(), &["album_by_owner (", "photo_count USING PRIMARY KEY (album=?)"]),
        (photos::COUNT_SETTLED, &["photo_settled (album=? AND settled_at>?)"]),
        (galleries::COUNT_REPORTS.into(), &["COVERING INDEX sqlite_autoindex_gallery_report_2 (album=?)"]),
    ]
}

/// Those of events, balances and webhooks.
fn hot_statements_of_events() -> [(Statement, &'static [&'static str]); 13] {
    [
        (events::EVENT_PAGE, &["event_by_tenant (organization=? AND mode=? AND sequence>?)"]),
        (events::ALL_EVENTS_PAGE.into(), &["event_by_tenant (organization=? AND mode=? AND sequence>?)"]),
        (events::EVENTS_AFTER.into(), &["INTEGER PRIMARY KEY (rowid>?)"]),
        (events::NEWEST_OF_TENANT.into(), &["event_by_tenant (organization=? AND mode=?)"]),
        (events::gathering::CHANGED_PHOTOS.into(), &["PRIMARY KEY (album=? AND change>? AND change<?)"]),
        (events::publisher::IDLE_ALBUMS.into(), &["event_cursor_idle (idle_check_at<?)"]),
        (
            events::publisher::LAST_SETTLED.into(),
            &["album_change_feed USING PRIMARY KEY (album=?)", "photo_settled (album=? AND settled_at>?)"],
        ),
        // Reads the albums in the order of their ids, once a minute.
        (
            events::pruning::PRUNABLE_ALBUMS,
            &["event_cursor USING PRIMARY KEY (album=?)", "newest USING PRIMARY KEY (album=? AND change=?)"],
        ),
        (
            credits::balances::BALANCE.into(),
            &[
                "credit_grant_by_tenant (organization=? AND mode=?)",
                "credit_shard USING PRIMARY KEY (organization=? AND mode=?)",
            ],
        ),
        (events::publisher::CHANGED_ALBUMS, &["album_change_feed_since (since<?)"]),
        (events::gathering::OVERDUE_ALBUM, &["album_change_feed_since (since<?)"]),
        (webhooks::sending::DUE_WEBHOOKS.into(), &["webhook_delivery_due (webhook>?)"]),
        (webhooks::sending::DUE_DELIVERIES, &["webhook_delivery_due (webhook=? AND next_at<?)"]),
    ]
}

#[tokio::test]
async fn hot_statements_use_indexes_only() {
    let (_folder, _store, database) = open_store().await;
    for (statement, indexes) in hot_statements().into_iter().chain(hot_statements_of_events()) {
        let statement = statement.sqlite_text();
        let plan = explain_plan(&database, statement).await;
        for index in indexes {
            assert!(plan.contains(index), "{index} is not in the plan of {statement}:\n{plan}");
        }
        assert!(!plan.contains("TEMP B-TREE"), "{statement} sorts:\n{plan}");
    }
    let page = explain_plan(&database, photos::PHOTO_PAGE).await;
    assert!(page.contains("(album=? AND id>?)"), "{page}");
    // Groups all texts of an album, which no index has by what was read.
    let sightings = explain_plan(&database, start_lists::formats::SIGHTINGS).await;
    assert!(sightings.contains("seen_text_by_photo (album=?)"), "{sightings}");
}

pub(super) async fn explain_plan(database: &SqliteFile, statement: &str) -> String {
    let explain = AssertSqlSafe(format!("explain query plan {statement}"));
    let steps = sqlx::query(explain).fetch_all(&database.reader).await.unwrap();
    steps.iter().map(|step| step.get::<String, _>("detail") + "\n").collect()
}

#[tokio::test]
async fn keys_are_looked_up_while_every_reader_is_busy() {
    let (_folder, _store, database) = open_store().await;
    let mut busy = Vec::new();
    while busy.len() < database.reader.options().get_max_connections() as usize {
        // No organization has them all.
        let reader = on_behalf_of(OrganizationId::generate(), database.acquire_reader());
        busy.push(reader.await.unwrap());
    }
    let keys = SqlKeys::new(Database::Sqlite(database.clone()));
    let found = crate::traits::Keys::find(&keys, &[7; 32]).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_loses_nothing() {
    let (_folder, store, database) = open_store().await;
    let fixture = AlbumFixture::create(&store).await;
    let before = fixture.queue_photos(1).await;
    let pages: i64 = sqlx::query_scalar("pragma page_count").fetch_one(&database.writer).await.unwrap();
    // Reaching this limit has the same effect as a full disk.
    let full = AssertSqlSafe(format!("pragma max_page_count = {}", pages + 2));
    sqlx::query(full).execute(&database.writer).await.unwrap();
    let full = Database::Sqlite(database.clone());
    let faces = std::sync::Arc::new(SqlFaces::new(full.clone()));
    let face_cache = std::sync::Arc::new(crate::search::faces::FaceCache::new(faces, 0));
    let photos = SqlPhotos::new(full, face_cache, crate::turns::Turns::default());
    let new = crate::model::photo::NewPhoto { filename: "x".repeat(1000), content_type: "image/jpeg".into() };
    let refused = crate::traits::Photos::create(&photos, fixture.album, vec![new; 100]).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    assert!(refused.retry_after.is_some());
    let listed = store.photos.count_by_state(fixture.album).await.unwrap();
    assert_eq!((listed.queued, listed.awaiting_upload), (1, 0));
    let limit = "pragma max_page_count = 4294967294";
    sqlx::query(limit).execute(&database.writer).await.unwrap();
    assert_eq!(store.queue.confirm(fixture.album, &before).await.unwrap(), before);
}

#[tokio::test]
async fn a_full_database_accepts_writes_again_when_there_is_space() {
    let (_folder, _store, database) = open_store().await;
    let refused = async |pages: i64| {
        let limit = AssertSqlSafe(format!("pragma max_page_count = {pages}"));
        sqlx::query(limit).execute(&database.writer).await.unwrap();
        let mut transaction = database.begin_write().await.unwrap();
        let large =
            "insert into organization (id, name, created_at) values (zeroblob(16), zeroblob(10000000), 0)";
        let full = sqlx::query(large).execute(&mut *transaction).await.unwrap_err();
        store_error("write")(full).kind
    };
    for _ in 0..3 {
        assert_eq!(refused(1).await, StoreErrorKind::Unavailable);
        // SQLite has already ended the transaction.
        database.begin_write().await.unwrap().commit().await.unwrap();
    }
}

/// Does to an album what a failover to a server without the last commits does.
async fn undo_change(database: &SqliteFile, fixture: &AlbumFixture, photo: crate::model::ids::PhotoId) {
    for undo in [
        "update album set changes = changes - 1 where id = $1",
        "delete from photo_change where album = $1 and photo = $2",
        "delete from face where album = $1 and photo = $2",
    ] {
        sqlx::query(undo).bind(fixture.album).bind(photo).execute(&database.writer).await.unwrap();
    }
}

#[tokio::test]
async fn faces_of_lost_commits_are_not_found() {
    let (_folder, store, database) = open_store().await;
    let fixture = AlbumFixture::create(&store).await;
    let seen = || vec![face([1.0, 0.0, 0.0, 0.0])];
    let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
    let found = async || -> Vec<_> {
        let hits = store.faces.nearest(fixture.album, &probe, 10, 0.5).await.unwrap();
        hits.into_iter().map(|hit| hit.photo).collect()
    };
    let first = fixture.add_ready_photo(seen(), Vec::new()).await;
    let lost = fixture.add_ready_photo(seen(), Vec::new()).await;
    assert_eq!(found().await, [first, lost]);
    // The change number goes back.
    undo_change(&database, &fixture, lost).await;
    assert_eq!(found().await, [first]);
    // It goes back and is used again, for another photo.
    let lost = fixture.add_ready_photo(seen(), Vec::new()).await;
    assert_eq!(found().await, [first, lost]);
    undo_change(&database, &fixture, lost).await;
    let second = fixture.add_ready_photo(seen(), Vec::new()).await;
    assert_eq!(found().await, [first, second]);
    // The same, when it has already advanced further before the next search.
    undo_change(&database, &fixture, second).await;
    let third = fixture.add_ready_photo(seen(), Vec::new()).await;
    let fourth = fixture.add_ready_photo(seen(), Vec::new()).await;
    assert_eq!(found().await, [first, third, fourth]);
}

#[tokio::test]
async fn deleted_faces_leave_the_memory_of_another_process_without_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let [deleting, searching] =
        [Store::open(test_settings(folder.path())).await, Store::open(test_settings(folder.path())).await]
            .map(Result::unwrap);
    let kept = AlbumFixture::create(&deleting).await;
    let deleted = AlbumFixture::create(&deleting).await;
    let seen = || vec![face([1.0, 0.0, 0.0, 0.0])];
    let photos = [kept.add_ready_photo(seen(), vec![]).await, kept.add_ready_photo(seen(), vec![]).await];
    deleted.add_ready_photo(seen(), vec![]).await;
    let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
    for (album, faces) in [(kept.album, 2), (deleted.album, 1)] {
        assert_eq!(searching.faces.nearest(album, &probe, 10, 0.5).await.unwrap().len(), faces);
        assert_eq!(searching.face_cache.count_resident_faces(album).await, Some(faces));
    }
    deleting.photos.delete(kept.album, photos[0]).await.unwrap();
    let deleted_album = deleted.album;
    deleted.delete().await;
    let resident = async || {
        let cache = &searching.face_cache;
        (cache.count_resident_faces(kept.album).await, cache.count_resident_faces(deleted_album).await)
    };
    assert_eq!(resident().await, (Some(2), Some(1)));
    let wait_until_gone = async {
        while resident().await != (Some(1), None) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let period = std::time::Duration::from_millis(20);
    tokio::select! {
        () = searching.refresh_faces_every(period) => {}
        () = wait_until_gone => {}
        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => panic!("{:?}", resident().await),
    }
}

#[tokio::test]
async fn one_writer_of_many_of_another_organization_waits_for_one_of_them() {
    let (_folder, _store, database) = open_store().await;
    let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
    let first = database.begin_write().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut writers = Vec::new();
    for organization in [large; 8].into_iter().chain([small]) {
        let (database, order) = (database.clone(), Arc::clone(&order));
        writers.push(tokio::spawn(on_behalf_of(organization, async move {
            let transaction = database.begin_write().await.unwrap();
            order.lock().unwrap().push(organization);
            transaction.rollback().await.unwrap();
        })));
        // Each is waiting before the next one comes.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    first.commit().await.unwrap();
    for writer in writers {
        writer.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!((order.len(), order[1]), (9, small), "{order:?}");
}

#[tokio::test]
async fn old_costs_are_deleted_also_where_nothing_else_is_old() {
    let (_folder, store, database) = open_store().await;
    let insert = "insert into cost_rollup (organization, mode, day, album, stage, part, photos, cpu_us, device_us, \
                  bytes_read, bytes_written) values (zeroblob(16), 'live', 1, zeroblob(16), 'decode', 0, 1, 1, 1, 1, 1)";
    assert!(!store.ledger_task.is_due().await.unwrap());
    sqlx::query(insert).execute(&database.writer).await.unwrap();
    assert!(store.ledger_task.is_due().await.unwrap());
    let hour = std::time::Duration::from_secs(3600);
    let lease = store.tasks.take(Task::Ledger, ProcessId::generate(), hour).await.unwrap().unwrap();
    store.ledger_task.run(lease).await.unwrap();
    assert!(!store.ledger_task.is_due().await.unwrap());
}

/// The days pass by changing when the failures began.
#[tokio::test]
async fn a_webhook_is_disabled_when_everything_has_failed_for_five_days() {
    let (_folder, store, database) = open_store().await;
    let fixture = AlbumFixture::create(&store).await;
    let id = create(&fixture, &[EventType::AlbumDeleted], 1).await.id;
    let hour = std::time::Duration::from_secs(3600);
    let publisher = store.tasks.take(Task::EventPublisher, ProcessId::generate(), hour).await;
    let publisher = publisher.unwrap().unwrap();
    let attempt = async |outcome: AttemptOutcome| {
        fixture.create_album(album_config()).await.delete().await;
        store.event_publisher.publish(publisher).await.unwrap();
        let room = Room { of_tenant: 1, webhook: Some(id) };
        let due = store.deliveries.lease(1, hour, &room).await.unwrap().pop().unwrap();
        let attempt = Attempt {
            at: time::OffsetDateTime::UNIX_EPOCH,
            duration: hour,
            status: Some(500),
            error: None,
            answer: String::new(),
        };
        store.deliveries.finish(&due, &attempt, outcome).await.unwrap();
        let webhook = store.webhooks.get(&fixture.tenant, id).await.unwrap();
        (webhook.enabled, webhook.disabled_reason)
    };
    let let_pass = async |hours: i64| {
        let age = "update webhook set failing_since = failing_since - $1";
        sqlx::query(age).bind(hours * 3_600_000_000).execute(&database.writer).await.unwrap();
    };
    let enabled = (true, None);
    assert_eq!(attempt(AttemptOutcome::Failed).await, enabled);
    let_pass(5 * 24 + 1).await;
    // Long enough, and too few deliveries to judge by.
    for _ in 0..18 {
        assert_eq!(attempt(AttemptOutcome::Failed).await, enabled);
    }
    // One that was accepted begins it all again.
    assert_eq!(attempt(AttemptOutcome::Delivered).await, enabled);
    for _ in 0..20 {
        assert_eq!(attempt(AttemptOutcome::Failed).await, enabled);
    }
    let_pass(5 * 24 - 1).await;
    assert_eq!(attempt(AttemptOutcome::Failed).await, enabled);
    let_pass(1).await;
    assert_eq!(attempt(AttemptOutcome::Failed).await, (false, Some("FAILING".to_owned())));
}
