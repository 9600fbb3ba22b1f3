//! Counts the streams of one kind by key and by organization. A stream holds its connection for as long as its client likes,
//! and with that a seat that others cannot have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_store::model::ids::{KeyId, OrganizationId};
use serde_json::json;

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::seats::SeatLimits;

/// When a stream that was refused may be tried again: streams last long.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// An organization has at most this part of all streams, however many keys it has: others have theirs.
const ORGANIZATION_SHARE: usize = 4;

/// The number of streams of each organization, and of each key, or account as if it were one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StreamPlaces {
    open: Arc<Mutex<OpenStreams>>,
    per_key: usize,
    total: usize,
}

/// Those without a stream have no entry.
#[derive(Debug, Default)]
struct OpenStreams {
    by_key: HashMap<KeyId, usize>,
    by_organization: HashMap<OrganizationId, usize>,
}

/// The place of one stream; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    places: StreamPlaces,
    organization: OrganizationId,
    key: KeyId,
}

impl StreamPlaces {
    /// The places of streams of progress, in a quarter of all seats at most. An account has one in each page of the console
    /// that shows some.
    pub fn of_progress(seats: SeatLimits) -> Self {
        Self::new(100, (seats.total / 4).min(1_000))
    }

    /// Places for so many streams of one key, and of all together, of which an organization has a quarter.
    pub(crate) fn new(per_key: usize, total: usize) -> Self {
        Self { open: Arc::default(), per_key, total }
    }

    /// Takes a place for a stream of a key of an organization.
    ///
    /// # Errors
    /// 429 if the key or the organization has too many, 503 if all together have.
    pub(crate) fn take_place(
        &self,
        organization: OrganizationId,
        key: KeyId,
    ) -> Result<StreamPlace, ApiError> {
        let mut open = self.lock();
        let of_key = open.by_key.get(&key).copied().unwrap_or_default();
        let of_organization = open.by_organization.get(&organization).copied().unwrap_or_default();
        if of_key >= self.per_key || of_organization >= self.total / ORGANIZATION_SHARE {
            let data = json!({ "code": "TOO_MANY_STREAMS", "tryAgainIn": RETRY_AFTER.as_secs() });
            return Err(ApiError::rate_limited(RETRY_AFTER).with_data(data));
        }
        if open.by_organization.values().sum::<usize>() >= self.total {
            let error = ApiError::new(ErrorKind::ServiceUnavailable).with_code("TOO_MANY_STREAMS");
            return Err(error.with_retry_after(Some(RETRY_AFTER)));
        }
        *open.by_key.entry(key).or_default() += 1;
        *open.by_organization.entry(organization).or_default() += 1;
        Ok(StreamPlace { places: self.clone(), organization, key })
    }

    /// Whether there is no stream.
    pub(crate) fn is_free(&self) -> bool {
        self.lock().by_organization.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, OpenStreams> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.places.lock();
        remove_one(&mut open.by_key, self.key);
        remove_one(&mut open.by_organization, self.organization);
    }
}

fn remove_one<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(refused: Result<StreamPlace, ApiError>) -> u16 {
        refused.unwrap_err().kind().status()
    }

    #[test]
    fn a_key_has_its_places_and_all_keys_have_theirs_until_streams_end() {
        let places = StreamPlaces::new(2, 8);
        let organizations = [(); 5].map(|()| OrganizationId::generate());
        let key = KeyId::generate();
        let mut open: Vec<_> = (0..2).map(|_| places.take_place(organizations[0], key).unwrap()).collect();
        let refused = places.take_place(organizations[0], key).unwrap_err();
        assert_eq!(
            (refused.kind().status(), &refused.data().unwrap()["code"]),
            (429, &json!("TOO_MANY_STREAMS"))
        );
        for organization in &organizations[1..4] {
            open.extend((0..2).map(|_| places.take_place(*organization, KeyId::generate()).unwrap()));
        }
        let last = || places.take_place(organizations[4], KeyId::generate());
        assert_eq!(status(last()), 503);
        open.remove(0);
        let _last = last().unwrap();
        drop(open);
        assert_eq!(places.lock().by_key.len(), 1, "a key without streams has no entry");
        assert_eq!(places.lock().by_organization.len(), 1);
        assert!(!places.is_free());
    }

    #[test]
    fn streams_of_progress_have_a_quarter_of_the_seats() {
        let places =
            StreamPlaces::of_progress(SeatLimits { total: 16, per_address: 8, patience: Duration::ZERO });
        let open = || places.take_place(OrganizationId::generate(), KeyId::generate());
        let _open: Vec<_> = (0..4).map(|_| open().unwrap()).collect();
        assert_eq!(status(open()), 503);
    }

    #[test]
    fn an_organization_has_a_quarter_of_all_streams_with_all_its_keys() {
        let (places, [one, other]) = (StreamPlaces::new(2, 12), [(); 2].map(|()| OrganizationId::generate()));
        let mut open: Vec<_> = (0..3).map(|_| places.take_place(one, KeyId::generate()).unwrap()).collect();
        assert_eq!(status(places.take_place(one, KeyId::generate())), 429);
        open.push(places.take_place(other, KeyId::generate()).unwrap());
        open.remove(0);
        places.take_place(one, KeyId::generate()).unwrap();
    }
}
