//! Tests of the memory of key look-ups, in front of keys that answer when a test lets them.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::Tenant;
use crate::model::key::KeyMode;
use crate::model::rate::RateLimits;

/// Counts look-ups, and answers each when it is allowed to: with the key as it was when the look-up began.
struct CountingKeys {
    key: Mutex<Result<Option<Key>>>,
    look_ups: AtomicUsize,
    permits: Semaphore,
}

impl CountingKeys {
    fn cached(answer: Result<Option<Key>>, permits: usize) -> CachedKeys<Self> {
        let look_ups = AtomicUsize::new(0);
        CachedKeys::new(Self { key: Mutex::new(answer), look_ups, permits: Semaphore::new(permits) })
    }
}

#[async_trait]
impl Keys for CountingKeys {
    async fn get_or_create_organization(&self, _: &str) -> Result<OrganizationId> {
        unreachable!("no test creates an organization")
    }

    async fn find_organization(&self, _: &str) -> Result<Option<OrganizationId>> {
        unreachable!("no test looks for an organization")
    }

    async fn create(&self, key: NewKey) -> Result<Key> {
        let created = Key { label: key.label, ..key_of(key.organization) };
        *self.key.lock().unwrap() = Ok(Some(created.clone()));
        Ok(created)
    }

    async fn find(&self, _: &KeyDigest) -> Result<Option<Key>> {
        self.look_ups.fetch_add(1, Ordering::SeqCst);
        let read = self.key.lock().unwrap().clone();
        // Never at once, as a database: others arrive meanwhile.
        tokio::task::yield_now().await;
        self.permits.acquire().await.unwrap().forget();
        read
    }

    async fn touch(&self, _: KeyId, _: OffsetDateTime) -> Result<()> {
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Key>> {
        Ok(Vec::new())
    }

    async fn revoke(&self, _: KeyId) -> Result<()> {
        if let Ok(Some(key)) = &mut *self.key.lock().unwrap() {
            key.revoked_at = Some(OffsetDateTime::UNIX_EPOCH);
        }
        Ok(())
    }
}

fn key_of(organization: OrganizationId) -> Key {
    Key {
        id: KeyId::generate(),
        tenant: Tenant { organization, mode: KeyMode::Live },
        organization_name: "Lake Timing".into(),
        label: "gate 3".into(),
        hint: "svc_live_x9".into(),
        scopes: Vec::new(),
        limits: RateLimits::default(),
        created_at: OffsetDateTime::UNIX_EPOCH,
        last_used_at: None,
        expires_at: None,
        revoked_at: None,
    }
}

fn some_key() -> Key {
    key_of(OrganizationId::generate())
}

fn digest(number: u128) -> KeyDigest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(Uuid::from_u128(number).as_bytes());
    digest
}

#[tokio::test]
async fn calls_with_one_key_share_one_look_up() {
    let key = some_key();
    let keys = CountingKeys::cached(Ok(Some(key.clone())), 1);
    let found = join_all((0..100).map(|_| async { keys.find(&digest(1)).await })).await;
    assert!(found.into_iter().all(|found| found.unwrap().as_ref() == Some(&key)));
    assert_eq!(keys.find(&digest(1)).await.unwrap(), Some(key));
    assert_eq!(keys.keys.look_ups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_error_is_shared_by_those_who_wait_and_not_remembered() {
    let unavailable = StoreError::new(StoreErrorKind::Unavailable, "find a key");
    let keys = CountingKeys::cached(Err(unavailable), 2);
    let found = join_all((0..10).map(|_| async { keys.find(&digest(1)).await })).await;
    assert!(found.into_iter().all(|found| found.is_err()));
    assert_eq!(keys.keys.look_ups.load(Ordering::SeqCst), 1);
    *keys.keys.key.lock().unwrap() = Ok(None);
    assert_eq!(keys.find(&digest(1)).await.unwrap(), None);
}

#[tokio::test]
async fn a_revocation_in_this_process_takes_effect_at_once() {
    let key = some_key();
    let keys = Arc::new(CountingKeys::cached(Ok(Some(key.clone())), 0));
    // A look-up that has read the key before the revocation, and answers after it.
    let early = tokio::spawn({
        let keys = Arc::clone(&keys);
        async move { keys.find(&digest(1)).await.unwrap().unwrap() }
    });
    while keys.keys.look_ups.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    keys.revoke(key.id).await.unwrap();
    keys.keys.permits.add_permits(2);
    assert_eq!(early.await.unwrap().revoked_at, None);
    assert!(keys.find(&digest(1)).await.unwrap().unwrap().revoked_at.is_some());
}

#[tokio::test]
async fn a_key_that_was_unknown_is_found_once_it_is_created() {
    let keys = CountingKeys::cached(Ok(None), 2);
    assert_eq!(keys.find(&digest(1)).await.unwrap(), None);
    let new = NewKey {
        organization: OrganizationId::generate(),
        mode: KeyMode::Live,
        label: "new".into(),
        hint: String::new(),
        scopes: Vec::new(),
        limits: RateLimits::default(),
        expires_at: None,
        digest: digest(1),
    };
    keys.create(new).await.unwrap();
    assert_eq!(keys.find(&digest(1)).await.unwrap().unwrap().label, "new");
}

#[tokio::test]
async fn an_answer_expires_a_ttl_after_its_look_up_began() {
    for (answer, ttl) in [(Ok(Some(some_key())), KEY_TTL), (Ok(None), UNKNOWN_KEY_TTL)] {
        let (mut look_ups, start) = (LookUps::default(), Instant::now());
        let first = look_ups.join_or_start(&digest(1), start);
        first.answer.get_or_init(|| async { answer }).await;
        let just_before = start + ttl - Duration::from_millis(1);
        assert!(Arc::ptr_eq(&first, &look_ups.join_or_start(&digest(1), just_before)));
        assert!(!Arc::ptr_eq(&first, &look_ups.join_or_start(&digest(1), start + ttl)));
    }
    // One that hangs keeps nobody waiting who comes later.
    let (mut look_ups, start) = (LookUps::default(), Instant::now());
    let hanging = look_ups.join_or_start(&digest(1), start);
    assert!(!Arc::ptr_eq(&hanging, &look_ups.join_or_start(&digest(1), start + KEY_TTL)));
}

#[test]
fn a_flood_of_unknown_keys_is_bounded_and_displaces_no_key_in_use() {
    let (mut look_ups, now) = (LookUps::default(), Instant::now());
    let used = look_ups.join_or_start(&digest(0), now);
    for number in 1..=100_000 {
        look_ups.join_or_start(&digest(number), now);
        if number % 1000 == 0 {
            assert!(Arc::ptr_eq(&used, &look_ups.join_or_start(&digest(0), now)));
        }
        assert!(look_ups.young.len() + look_ups.old.len() <= 2 * GENERATION);
    }
}
