//! What limits uploads: how many at once, how long, until when, and for what.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use photofinish_store::blobs::local::uploads::{PublishError, ReceiveError, TooManyUploads, UploadPace};
use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::Embedding;
use photofinish_store::traits::{ProbeOutcome, ProbeRefusal, UploadConditions, UploadTarget};

use crate::support::TestStore;
use crate::{
    TTL, begin_upload, body_stream, count_staged_files, grant_upload, grant_upload_for, local, random_key,
};

#[tokio::test]
async fn an_object_has_two_uploads_at_once_and_no_more() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let grant = grant_upload(&store, &key, 10).await;
    let first = begin_upload(&store, grant.clone());
    let second = begin_upload(&store, grant.clone());
    let third = local(&store).begin_upload(grant.clone(), Some(1), UploadPace::SERVICE);
    assert_eq!(third.err(), Some(TooManyUploads));
    let other = random_key(ObjectRole::Original);
    begin_upload(&store, grant_upload(&store, &other, 10).await);
    drop(first);
    let again = begin_upload(&store, grant.clone());
    assert!(local(&store).begin_upload(grant.clone(), None, UploadPace::SERVICE).is_err());
    // A received upload keeps its place until it is stored.
    let received = local(&store).receive_upload(second, body_stream(vec![Ok(b"second")])).await.unwrap();
    assert!(local(&store).begin_upload(grant.clone(), None, UploadPace::SERVICE).is_err());
    local(&store).publish_upload(received).await.unwrap();
    begin_upload(&store, grant);
    drop(again);
    assert_eq!(store.blobs.read(&key, 10).await.unwrap(), "second");
}

#[tokio::test]
async fn a_body_that_takes_longer_than_its_size_permits_is_refused_and_leaves_nothing() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let pace = UploadPace {
        base_time: Duration::from_millis(5),
        bytes_per_second: 1_000_000,
        ..UploadPace::SERVICE
    };
    for declared in [Some(5), None] {
        let grant = grant_upload(&store, &key, 100).await;
        let started = local(&store).begin_upload(grant, declared, pace).unwrap();
        // Sends now and then, so that it is never silent, and never ends.
        let trickling = stream::repeat_with(|| io::Result::Ok(Bytes::new())).then(|chunk| async {
            tokio::task::yield_now().await;
            chunk
        });
        let refused = local(&store).receive_upload(started, trickling).await.err().unwrap();
        assert!(matches!(refused, ReceiveError::TooSlow), "{refused}");
    }
    assert_eq!(store.blobs.head(&key).await.unwrap(), None);
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn nothing_is_stored_after_the_expiry_of_its_url_and_the_grace() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let key = random_key(ObjectRole::Original);
    let (pace, ttl) = (UploadPace { grace: Duration::ZERO, ..UploadPace::SERVICE }, Duration::from_secs(2));
    let terms = UploadConditions { content_type: "image/jpeg", max_bytes: 100, ttl };
    let grant = grant_upload_for(&store, &key, terms).await;
    let begin = || local(&store).begin_upload(grant.clone(), Some(5), pace).unwrap();
    // One body ends in time and is stored too late; the other begins in time and never ends.
    let in_time = local(&store).receive_upload(begin(), body_stream(vec![Ok(b"hello")])).await.unwrap();
    let endless = body_stream(vec![Ok(b"hell")]).chain(stream::pending());
    let refused = local(&store).receive_upload(begin(), endless).await.err().unwrap();
    assert!(matches!(refused, ReceiveError::Expired), "{refused}");
    let refused = local(&store).publish_upload(in_time).await.unwrap_err();
    assert!(matches!(refused, PublishError::Expired), "{refused}");
    assert_eq!(store.blobs.head(&key).await.unwrap(), None);
    assert_eq!(count_staged_files(&test_store), 0);
}

#[tokio::test]
async fn an_upload_has_a_target_while_its_photo_or_selfie_exists() {
    let test_store = TestStore::new();
    let store = test_store.open().await;
    let fixture = AlbumFixture::create(&store).await;
    let (organization, album) = (fixture.tenant.organization, fixture.album);
    let find = async |key: &ObjectKey| store.find_upload_target(key).await.unwrap();
    let photo_key = |photo, role| ObjectKey::photo(organization, album, photo, role);
    let photos = fixture.create_photos(2).await;
    let original = photo_key(photos[0], ObjectRole::Original);
    assert_eq!(find(&original).await, UploadTarget::Open);
    store.queue.confirm(album, &photos).await.unwrap();
    assert_eq!(find(&original).await, UploadTarget::Open);
    assert_eq!(find(&photo_key(photos[0], ObjectRole::Preview)).await, UploadTarget::Missing);
    let foreign = ObjectKey::photo(OrganizationId::generate(), album, photos[0], ObjectRole::Original);
    assert_eq!(find(&foreign).await, UploadTarget::Missing);
    store.photos.delete(album, photos[0]).await.unwrap();
    assert_eq!(find(&original).await, UploadTarget::Missing);

    let probe = async |ttl| {
        let probe = store.probes.create(album, ttl).await.unwrap().id;
        (probe, ObjectKey::probe(organization, album, probe))
    };
    let (used, used_key) = probe(TTL).await;
    assert_eq!(find(&used_key).await, UploadTarget::Open);
    let embedding = Embedding { model: "suite@1".to_owned(), vector: vec![1.0, 0.0, 0.0, 0.0] };
    store.probes.set_outcome(used, ProbeOutcome::Embedded(embedding)).await.unwrap();
    assert_eq!(find(&used_key).await, UploadTarget::UsedProbe);
    let (refused, refused_key) = probe(TTL).await;
    store.probes.set_outcome(refused, ProbeOutcome::Refused(ProbeRefusal::NoFace)).await.unwrap();
    assert_eq!(find(&refused_key).await, UploadTarget::UsedProbe);
    let (_, expired_key) = probe(Duration::ZERO).await;
    assert_eq!(find(&expired_key).await, UploadTarget::Missing);
    let (_, open_key) = probe(TTL).await;

    store.albums.close(&fixture.tenant, album).await.unwrap();
    for key in [photo_key(photos[1], ObjectRole::Original), open_key] {
        assert_eq!(find(&key).await, UploadTarget::Missing, "{key}");
    }
}
