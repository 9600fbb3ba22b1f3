//! Uploads and downloads by signed URLs, as the API runs them.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod permissions;
#[path = "../support/mod.rs"]
mod support;
mod uploads;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use photofinish_store::blobs::local::uploads::{
    PublishError, ReceiveError, ReceivedUpload, StartedUpload, UploadPace,
};
use photofinish_store::blobs::local::{LocalFiles, SignatureError, UploadGrant};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::UploadConditions;
use photofinish_store::{GcOptions, Store, StoreErrorKind};
use support::TestStore;
use url::Url;

const TTL: Duration = Duration::from_secs(900);

fn random_key(role: ObjectRole) -> ObjectKey {
    ObjectKey::photo(OrganizationId::generate(), AlbumId::generate(), PhotoId::generate(), role)
}

fn local(store: &Store) -> &LocalFiles {
    store.local.as_deref().unwrap()
}

/// Returns the path after `/storage/`, and the query.
fn split_signed_url(url: &Url) -> (&str, &str) {
    (url.path().strip_prefix("/storage/").unwrap(), url.query().unwrap())
}

async fn grant_upload(store: &Store, key: &ObjectKey, max_bytes: u64) -> UploadGrant {
    grant_upload_for(store, key, UploadConditions { content_type: "image/jpeg", max_bytes, ttl: TTL }).await
}

async fn grant_upload_for(store: &Store, key: &ObjectKey, terms: UploadConditions<'_>) -> UploadGrant {
    let url = store.blobs.upload_url(key, terms).await.unwrap();
    let (path, query) = split_signed_url(&url);
    local(store).verify_upload(path, query, Some("image/jpeg")).unwrap()
}

fn begin_upload(store: &Store, grant: UploadGrant) -> StartedUpload {
    local(store).begin_upload(grant, None, UploadPace::SERVICE).unwrap()
}

async fn receive_upload<S>(
    store: &Store,
    grant: UploadGrant,
    body: S,
) -> Result<ReceivedUpload, ReceiveError<io::Error>>
where
    S: stream::Stream<Item = io::Result<Bytes>>,
{
    local(store).receive_upload(begin_upload(store, grant), body).await
}

/// Receives and publishes a body.
async fn upload<S>(store: &Store, grant: UploadGrant, body: S) -> Result<u64, PublishError>
where
    S: stream::Stream<Item = io::Result<Bytes>>,
{
    let received = receive_upload(store, grant, body).await.map_err(|error| match error {
        ReceiveError::Store(error) => PublishError::Store(error),
        other => panic!("{other}"),
    })?;
    local(store).publish_upload(received).await
}

fn body_stream(chunks: Vec<io::Result<&'static [u8]>>) -> impl stream::Stream<Item = io::Result<Bytes>> {
    stream::iter(chunks.into_iter().map(|chunk| chunk.map(Bytes::from_static)))
}

/// Counts staged files.
fn count_staged_files(test_store: &TestStore) -> usize {
    let scratch = std::fs::read_dir(test_store.path().join("objects/scratch")).unwrap();
    scratch
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "part"))
        .count()
}

