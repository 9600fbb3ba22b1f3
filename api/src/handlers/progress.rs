//! An album's progress, as one response or as a stream of server-sent events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_store::model::ids::AlbumId;
use tracing::Instrument;
use warp::reply::Response;

use crate::album_cache::SharedMeasurement;
use crate::auth::Watcher;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::sse::{EventSender, open_stream, send_event};
use crate::wire::album::OneAlbum;
use crate::wire::progress::{Progress, Throughput};

/// The time over which photos per second are measured.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often a stream sends an event.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);
/// How old a measurement may be that a stream of the album uses. Shorter than [`STREAM_INTERVAL`], so that the only
/// stream of an album measures for every event.
const SNAPSHOT_TTL: Duration = Duration::from_millis(750);

pub(crate) async fn get(ctx: Context, caller: Watcher, input: OneAlbum) -> Result<Progress, ApiError> {
    let since = Instant::now();
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let shared = ctx.album_cache.progress.entry(input.album);
    shared.get_or_measure(since, measure_progress(&ctx, input.album)).await
}

pub(crate) async fn stream(ctx: Context, caller: Watcher, input: OneAlbum) -> Result<Response, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let place = ctx.progress_streams.take(caller.key)?;
    let (events, response) = open_stream();
    let organization = caller.tenant.organization;
    let watching = async move {
        stream_progress(ctx, caller, input.album, events).await;
        drop(place);
    };
    let task = photofinish_store::on_behalf_of(organization, watching);
    // The task ends when the album is idle, the key becomes invalid, the service drains, a measurement fails, or the
    // client disconnects.
    tokio::spawn(task.in_current_span());
    Ok(response)
}

async fn stream_progress(ctx: Context, caller: Watcher, album: AlbumId, events: EventSender) {
    let mut interval = tokio::time::interval(STREAM_INTERVAL);
    let watch = Watch {
        shared: ctx.album_cache.progress.entry(album),
        ctx: &ctx,
        caller: &caller,
        album,
        since: Instant::now(),
    };
    loop {
        tokio::select! {
            () = events.closed() => return,
            () = ctx.draining.wait_until_begun() => {
                let error = ApiError::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(STREAM_INTERVAL));
                return send_event(&events, "error", &error.to_json()).await;
            }
            _ = interval.tick() => {}
        }
        let progress = match watch.next_progress().await {
            Ok(progress) => progress,
            Err(error) => {
                error.log();
                return send_event(&events, "error", &error.to_json()).await;
            }
        };
        let Ok(text) = serde_json::to_string(&progress) else {
            return;
        };
        send_event(&events, "message", &text).await;
        if progress.is_idle() {
            return send_event(&events, "done", &text).await;
        }
    }
}

/// What a stream watches, and for whom.
struct Watch<'s> {
    ctx: &'s Context,
    caller: &'s Watcher,
    album: AlbumId,
    shared: Arc<SharedMeasurement<Progress>>,
    /// When the stream started.
    since: Instant,
}

impl Watch<'_> {
    /// Returns the progress for the next event, if the key is still valid and the album still there: either may change
    /// while the stream is open.
    async fn next_progress(&self) -> Result<Progress, ApiError> {
        let Self { ctx, caller, album, shared, since } = self;
        caller.check_credential(&ctx.store).await?;
        ctx.store.albums.get(&caller.tenant, *album).await?;
        let now = Instant::now();
        let oldest = now.checked_sub(SNAPSHOT_TTL).map_or(*since, |oldest| oldest.max(*since));
        let progress = shared.get_or_measure(oldest, measure_progress(ctx, *album)).await?;
        if !progress.is_idle() {
            return Ok(progress);
        }
        // Another stream's measurement does not end this one: the client may have confirmed photos since.
        shared.get_or_measure(now, measure_progress(ctx, *album)).await
    }
}

async fn measure_progress(ctx: &Context, album: AlbumId) -> Result<Progress, ApiError> {
    let counts = ctx.store.photos.count_by_state(album).await?;
    let idle = Progress::new(album, &counts, None);
    if idle.is_idle() {
        return Ok(idle);
    }
    let settled = ctx.store.photos.count_settled_within(album, RATE_WINDOW).await?;
    let photos_per_second = settled as f64 / RATE_WINDOW.as_secs_f64();
    let throughput = Throughput { photos_per_second, bottleneck: ctx.health.find_bottleneck().await };
    Ok(Progress::new(album, &counts, Some(throughput)))
}
