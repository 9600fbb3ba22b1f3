//! The events of a tenant, as a list or as a stream of server-sent events that can be resumed.

use std::collections::HashSet;
use std::time::Duration;

use photofinish_store::model::event::{EventQuery, EventType};
use photofinish_store::model::ids::AlbumId;
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::Instrument;
use warp::reply::Response;

use super::stream_end::{EndRules, wait_for_end};
use crate::auth::AnyScope;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::event_feed::{Recent, StreamPermit};
use crate::sse::{EventSender, LastEventId, open_stream, send_text, send_until_end};
use crate::wire::cursor::EventPosition;
use crate::wire::event::{Event, EventPage, ListEvents};

/// A comment is sent after this long without an event, so that no proxy takes the stream for a dead one.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// When a client connects again: the service is being updated.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// Events of one page that a stream reads from the database.
const PAGE: u32 = 100;

pub(crate) async fn list(ctx: Context, caller: AnyScope, input: ListEvents) -> Result<EventPage, ApiError> {
    let after = input.after.map_or(0, |position| position.0);
    let types = visible_types(&caller, input.types)?;
    let query = EventQuery { after, types, album: input.album, limit: input.limit };
    let page = ctx.store.events.list(&caller.tenant, query).await?;
    Ok(EventPage {
        events: page.events.iter().map(Event::from).collect(),
        next_cursor: EventPosition(page.up_to).to_cursor(),
    })
}

/// Begins after the last event that the client has got, else after the cursor, else now.
pub(crate) async fn stream(
    ctx: Context,
    caller: AnyScope,
    input: ListEvents,
    last_event_id: LastEventId,
) -> Result<Response, ApiError> {
    let types = visible_types(&caller, input.types)?.into_iter().collect();
    let permit = ctx.event_feed.open(caller.tenant.organization, caller.key, &ctx.store.events)?;
    let resumed = match last_event_id.0 {
        Some(id) => {
            let refused = || ApiError::malformed("last-event-id must be the id of an event of this stream");
            Some(EventPosition::from_cursor(&id).ok_or_else(refused)?)
        }
        None => input.after,
    };
    let begin = match resumed {
        Some(position) => Begin::After(position.0),
        None => Begin::Now(ctx.store.events.newest().await?),
    };
    let (sender, response) = open_stream();
    let stream = EventStream {
        ctx,
        caller,
        permit,
        sender,
        position: begin.position(),
        sent_at: Instant::now(),
        types,
        album: input.album,
    };
    let organization = stream.caller.tenant.organization;
    let task = photofinish_store::on_behalf_of(organization, async move { stream.run(begin).await });
    // The task ends when the key becomes invalid, the service drains, the database fails, or the client disconnects.
    tokio::spawn(task.in_current_span());
    Ok(response)
}

/// Returns the types that a caller asks for and may see; empty for all.
///
/// # Errors
/// 403 if it asks for one that is only for keys that manage albums.
fn visible_types(caller: &AnyScope, asked: Vec<EventType>) -> Result<Vec<EventType>, ApiError> {
    if caller.can_manage {
        return Ok(asked);
    }
    if asked.iter().any(|event_type| event_type.is_for_managers()) {
        return Err(ApiError::new(ErrorKind::Forbidden).with_code("INSUFFICIENT_SCOPE"));
    }
    let visible = EventType::ALL.into_iter().filter(|event_type| !event_type.is_for_managers());
    Ok(if asked.is_empty() { visible.collect() } else { asked })
}

/// Where a stream begins.
#[derive(Clone, Copy)]
enum Begin {
    /// After what the client has got.
    After(i64),
    /// After the newest event of all tenants, which may be another tenant's: the client has missed nothing.
    Now(i64),
}

impl Begin {
    fn position(self) -> i64 {
        match self {
            Self::After(position) | Self::Now(position) => position,
        }
    }
}

/// A stream of events to one client.
struct EventStream {
    ctx: Context,
    caller: AnyScope,
    permit: StreamPermit,
    sender: EventSender,
    /// Everything up to this sequence was sent.
    position: i64,
    /// When something was sent last.
    sent_at: Instant,
    /// All if empty.
    types: HashSet<EventType>,
    album: Option<AlbumId>,
}

