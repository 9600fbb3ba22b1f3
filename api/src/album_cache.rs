//! Shares what is measured of an album among all who ask for it at the same time: its progress, by a stream or by calls, and
//! what reads every photo to be counted.
//!
//! However many streams an album has, it is measured once per interval; however many calls arrive during a measurement,
//! the next one answers all of them. A measurement is a task of its own, which goes on when those who asked have gone: else
//! each of several impatient clients would begin it again. What may be some seconds old answers the calls of these seconds
//! too. There is an entry only for albums with a stream or a call, and for so long as what was measured may be used.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::CameraCount;
use photofinish_store::model::start_list::StartListSummary;
use photofinish_store::model::watermark::WatermarkPlacement;
use photofinish_store::spawn_on_same_behalf;
use tracing::Instrument;

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
    /// Returns the last measurement of an album if it ended less than `age` ago or later than this call began, else measures:
    /// one that takes longer than its clients wait answers those who come while it runs. The entry is kept for as long, though
    /// nobody uses it: there are as many entries as albums of which this was asked in that time.
    pub(crate) async fn get_recent(
        &self,
        album: AlbumId,
        age: Duration,
        measure: impl Future<Output = Result<T, ApiError>> + Send + 'static,
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
            last.started >= asked || last.result.is_ok() && asked.saturating_duration_since(last.ended) < age
        };
        entry.get_or_measure_unless(is_recent, measure_and_keep).await
    }
}

/// The measurement that all who ask for one album share.
pub(crate) struct SharedMeasurement<T>(Arc<tokio::sync::Mutex<Option<Snapshot<T>>>>);

/// A measurement and when it was made.
struct Snapshot<T> {
    started: Instant,
    ended: Instant,
    result: Result<T, ApiError>,
}

impl<T> Default for SharedMeasurement<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> SharedMeasurement<T> {
    /// Returns the last measurement if it was started at `since` or later, else measures.
    ///
    /// A measurement that was started before a client's request may miss photos that the client has confirmed before.
    pub(crate) async fn get_or_measure(
        self: &Arc<Self>,
        since: Instant,
        measure: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.get_or_measure_unless(|last| last.started >= since, measure).await
    }

    /// Returns the last measurement if it is good enough, else measures.
    async fn get_or_measure_unless(
        self: &Arc<Self>,
        is_good: impl FnOnce(&Snapshot<T>) -> bool,
        measure: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        // One measures while the others wait for its result. They share errors too: during an outage each would
        // otherwise wait for a timeout of its own, one after the other.
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some(snapshot) = last.as_ref().filter(|snapshot| is_good(snapshot)) {
            return snapshot.result.clone();
        }
        let entry = Arc::clone(self);
        let measure_and_share = async move {
            let started = Instant::now();
            let result = measure.await;
            *last = Some(Snapshot { started, ended: Instant::now(), result: result.clone() });
            // Until now, so that whoever asks meanwhile finds the entry.
            drop(entry);
            result
        };
        spawn_on_same_behalf(measure_and_share.in_current_span()).await.map_err(ApiError::internal)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use photofinish_store::model::photo::StateCounts;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::errors::table::ErrorKind;

    /// A measurement with this result, which is counted.
    fn count_and_return<T: Send + 'static>(
        calls: &Arc<AtomicUsize>,
        result: Result<T, ApiError>,
    ) -> impl Future<Output = Result<T, ApiError>> + Send + 'static + use<T> {
        let calls = Arc::clone(calls);
        async move {
            calls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            result
        }
    }

    #[tokio::test]
    async fn a_measurement_goes_on_when_those_who_asked_have_gone() {
        let (cache, album) = (Measurements::<u64>::default(), AlbumId::generate());
        let (calls, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let since = Instant::now();
        let ask = || {
            let (shared, calls, end) = (cache.entry(album), Arc::clone(&calls), Arc::clone(&end));
            let measure = async move {
                calls.fetch_add(1, Ordering::Relaxed);
                let _permit = end.acquire().await.unwrap();
                Ok(7)
            };
            tokio::spawn(async move { shared.get_or_measure(since, measure).await })
        };
        let impatient: Vec<_> = (0..3).map(|_| ask()).collect();
        while calls.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        for caller in impatient {
            caller.abort();
            assert!(caller.await.unwrap_err().is_cancelled());
        }
        let last = ask();
        end.add_permits(1);
        assert_eq!(last.await.unwrap().unwrap(), 7);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "it began again");
    }

    #[tokio::test]
    async fn concurrent_streams_of_an_album_measure_once() {
        let (shared, since, calls) =
            (Arc::new(SharedMeasurement::default()), Instant::now(), Arc::<AtomicUsize>::default());
        let busy = StateCounts { queued: 1, ..StateCounts::default() };
        let progress = Progress::new(AlbumId::generate(), &busy, None);
        let measure = || count_and_return(&calls, Ok(progress.clone()));
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
        let (shared, calls) = (Arc::new(SharedMeasurement::default()), Arc::<AtomicUsize>::default());
        let progress = Progress::new(AlbumId::generate(), &StateCounts::default(), None);
        let measure = || count_and_return(&calls, Ok(progress.clone()));
        let watch = || async { shared.get_or_measure(Instant::now(), measure()).await };
        for result in join_all((0..50).map(|_| watch())).await {
            assert_eq!(result.unwrap(), progress);
        }
        assert!(calls.load(Ordering::Relaxed) <= 2, "{calls:?} measurements");
    }

    #[tokio::test]
    async fn a_failed_measurement_is_returned_to_every_waiting_stream() {
        let (shared, since, calls) =
            (Arc::new(SharedMeasurement::default()), Instant::now(), Arc::<AtomicUsize>::default());
        let fail = || {
            let failed: Result<Progress, _> = Err(ApiError::new(ErrorKind::ServiceUnavailable));
            count_and_return(&calls, failed)
        };
        let results = (0..3).map(|_| shared.get_or_measure(since, fail()));
        assert!(join_all(results).await.iter().all(Result::is_err));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_may_be_old_is_measured_once_and_kept_until_it_is_older() {
        const LONG: Duration = Duration::from_secs(3600);
        let (cache, calls) = (Measurements::<usize>::default(), Arc::new(AtomicUsize::new(0)));
        let (album, other) = (AlbumId::generate(), AlbumId::generate());
        let count = || {
            let calls = Arc::clone(&calls);
            async move { Ok(calls.fetch_add(1, Ordering::Relaxed)) }
        };
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
    async fn whoever_asks_while_what_may_be_old_is_measured_gets_that() {
        // Shorter than the measurement.
        const AGE: Duration = Duration::from_nanos(1);
        let (cache, album) = (Measurements::<u64>::default(), AlbumId::generate());
        let (calls, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (cache, calls, end) = (cache.clone(), Arc::clone(&calls), Arc::clone(&end));
            let measure = async move {
                calls.fetch_add(1, Ordering::Relaxed);
                let _permit = end.acquire().await.unwrap();
                Ok(7)
            };
            tokio::spawn(async move { cache.get_recent(album, AGE, measure).await })
        };
        let first = ask();
        while calls.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let second = ask();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        end.add_permits(1);
        for asked in [first, second] {
            assert_eq!(asked.await.unwrap().unwrap(), 7);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
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
