//! Who may read what the embedded profile stores, and what it cannot read itself.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::object_key::ObjectRole;
use photofinish_store::{StoreError, StoreErrorKind};

use crate::support::TestStore;
use crate::{body_stream, grant_upload, random_key, receive_upload, upload};

/// Returns the permissions of everything in a folder, with paths below it.
fn permissions(folder: &std::path::Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = std::fs::metadata(&path).unwrap();
        found.push((path.display().to_string(), metadata.permissions().mode() & 0o7777));
        if metadata.is_dir() {
            found.extend(permissions(&path));
        }
    }
    found
}

#[tokio::test]
async fn everything_stored_is_for_its_owner_alone() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    AlbumFixture::create(&store).await.queue_photos(1).await;
    for role in [ObjectRole::Original, ObjectRole::Preview] {
        let key = random_key(role);
        upload(&store, grant_upload(&store, &key, 10).await, body_stream(vec![Ok(b"photo")])).await.unwrap();
        store.blobs.write(&key, "image/jpeg", Bytes::from_static(b"other")).await.unwrap();
    }
    let waiting = receive_upload(
        &store,
        grant_upload(&store, &random_key(ObjectRole::Original), 10).await,
        body_stream(vec![Ok(b"staged")]),
    );
    let _waiting = waiting.await.unwrap();
    let found = permissions(test_store.path());
    for suffix in ["photofinish.db", "-wal", "-shm", "/original", "preview.jpg", ".part", "/folders.lock"] {
        assert!(found.iter().any(|(path, _)| path.ends_with(suffix)), "no {suffix} in {found:?}");
    }
    for (path, mode) in found {
        assert_eq!(mode & 0o077, 0, "{path}: {mode:o}");
    }
}

/// Only then does a photo fail: see `Fetch` of the pipeline.
#[tokio::test]
async fn an_object_is_refused_when_it_cannot_be_read_again_and_the_storage_works() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let [damaged, whole] = [(); 2].map(|()| random_key(ObjectRole::Original));
    let objects = test_store.path().join("objects");
    for key in [&damaged, &whole] {
        store.blobs.write(key, "image/jpeg", Bytes::from_static(b"photo")).await.unwrap();
    }
    // A link to itself cannot be opened, whoever runs the tests.
    let file = objects.join(damaged.as_str());
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let error = store.blobs.read(&damaged, 100).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(store.blobs.is_refused(&damaged, &error).await.unwrap());
    assert!(!store.blobs.is_refused(&whole, &error).await.unwrap(), "it can be read now");
    let other = StoreError::new(StoreErrorKind::Unavailable, "no response");
    assert!(!store.blobs.is_refused(&damaged, &other).await.unwrap(), "says nothing about the object");
    std::fs::rename(&objects, test_store.path().join("moved")).unwrap();
    assert!(!store.blobs.is_refused(&damaged, &error).await.unwrap(), "the storage is down");
}

#[tokio::test]
async fn what_an_earlier_version_stored_for_everybody_is_restricted_when_it_is_opened() {
    let test_store = TestStore::new();
    drop(test_store.open().await);
    let path = |name: &str| test_store.path().join(name);
    let names = [("objects", 0o755), ("photofinish.db", 0o644), ("photofinish.db.lock", 0o644)];
    for (name, mode) in names {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    test_store.open().await;
    for (name, before) in names {
        let mode = std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, before & 0o700, "{name}: {mode:o}");
    }
}
