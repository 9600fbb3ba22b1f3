//! The embedded profile: the conformance suites on SQLite and local files, and guarantees of this profile only.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod support;

use std::time::Duration;

use photofinish_store::conformance::{self, AlbumFixture};
use photofinish_store::model::erasure::{ComparedSelfie, ErasureSubject, FacePlace, NewErasure, PhotoFate};
use photofinish_store::model::photo::{FailureReason, PhotoState};
use photofinish_store::traits::{ProbeOutcome, TextQuery};
use photofinish_store::{Store, StoreErrorKind, lock_database};
use sqlx::{Connection, SqliteConnection};
use support::{ATTEMPT_LIMIT, TestStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_suites_pass() {
    let test_store = TestStore::new();
    conformance::run_all_suites(&test_store.open().await).await;
}

#[tokio::test]
async fn every_process_finds_the_same_person_however_the_album_came_into_memory() {
    support::check_that_all_processes_find_the_same(&TestStore::new()).await;
}

#[tokio::test]
async fn confirmed_photos_and_results_survive_a_restart() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let ready = fixture
        .add_ready_photo(vec![conformance::face([1.0, 0.0, 0.0, 0.0])], vec![conformance::text("1234", 0.99)])
        .await;
    let queued = fixture.queue_photos(5).await;
    let (album, tenant) = (fixture.album, fixture.tenant);
    drop(fixture);
    store.close().await;
    drop(store);

    let store = test_store.open().await;
    let counts = store.photos.count_by_state(album).await.unwrap();
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
    let test_store = TestStore::new();
    let mut store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let album = fixture.album;
    let photo = fixture.queue_photos(1).await[0];
    let hour = Duration::from_secs(3600);
    assert_eq!(fixture.lease_fresh(1, hour).await[0].attempt, 1);
    drop(fixture);
    for attempt in 2..=ATTEMPT_LIMIT {
        store = restart(&test_store, store).await;
        let fixture = support::reopen_fixture(&store, album).await;
        assert!(fixture.lease_suspect(hour).await.is_none(), "the lease still runs");
        assert_eq!(store.embedded().unwrap().reclaim_leases().await.unwrap(), 1);
        assert!(fixture.lease_fresh(1, hour).await.is_empty(), "it is not fresh");
        assert_eq!(fixture.lease_suspect(hour).await.unwrap().attempt, attempt);
    }
    store = restart(&test_store, store).await;
    store.embedded().unwrap().reclaim_leases().await.unwrap();
    let fixture = support::reopen_fixture(&store, album).await;
    assert!(fixture.lease_suspect(hour).await.is_none());
    let failed = store.photos.get(album, photo).await.unwrap();
    assert_eq!((failed.state, failed.failure), (PhotoState::Failed, Some(FailureReason::ProcessingCrashed)));
}

#[tokio::test]
async fn scheduled_lease_reclaim_runs_once_before_the_next_lease() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    fixture.queue_photos(2).await;
    let hour = Duration::from_secs(3600);
    assert_eq!(fixture.lease_fresh(1, hour).await.len(), 1);
    store.embedded().unwrap().schedule_reclaim().await;
    assert_eq!(fixture.lease_fresh(1, hour).await[0].attempt, 1, "the fresh photo");
    assert_eq!(fixture.lease_suspect(hour).await.unwrap().attempt, 2, "the photo of the crashed process");
    assert!(fixture.lease_suspect(hour).await.is_none(), "the fresh photo is leased");
}

#[tokio::test]
async fn confirmed_photos_are_in_the_files_when_confirm_returns() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let photos = fixture.create_photos(20).await;
    for (done, photo) in photos.iter().enumerate() {
        store.queue.confirm(fixture.album, &[*photo]).await.unwrap();
        // The files as a process that dies now leaves them: the database and its log, without a checkpoint.
        let remains = TestStore::new();
        for name in ["photofinish.db", "photofinish.db-wal"] {
            std::fs::copy(test_store.path().join(name), remains.path().join(name)).unwrap();
        }
        std::fs::create_dir(remains.path().join("objects")).unwrap();
        std::fs::write(remains.path().join("objects/folders.lock"), "").unwrap();
        let counts = remains.open().await.photos.count_by_state(fixture.album).await.unwrap();
        assert_eq!(counts.queued, done as u64 + 1);
    }
}

/// Reopens the store as after `kill -9`: without releasing leases.
async fn restart(test_store: &TestStore, store: Store) -> Store {
    store.close().await;
    drop(store);
    test_store.open().await
}

#[tokio::test]
async fn a_command_works_beside_the_service() {
    let test_store = TestStore::new();
    let (service, command) = tokio::join!(test_store.open(), test_store.open());
    let fixture = AlbumFixture::create(&service).await;
    assert_eq!(command.keys.list().await.unwrap(), std::slice::from_ref(&fixture.key));
    let theirs = AlbumFixture::create(&command).await;
    let (a, b) = tokio::join!(fixture.queue_photos(50), theirs.queue_photos(50));
    assert_eq!((a.len(), b.len()), (50, 50));
    assert_eq!(service.queue.depth().await.unwrap(), 100);
    service.check_database().await.unwrap();
    service.check_storage().await.unwrap();
}

