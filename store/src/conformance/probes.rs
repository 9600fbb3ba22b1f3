//! Selfies: they belong to one album and expire.

use std::time::Duration;

use time::OffsetDateTime;

use super::assert_error_kind;
use crate::conformance::fixture::{AlbumFixture, LONG, face};
use crate::error::StoreErrorKind;
use crate::model::ids::{AlbumId, ProbeId};
use crate::store::Store;
use crate::traits::{ExpiredPosition, ProbeOutcome, ProbeRefusal};

/// Checks the backend of [`crate::traits::Probes`].
pub async fn probes_suite(store: &Store) {
    a_probe_belongs_to_its_album_and_stores_its_embedding(store).await;
    a_refused_probe_says_why(store).await;
    an_expired_probe_is_not_found_and_is_listed_until_removed(store).await;
    expired_probes_are_listed_page_by_page(store).await;
}

async fn a_probe_belongs_to_its_album_and_stores_its_embedding(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let other = AlbumFixture::create(store).await;
    let probe = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    assert_eq!((probe.album, probe.organization), (fixture.album, fixture.tenant.organization));
    assert_eq!(probe.outcome, None);
    let left = probe.expires_at - OffsetDateTime::now_utc();
    assert!(left > time::Duration::minutes(59) && left <= time::Duration::minutes(60), "{left}");
    assert_eq!(store.probes.get(fixture.album, probe.id).await.expect("gets it"), probe);
    assert_error_kind(store.probes.get(other.album, probe.id).await, StoreErrorKind::NotFound);
    let embedded = embedded([1.0, 2.0, 3.0, 4.0]);
    store.probes.set_outcome(probe.id, embedded.clone()).await.expect("stores the embedding");
    let kept = store.probes.get(fixture.album, probe.id).await.expect("gets it");
    assert_eq!(kept.outcome, Some(embedded.clone()));
    assert_error_kind(
        store.probes.set_outcome(ProbeId::generate(), embedded).await,
        StoreErrorKind::NotFound,
    );
    assert_error_kind(store.probes.create(AlbumId::generate(), LONG).await, StoreErrorKind::NotFound);
    fixture.delete().await;
    other.delete().await;
}

fn embedded(vector: [f32; 4]) -> ProbeOutcome {
    ProbeOutcome::Embedded(face(vector).embedding.expect("a searchable face"))
}

async fn a_refused_probe_says_why(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    for refusal in ProbeRefusal::ALL {
        let refused = ProbeOutcome::Refused(refusal);
        let probe = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
        store.probes.set_outcome(probe.id, refused.clone()).await.expect("stores the refusal");
        let kept = store.probes.get(fixture.album, probe.id).await.expect("gets it");
        assert_eq!(kept.outcome, Some(refused));
        let embedded = embedded([0.0, 1.0, 0.0, 0.0]);
        store.probes.set_outcome(probe.id, embedded.clone()).await.expect("stores the embedding");
        let kept = store.probes.get(fixture.album, probe.id).await.expect("gets it");
        assert_eq!(kept.outcome, Some(embedded), "an embedding counts more than a refusal");
    }
    fixture.delete().await;
}

async fn expired_probes_are_listed_page_by_page(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let mut expired = Vec::new();
    for _ in 0..300 {
        let probe = store.probes.create(fixture.album, Duration::ZERO).await.expect("creates a selfie");
        expired.push(probe.id);
    }
    let mut listed = Vec::new();
    let mut pages = 0;
    let mut after = None;
    loop {
        let page = store.probes.list_expired(after).await.expect("lists expired selfies");
        let Some(last) = page.last() else { break };
        after = Some(ExpiredPosition { expires_at: last.expires_at, id: last.id });
        listed.extend(page.iter().filter(|probe| probe.album == fixture.album).map(|probe| probe.id));
        pages += 1;
    }
    assert!(pages > 1, "{pages}");
    listed.sort_unstable();
    expired.sort_unstable();
    assert_eq!(listed, expired);
    store.probes.remove(&expired).await.expect("removes them");
    fixture.delete().await;
}

async fn an_expired_probe_is_not_found_and_is_listed_until_removed(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let living = store.probes.create(fixture.album, LONG).await.expect("creates a selfie");
    let expired = store.probes.create(fixture.album, Duration::ZERO).await.expect("creates a selfie");
    assert_error_kind(store.probes.get(fixture.album, expired.id).await, StoreErrorKind::NotFound);
    for outcome in [embedded([1.0, 0.0, 0.0, 0.0]), ProbeOutcome::Refused(ProbeRefusal::NoFace)] {
        assert_error_kind(store.probes.set_outcome(expired.id, outcome).await, StoreErrorKind::NotFound);
    }
    let ours = async || {
        let probes = store.probes.list_expired(None).await.expect("lists expired selfies");
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
