//! What receipts of erasures say of backups.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

use std::time::Duration;

use photofinish_store::conformance::{AlbumFixture, test_settings, text};
use photofinish_store::model::erasure::{ErasureSubject, NewErasure, PhotoFate, Receipt};
use photofinish_store::{Store, StoreSettings};

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
