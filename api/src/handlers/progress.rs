//! An album's progress, once or as a stream of events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use photofinish_store::model::ids::AlbumId;
use tokio::sync::mpsc;
use tracing::Instrument;
use warp::Reply;
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

use crate::auth::Uploader;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::wire::album::OneAlbum;
use crate::wire::progress::{Progress, Throughput, is_idle};

/// What the pace is measured over.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often a stream says something.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);
/// For how long what one stream measured is told by the other streams of the album too. Shorter than [`EVERY`]: a stream
/// that is alone says something new each time.
const SNAPSHOT_TTL: Duration = Duration::from_millis(750);
/// Events that a slow reader may leave unread before the stream waits for it.
const EVENT_BUFFER: usize = 4;

pub(crate) async fn get(ctx: Context, caller: Uploader, input: OneAlbum) -> Result<Progress, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    Ok(measure_progress(&ctx, input.album).await?.0)
}

pub(crate) async fn stream(ctx: Context, caller: Uploader, input: OneAlbum) -> Result<Response, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let (events, mut unread) = mpsc::channel::<Bytes>(EVENT_BUFFER);
    // Ends when the album is idle, the service leaves, something fails, or nobody reads.
    tokio::spawn(async move { stream_progress(ctx, caller, (input.album, events)).await }.in_current_span());
    let body =
        stream::poll_fn(move |cx| unread.poll_recv(cx).map(|event| event.map(Ok::<_, std::io::Error>)));
    let mut response = warp::reply::stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers before they pass them on are asked not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

async fn stream_progress(ctx: Context, caller: Uploader, (album, events): (AlbumId, mpsc::Sender<Bytes>)) {
    let mut every = tokio::time::interval(STREAM_INTERVAL);
    let (watched, since) = (SharedProgress::for_album(album), Instant::now());
    loop {
        tokio::select! {
            () = events.closed() => return,
            () = ctx.draining.wait_until_begun() => {
                let leaving = ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(STREAM_INTERVAL));
                return send_event(&events, format_event("error", &leaving.to_json())).await;
            }
            _ = every.tick() => {}
        }
        // The album is asked for each time: it may be deleted while the stream lasts.
        let album_is_there = ctx.store.albums.get(&caller.tenant, album).await.map_err(ApiError::from);
        let measured = match album_is_there {
            Ok(_) => watched.get_or_measure(since, SNAPSHOT_TTL, measure_progress(&ctx, album)).await,
            Err(error) => Err(error),
        };
        let (progress, idle) = match measured {
            Ok(measured) => measured,
            Err(error) => {
                error.log();
                return send_event(&events, format_event("error", &error.to_json())).await;
            }
        };
        let Ok(text) = serde_json::to_string(&progress) else {
            return;
        };
        send_event(&events, format_event("message", &text)).await;
        if idle {
            return send_event(&events, format_event("done", &text)).await;
        }
    }
}

/// One event; JSON has no line breaks, so one data line holds it.
fn format_event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

async fn send_event(events: &mpsc::Sender<Bytes>, event: Bytes) {
    // An error means that nobody reads any more; the loop sees that too.
    drop(events.send(event).await);
}

/// The albums that streams of this process are about; each is forgotten after the last of its streams.
static PROGRESS_CACHE: Mutex<BTreeMap<AlbumId, Weak<SharedProgress>>> = Mutex::new(BTreeMap::new());

/// What the streams of an album share: its photos are counted once for all of them, however many there are.
#[derive(Default)]
struct SharedProgress(tokio::sync::Mutex<Option<Snapshot>>);

/// What was found, and when.
struct Snapshot {
    started: Instant,
    finished: Instant,
    result: ProgressResult,
}

/// The progress, and whether it is the end.
type ProgressResult = Result<(Progress, bool), ApiError>;

impl SharedProgress {
    fn for_album(album: AlbumId) -> Arc<Self> {
        let mut all = PROGRESS_CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = all.get(&album).and_then(Weak::upgrade) {
            return watched;
        }
        all.retain(|_, watched| watched.strong_count() > 0);
        let watched = Arc::new(Self::default());
        all.insert(album, Arc::downgrade(&watched));
        watched
    }

    /// What was found last, if that is younger than `shared_for` and not from before `since`, when photos may not have
    /// been queued yet that the stream is asked about; otherwise what is found now.
    async fn get_or_measure(
        &self,
        since: Instant,
        shared_for: Duration,
        measure: impl Future<Output = ProgressResult>,
    ) -> ProgressResult {
        // One measures and the others wait for what it finds, a failure too: an outage is not waited out by each in turn.
        let mut last = self.0.lock().await;
        if let Some(look) = &*last
            && look.started >= since
            && look.finished.elapsed() < shared_for
            // The end is told by a look of one's own: photos may have been confirmed since another's.
            && !matches!(look.result, Ok((_, true)))
        {
            return look.result.clone();
        }
        let begun = Instant::now();
        let found = measure.await;
        *last = Some(Snapshot { started: begun, finished: Instant::now(), result: found.clone() });
        found
    }
}

/// The progress now.
async fn measure_progress(ctx: &Context, album: AlbumId) -> ProgressResult {
    let counts = ctx.store.photos.counts(album).await?;
    if is_idle(&counts) {
        return Ok((Progress::new(album, &counts, None), true));
    }
    let settled = ctx.store.photos.settled_within(album, RATE_WINDOW).await?;
    let photos_per_second = settled as f64 / RATE_WINDOW.as_secs_f64();
    let pace = Throughput { photos_per_second, bottleneck: ctx.health.bottleneck() };
    Ok((Progress::new(album, &counts, Some(pace)), false))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use photofinish_store::model::photo::StateCounts;

    use super::*;

    #[tokio::test]
    async fn concurrent_streams_of_an_album_measure_once() {
        let (watched, since, measured) = (SharedProgress::default(), Instant::now(), AtomicUsize::new(0));
        let progress = Progress::new(AlbumId::generate(), &StateCounts::default(), None);
        let measure = || async {
            measured.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok((progress.clone(), false))
        };
        let looks = (0..100).map(|_| watched.get_or_measure(since, Duration::MAX, measure()));
        for found in join_all(looks).await {
            assert_eq!(found.unwrap().0, progress);
        }
        assert_eq!(measured.load(Ordering::Relaxed), 1);
        // A stream that begins now is told nothing from before.
        watched.get_or_measure(Instant::now(), Duration::MAX, measure()).await.unwrap();
        assert_eq!(measured.load(Ordering::Relaxed), 2);
        watched.get_or_measure(since, Duration::ZERO, measure()).await.unwrap();
        assert_eq!(measured.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_failed_measurement_is_returned_to_every_waiting_stream() {
        let (watched, since, measured) = (SharedProgress::default(), Instant::now(), AtomicUsize::new(0));
        let fail = || async {
            measured.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(ApiError::new(ErrorKind::ServiceUnavailable))
        };
        let looks = (0..3).map(|_| watched.get_or_measure(since, Duration::MAX, fail()));
        assert!(join_all(looks).await.iter().all(Result::is_err));
        assert_eq!(measured.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_album_without_streams_leaves_the_progress_cache() {
        let album = AlbumId::generate();
        let first = SharedProgress::for_album(album);
        assert!(Arc::ptr_eq(&first, &SharedProgress::for_album(album)));
        drop(first);
        let _other = SharedProgress::for_album(AlbumId::generate());
        assert!(!PROGRESS_CACHE.lock().unwrap().contains_key(&album));
    }
}
