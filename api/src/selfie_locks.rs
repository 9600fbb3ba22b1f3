//! One search at a time examines a selfie; the others with the same one wait for what it stores.
//!
//! A runner's page asks again before the first answer came, and several devices show the same search: each would take a
//! turn of the models, and of the memory for a selfie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use photofinish_store::model::ids::ProbeId;
use tokio::sync::OwnedMutexGuard;

use crate::context::ProbeError;

/// Searches that may wait for one selfie: far more than a runner has devices. Others are told to come again, as those are
/// that find no turn of their organization.
const MAX_WAITING: usize = 32;

/// When most of them have their answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The selfies that are examined or about to be. Cheap to clone.
#[derive(Clone, Default)]
pub struct SelfieLocks(Arc<Mutex<BTreeMap<ProbeId, Weak<tokio::sync::Mutex<()>>>>>);

impl SelfieLocks {
    /// Waits until nobody else in this process examines the selfie.
    ///
    /// # Errors
    /// When too many wait for that already.
    pub(crate) async fn lock(&self, selfie: ProbeId) -> Result<OwnedMutexGuard<()>, ProbeError> {
        let entry = self.entry(selfie);
        // The one that examines, those that wait, and this one.
        if Arc::strong_count(&entry) > 1 + MAX_WAITING {
            return Err(ProbeError::Busy { try_again_in: RETRY_AFTER });
        }
        Ok(entry.lock_owned().await)
    }

    /// Returns the lock of a selfie; it is dropped with the last search that holds it or waits for it.
    fn entry(&self, selfie: ProbeId) -> Arc<tokio::sync::Mutex<()>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&selfie).and_then(Weak::upgrade) {
            return entry;
        }
        entries.retain(|_, entry| entry.strong_count() > 0);
        let entry = Arc::default();
        entries.insert(selfie, Arc::downgrade(&entry));
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn so_many_wait_for_one_selfie_and_others_come_again() {
        let (locks, selfie) = (SelfieLocks::default(), ProbeId::generate());
        let examining = locks.lock(selfie).await.unwrap();
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.lock(selfie).await.map(drop) })
            })
            .collect();
        let seated = 1 + MAX_WAITING;
        while locks.0.lock().unwrap()[&selfie].strong_count() < seated {
            tokio::task::yield_now().await;
        }
        assert!(matches!(locks.lock(selfie).await, Err(ProbeError::Busy { .. })));
        assert!(locks.lock(ProbeId::generate()).await.is_ok(), "another selfie has its own lock");
        drop(examining);
        for waiting in waiting {
            assert!(waiting.await.unwrap().is_ok());
        }
        assert!(locks.lock(selfie).await.is_ok());
    }
}
