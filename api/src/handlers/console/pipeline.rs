//! What the pipelines of all processes do, as one response or as a stream of server-sent events.

use std::time::Duration;

use tracing::Instrument;
use warp::reply::Response;

use crate::auth::Member;
use crate::context::Context;
use crate::errors::ApiError;
use crate::handlers::stream_end::{EndRules, wait_for_end};
use crate::sse::{EventSender, open_stream, send_event, send_until_end};
use crate::wire::console::Nothing;
use crate::wire::console::pipeline::PipelineOverview;

/// How often a stream sends an event.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn get(ctx: Context, _: Member, _: Nothing) -> Result<PipelineOverview, ApiError> {
    read(&ctx).await
}

async fn read(ctx: &Context) -> Result<PipelineOverview, ApiError> {
    let processes = ctx.health.list_processes().await?;
    Ok(PipelineOverview::new(processes, ctx.health.find_bottleneck().await))
}

pub(crate) async fn stream(ctx: Context, caller: Member, _: Nothing) -> Result<Response, ApiError> {
    let place = ctx.progress_streams.take_place(caller.tenant.organization, caller.key)?;
    let (events, response) = open_stream();
    let organization = caller.tenant.organization;
    let sending = async move {
        send_overviews(ctx, caller, events).await;
        drop(place);
    };
    // The task ends when the session ends, the service drains, the database fails, or the client disconnects.
    tokio::spawn(photofinish_store::on_behalf_of(organization, sending).in_current_span());
    Ok(response)
}

async fn send_overviews(ctx: Context, caller: Member, events: EventSender) {
    let sending = async {
        let mut interval = tokio::time::interval(STREAM_INTERVAL);
        loop {
            interval.tick().await;
            let overview = read(&ctx).await;
            match overview.and_then(|overview| serde_json::to_string(&overview).map_err(ApiError::internal)) {
                Ok(text) => send_event(&events, "message", &text).await,
                Err(error) => return Some(error),
            }
        }
    };
    let rules = EndRules { retry_after: STREAM_INTERVAL, is_for_managers: false };
    send_until_end(&events, sending, wait_for_end(&ctx, &caller, rules)).await;
}
