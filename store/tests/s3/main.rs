//! Objects in S3: the blob conformance and what only a bucket can do wrong, against a real server that verifies signatures.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod faults;
mod presigned;
#[path = "../support/mod.rs"]
mod support;

use bytes::Bytes;
use photofinish_servers::{BUCKET, Proxy, S3Server, count_files_below};
use photofinish_store::blobs::cloud::{BucketLocation, CloudObjects, CloudSettings};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::Blobs;
use photofinish_store::{Store, StoreErrorKind, StoreSettings, conformance};
use support::TestStore;

/// Short, because the server stores the metadata of an upload under one file name that contains the whole key.
const PREFIX: &str = "a/b";

/// Three parts of a multipart upload and a few bytes.
const LARGE_BYTES: usize = (25 << 20) + 5;

fn random_key(role: ObjectRole) -> ObjectKey {
    ObjectKey::photo(OrganizationId::generate(), AlbumId::generate(), PhotoId::generate(), role)
}

/// Returns the settings of a client of the server.
fn settings(server: &S3Server) -> CloudSettings {
    CloudSettings { variables: server.variables(), ..CloudSettings::default() }
}

/// Returns the settings of a client that connects through a proxy.
fn settings_through(server: &S3Server, proxy: &Proxy) -> CloudSettings {
    CloudSettings { variables: server.variables_through(proxy.address()), ..CloudSettings::default() }
}

fn open_bucket(settings: &CloudSettings) -> CloudObjects {
    let location = BucketLocation::parse(&format!("s3://{BUCKET}/{PREFIX}")).unwrap().unwrap();
    CloudObjects::open(location, settings).unwrap()
}

/// Returns bytes in which no two ranges are equal.
fn pattern(length: usize) -> Bytes {
    (0..length).map(|i| ((i * 2_654_435_761) >> 11) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_blob_suite_passes() {
    let Some(server) = S3Server::start() else { return };
    for storage_url in [format!("s3://{BUCKET}"), format!("s3://{BUCKET}/{PREFIX}")] {
        let test_store = TestStore::new();
        let settings = StoreSettings { storage_url, cloud: settings(&server), ..test_store.settings() };
        let store = Store::open(settings).await.unwrap();
        assert!(store.local.is_none(), "a bucket has no local URLs");
        store.check_storage().await.unwrap();
        conformance::blobs_suite(&store).await;
        conformance::gc_suite(&store).await;
    }
}

#[tokio::test]
async fn objects_are_stored_below_the_prefix() {
    let Some(server) = S3Server::start() else { return };
    let key = random_key(ObjectRole::Preview);
    open_bucket(&settings(&server)).write(&key, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
    let file = server.bucket().join(PREFIX).join(key.as_str());
    assert_eq!(std::fs::read(file).unwrap(), b"x");
}

#[tokio::test]
async fn a_large_body_is_written_in_parts_and_read_whole() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let (key, bytes) = (random_key(ObjectRole::Original), pattern(LARGE_BYTES));
    bucket.write(&key, "image/jpeg", bytes.clone()).await.unwrap();
    assert_eq!(bucket.head(&key).await.unwrap(), Some(LARGE_BYTES as u64));
    assert!(bucket.read(&key, LARGE_BYTES as u64).await.unwrap() == bytes, "the bytes differ");
}

#[tokio::test]
async fn an_album_of_thousands_of_objects_is_deleted_and_deleting_it_again_is_no_error() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let (organization, album) = (OrganizationId::generate(), AlbumId::generate());
    let mut last = random_key(ObjectRole::Original);
    for _ in 0..2300 {
        last = ObjectKey::photo(organization, album, PhotoId::generate(), ObjectRole::Original);
        let file = server.bucket().join(PREFIX).join(last.as_str());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "x").unwrap();
    }
    let kept = ObjectKey::photo(organization, AlbumId::generate(), PhotoId::generate(), ObjectRole::Original);
    bucket.write(&kept, "image/jpeg", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(bucket.head(&last).await.unwrap(), Some(1));
    for _ in 0..2 {
        bucket.delete_album(organization, album).await.unwrap();
        assert_eq!(bucket.head(&last).await.unwrap(), None);
    }
    let folder = server.bucket().join(PREFIX).join(ObjectKey::album_prefix(organization, album));
    assert_eq!(count_files_below(&folder), 0);
    assert_eq!(bucket.head(&kept).await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_an_outage_and_no_missing_photo() {
    let Some(server) = S3Server::start() else { return };
    let location = BucketLocation::parse("s3://no-such-bucket").unwrap().unwrap();
    let bucket = CloudObjects::open(location, &settings(&server)).unwrap();
    let key = random_key(ObjectRole::Original);
    assert_eq!(bucket.head(&key).await.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert_eq!(bucket.read(&key, 10).await.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert_eq!(bucket.check().await.unwrap_err().kind, StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_bucket_without_the_photos_of_the_database_is_refused() {
    let Some(server) = S3Server::start() else { return };
    let test_store = TestStore::new();
    let open = async |place: &str| {
        let settings = StoreSettings {
            storage_url: format!("s3://{place}"),
            cloud: settings(&server),
            ..test_store.settings()
        };
        Store::open(settings).await
    };
    let (right, wrong) = (format!("{BUCKET}/right"), format!("{BUCKET}/wrong"));
    // Nothing is missing yet, wherever it is.
    open(&wrong).await.unwrap();
    let store = open(&right).await.unwrap();
    AlbumFixture::create(&store).await.create_photos(1).await;
    store.check_storage().await.unwrap();
    open(&right).await.expect("it was checked, so that nobody has uploaded yet");
    let refused = open(&wrong).await.err().expect("no photo is there");
    assert_eq!(refused.kind, StoreErrorKind::Invalid);
    assert!(refused.to_string().contains(&format!("s3://{wrong} does not contain the photos")), "{refused}");
    // As if the photos were copied there.
    let file = server.bucket().join("wrong").join(random_key(ObjectRole::Original).as_str());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "x").unwrap();
    open(&wrong).await.unwrap();
    open("no-such-bucket").await.expect("an outage is no mistake");
}

#[tokio::test]
async fn a_wrong_secret_is_an_outage() {
    let Some(server) = S3Server::start() else { return };
    let mut settings = settings(&server);
    for (name, value) in &mut settings.variables {
        if name == "AWS_SECRET_ACCESS_KEY" {
            *value = "another".to_owned();
        }
    }
    let bucket = open_bucket(&settings);
    let key = random_key(ObjectRole::Original);
    assert_eq!(bucket.read(&key, 10).await.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert_eq!(bucket.check().await.unwrap_err().kind, StoreErrorKind::Unavailable);
}
