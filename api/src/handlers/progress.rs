//! An album's progress, once or as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use photofinish_store::ids::AlbumId;
use time::OffsetDateTime;
use tokio::sync::mpsc;
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
    tokio::spawn(async move { tell(ctx, caller, (input.album, events)).await });
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
            Ok(_) => measure(&ctx, album).await,
            Err(error) => Err(error),
        };
        let (progress, idle) = match measured {
            Ok(measured) => measured,
            Err(error) => return send(&events, event("error", &error.to_json())).await,
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

/// The progress now, and whether it is the end.
async fn measure(ctx: &Context, album: AlbumId) -> Result<(Progress, bool), ApiError> {
    let counts = ctx.store.photos.counts(album).await?;
    if is_idle(&counts) {
        return Ok((Progress::of(album, &counts, None), true));
    }
    let settled = ctx.store.photos.settled_since(album, OffsetDateTime::now_utc() - WINDOW).await?;
    let photos_per_second = settled as f64 / WINDOW.as_secs_f64();
    let pace = Pace { photos_per_second, bottleneck: ctx.health.bottleneck() };
    Ok((Progress::of(album, &counts, Some(pace)), false))
}
