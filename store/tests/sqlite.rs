//! The embedded profile: every suite on SQLite and local files, and what only this profile promises.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::time::Duration;

use photofinish_store::conformance::{self, Event};
use photofinish_store::model::photo::{FailureReason, PhotoState};
use photofinish_store::traits::TextQuery;
use photofinish_store::{Store, StoreErrorKind, lock_database};
use support::{ATTEMPT_LIMIT, Home};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suites_pass() {
    let home = Home::new();
    conformance::run_all_suites(&home.open().await).await;
}

#[tokio::test]
async fn confirmed_photos_and_results_survive_a_restart() {
    let home = Home::new();
    let store = home.open().await;
    let event = Event::make(&store).await;
    let ready = event
        .ready(vec![conformance::face([1.0, 0.0, 0.0, 0.0])], vec![conformance::text("1234", 0.99)])
        .await;
    let queued = event.queued(5).await;
    let (album, tenant) = (event.album, event.tenant);
    drop(event);
    store.close().await;
    drop(store);

    let store = home.open().await;
    let counts = store.photos.counts(album).await.unwrap();
    assert_eq!((counts.ready, counts.queued), (1, 5));
    assert_eq!(store.queue.confirm(album, &queued).await.unwrap(), queued);
    let probe = conformance::face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
    let hits = store.faces.nearest(album, &probe, 10, 0.9).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.photo).collect::<Vec<_>>(), [ready]);
    let query = TextQuery { text: "1234".into(), exact: true };
    assert_eq!(store.texts.search(album, &query).await.unwrap().len(), 1);
    assert_eq!(store.albums.get(&tenant, album).await.unwrap().title, "Night run");
}

#[tokio::test]
async fn a_killed_process_leaves_crash_suspects_that_fail_at_the_attempt_limit() {
    let home = Home::new();
    let mut store = home.open().await;
    let event = Event::make(&store).await;
    let album = event.album;
    let photo = event.queued(1).await[0];
    let hour = Duration::from_secs(3600);
    assert_eq!(event.leased(1, hour).await[0].attempt, 1);
    drop(event);
    for attempt in 2..=ATTEMPT_LIMIT {
        store = restart(&home, store).await;
        let event = support::reopen_fixture(&store, album).await;
        assert!(event.leased_suspect(hour).await.is_none(), "the lease still runs");
        assert_eq!(store.embedded().unwrap().reclaim_leases().await.unwrap(), 1);
        assert!(event.leased(1, hour).await.is_empty(), "it is no fresh photo");
        assert_eq!(event.leased_suspect(hour).await.unwrap().attempt, attempt);
    }
    store = restart(&home, store).await;
    store.embedded().unwrap().reclaim_leases().await.unwrap();
    let event = support::reopen_fixture(&store, album).await;
    assert!(event.leased_suspect(hour).await.is_none());
    let failed = store.photos.get(album, photo).await.unwrap();
    assert_eq!((failed.state, failed.failure), (PhotoState::Failed, Some(FailureReason::ProcessingCrashed)));
}

#[tokio::test]
async fn scheduled_lease_reclaim_runs_once_before_the_next_lease() {
    let home = Home::new();
    let store = home.open().await;
    let event = Event::make(&store).await;
    event.queued(2).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(event.leased(1, hour).await.len(), 1);
    store.embedded().unwrap().schedule_reclaim().await;
    assert_eq!(event.leased(1, hour).await[0].attempt, 1, "the fresh one");
    assert_eq!(event.leased_suspect(hour).await.unwrap().attempt, 2, "the one that was left");
    assert!(event.leased_suspect(hour).await.is_none(), "the fresh one is held");
}

#[tokio::test]
async fn confirmed_photos_are_in_the_files_when_confirm_returns() {
    let home = Home::new();
    let store = home.open().await;
    let event = Event::make(&store).await;
    let photos = event.expected(20).await;
    for (done, photo) in photos.iter().enumerate() {
        store.queue.confirm(event.album, &[*photo]).await.unwrap();
        // The files as a process that dies now leaves them: the database and its log, nothing closed.
        let remains = Home::new();
        for name in ["photofinish.db", "photofinish.db-wal"] {
            std::fs::copy(home.path().join(name), remains.path().join(name)).unwrap();
        }
        std::fs::create_dir(remains.path().join("objects")).unwrap();
        std::fs::write(remains.path().join("objects/folders.lock"), "").unwrap();
        let counts = remains.open().await.photos.counts(event.album).await.unwrap();
        assert_eq!(counts.queued, done as u64 + 1);
    }
}

/// As after `kill -9`: nothing is given back.
async fn restart(home: &Home, store: Store) -> Store {
    store.close().await;
    drop(store);
    home.open().await
}

#[tokio::test]
async fn a_command_works_beside_the_service() {
    let home = Home::new();
    let (service, command) = tokio::join!(home.open(), home.open());
    let event = Event::make(&service).await;
    assert_eq!(command.keys.list().await.unwrap(), std::slice::from_ref(&event.key));
    let theirs = Event::make(&command).await;
    let (a, b) = tokio::join!(event.queued(50), theirs.queued(50));
    assert_eq!((a.len(), b.len()), (50, 50));
    assert_eq!(service.queue.depth().await.unwrap(), 100);
    service.check_database().await.unwrap();
    service.check_storage().await.unwrap();
}

#[tokio::test]
async fn urls_of_other_kinds_are_refused_with_a_message() {
    let home = Home::new();
    let mut settings = home.settings();
    settings.database_url = "mysql://photofinish:secret@127.0.0.1/photofinish".into();
    let error = Store::open(settings).await.err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(error.to_string().contains("database url"), "{error}");
    let mut settings = home.settings();
    settings.storage_url = "ftp://photos".into();
    let error = Store::open(settings).await.err().unwrap();
    assert!(error.to_string().contains("storage url"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let home = Home::new();
    let settings = home.settings();
    let path = settings.database_url.strip_prefix("sqlite:").unwrap().to_owned();
    std::fs::write(path, "a".repeat(10_000)).unwrap();
    assert_eq!(Store::open(settings).await.err().unwrap().kind, StoreErrorKind::Corrupt);
}

#[test]
fn an_exclusive_database_lock_also_covers_links_to_the_file() {
    let (home, elsewhere) = (Home::new(), Home::new());
    let url = home.settings().database_url;
    let kept = lock_database(&url, true).unwrap().unwrap();
    let refused = |url: &str, alone| lock_database(url, alone).unwrap_err().kind;
    assert_eq!(refused(&url, true), StoreErrorKind::Conflict);
    assert_eq!(refused(&url, false), StoreErrorKind::Conflict);
    drop(kept);
    let shared = [lock_database(&url, false).unwrap(), lock_database(&url, false).unwrap()];
    assert_eq!(refused(&url, true), StoreErrorKind::Conflict);
    drop(shared);
    let file = home.path().join("photofinish.db");
    std::fs::write(&file, "").unwrap();
    let link = elsewhere.path().join("rows.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let _kept = lock_database(&url, true).unwrap();
    assert_eq!(refused(&format!("sqlite:{}", link.display()), true), StoreErrorKind::Conflict);
    assert!(lock_database("postgres://host/rows", true).unwrap().is_none());
}
