//! One search at a time examines a selfie; the others with the same one wait for what it stores.
//!
//! A runner's page asks again before the first answer came, and several devices show the same search: each would take a
//! turn of the models, and of the memory for a selfie.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use photofinish_store::model::ids::ProbeId;
use tokio::sync::OwnedMutexGuard;

/// The selfies that are examined or about to be. Cheap to clone.
#[derive(Clone, Default)]
pub struct SelfieLocks(Arc<Mutex<BTreeMap<ProbeId, Weak<tokio::sync::Mutex<()>>>>>);

impl SelfieLocks {
    /// Waits until nobody else in this process examines the selfie.
    pub(crate) async fn lock(&self, selfie: ProbeId) -> OwnedMutexGuard<()> {
        self.entry(selfie).lock_owned().await
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
