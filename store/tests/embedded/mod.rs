//! A store of the embedded profile in a folder of its own.

#![allow(dead_code, reason = "each test binary uses some of it")]

use photofinish_store::album::Tenant;
use photofinish_store::ids::AlbumId;
use photofinish_store::remote::CloudSettings;
use photofinish_store::suite::Event;
use photofinish_store::{Store, StoreSettings};
use tempfile::TempDir;

/// How many leases may end without a word.
pub const LIMIT: u32 = 3;

/// The folder; removed with this.
pub struct Home {
    folder: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn settings(&self) -> StoreSettings {
        let folder = self.folder.path();
        StoreSettings {
            database_url: format!("sqlite:{}", folder.join("photofinish.db").display()),
            storage_url: format!("file:{}", folder.join("objects").display()),
            cloud: CloudSettings::default(),
            public_url: "http://127.0.0.1:8080".parse().unwrap(),
            signing_secret: [7; 32],
            attempt_limit: LIMIT,
            face_index_bytes: 256 << 20,
            scratch: folder.join("scratch"),
        }
    }

    pub fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub async fn open(&self) -> Store {
        Store::open(self.settings()).await.unwrap()
    }
}

/// The event of an album that an earlier opening of the store made.
pub async fn event_of(store: &Store, album: AlbumId) -> Event {
    let key = store.keys.list().await.unwrap().pop().unwrap();
    let tenant: Tenant = key.tenant;
    store.albums.get(&tenant, album).await.unwrap();
    Event { store: store.clone(), tenant, key, album }
}
