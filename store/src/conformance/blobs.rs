//! Objects: the last write wins, reads are bounded, calls may be concurrent.

use bytes::Bytes;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG};
use crate::error::StoreErrorKind;
use crate::model::ids::{PhotoId, ProbeId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::store::Store;
use crate::traits::UploadConditions;

/// Checks the backend of [`crate::traits::Blobs`].
pub async fn blobs_suite(store: &Store) {
    an_object_is_read_as_it_was_written_last(store).await;
    an_object_above_the_size_limit_is_refused_unread(store).await;
    many_objects_are_written_and_deleted_concurrently(store).await;
    deleting_an_album_removes_its_objects_and_no_others(store).await;
    urls_name_their_object(store).await;
}

fn object_key(fixture: &AlbumFixture, photo: PhotoId, role: ObjectRole) -> ObjectKey {
    ObjectKey::photo(fixture.tenant.organization, fixture.album, photo, role)
}

async fn an_object_is_read_as_it_was_written_last(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let key = object_key(&fixture, PhotoId::generate(), ObjectRole::Preview);
    assert_error_kind(store.blobs.read(&key, 100).await, StoreErrorKind::NotFound);
    assert_eq!(store.blobs.head(&key).await.expect("reads"), None);
    for content in ["first", "", "the second, longer"] {
        let bytes = Bytes::from(content);
        store.blobs.write(&key, "image/jpeg", bytes.clone()).await.expect("writes");
        assert_eq!(store.blobs.read(&key, 100).await.expect("reads"), bytes);
        assert_eq!(store.blobs.head(&key).await.expect("reads"), Some(content.len() as u64));
    }
    let mut buffer = vec![7; 30];
    buffer.reserve_exact(100);
    let (address, limit) = (buffer.as_ptr(), "the second, longer".len() as u64);
    let buffer = store.blobs.read_into(&key, limit, buffer).await.expect("reads");
    assert_eq!((&buffer[..], buffer.as_ptr()), (&b"the second, longer"[..], address), "read into the buffer");
    let grown = store.blobs.read_into(&key, limit, Vec::new()).await.expect("reads");
    assert_eq!(grown, buffer);
    assert_error_kind(store.blobs.read_into(&key, limit - 1, grown).await, StoreErrorKind::TooLarge);
    for _ in 0..2 {
        store.blobs.delete(&key).await.expect("deletes");
        assert_eq!(store.blobs.head(&key).await.expect("reads"), None);
    }
    fixture.delete().await;
}

async fn an_object_above_the_size_limit_is_refused_unread(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let key = object_key(&fixture, PhotoId::generate(), ObjectRole::Original);
    store.blobs.write(&key, "image/jpeg", Bytes::from(vec![7; 1000])).await.expect("writes");
    assert_eq!(store.blobs.read(&key, 1000).await.expect("reads").len(), 1000);
    assert_error_kind(store.blobs.read(&key, 999).await, StoreErrorKind::TooLarge);
    store.blobs.delete(&key).await.expect("deletes");
    fixture.delete().await;
}

async fn many_objects_are_written_and_deleted_concurrently(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let come_and_go = async |role: ObjectRole, photo: PhotoId| {
        let key = object_key(&fixture, photo, role);
        for i in 0..10_u8 {
            store.blobs.write(&key, "image/jpeg", Bytes::from(vec![i; 100])).await.expect("writes");
            assert_eq!(store.blobs.read(&key, 100).await.expect("reads")[99], i);
            store.blobs.delete(&key).await.expect("deletes");
        }
    };
    let photo = PhotoId::generate();
    tokio::join!(
        come_and_go(ObjectRole::Original, photo),
        come_and_go(ObjectRole::Preview, photo),
        come_and_go(ObjectRole::Thumbnail, photo),
        come_and_go(ObjectRole::Preview, PhotoId::generate()),
    );
    fixture.delete().await;
}

async fn deleting_an_album_removes_its_objects_and_no_others(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let organization = fixture.tenant.organization;
    let mut keys: Vec<ObjectKey> =
        ObjectRole::ALL.map(|role| object_key(&fixture, PhotoId::generate(), role)).into();
    keys.push(ObjectKey::probe(organization, fixture.album, ProbeId::generate()));
    let kept = object_key(&other, PhotoId::generate(), ObjectRole::Original);
    for key in keys.iter().chain([&kept]) {
        store.blobs.write(key, "image/jpeg", Bytes::from_static(b"x")).await.expect("writes");
    }
    for _ in 0..2 {
        store.blobs.delete_album(organization, fixture.album).await.expect("deletes");
    }
    for key in &keys {
        assert_eq!(store.blobs.head(key).await.expect("reads"), None, "{key}");
    }
    assert_eq!(store.blobs.head(&kept).await.expect("reads"), Some(1));
    store.blobs.delete(&kept).await.expect("deletes");
    fixture.delete().await;
    other.delete().await;
}

async fn urls_name_their_object(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let key = object_key(&fixture, PhotoId::generate(), ObjectRole::Original);
    let upload = UploadConditions { content_type: "image/jpeg", max_bytes: 1000, ttl: LONG };
    let up = store.blobs.upload_url(&key, upload).await.expect("presigns");
    let down = store.blobs.download_url(&key, LONG).await.expect("presigns");
    for url in [&up, &down] {
        assert!(matches!(url.scheme(), "http" | "https") && url.path().ends_with(key.as_str()), "{url}");
    }
    assert_ne!(up.query(), down.query());
    fixture.delete().await;
}
