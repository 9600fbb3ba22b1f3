//! Remembers the last look-ups of API keys for a moment. Every request has a key, and few keys make most requests: without
//! this the database would answer the same question hundreds of times a second.
//!
//! Knows no table and no connection: it stands in front of another [`Keys`]. What another process revokes is noticed when
//! the answer expires, after [`KEY_TTL`] at most; what this process creates or revokes, at once.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use crate::model::ids::{KeyId, OrganizationId};
use crate::model::key::{Key, KeyDigest, NewKey};
use crate::traits::{Keys, Result};

/// How long a key is used after it was looked up: the longest time for which one that another process revoked is accepted.
const KEY_TTL: Duration = Duration::from_secs(3);

/// How long a key stays unknown. Shorter: it may have been tried just before it was created.
const UNKNOWN_KEY_TTL: Duration = Duration::from_secs(1);

/// How many look-ups a generation has. Two of them take about 5 MB, however many keys somebody invents.
const GENERATION: usize = 4096;

/// A [`Keys`] with a memory.
pub(crate) struct CachedKeys<K> {
    keys: K,
    look_ups: Mutex<LookUps>,
}

impl<K: Keys> CachedKeys<K> {
    pub(crate) fn new(keys: K) -> Self {
        Self { keys, look_ups: Mutex::default() }
    }

    fn look_ups(&self) -> MutexGuard<'_, LookUps> {
        self.look_ups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<K: Keys> Keys for CachedKeys<K> {
    async fn get_or_create_organization(&self, name: &str) -> Result<OrganizationId> {
        self.keys.get_or_create_organization(name).await
    }

    async fn find_organization(&self, name: &str) -> Result<Option<OrganizationId>> {
        self.keys.find_organization(name).await
    }

    async fn create(&self, key: NewKey) -> Result<Key> {
        let created = self.keys.create(key).await;
        // Even after a failure: a commit without an answer may have happened.
        self.look_ups().clear();
        created
    }

    /// Calls that arrive during a look-up of the same key wait for its answer, also when that is an error.
    async fn find(&self, digest: &KeyDigest) -> Result<Option<Key>> {
        let look_up = self.look_ups().join_or_start(digest, Instant::now());
        look_up.answer.get_or_init(|| self.keys.find(digest)).await.clone()
    }

    async fn touch(&self, id: KeyId, at: OffsetDateTime) -> Result<()> {
        self.keys.touch(id, at).await
    }

    async fn list(&self) -> Result<Vec<Key>> {
        self.keys.list().await
    }

    async fn revoke(&self, id: KeyId) -> Result<()> {
        let revoked = self.keys.revoke(id).await;
        // All of them, because a look-up that still runs may have read the key before, and its key is not known yet.
        self.look_ups().clear();
        revoked
    }
}

/// A question to the database, asked once and answered to all who want to know.
struct LookUp {
    /// When it began: the answer is as old as this at most.
    started: Instant,
    answer: OnceCell<Result<Option<Key>>>,
}

impl LookUp {
    fn is_fresh(&self, now: Instant) -> bool {
        let ttl = match self.answer.get() {
            None | Some(Ok(Some(_))) => KEY_TTL,
            Some(Ok(None)) => UNKNOWN_KEY_TTL,
            Some(Err(_)) => Duration::ZERO,
        };
        now.saturating_duration_since(self.started) < ttl
    }
}

/// The last look-ups, in two generations: when the young one is full it becomes the old one, whose look-ups are forgotten
/// together. A look-up that is used moves to the young one, so that a flood of unknown keys does not displace keys in use.
#[derive(Default)]
struct LookUps {
    young: HashMap<KeyDigest, Arc<LookUp>>,
    old: HashMap<KeyDigest, Arc<LookUp>>,
}

impl LookUps {
    /// Returns the look-up of a key if it is fresh, else a new one.
    fn join_or_start(&mut self, digest: &KeyDigest, now: Instant) -> Arc<LookUp> {
        if let Some(look_up) = self.young.get(digest).filter(|look_up| look_up.is_fresh(now)) {
            return Arc::clone(look_up);
        }
        let kept = self.old.remove(digest).filter(|look_up| look_up.is_fresh(now));
        let look_up = kept.unwrap_or_else(|| Arc::new(LookUp { started: now, answer: OnceCell::new() }));
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(*digest, Arc::clone(&look_up));
        look_up
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}