#[tokio::test]
async fn without_the_storage_folder_no_object_is_missing_and_none_is_written() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let (existing, missing) = (random_key(ObjectRole::Original), random_key(ObjectRole::Preview));
    let bytes = Bytes::from_static(b"photo");
    store.blobs.write(&existing, "image/jpeg", bytes.clone()).await.unwrap();
    let url = store.blobs.download_url(&existing, TTL).await.unwrap();
    let (path, query) = split_signed_url(&url);
    let grant = local(&store).verify_download(path, query).unwrap();
    let (objects, moved) = (test_store.path().join("objects"), test_store.path().join("moved"));
    std::fs::rename(&objects, &moved).unwrap();
    let grant_to_upload = grant_upload(&store, &existing, 10).await;
    let received = upload(&store, grant_to_upload, body_stream(vec![Ok(b"other")])).await;
    let Err(PublishError::Store(received)) = received else { panic!("{received:?}") };
    let refused = [
        received,
        store.blobs.read(&existing, 100).await.unwrap_err(),
        store.blobs.head(&existing).await.unwrap_err(),
        store.blobs.write(&missing, "image/jpeg", bytes.clone()).await.unwrap_err(),
        store.blobs.delete(&existing).await.unwrap_err(),
        store.blobs.delete_album(OrganizationId::generate(), AlbumId::generate()).await.unwrap_err(),
        store.collect_garbage(GcOptions { min_age: Duration::ZERO, is_dry_run: false }).await.unwrap_err(),
        local(&store).open_object(&grant).await.err().unwrap(),
    ];
    for error in refused {
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    }
    assert!(!objects.exists(), "another folder was created in its place");
    std::fs::rename(&moved, &objects).unwrap();
    assert_eq!(store.blobs.read(&existing, 100).await.unwrap(), bytes);
    assert_eq!(store.blobs.head(&missing).await.unwrap(), None);
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn a_folder_that_does_not_contain_the_photos_is_refused() {
    let test_store = TestStore::new();
    let (objects, moved) = (test_store.path().join("objects"), test_store.path().join("moved"));
    drop(test_store.open().await);
    std::fs::remove_dir_all(&objects).unwrap();
    let store = test_store.open().await;
    AlbumFixture::create(&store).await.queue_photos(1).await;
    drop(store);
    std::fs::rename(&objects, &moved).unwrap();
    // Like a mount point without its disk.
    std::fs::create_dir(&objects).unwrap();
    let refused = Store::open(test_store.settings()).await.err().unwrap();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "{refused}");
    std::fs::remove_dir(&objects).unwrap();
    Store::open(test_store.settings()).await.err().unwrap();
    assert!(!objects.exists(), "another folder was created in its place");
    std::fs::rename(&moved, &objects).unwrap();
    test_store.open().await;
    // An operator who wants to begin with an empty folder creates the lock file.
    std::fs::remove_dir_all(&objects).unwrap();
    std::fs::create_dir(&objects).unwrap();
    std::fs::write(objects.join("folders.lock"), "").unwrap();
    test_store.open().await;
}

#[tokio::test]
async fn an_uploaded_body_is_downloaded_unchanged() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    for (role, content_type) in
        [(ObjectRole::Preview, "image/jpeg"), (ObjectRole::Original, "application/octet-stream")]
    {
        let key = random_key(role);
        let grant = grant_upload(&store, &key, 10).await;
        let received = upload(&store, grant, body_stream(vec![Ok(b"01234"), Ok(b""), Ok(b"56789")])).await;
        assert_eq!(received.unwrap(), 10);
        let url = store.blobs.download_url(&key, TTL).await.unwrap();
        let (path, query) = split_signed_url(&url);
        let grant = local(&store).verify_download(path, query).unwrap();
        let object = local(&store).open_object(&grant).await.unwrap();
        assert_eq!((object.size_bytes, object.content_type), (10, content_type));
        let chunks: Vec<io::Result<Bytes>> = object.body.collect().await;
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap()).collect();
        assert_eq!(bytes, b"0123456789");
        store.blobs.delete(&key).await.unwrap();
        assert!(local(&store).open_object(&grant).await.is_err());
    }
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn a_second_put_replaces_the_first() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let grant = grant_upload(&store, &key, 10).await;
    for content in [&b"first"[..], b"again"] {
        upload(&store, grant.clone(), body_stream(vec![Ok(content)])).await.unwrap();
        assert_eq!(store.blobs.read(&key, 10).await.unwrap(), content);
    }
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_before_it_ends_and_leaves_nothing() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let grant = grant_upload(&store, &key, 7).await;
    let endless = stream::repeat_with(|| io::Result::Ok(Bytes::from_static(b"0123")));
    let refused = receive_upload(&store, grant, endless).await.err().unwrap();
    assert!(matches!(refused, ReceiveError::TooLarge { max_bytes: 7 }), "{refused}");
    assert_eq!(store.blobs.head(&key).await.unwrap(), None);
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn an_interrupted_body_leaves_the_previous_object() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let grant = grant_upload(&store, &key, 100).await;
    upload(&store, grant.clone(), body_stream(vec![Ok(b"whole")])).await.unwrap();
    let cut = || io::Error::new(io::ErrorKind::ConnectionReset, "gone");
    let refused = receive_upload(&store, grant.clone(), body_stream(vec![Ok(b"half"), Err(cut())])).await;
    assert!(matches!(refused.err().unwrap(), ReceiveError::Body(_)));
    assert_eq!(store.blobs.read(&key, 100).await.unwrap(), "whole");
    // A caller that disconnects in the middle: the future is dropped while it waits for the next chunk.
    let waiting = body_stream(vec![Ok(b"half")]).chain(stream::pending());
    let receiving = receive_upload(&store, grant, waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), receiving).await.is_err());
    assert_eq!(store.blobs.read(&key, 100).await.unwrap(), "whole");
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn a_url_that_was_changed_is_refused() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let url = store.blobs.download_url(&random_key(ObjectRole::Preview), TTL).await.unwrap();
    let (path, query) = split_signed_url(&url);
    assert!(local(&store).verify_download(path, query).is_ok());
    let other = path.replace("preview", "original");
    assert_eq!(local(&store).verify_download(&other, query), Err(SignatureError::Wrong));
    let (short, _) = query.rsplit_once('&').unwrap();
    assert_eq!(local(&store).verify_download(path, short), Err(SignatureError::Malformed));
}

