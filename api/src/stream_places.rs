//! Counts the streams of one kind by key. A stream holds its connection for as long as its client likes, and with that a
//! seat that others cannot have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use photofinish_store::model::ids::KeyId;
use serde_json::json;

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// When a stream that was refused may be tried again: streams last long.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The number of streams of each key, or of each account as if it were one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StreamPlaces {
    open: Arc<Mutex<HashMap<KeyId, usize>>>,
    per_key: usize,
    total: usize,
}

/// The place of one stream; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    places: StreamPlaces,
    key: KeyId,
}

impl StreamPlaces {
    /// The places of streams of progress. An account has one in each page of the console that shows some.
    pub fn of_progress() -> Self {
        Self::new(100, 1_000)
    }

    /// Places for so many streams of one key, and of all together.
    pub(crate) fn new(per_key: usize, total: usize) -> Self {
        Self { open: Arc::default(), per_key, total }
    }

    /// Takes a place for a stream of a key.
    ///
    /// # Errors
    /// 429 if the key has too many, 503 if all keys together have.
    pub(crate) fn take(&self, key: KeyId) -> Result<StreamPlace, ApiError> {
        let mut open = self.lock();
        if open.get(&key).is_some_and(|count| *count >= self.per_key) {
            let data = json!({ "code": "TOO_MANY_STREAMS", "tryAgainIn": RETRY_AFTER.as_secs() });
            return Err(ApiError::rate_limited(RETRY_AFTER).with_data(data));
        }
        if open.values().sum::<usize>() >= self.total {
            let error = ApiError::new(ErrorKind::ServiceUnavailable).with_code("TOO_MANY_STREAMS");
            return Err(error.with_retry_after(Some(RETRY_AFTER)));
        }
        *open.entry(key).or_default() += 1;
        Ok(StreamPlace { places: self.clone(), key })
    }

    /// Whether there is no stream.
    pub(crate) fn is_free(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyId, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.places.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_places_and_all_keys_have_theirs_until_streams_end() {
        let (places, [one, other, third]) = (StreamPlaces::new(2, 3), [(); 3].map(|()| KeyId::generate()));
        let mut open: Vec<_> = (0..2).map(|_| places.take(one).unwrap()).collect();
        let refused = places.take(one).unwrap_err();
        assert_eq!(
            (refused.kind().status(), &refused.data().unwrap()["code"]),
            (429, &json!("TOO_MANY_STREAMS"))
        );
        let _other = places.take(other).unwrap();
        assert_eq!(places.take(third).unwrap_err().kind().status(), 503);
        open.pop();
        let _third = places.take(third).unwrap();
        drop(open);
        assert_eq!(places.lock().len(), 2, "a key without streams has no entry");
        assert!(!places.is_free());
    }
}
