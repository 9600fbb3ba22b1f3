//! Selfies: they belong to one album and expire.

use std::time::Duration;

use time::OffsetDateTime;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG, face};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, ProbeId};
use crate::store::Store;

/// Checks the backend of [`crate::traits::Probes`].
pub async fn probes_suite(store: &Store) {
    a_probe_belongs_to_its_album_and_stores_its_embedding(store).await;
    an_expired_probe_is_not_found_and_is_listed_until_removed(store).await;
}

async fn a_probe_belongs_to_its_album_and_stores_its_embedding(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let probe = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    assert_eq!((probe.album, probe.organization), (fixture.album, fixture.tenant.organization));
    assert_eq!(probe.embedding, None);
    let left = probe.expires_at - OffsetDateTime::now_utc();
    assert!(left > time::Duration::minutes(59) && left <= time::Duration::minutes(60), "{left}");
    assert_eq!(store.probes.get(fixture.album, probe.id).await.expect("gets it"), probe);
    assert_error_kind(store.probes.get(other.album, probe.id).await, StoreErrorKind::NotFound);
    let vector = face([1.0, 2.0, 3.0, 4.0]).embedding.expect("a searchable face");
    store.probes.set_embedding(probe.id, vector.clone()).await.expect("stores the embedding");
    let kept = store.probes.get(fixture.album, probe.id).await.expect("gets it");
    assert_eq!(kept.embedding, Some(vector.clone()));
    assert_error_kind(
        store.probes.set_embedding(ProbeId::generate(), vector).await,
        StoreErrorKind::NotFound,
    );
    assert_error_kind(store.probes.create(AlbumId::generate(), LONG).await, StoreErrorKind::NotFound);
    fixture.delete().await;
    other.delete().await;
}

async fn an_expired_probe_is_not_found_and_is_listed_until_removed(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let living = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    let expired = store.probes.create(fixture.album, Duration::ZERO).await.expect("creates a selfie");
    assert_error_kind(store.probes.get(fixture.album, expired.id).await, StoreErrorKind::NotFound);
    let vector = face([1.0, 0.0, 0.0, 0.0]).embedding.expect("a searchable face");
    assert_error_kind(store.probes.set_embedding(expired.id, vector).await, StoreErrorKind::NotFound);
    let ours = async || {
        let probes = store.probes.list_expired().await.expect("lists expired selfies");
        probes.into_iter().filter(|probe| probe.album == fixture.album).collect::<Vec<_>>()
    };
    // Listed until it is removed: its object may not be deleted yet.
    assert_eq!(ours().await, std::slice::from_ref(&expired));
    assert_eq!(ours().await, std::slice::from_ref(&expired));
    store.probes.remove(&[expired.id, ProbeId::generate()]).await.expect("removes it");
    store.probes.remove(&[]).await.expect("removes none");
    assert_eq!(ours().await, []);
    assert_eq!(store.probes.get(fixture.album, living.id).await.expect("gets it"), living);
    fixture.delete().await;
}
