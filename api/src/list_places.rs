//! How many start lists are imported or checked at once.
//!
//! A request of some hundred bytes may spell out 100,000 bibs, which take a core for a part of a second and tens of megabytes.
//! An organization has one place, and all together have a few, which organizations get in turn, as each has one request that waits
//! for them. While it waits, a request has in memory what was sent and no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// The places of all organizations together.
const PLACES: usize = 2;
/// Requests of one organization that wait.
const MAX_WAITING: usize = 32;
/// How long a request waits. The longest lists take a second or two.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// When a refused request may be repeated.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The places. Cheap to clone; clones share them.
#[derive(Clone, Debug)]
pub struct ListPlaces {
    of_all: Arc<Semaphore>,
    by_organization: Arc<Mutex<HashMap<OrganizationId, Arc<Semaphore>>>>,
    max_wait: Duration,
}

/// The place of one list; dropping it frees the place.
#[derive(Debug)]
pub struct ListPlace {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for ListPlaces {
    fn default() -> Self {
        Self::new(PLACES, MAX_WAIT)
    }
}

impl ListPlaces {
    fn new(places: usize, max_wait: Duration) -> Self {
        Self { of_all: Arc::new(Semaphore::new(places)), by_organization: Arc::default(), max_wait }
    }

    /// Waits for a place for a list of this organization.
    ///
    /// # Errors
    /// 429 where its other lists are in the way, 503 where those of others are.
    pub async fn take_place(&self, organization: OrganizationId) -> Result<ListPlace, ApiError> {
        const OPEN: &str = "the semaphore is never closed";
        let deadline = Instant::now() + self.max_wait;
        let too_many = || ApiError::rate_limited(RETRY_AFTER);
        let own = self.join(organization).ok_or_else(too_many)?;
        let own = timeout_at(deadline, own.acquire_owned()).await.map_err(|_elapsed| too_many())?;
        let of_all = timeout_at(deadline, Arc::clone(&self.of_all).acquire_owned()).await;
        let of_all = of_all.map_err(|_elapsed| {
            ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(RETRY_AFTER))
        })?;
        Ok(ListPlace { _own: own.expect(OPEN), _of_all: of_all.expect(OPEN) })
    }

    /// Returns the place of an organization, unless too many of its requests wait for it.
    fn join(&self, organization: OrganizationId) -> Option<Arc<Semaphore>> {
        let mut all = self.by_organization.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has the place or waits for it has a reference too.
        all.retain(|_, place| Arc::strong_count(place) > 1);
        let place = all.entry(organization).or_insert_with(|| Arc::new(Semaphore::new(1)));
        let (has_room, place) = (Arc::strong_count(place) <= 1 + MAX_WAITING, Arc::clone(place));
        has_room.then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    fn status(refused: Result<ListPlace, ApiError>) -> u16 {
        refused.unwrap_err().kind().status()
    }

    fn organizations() -> [OrganizationId; 2] {
        [(); 2].map(|()| OrganizationId::generate())
    }

    #[tokio::test]
    async fn lists_of_one_organization_wait_for_each_other_in_bounds_and_for_no_others() {
        let (places, [one, other]) = (ListPlaces::default(), organizations());
        let first = places.take_place(one).await.unwrap();
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(places.take_place(one))).collect();
        for next in &mut waiting {
            assert!(poll!(next).is_pending());
        }
        assert_eq!(status(places.take_place(one).await), 429);
        drop(places.take_place(other).await.unwrap());
        drop(first);
        let second = waiting.remove(0).await.unwrap();
        assert!(poll!(&mut waiting[0]).is_pending());
        drop(second);
        drop(waiting);
        let _last = places.take_place(other).await.unwrap();
        assert_eq!(places.by_organization.lock().unwrap().len(), 1, "those without a list have no entry");
    }

    #[tokio::test]
    async fn organizations_get_the_places_in_turn() {
        let (places, [one, other]) = (ListPlaces::new(1, MAX_WAIT), organizations());
        let first = places.take_place(one).await.unwrap();
        let mut second = Box::pin(places.take_place(one));
        let mut of_other = Box::pin(places.take_place(other));
        assert!(poll!(&mut second).is_pending() && poll!(&mut of_other).is_pending());
        drop(first);
        assert!(poll!(&mut second).is_pending(), "another has waited for less");
        drop(of_other.await.unwrap());
        drop(second.await.unwrap());
    }

    #[tokio::test]
    async fn a_list_that_finds_no_place_in_time_is_refused() {
        let (places, [one, other]) = (ListPlaces::new(1, Duration::ZERO), organizations());
        let first = places.take_place(one).await.unwrap();
        assert_eq!(status(places.take_place(one).await), 429);
        assert_eq!(status(places.take_place(other).await), 503);
        drop(first);
        drop(places.take_place(other).await.unwrap());
    }
}
