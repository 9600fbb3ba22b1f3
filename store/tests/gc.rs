//! Garbage collection while database and storage fail.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_servers::Postgres;
use photofinish_store::conformance::{AlbumFixture, test_settings};
use photofinish_store::model::erasure::LedgerFate;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::{Blobs, Result, UploadConditions};
use photofinish_store::{GcOptions, Store, StoreError, StoreErrorKind, StoreSettings};
use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
use url::Url;

/// Storage that fails, or whose database fails meanwhile.
struct FailingBlobs {
    blobs: Arc<dyn Blobs>,
    /// An album whose objects cannot be deleted.
    stuck: Option<AlbumId>,
    /// A database whose open transactions are terminated before an object is deleted.
    database_url: Option<String>,
}

#[async_trait]
impl Blobs for FailingBlobs {
    async fn read(&self, key: &ObjectKey, max_bytes: u64) -> Result<Bytes> {
        self.blobs.read(key, max_bytes).await
    }

    async fn write(&self, key: &ObjectKey, content_type: &str, bytes: Bytes) -> Result<()> {
        self.blobs.write(key, content_type, bytes).await
    }

    async fn upload_url(&self, key: &ObjectKey, upload: UploadConditions<'_>) -> Result<Url> {
        self.blobs.upload_url(key, upload).await
    }

    async fn download_url(&self, key: &ObjectKey, ttl: Duration) -> Result<Url> {
        self.blobs.download_url(key, ttl).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<u64>> {
        self.blobs.head(key).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<()> {
        if let Some(url) = &self.database_url {
            terminate_transactions(url).await;
        }
        self.blobs.delete(key).await
    }

    async fn delete_album(&self, organization: OrganizationId, album: AlbumId) -> Result<()> {
        if self.stuck == Some(album) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "storage"));
        }
        self.blobs.delete_album(organization, album).await
    }
}

/// Terminates idle transactions, as the server does after a timeout.
async fn terminate_transactions(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    // Waits until they have ended.
    let ended: Vec<bool> = sqlx::query_scalar(
        "select pg_terminate_backend(pid, 30000) from pg_stat_activity \
         where datname = current_database() and state = 'idle in transaction'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(ended, [true], "no transaction was open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_row_lock_does_not_end_garbage_collection() {
    let Some(server) = Postgres::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.create_database();
    let settings = StoreSettings { database_url: url.clone(), ..test_settings(folder.path()) };
    let mut store = Store::open(settings).await.unwrap();
    // In two albums, which are locked one after the other: each loses its lock.
    let mut previews = Vec::new();
    for fixture in [AlbumFixture::create(&store).await, AlbumFixture::create(&store).await] {
        let photo = fixture.create_photos(1).await[0];
        let organization = fixture.tenant.organization;
        let preview = ObjectKey::photo(organization, fixture.album, photo, ObjectRole::Preview);
        store.blobs.write(&preview, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
        previews.push(preview);
    }
    store.blobs =
        Arc::new(FailingBlobs { blobs: Arc::clone(&store.blobs), stuck: None, database_url: Some(url) });
    let collected =
        store.collect_garbage(GcOptions { min_age: Duration::ZERO, is_dry_run: false }).await.unwrap();
    assert_eq!((collected.removed, collected.removed_bytes), (2, 2));
    for preview in &previews {
        assert_eq!(store.blobs.head(preview).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_album_that_cannot_be_deleted_does_not_block_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(test_settings(folder.path())).await.unwrap();
    let (stuck, other) = (AlbumFixture::create(&store).await, AlbumFixture::create(&store).await);
    for fixture in [&stuck, &other] {
        store.albums.close(&fixture.tenant, fixture.album).await.unwrap();
    }
    let blobs = Arc::clone(&store.blobs);
    store.blobs = Arc::new(FailingBlobs { blobs, stuck: Some(stuck.album), database_url: None });
    let later = OffsetDateTime::now_utc() + time::Duration::minutes(1);
    let refused = store.finish_deletions(later).await.unwrap_err();
    assert_eq!((refused.kind, refused.context.as_str()), (StoreErrorKind::Unavailable, "storage"));
    assert_eq!(store.albums.list_closed(later).await.unwrap(), [(stuck.tenant, stuck.album)]);
}

/// Erases an album and then its organization, whose id is forgotten last.
async fn erase_organization(fixture: &AlbumFixture) {
    let erasures = &fixture.store.erasures;
    let id = erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await.unwrap();
    erasures.remove_objects(id).await.unwrap();
    while erasures.finish(&[id]).await.unwrap() == 0 {
        // Somebody still reads the log of the database.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let organization = fixture.tenant.organization;
    erasures.erase_organization(organization, LedgerFate::Delete).await.unwrap();
    erasures.forget_organization(organization).await.unwrap();
}

/// A URL that was signed before uploads for as long as it is valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_uploaded_for_an_erased_organization_is_removed() {
    // On a file, and on a server where there is one.
    for server in [None, Postgres::shared()] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = test_settings(folder.path());
        if let Some(server) = server {
            settings.database_url = server.create_database();
        }
        let store = Store::open(settings).await.unwrap();
        let fixture = AlbumFixture::create(&store).await;
        let organization = fixture.tenant.organization;
        erase_organization(&fixture).await;
        let late = ObjectKey::photo(organization, fixture.album, PhotoId::generate(), ObjectRole::Original);
        store.blobs.write(&late, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
        let collected =
            store.collect_garbage(GcOptions { min_age: Duration::ZERO, is_dry_run: false }).await.unwrap();
        assert_eq!(collected.removed, 1, "{collected:?}");
        assert_eq!(store.blobs.head(&late).await.unwrap(), None);
    }
}
