//! What every backend must do with selfies: live in their album, and no longer than they may.

use std::time::Duration;

use time::OffsetDateTime;

use super::refused;
use crate::Store;
use crate::conformance::fixture::{Event, LONG, face};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, ProbeId};

/// Selfies.
pub async fn probes_suite(store: &Store) {
    a_probe_belongs_to_its_album_and_stores_its_embedding(store).await;
    an_expired_probe_is_not_found_and_is_listed_until_removed(store).await;
}

async fn a_probe_belongs_to_its_album_and_stores_its_embedding(store: &Store) {
    let event = Event::make(store).await;
    let other = Event::make(store).await;
    let probe = store.probes.create(event.album, LONG).await.expect("expects a selfie");
    assert_eq!((probe.album, probe.organization), (event.album, event.tenant.organization));
    assert_eq!(probe.embedding, None);
    let left = probe.expires_at - OffsetDateTime::now_utc();
    assert!(left > time::Duration::minutes(59) && left <= time::Duration::minutes(60), "{left}");
    assert_eq!(store.probes.get(event.album, probe.id).await.expect("gets it"), probe);
    refused(store.probes.get(other.album, probe.id).await, StoreErrorKind::NotFound);
    let vector = face([1.0, 2.0, 3.0, 4.0]).embedding.expect("a searchable face");
    store.probes.set_embedding(probe.id, vector.clone()).await.expect("keeps the vector");
    let kept = store.probes.get(event.album, probe.id).await.expect("gets it");
    assert_eq!(kept.embedding, Some(vector.clone()));
    refused(store.probes.set_embedding(ProbeId::generate(), vector).await, StoreErrorKind::NotFound);
    refused(store.probes.create(AlbumId::generate(), LONG).await, StoreErrorKind::NotFound);
    event.end().await;
    other.end().await;
}

async fn an_expired_probe_is_not_found_and_is_listed_until_removed(store: &Store) {
    let event = Event::make(store).await;
    let living = store.probes.create(event.album, LONG).await.expect("expects a selfie");
    let expired = store.probes.create(event.album, Duration::ZERO).await.expect("expects a selfie");
    refused(store.probes.get(event.album, expired.id).await, StoreErrorKind::NotFound);
    let vector = face([1.0, 0.0, 0.0, 0.0]).embedding.expect("a searchable face");
    refused(store.probes.set_embedding(expired.id, vector).await, StoreErrorKind::NotFound);
    let ours = async || {
        let probes = store.probes.list_expired().await.expect("finds expired ones");
        probes.into_iter().filter(|probe| probe.album == event.album).collect::<Vec<_>>()
    };
    // Until it is removed it is found again: its bytes may not have gone yet.
    assert_eq!(ours().await, std::slice::from_ref(&expired));
    assert_eq!(ours().await, std::slice::from_ref(&expired));
    store.probes.remove(&[expired.id, ProbeId::generate()]).await.expect("removes it");
    store.probes.remove(&[]).await.expect("removes none");
    assert_eq!(ours().await, []);
    assert_eq!(store.probes.get(event.album, living.id).await.expect("gets it"), living);
    event.end().await;
}
