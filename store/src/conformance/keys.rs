//! Organizations and API keys: created once, found by digest only.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::assert_error_kind;
use crate::conformance::fixture::{create_key, random_digest};
use crate::error::StoreErrorKind;
use crate::model::ids::{KeyId, OrganizationId};
use crate::model::key::{KeyMode, NewKey, Scope};
use crate::model::rate::{RateClass, RateLimits};
use crate::store::Store;

/// Checks the backend of [`crate::traits::Keys`].
pub async fn keys_suite(store: &Store) {
    an_organization_is_created_once_by_concurrent_calls(store).await;
    a_key_is_found_by_its_digest_with_all_its_fields(store).await;
    a_digest_is_unique(store).await;
    the_use_of_a_key_is_recorded_once_a_minute(store).await;
    a_revoked_key_keeps_its_first_revocation_time(store).await;
}

async fn an_organization_is_created_once_by_concurrent_calls(store: &Store) {
    let name = format!("Läufer {}", Uuid::now_v7());
    let asked = (0..8).map(|_| store.keys.get_or_create_organization(&name));
    let ids = futures_util::future::join_all(asked).await;
    let first = *ids[0].as_ref().expect("creates an organization");
    for id in ids {
        assert_eq!(id.expect("finds the organization"), first);
    }
    assert_eq!(store.keys.find_organization(&name).await.expect("looks"), Some(first));
    let nobody = format!("{name} that nobody made");
    assert_eq!(store.keys.find_organization(&nobody).await.expect("looks"), None);
    let other =
        store.keys.get_or_create_organization(&format!("{name} e.V.")).await.expect("creates another");
    assert_ne!(other, first);
}

async fn a_key_is_found_by_its_digest_with_all_its_fields(store: &Store) {
    let name = format!("organization {}", Uuid::now_v7());
    let organization = store.keys.get_or_create_organization(&name).await.expect("creates an organization");
    let expires_at = OffsetDateTime::from_unix_timestamp(1_900_000_000).expect("a time");
    let mut limits = RateLimits::default();
    limits.set(RateClass::Search, 6000);
    let new = NewKey {
        organization,
        mode: KeyMode::Test,
        label: "gate 3".into(),
        hint: "svc_test_x9".into(),
        scopes: vec![Scope::PhotoUpload, Scope::SearchRead],
        limits,
        expires_at: Some(expires_at),
        digest: random_digest(),
    };
    let made = store.keys.create(new.clone()).await.expect("stores a key");
    assert_eq!((made.tenant.organization, made.tenant.mode), (organization, KeyMode::Test));
    assert_eq!((made.organization_name.as_str(), made.label.as_str()), (name.as_str(), "gate 3"));
    assert_eq!((made.hint.as_str(), &made.scopes), ("svc_test_x9", &new.scopes));
    assert_eq!(made.limits, limits);
    assert_eq!((made.expires_at, made.last_used_at, made.revoked_at), (Some(expires_at), None, None));
    let found = store.keys.find(&new.digest).await.expect("finds a key");
    assert_eq!(found.as_ref(), Some(&made));
    assert_eq!(store.keys.find(&random_digest()).await.expect("finds a key"), None);
    assert!(store.keys.list().await.expect("lists keys").contains(&made));
}

async fn a_digest_is_unique(store: &Store) {
    let key = create_key(store, &format!("organization {}", Uuid::now_v7())).await;
    let new = NewKey {
        organization: key.tenant.organization,
        mode: KeyMode::Live,
        label: "copy".into(),
        hint: String::new(),
        scopes: Vec::new(),
        limits: RateLimits::default(),
        expires_at: None,
        digest: random_digest(),
    };
    store.keys.create(new.clone()).await.expect("stores a key");
    assert_error_kind(store.keys.create(new.clone()).await, StoreErrorKind::Conflict);
    let nobodys = NewKey { organization: OrganizationId::generate(), digest: random_digest(), ..new };
    assert_error_kind(store.keys.create(nobodys.clone()).await, StoreErrorKind::NotFound);
    assert_eq!(store.keys.find(&nobodys.digest).await.expect("finds a key"), None);
}

async fn the_use_of_a_key_is_recorded_once_a_minute(store: &Store) {
    let key = create_key(store, &format!("organization {}", Uuid::now_v7())).await;
    let start = OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("a time");
    let used = async |seconds: i64| {
        let at = start + Duration::seconds(seconds);
        store.keys.touch(key.id, at).await.expect("records a use");
        let keys = store.keys.list().await.expect("lists keys");
        let key = keys.into_iter().find(|listed| listed.id == key.id).expect("the key is listed");
        key.last_used_at.map(|noted| (noted - start).whole_seconds())
    };
    assert_eq!(used(0).await, Some(0));
    assert_eq!(used(59).await, Some(0));
    assert_eq!(used(60).await, Some(60));
    assert_eq!(used(30).await, Some(60));
}

async fn a_revoked_key_keeps_its_first_revocation_time(store: &Store) {
    let key = create_key(store, &format!("organization {}", Uuid::now_v7())).await;
    let revoked = async || {
        store.keys.revoke(key.id).await.expect("revokes a key");
        let keys = store.keys.list().await.expect("lists keys");
        keys.into_iter().find(|listed| listed.id == key.id).expect("the key is listed").revoked_at
    };
    let first = revoked().await;
    assert!(first.is_some());
    assert_eq!(revoked().await, first);
    assert_error_kind(store.keys.revoke(KeyId::generate()).await, StoreErrorKind::NotFound);
}
