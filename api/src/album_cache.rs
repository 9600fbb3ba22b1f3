//! Shares what is measured of an album among all who ask for it at the same time: its progress, by a stream or by calls, and
//! what reads every photo to be counted.
//!
//! However many streams an album has, it is measured once per interval; however many calls arrive during a measurement,
//! the next one answers all of them. What may be some seconds old answers the calls of these seconds too. There is an entry
//! only for albums with a stream or a call, and for so long as what was measured may be used.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::CameraCount;
use photofinish_store::model::start_list::StartListSummary;
use photofinish_store::model::watermark::WatermarkPlacement;

use crate::errors::ApiError;
use crate::wire::progress::Progress;

/// What was last measured of the albums that somebody asks for. Cheap to clone.
#[derive(Clone, Default)]
pub struct AlbumCache {
    pub(crate) progress: Measurements<Progress>,
    pub(crate) cameras: Measurements<Vec<CameraCount>>,
    /// How many photos visitors of its gallery see.
    pub(crate) shown: Measurements<u64>,
    pub(crate) marks: Measurements<Option<Marks>>,
    pub(crate) start_lists: Measurements<Option<StartListSummary>>,
}

/// The watermark of an album, and which photos show it.
#[derive(Clone)]
pub(crate) struct Marks {
    pub(crate) placement: WatermarkPlacement,
    /// Ready photos that show it.
    pub(crate) marked: u64,
    /// Ready photos that do not.
    pub(crate) left: u64,
    /// The newest photo with a marked picture.
    pub(crate) sample: Option<PhotoId>,
}

/// The last measurement of every album that somebody asks for. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Measurements<T>(Entries<T>);

type Entries<T> = Arc<Mutex<BTreeMap<AlbumId, Weak<SharedMeasurement<T>>>>>;

impl<T> Default for Measurements<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Measurements<T> {
    /// Returns the entry of an album; it is dropped with the last stream or call that uses it.
    pub(crate) fn entry(&self, album: AlbumId) -> Arc<SharedMeasurement<T>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&album).and_then(Weak::upgrade) {
            return entry;
        }
        entries.retain(|_, entry| entry.strong_count() > 0);
        let entry = Arc::new(SharedMeasurement::default());
        entries.insert(album, Arc::downgrade(&entry));
        entry
    }
}

impl<T: Clone + Send + 'static> Measurements<T> {
    /// Returns the last measurement of an album if it was started less than `age` ago, else measures. The entry is kept for as
    /// long, though nobody uses it: there are as many entries as albums of which this was asked in that time.
    pub(crate) async fn get_recent(
        &self,
        album: AlbumId,
        age: Duration,
        measure: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let asked = Instant::now();
        let entry = self.entry(album);
        let kept = Arc::clone(&entry);
        let measure_and_keep = async move {
            let result = measure.await;
            if result.is_ok() {
                tokio::spawn(async move {
                    tokio::time::sleep(age).await;
                    drop(kept);
                });
            }
            result
        };
        // An error is shared by those who wait for it, and told to nobody who asks later.
        let is_recent = |last: &Snapshot<T>| {
            last.started >= asked || last.result.is_ok() && asked.duration_since(last.started) < age
        };
        entry.get_or_measure_unless(is_recent, measure_and_keep).await
    }
}

/// The measurement that all who ask for one album share.
pub(crate) struct SharedMeasurement<T>(tokio::sync::Mutex<Option<Snapshot<T>>>);

/// A measurement and when it was made.
struct Snapshot<T> {
    started: Instant,
    result: Result<T, ApiError>,
}

impl<T> Default for SharedMeasurement<T> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::default())
    }
}

impl<T: Clone> SharedMeasurement<T> {
    /// Returns the last measurement if it was started at `since` or later, else measures.
    ///
    /// A measurement that was started before a client's request may miss photos that the client has confirmed before.
    pub(crate) async fn get_or_measure(
        &self,
        since: Instant,
        measure: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        self.get_or_measure_unless(|last| last.started >= since, measure).await
    }

    /// Returns the last measurement if it is good enough, else measures.
    async fn get_or_measure_unless(
        &self,
        is_good: impl FnOnce(&Snapshot<T>) -> bool,
        measure: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        // One measures while the others wait for its result. They share errors too: during an outage each would
        // otherwise wait for a timeout of its own, one after the other.
        let mut last = self.0.lock().await;
        if let Some(snapshot) = last.as_ref().filter(|snapshot| is_good(snapshot)) {
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
        let (shared, since, calls) = (SharedMeasurement::default(), Instant::now(), AtomicUsize::new(0));
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
        let (shared, calls) = (SharedMeasurement::default(), AtomicUsize::new(0));
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
        let (shared, since, calls) = (SharedMeasurement::default(), Instant::now(), AtomicUsize::new(0));
        let fail = async || -> Result<Progress, ApiError> {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(ApiError::new(ErrorKind::ServiceUnavailable))
        };
        let results = (0..3).map(|_| shared.get_or_measure(since, fail()));
        assert!(join_all(results).await.iter().all(Result::is_err));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_may_be_old_is_measured_once_and_kept_until_it_is_older() {
        const LONG: Duration = Duration::from_secs(3600);
        let (cache, calls) = (Measurements::<usize>::default(), AtomicUsize::new(0));
        let (album, other) = (AlbumId::generate(), AlbumId::generate());
        let count = || async { Ok(calls.fetch_add(1, Ordering::Relaxed)) };
        for _ in 0..3 {
            assert_eq!(cache.get_recent(album, LONG, count()).await.unwrap(), 0, "nobody used it between");
        }
        assert_eq!(cache.get_recent(album, Duration::ZERO, count()).await.unwrap(), 1, "it is older");
        assert_eq!(cache.get_recent(other, Duration::ZERO, count()).await.unwrap(), 2, "another album");
        let is_kept = |album: AlbumId| {
            let entries = cache.0.lock().unwrap();
            entries.get(&album).is_some_and(|entry| entry.strong_count() > 0)
        };
        let forget = async {
            while is_kept(other) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), forget).await.unwrap();
        assert!(is_kept(album), "for an hour");
    }

    #[tokio::test]
    async fn an_error_is_not_told_to_those_who_ask_later() {
        const LONG: Duration = Duration::from_secs(3600);
        let (cache, album) = (Measurements::<usize>::default(), AlbumId::generate());
        let _watching = cache.entry(album);
        let fail = async { Err(ApiError::new(ErrorKind::ServiceUnavailable)) };
        assert!(cache.get_recent(album, LONG, fail).await.is_err());
        assert_eq!(cache.get_recent(album, LONG, async { Ok(7) }).await.unwrap(), 7);
    }

    #[test]
    fn an_album_that_nobody_watches_leaves_the_cache() {
        let (cache, album) = (Measurements::<Progress>::default(), AlbumId::generate());
        let first = cache.entry(album);
        assert!(Arc::ptr_eq(&first, &cache.entry(album)));
        drop(first);
        let _other = cache.entry(AlbumId::generate());
        assert!(!cache.0.lock().unwrap().contains_key(&album));
    }
}
