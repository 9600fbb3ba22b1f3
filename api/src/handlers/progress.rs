//! An album's progress, once or as a stream of events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use photofinish_store::ids::AlbumId;
use tokio::sync::mpsc;
use tracing::Instrument;
use warp::Reply;
use warp::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use warp::reply::Response;

use crate::auth::Uploader;
use crate::context::Context;
use crate::error::ApiError;
use crate::error_table::ErrorKind;
use crate::wire::album::OneAlbum;
use crate::wire::progress::{Pace, Progress, is_idle};

/// What the pace is measured over.
const WINDOW: Duration = Duration::from_secs(10);
/// How often a stream says something.
const EVERY: Duration = Duration::from_secs(1);
/// For how long what one stream measured is told by the other streams of the album too. Shorter than [`EVERY`]: a stream
/// that is alone says something new each time.
const SHARED_FOR: Duration = Duration::from_millis(750);
/// Events that a slow reader may leave unread before the stream waits for it.
const UNREAD_EVENTS: usize = 4;

pub(crate) async fn once(ctx: Context, caller: Uploader, input: OneAlbum) -> Result<Progress, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    Ok(measure(&ctx, input.album).await?.0)
}

pub(crate) async fn stream(ctx: Context, caller: Uploader, input: OneAlbum) -> Result<Response, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let (events, mut unread) = mpsc::channel::<Bytes>(UNREAD_EVENTS);
    // Ends when the album is idle, the service leaves, something fails, or nobody reads.
    tokio::spawn(async move { tell(ctx, caller, (input.album, events)).await }.in_current_span());
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

async fn tell(ctx: Context, caller: Uploader, (album, events): (AlbumId, mpsc::Sender<Bytes>)) {
    let mut every = tokio::time::interval(EVERY);
    let (watched, since) = (Watched::of(album), Instant::now());
    loop {
        tokio::select! {
            () = events.closed() => return,
            () = ctx.draining.begun() => {
                let leaving = ApiError::of(ErrorKind::ServiceUnavailable).retry_after(Some(EVERY));
                return send(&events, event("error", &leaving.to_json())).await;
            }
            _ = every.tick() => {}
        }
        // The album is asked for each time: it may be deleted while the stream lasts.
        let album_is_there = ctx.store.albums.get(&caller.tenant, album).await.map_err(ApiError::from);
        let measured = match album_is_there {
            Ok(_) => watched.look(since, SHARED_FOR, measure(&ctx, album)).await,
            Err(error) => Err(error),
        };
        let (progress, idle) = match measured {
            Ok(measured) => measured,
            Err(error) => {
                error.log();
                return send(&events, event("error", &error.to_json())).await;
            }
        };
        let Ok(text) = serde_json::to_string(&progress) else {
            return;
        };
        send(&events, event("message", &text)).await;
        if idle {
            return send(&events, event("done", &text)).await;
        }
    }
}

/// One event; JSON has no line breaks, so one data line holds it.
fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

async fn send(events: &mpsc::Sender<Bytes>, event: Bytes) {
    // An error means that nobody reads any more; the loop sees that too.
    drop(events.send(event).await);
}

/// The albums that streams of this process are about; each is forgotten after the last of its streams.
static WATCHED: Mutex<BTreeMap<AlbumId, Weak<Watched>>> = Mutex::new(BTreeMap::new());

/// What the streams of an album share: its photos are counted once for all of them, however many there are.
#[derive(Default)]
struct Watched(tokio::sync::Mutex<Option<Look>>);

/// What was found, and when.
struct Look {
    begun: Instant,
    ended: Instant,
    found: Measured,
}

/// The progress, and whether it is the end.
type Measured = Result<(Progress, bool), ApiError>;

impl Watched {
    fn of(album: AlbumId) -> Arc<Self> {
        let mut all = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn look(
        &self,
        since: Instant,
        shared_for: Duration,
        measure: impl Future<Output = Measured>,
    ) -> Measured {
        // One measures and the others wait for what it finds, a failure too: an outage is not waited out by each in turn.
        let mut last = self.0.lock().await;
        if let Some(look) = &*last
            && look.begun >= since
            && look.ended.elapsed() < shared_for
            // The end is told by a look of one's own: photos may have been confirmed since another's.
            && !matches!(look.found, Ok((_, true)))
        {
            return look.found.clone();
        }
        let begun = Instant::now();
        let found = measure.await;
        *last = Some(Look { begun, ended: Instant::now(), found: found.clone() });
        found
    }
}

/// The progress now.
async fn measure(ctx: &Context, album: AlbumId) -> Measured {
    let counts = ctx.store.photos.counts(album).await?;
    if is_idle(&counts) {
        return Ok((Progress::of(album, &counts, None), true));
    }
    let settled = ctx.store.photos.settled_within(album, WINDOW).await?;
    let photos_per_second = settled as f64 / WINDOW.as_secs_f64();
    let pace = Pace { photos_per_second, bottleneck: ctx.health.bottleneck() };
    Ok((Progress::of(album, &counts, Some(pace)), false))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use photofinish_store::photo::StateCounts;

    use super::*;

    #[tokio::test]
    async fn streams_that_look_at_once_measure_once() {
        let (watched, since, measured) = (Watched::default(), Instant::now(), AtomicUsize::new(0));
        let progress = Progress::of(AlbumId::generate(), &StateCounts::default(), None);
        let measure = || async {
            measured.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok((progress.clone(), false))
        };
        let looks = (0..100).map(|_| watched.look(since, Duration::MAX, measure()));
        for found in join_all(looks).await {
            assert_eq!(found.unwrap().0, progress);
        }
        assert_eq!(measured.load(Ordering::Relaxed), 1);
        // A stream that begins now is told nothing from before.
        watched.look(Instant::now(), Duration::MAX, measure()).await.unwrap();
        assert_eq!(measured.load(Ordering::Relaxed), 2);
        watched.look(since, Duration::ZERO, measure()).await.unwrap();
        assert_eq!(measured.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_failure_is_told_to_all_who_waited_for_it() {
        let (watched, since, measured) = (Watched::default(), Instant::now(), AtomicUsize::new(0));
        let fail = || async {
            measured.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(ApiError::of(ErrorKind::ServiceUnavailable))
        };
        let looks = (0..3).map(|_| watched.look(since, Duration::MAX, fail()));
        assert!(join_all(looks).await.iter().all(Result::is_err));
        assert_eq!(measured.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_album_that_no_stream_is_about_is_forgotten() {
        let album = AlbumId::generate();
        let first = Watched::of(album);
        assert!(Arc::ptr_eq(&first, &Watched::of(album)));
        drop(first);
        let _other = Watched::of(AlbumId::generate());
        assert!(!WATCHED.lock().unwrap().contains_key(&album));
    }
}
