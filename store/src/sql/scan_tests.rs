//! Reading whole albums of a file: one at a time, after everybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use futures_util::poll;

use super::SqlFaces;
use super::database::Database;
use super::tests::open_store;
use crate::conformance::{AlbumFixture, face};
use crate::search::faces::matrix::UnlimitedMemory;
use crate::search::faces::source::FaceSource;

#[tokio::test]
async fn one_scan_runs_at_a_time_and_keeps_nobody_else_from_reading() {
    let (_folder, _store, database) = open_store().await;
    let scan = database.begin_scan().await.unwrap();
    let mut next = Box::pin(database.begin_scan());
    assert!(poll!(&mut next).is_pending());
    let mut reader = database.begin_snapshot().await.unwrap();
    let (albums,): (i64,) =
        sqlx::query_as("select count(*) from album").fetch_one(&mut *reader).await.unwrap();
    assert_eq!(albums, 0);
    assert!(poll!(&mut next).is_pending(), "a scan began beside another");
    drop(scan);
    next.await.unwrap();
}

/// Loading an album of a million faces takes seconds, and so may what a scan reads.
#[tokio::test]
async fn faces_are_loaded_one_album_at_a_time_beside_a_scan() {
    let (_folder, store, file) = open_store().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], Vec::new()).await;
    let source = SqlFaces::new(Database::Sqlite(file.clone()));
    let _scan = file.begin_scan().await.unwrap();
    let (_, faces) = source.load_faces(fixture.album, &UnlimitedMemory).await.unwrap();
    assert_eq!(faces.len(), 1);

    let load = file.begin_face_load().await.unwrap();
    let mut next = Box::pin(source.load_faces(fixture.album, &UnlimitedMemory));
    assert!(poll!(&mut next).is_pending(), "faces were loaded beside those of another album");
    drop(load);
    next.await.unwrap();
}

/// The priority is a thread's own on Linux alone.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn threads_that_read_whole_albums_have_a_lower_priority() {
    let (_folder, _store, database) = open_store().await;
    let mut scan = database.begin_scan().await.unwrap();
    let mut load = database.begin_face_load().await.unwrap();
    let mut snapshot = database.begin_snapshot().await.unwrap();
    let mut found = Vec::new();
    for connection in [&mut scan, &mut load, &mut snapshot] {
        found.push(niceness_of_thread(connection).await);
    }
    assert_eq!(found, [5, 5, 0]);
}

/// The niceness of the thread of a connection, after a statement.
#[cfg(target_os = "linux")]
async fn niceness_of_thread(connection: &mut sqlx::SqliteConnection) -> i32 {
    count_many(connection).await;
    let niceness = Arc::new(AtomicI32::new(i32::MIN));
    let seen = Arc::clone(&niceness);
    // SQLite calls this on that thread.
    connection.lock_handle().await.unwrap().set_progress_handler(1_000, move || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The fields after the name begin with the third, the state; the nineteenth is the niceness.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        seen.store(fields.split(' ').nth(16).unwrap().parse().unwrap(), Ordering::SeqCst);
        true
    });
    count_many(connection).await;
    niceness.load(Ordering::SeqCst)
}

/// Runs a statement of some ten thousand steps.
#[cfg(target_os = "linux")]
async fn count_many(connection: &mut sqlx::SqliteConnection) {
    let many = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000) select count(*) from n";
    let (counted,): (i64,) = sqlx::query_as(many).fetch_one(connection).await.unwrap();
    assert_eq!(counted, 10_000);
}