impl EventStream {
    async fn run(self, begin: Begin) {
        let (ctx, caller, sender) = (self.ctx.clone(), *self.caller, self.sender.clone());
        let rules = EndRules { retry_after: RETRY_AFTER, is_for_managers: caller.can_manage };
        let sending = async { Some(self.send_all(begin).await) };
        send_until_end(&sender, sending, wait_for_end(&ctx, &caller, rules)).await;
    }

    /// Sends events until something fails.
    async fn send_all(mut self, begin: Begin) -> ApiError {
        let mut new_events = self.permit.subscribe();
        self.send_lines(format!("retry: {}\n\n", RETRY_AFTER.as_millis())).await;
        let mut outcome = match begin {
            Begin::After(_) => self.report_loss().await,
            Begin::Now(_) => Ok(()),
        };
        loop {
            if let Err(error) = outcome {
                return error;
            }
            // Events of others come too, of which this stream sends nothing.
            outcome =
                match tokio::time::timeout_at(self.sent_at + COMMENT_INTERVAL, new_events.changed()).await {
                    // Cannot fail: the feed, which the permit has, keeps the sender.
                    Ok(_) => self.send_new().await,
                    Err(_) => {
                        self.send_lines(": \n\n".to_owned()).await;
                        Ok(())
                    }
                };
        }
    }

    /// Says so if the client asks for events that are no longer there, and continues behind them.
    async fn report_loss(&mut self) -> Result<(), ApiError> {
        if let Some(loss) = self.ctx.store.events.find_loss(&self.caller.tenant, self.position).await? {
            self.position = loss.resume_after;
            let event = Event::lost(&loss, OffsetDateTime::now_utc());
            self.send(loss.resume_after, &event).await?;
        }
        Ok(())
    }

    /// Sends everything after the position.
    async fn send_new(&mut self) -> Result<(), ApiError> {
        loop {
            let newest = match self.permit.after(self.position) {
                Recent::Events(events) => events,
                Recent::UpTo(begin) => {
                    self.send_page(begin).await?;
                    continue;
                }
                // The client asks again with the id of its last event and learns what was lost.
                Recent::Restored => {
                    let error = ApiError::new(ErrorKind::ServiceUnavailable);
                    return Err(error.with_retry_after(Some(RETRY_AFTER)));
                }
            };
            for event in newest {
                self.position = event.sequence;
                let is_wanted = event.tenant == self.caller.tenant
                    && (self.types.is_empty()
                        || self.types.iter().any(|wanted| wanted.as_str() == event.event_type))
                    && self.album.is_none_or(|album| event.album == Some(album));
                if is_wanted {
                    self.send(event.sequence, &Event::from(&*event)).await?;
                }
            }
            return Ok(());
        }
    }

    /// Sends a page from the database, on the way to `begin`.
    async fn send_page(&mut self, begin: i64) -> Result<(), ApiError> {
        let query = EventQuery {
            after: self.position,
            types: self.types.iter().copied().collect(),
            album: self.album,
            limit: PAGE,
        };
        let page = self.ctx.store.events.list(&self.caller.tenant, query).await?;
        for event in &page.events {
            self.send(event.sequence, &Event::from(event)).await?;
        }
        let is_last = page.events.len() < PAGE as usize;
        // Events up to `begin` were visible when the page was read.
        self.position = if is_last { page.up_to.max(begin) } else { page.up_to };
        Ok(())
    }

    async fn send(&mut self, sequence: i64, event: &Event) -> Result<(), ApiError> {
        let json = serde_json::to_string(event).map_err(ApiError::internal)?;
        let id = EventPosition(sequence).to_cursor();
        self.send_lines(format!("id: {id}\nevent: message\ndata: {json}\n\n")).await;
        Ok(())
    }

    async fn send_lines(&mut self, lines: String) {
        send_text(&self.sender, lines).await;
        self.sent_at = Instant::now();
    }
}