#[tokio::test]
async fn staged_files_of_dead_uploads_are_removed_and_running_ones_are_not() {
    let test_store = TestStore::new();
    drop(test_store.open().await);
    let scratch = test_store.path().join("objects/scratch");
    for (name, age) in [("old.part", 7200), ("running.part", 0), ("old.txt", 7200)] {
        let file = std::fs::File::create(scratch.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    test_store.open().await;
    let mut left: Vec<_> =
        std::fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["old.txt", "running.part"]);
}

#[tokio::test]
async fn staged_files_of_dead_uploads_are_garbage_of_a_store_that_is_open() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let scratch = test_store.path().join("objects/scratch");
    for (name, age) in [("old.part", 7200), ("running.part", 0)] {
        let file = std::fs::File::create(scratch.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    let collect = async |is_dry_run| {
        store.collect_garbage(GcOptions { min_age: Duration::ZERO, is_dry_run }).await.unwrap();
        count_staged_files(&test_store)
    };
    assert_eq!(collect(true).await, 2);
    assert_eq!(collect(false).await, 1);
    assert!(scratch.join("running.part").exists());
}

#[tokio::test]
async fn nothing_is_collected_when_the_database_is_unavailable() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let orphan = ObjectKey::photo(
        fixture.tenant.organization,
        fixture.album,
        PhotoId::generate(),
        ObjectRole::Original,
    );
    store.blobs.write(&orphan, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
    let options = GcOptions { min_age: Duration::ZERO, is_dry_run: false };
    store.close().await;
    assert_eq!(store.collect_garbage(options).await.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert_eq!(store.blobs.head(&orphan).await.unwrap(), Some(1));
    // A database that does not contain the organization belongs to another installation.
    let other = TestStore::new();
    let settings = photofinish_store::StoreSettings {
        database_url: other.settings().database_url,
        ..test_store.settings()
    };
    let other = Store::open(settings).await.unwrap();
    let report = other.collect_garbage(options).await.unwrap();
    assert_eq!((report.listed, report.removed, report.unrecognised), (1, 0, 1));
    assert_eq!(test_store.open().await.collect_garbage(options).await.unwrap().removed, 1);
    assert_eq!(store.blobs.head(&orphan).await.unwrap(), None);
}
