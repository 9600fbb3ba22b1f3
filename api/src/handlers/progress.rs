//! An album's progress, as one response or as a stream of server-sent events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use photofinish_store::model::ids::AlbumId;
use tracing::Instrument;
use warp::reply::Response;

use super::stream_end::{EndRules, wait_for_end};
use crate::album_cache::SharedMeasurement;
use crate::auth::Watcher;
use crate::context::Context;
use crate::errors::ApiError;
use crate::sse::{EventSender, open_stream, send_event, send_until_end};
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
    shared.get_or_measure(since, measure_progress(ctx.clone(), input.album)).await
}

pub(crate) async fn stream(ctx: Context, caller: Watcher, input: OneAlbum) -> Result<Response, ApiError> {
    ctx.store.albums.get(&caller.tenant, input.album).await?;
    let place = ctx.progress_streams.take_place(caller.tenant.organization, caller.key)?;
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
    let shared = ctx.album_cache.progress.entry(album);
    let watch = Watch { ctx: &ctx, caller: &caller, album, shared, since: Instant::now() };
    let rules = EndRules { retry_after: STREAM_INTERVAL, is_for_managers: false };
    send_until_end(&events, watch.send_all(&events), wait_for_end(&ctx, &caller, rules)).await;
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
    /// Sends the progress until the album is idle or a measurement fails.
    async fn send_all(&self, events: &EventSender) -> Option<ApiError> {
        let mut interval = tokio::time::interval(STREAM_INTERVAL);
        loop {
            interval.tick().await;
            let progress = match self.next_progress().await {
                Ok(progress) => progress,
                Err(error) => return Some(error),
            };
            let text = match serde_json::to_string(&progress) {
                Ok(text) => text,
                Err(error) => return Some(ApiError::internal(error)),
            };
            send_event(events, "message", &text).await;
            if progress.is_idle() {
                send_event(events, "done", &text).await;
                return None;
            }
        }
    }

    /// Returns the progress for the next event, if the album is still there: it may be deleted while the stream is open.
    async fn next_progress(&self) -> Result<Progress, ApiError> {
        let Self { ctx, caller, album, shared, since } = self;
        ctx.store.albums.get(&caller.tenant, *album).await?;
        let now = Instant::now();
        let oldest = now.checked_sub(SNAPSHOT_TTL).map_or(*since, |oldest| oldest.max(*since));
        let progress = shared.get_or_measure(oldest, measure_progress((*ctx).clone(), *album)).await?;
        if !progress.is_idle() {
            return Ok(progress);
        }
        // Another stream's measurement does not end this one: the client may have confirmed photos since.
        shared.get_or_measure(now, measure_progress((*ctx).clone(), *album)).await
    }
}

async fn measure_progress(ctx: Context, album: AlbumId) -> Result<Progress, ApiError> {
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
