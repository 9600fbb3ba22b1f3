//! A store in a folder of its own: of the embedded profile, or with its rows on a server.

#![allow(dead_code, reason = "each test binary uses some of it")]

use photofinish_store::album::Tenant;
use photofinish_store::ids::AlbumId;
use photofinish_store::remote::CloudSettings;
use photofinish_store::suite::Event;
use photofinish_store::{ServerLimits, Store, StoreSettings};
use tempfile::TempDir;

/// How many leases may end without a word.
pub const LIMIT: u32 = 3;

/// The folder; removed with this.
pub struct Home {
    folder: TempDir,
    database_url: String,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database_url = format!("sqlite:{}", folder.path().join("photofinish.db").display());
        Self { folder, database_url }
    }

    /// With the rows in this database.
    pub fn with_rows(database_url: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database_url }
    }

    pub fn settings(&self) -> StoreSettings {
        let folder = self.folder.path();
        StoreSettings {
            database_url: self.database_url.clone(),
            server_limits: ServerLimits::default(),
            storage_url: format!("file:{}", folder.join("objects").display()),
            cloud: CloudSettings::default(),
            public_url: "http://127.0.0.1:8080".parse().unwrap(),
            signing_secret: [7; 32],
            attempt_limit: LIMIT,
            face_index_bytes: 256 << 20,
            scratch: folder.join("scratch"),
            queue: None,
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
