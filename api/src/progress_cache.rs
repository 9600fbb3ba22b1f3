//! Shares one measurement of an album's progress among all who watch it, by a stream or by calls.
//!
//! However many streams an album has, it is measured once per interval; however many calls arrive during a measurement,
//! the next one answers all of them. The cache has an entry only for albums with a stream or a call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use photofinish_store::model::ids::AlbumId;

use crate::errors::ApiError;
use crate::wire::progress::Progress;

/// The last measured progress of every album that is watched. Cheap to clone.
#[derive(Clone, Default)]
pub struct ProgressCache(Arc<Mutex<BTreeMap<AlbumId, Weak<SharedProgress>>>>);

impl ProgressCache {
    /// Returns the entry of an album; it is dropped with the last stream or call that uses it.
    pub(crate) fn entry(&self, album: AlbumId) -> Arc<SharedProgress> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&album).and_then(Weak::upgrade) {
            return entry;
        }
        entries.retain(|_, entry| entry.strong_count() > 0);
        let entry = Arc::new(SharedProgress::default());
        entries.insert(album, Arc::downgrade(&entry));
        entry
    }
}

/// The progress that all who watch one album share.
#[derive(Default)]
pub(crate) struct SharedProgress(tokio::sync::Mutex<Option<Snapshot>>);

/// A measurement and when it was made.
struct Snapshot {
    started: Instant,
    result: Result<Progress, ApiError>,
}

impl SharedProgress {
    /// Returns the last measurement if it was started at `since` or later, else measures.
    ///
    /// A measurement that was started before a client's request may miss photos that the client has confirmed before.
    pub(crate) async fn get_or_measure(
        &self,
        since: Instant,
        measure: impl Future<Output = Result<Progress, ApiError>>,
    ) -> Result<Progress, ApiError> {
        // One measures while the others wait for its result. They share errors too: during an outage each would
        // otherwise wait for a timeout of its own, one after the other.
        let mut last = self.0.lock().await;
        if let Some(snapshot) = last.as_ref().filter(|snapshot| snapshot.started >= since) {
            return snapshot.result.clone();
        }
        let started = Instant::now();
        let result = measure.await;
        *last = Some(Snapshot { started, result: result.clone() });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use photofinish_store::model::photo::StateCounts;

    use super::*;
    use crate::errors::table::ErrorKind;

    #[tokio::test]
    async fn concurrent_streams_of_an_album_measure_once() {
        let (shared, since, calls) = (SharedProgress::default(), Instant::now(), AtomicUsize::new(0));
        let busy = StateCounts { queued: 1, ..StateCounts::default() };
        let progress = Progress::new(AlbumId::generate(), &busy, None);
        let measure = || async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(progress.clone())
        };
        let results = (0..100).map(|_| shared.get_or_measure(since, measure()));
        for result in join_all(results).await {
            assert_eq!(result.unwrap(), progress);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // A stream that starts now gets no measurement from before its start.
        shared.get_or_measure(Instant::now(), measure()).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn calls_that_arrive_during_a_measurement_share_the_next_one() {
        let (shared, calls) = (SharedProgress::default(), AtomicUsize::new(0));
        let progress = Progress::new(AlbumId::generate(), &StateCounts::default(), None);
        let measure = || async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(progress.clone())
        };
        let watch = || async { shared.get_or_measure(Instant::now(), measure()).await };
        for result in join_all((0..50).map(|_| watch())).await {
            assert_eq!(result.unwrap(), progress);
        }
        assert!(calls.load(Ordering::Relaxed) <= 2, "{calls:?} measurements");
    }

    #[tokio::test]
    async fn a_failed_measurement_is_returned_to_every_waiting_stream() {
        let (shared, since, calls) = (SharedProgress::default(), Instant::now(), AtomicUsize::new(0));
        let fail = || async {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(ApiError::new(ErrorKind::ServiceUnavailable))
        };
        let results = (0..3).map(|_| shared.get_or_measure(since, fail()));
        assert!(join_all(results).await.iter().all(Result::is_err));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_album_that_nobody_watches_leaves_the_progress_cache() {
        let (cache, album) = (ProgressCache::default(), AlbumId::generate());
        let first = cache.entry(album);
        assert!(Arc::ptr_eq(&first, &cache.entry(album)));
        drop(first);
        let _other = cache.entry(AlbumId::generate());
        assert!(!cache.0.lock().unwrap().contains_key(&album));
    }
}
