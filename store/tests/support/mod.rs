//! A store in a folder of its own: of the embedded profile, or with its rows on a server.

#![allow(dead_code, reason = "each test binary uses some of it")]

use photofinish_store::conformance::{Event, test_settings};
use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::AlbumId;
use photofinish_store::{Store, StoreSettings};
use tempfile::TempDir;

/// How many leases may end without a word.
pub const ATTEMPT_LIMIT: u32 = 3;

/// The folder; removed with this.
pub struct Home {
    folder: TempDir,
    database_url: String,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database_url = test_settings(folder.path()).database_url;
        Self { folder, database_url }
    }

    /// With the rows in this database.
    pub fn with_rows(database_url: String) -> Self {
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

/// The event of an album that an earlier opening of the store made.
pub async fn reopen_fixture(store: &Store, album: AlbumId) -> Event {
    let key = store.keys.list().await.unwrap().pop().unwrap();
    let tenant: Tenant = key.tenant;
    store.albums.get(&tenant, album).await.unwrap();
    Event { store: store.clone(), tenant, key, album }
}
