//! How many pages of photos are made for visitors at once.
//!
//! A page is up to a millisecond or two of work, for its rows and the signatures of its pictures' URLs. Each would be a task of
//! the runtime, whose tasks wait for each other in the order in which they come: with a place for each of some of the cores, at
//! most so many pages of an organization's galleries are before anybody else's request, however many visitors ask. A page waits
//! for its organization's turn to read the database while it has its place, so each organization has places of its own.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_store::model::ids::OrganizationId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places. Those who wait get one in the order in which they came. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PagePlaces {
    of_each: usize,
    by_organization: Arc<Mutex<HashMap<OrganizationId, Arc<Semaphore>>>>,
}

impl Default for PagePlaces {
    /// For each organization one for every two cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { of_each: cores.div_ceil(2), by_organization: Arc::default() }
    }
}

impl PagePlaces {
    /// Waits for a place for a page of this organization's gallery, which is free again when what this returns is dropped.
    pub(crate) async fn take_place(&self, organization: OrganizationId) -> Option<OwnedSemaphorePermit> {
        let places = {
            let mut all = self.by_organization.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever has a place or waits for one has a reference too.
            all.retain(|_, places| Arc::strong_count(places) > 1);
            Arc::clone(all.entry(organization).or_insert_with(|| Arc::new(Semaphore::new(self.of_each))))
        };
        // `None` when the semaphore is closed, which nobody does.
        places.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn pages_of_one_organization_wait_for_each_other_and_for_no_others() {
        let places = PagePlaces::default();
        let [one, other] = [(); 2].map(|()| OrganizationId::generate());
        let mut taken = Vec::new();
        for _ in 0..places.of_each {
            taken.push(places.take_place(one).await.unwrap());
        }
        let mut next = Box::pin(places.take_place(one));
        assert!(poll!(&mut next).is_pending());
        drop(places.take_place(other).await.unwrap());
        taken.pop();
        drop(next.await.unwrap());
        drop(taken);
        let last = places.take_place(other).await;
        assert_eq!(places.by_organization.lock().unwrap().len(), 1, "those without a page have no entry");
        drop(last);
    }
}