#[tokio::test]
async fn urls_of_other_kinds_are_refused_with_a_message() {
    let test_store = TestStore::new();
    let mut settings = test_store.settings();
    settings.database_url = "mysql://photofinish:secret@127.0.0.1/photofinish".into();
    let error = Store::open(settings).await.err().unwrap();
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(error.to_string().contains("database url"), "{error}");
    let mut settings = test_store.settings();
    settings.storage_url = "ftp://photos".into();
    let error = Store::open(settings).await.err().unwrap();
    assert!(error.to_string().contains("storage url"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let test_store = TestStore::new();
    let settings = test_store.settings();
    let path = settings.database_url.strip_prefix("sqlite:").unwrap().to_owned();
    std::fs::write(path, "a".repeat(10_000)).unwrap();
    assert_eq!(Store::open(settings).await.err().unwrap().kind, StoreErrorKind::Corrupt);
}

#[test]
fn an_exclusive_database_lock_also_covers_links_to_the_file() {
    let (test_store, elsewhere) = (TestStore::new(), TestStore::new());
    let url = test_store.settings().database_url;
    let kept = lock_database(&url, true).unwrap().unwrap();
    let refused = |url: &str, alone| lock_database(url, alone).unwrap_err().kind;
    assert_eq!(refused(&url, true), StoreErrorKind::Conflict);
    assert_eq!(refused(&url, false), StoreErrorKind::Conflict);
    drop(kept);
    let shared = [lock_database(&url, false).unwrap(), lock_database(&url, false).unwrap()];
    assert_eq!(refused(&url, true), StoreErrorKind::Conflict);
    drop(shared);
    let file = test_store.path().join("photofinish.db");
    std::fs::write(&file, "").unwrap();
    let link = elsewhere.path().join("rows.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let _kept = lock_database(&url, true).unwrap();
    assert_eq!(refused(&format!("sqlite:{}", link.display()), true), StoreErrorKind::Conflict);
    assert!(lock_database("postgres://host/rows", true).unwrap().is_none());
}

/// Their sizes were left in the rows, and say of photos that wait that they have pictures.
#[tokio::test]
async fn photos_that_an_earlier_version_failed_wait_without_pictures() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let album = fixture.album;
    let photos = fixture.queue_photos(3).await;
    for lease in fixture.lease_fresh(3, Duration::from_secs(3600)).await {
        store.queue.fail(&lease, FailureReason::CorruptImage, "damaged").await.unwrap();
    }
    let mut connection = SqliteConnection::connect(&test_store.settings().database_url).await.unwrap();
    sqlx::query("update photo set width = 60, height = 40").execute(&mut connection).await.unwrap();
    store.queue.retry(album, photos[0]).await.unwrap();
    store.queue.confirm(album, &photos[1..2]).await.unwrap();
    assert_eq!(store.queue.reprocess(album).await.unwrap().queued, 1);
    for photo in photos {
        let photo = store.photos.get(album, photo).await.unwrap();
        assert_eq!((photo.state, photo.has_pictures()), (PhotoState::Queued, false));
    }
}

/// The first bytes of what is stored of this vector.
fn stored_bytes(vector: [f32; 4]) -> Vec<u8> {
    let embedding = conformance::face(vector).embedding.unwrap();
    embedding.vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Counts where these bytes are in the files of the database.
fn count_in_files(test_store: &TestStore, wanted: &[u8]) -> usize {
    let files = ["photofinish.db", "photofinish.db-wal"].map(|name| test_store.path().join(name));
    let contents = files.iter().filter_map(|file| std::fs::read(file).ok());
    contents.map(|bytes| bytes.windows(wanted.len()).filter(|part| *part == wanted).count()).sum()
}

#[tokio::test]
async fn no_byte_of_an_erased_vector_is_left_in_the_files() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let (runner, stranger) = ([0.123_f32, 0.456, 0.789, -0.321], [-0.987_f32, 0.654, 0.321, 0.111]);
    let mut photos = Vec::new();
    for i in 0..40 {
        let vector = if i % 2 == 0 { runner } else { stranger };
        photos.push(fixture.add_ready_photo(vec![conformance::face(vector)], Vec::new()).await);
    }
    let probe = store.probes.create(fixture.album, Duration::from_secs(3600)).await.unwrap();
    let selfie = conformance::face(runner).embedding.unwrap();
    store.probes.set_outcome(probe.id, ProbeOutcome::Embedded(selfie.clone())).await.unwrap();
    assert!(count_in_files(&test_store, &stored_bytes(runner)) >= 21);
    let bounding_box = conformance::face(runner).bounding_box;
    let places = photos.iter().step_by(2).map(|photo| FacePlace { photo: *photo, bounding_box }).collect();
    let erasure = NewErasure {
        tenant: fixture.tenant,
        album: fixture.album,
        asked_by: fixture.key.id,
        subject: ErasureSubject::Faces {
            places,
            selfie: Some(ComparedSelfie { embedding: selfie, min_cosine: 0.9 }),
            searched_at: i64::MAX,
        },
        photos: PhotoFate::Keep,
        report: None,
    };
    let id = store.erasures.begin(erasure).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
    assert_eq!(count_in_files(&test_store, &stored_bytes(runner)), 0);
    assert!(count_in_files(&test_store, &stored_bytes(stranger)) >= 20, "those of others stay");

    let id = store.erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    assert_eq!(store.erasures.finish(&[id]).await.unwrap(), 1);
    assert_eq!(count_in_files(&test_store, &stored_bytes(stranger)), 0);
    for photo in photos {
        assert_eq!(count_in_files(&test_store, photo.0.as_bytes()), 0);
    }
}
