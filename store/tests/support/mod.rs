//! A store in a temporary folder: of the embedded profile, or with its database on a server.

#![allow(dead_code, reason = "each test binary uses some of it")]

use photofinish_store::conformance::{AlbumFixture, add_album_with_bibs, test_settings};
use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::AlbumId;
use photofinish_store::{Store, StoreSettings};
use tempfile::TempDir;

/// The attempt limit of test stores.
pub const ATTEMPT_LIMIT: u32 = 3;

/// The folder and the settings of a store; the folder is removed when this is dropped.
pub struct TestStore {
    folder: TempDir,
    database_url: String,
}

impl TestStore {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database_url = test_settings(folder.path()).database_url;
        Self { folder, database_url }
    }

    /// A store that uses this database.
    pub fn with_database(database_url: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database_url }
    }

    pub fn settings(&self) -> StoreSettings {
        let database_url = self.database_url.clone();
        StoreSettings { database_url, attempt_limit: ATTEMPT_LIMIT, ..test_settings(self.folder.path()) }
    }

    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub async fn open(&self) -> Store {
        Store::open(self.settings()).await.unwrap()
    }
}

/// The fixture of an album that was created before the store was reopened.
pub async fn reopen_fixture(store: &Store, album: AlbumId) -> AlbumFixture {
    let key = store.keys.list().await.unwrap().pop().unwrap();
    let tenant: Tenant = key.tenant;
    store.albums.get(&tenant, album).await.unwrap();
    AlbumFixture { store: store.clone(), tenant, key, album }
}

/// Checks that a selfie search is answered the same by a process that followed every change of the album, by one that
/// has just loaded it, and by one that has evicted and loaded it again.
pub async fn check_that_all_processes_find_the_same(test_store: &TestStore) {
    let (writing, following) = (test_store.open().await, test_store.open().await);
    let (fixture, query, expected) = add_album_with_bibs(&[&writing, &following]).await;
    let other = AlbumFixture::create(&writing).await;
    other.add_ready_photo(vec![photofinish_store::conformance::face([1.0, 0.0, 0.0, 0.0])], Vec::new()).await;
    let cold = test_store.open().await;
    // It has memory for one album only.
    let evicting = Store::open(StoreSettings { face_index_bytes: 1, ..test_store.settings() }).await.unwrap();
    for store in [&writing, &following, &cold, &evicting] {
        for _ in 0..2 {
            let found = store.faces.find_person(fixture.album, query.clone()).await.unwrap();
            assert_eq!(found, expected);
            assert_eq!(store.faces.find_person(other.album, query.clone()).await.unwrap().len(), 1);
        }
    }
}
