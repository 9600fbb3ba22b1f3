//! Backups: what receipts of erasures say of them, and that one of a file in use is complete.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

use std::time::Duration;

use photofinish_store::conformance::{AlbumFixture, add_album_with_bibs, test_settings, text};
use photofinish_store::model::erasure::{ErasureSubject, NewErasure, PhotoFate, Receipt};
use photofinish_store::{Store, StoreSettings};
use sqlx::{Connection, SqliteConnection};

/// Erases a bib where backups are kept for so many days; returns the receipt.
async fn erase(backup_days: Option<u32>) -> Receipt {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings { backup_days, ..test_settings(folder.path()) };
    let store = Store::open(settings).await.unwrap();
    let fixture = AlbumFixture::create(&store).await;
    fixture.add_ready_photo(Vec::new(), vec![text("1207", 0.97)]).await;
    let erasure = NewErasure {
        tenant: fixture.tenant,
        album: fixture.album,
        asked_by: fixture.key.id,
        subject: ErasureSubject::Bib { bib: "1207".into(), with_faces: false },
        photos: PhotoFate::Keep,
        report: None,
    };
    let id = store.erasures.begin(erasure).await.unwrap();
    store.erasures.remove_objects(id).await.unwrap();
    while store.erasures.finish(&[id]).await.unwrap() == 0 {
        // Somebody still reads the log of the database.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    store.erasures.get(&fixture.tenant, id).await.unwrap().receipt.unwrap()
}

#[tokio::test]
async fn a_receipt_says_until_when_backups_may_have_what_was_erased() {
    let covered = erase(Some(30)).await;
    assert_eq!(covered.backups.until, Some(covered.issued_at + time::Duration::days(30)));
    assert!(covered.kept.iter().all(|kept| kept.what != "backups"), "{:?}", covered.kept);
    let open = erase(None).await;
    assert_eq!(open.backups.until, None);
    assert!(open.kept.iter().any(|kept| kept.what == "backups"), "{:?}", open.kept);
}

/// As `docs/OPERATIONS.md` has it: the copy has other row ids where a table does not name its own, so that no statement may use
/// those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_file_in_use_is_searched_as_the_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let settings = test_settings(folder.path());
    let store = Store::open(settings.clone()).await.unwrap();
    let (fixture, query, expected) = add_album_with_bibs(&[&store]).await;
    let copy = folder.path().join("copy.sqlite");
    let mut connection = SqliteConnection::connect(&settings.database_url).await.unwrap();
    sqlx::query("vacuum into $1").bind(copy.to_str().unwrap()).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let database_url = format!("sqlite:{}", copy.display());
    let restored = Store::open(StoreSettings { database_url, ..settings }).await.unwrap();
    let found = restored.faces.find_person(fixture.album, query).await.unwrap();
    assert_eq!(found, expected);
}
