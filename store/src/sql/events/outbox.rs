//! Events that other transactions leave behind for the publisher: each is written where it happened, so that it is told if
//! and only if it did.

use serde_json::Value;

use crate::model::album::Tenant;
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, EventId};
use crate::sql::database::Transaction;
use crate::sql::row_types::to_json;
use crate::sql::statement::query;
use crate::traits::Result;

/// An event without a number.
pub(crate) struct PendingEvent {
    pub(crate) tenant: Tenant,
    pub(crate) event_type: EventType,
    pub(crate) album: Option<AlbumId>,
    pub(crate) data: Value,
    /// Microseconds.
    pub(crate) created_at: i64,
}

/// Leaves an event for the publisher.
pub(crate) async fn insert_pending_event(
    transaction: &mut Transaction,
    operation: &'static str,
    event: &PendingEvent,
) -> Result<()> {
    let insert = "insert into event_outbox (id, organization, mode, type, album, data, created_at) \
                  values ($1, $2, $3, $4, $5, $6, $7)";
    query(operation, insert)
        .bind(EventId::generate())
        .bind(event.tenant.organization)
        .bind(event.tenant.mode.as_str())
        .bind(event.event_type.as_str())
        .bind(event.album)
        .bind(to_json(&event.data)?)
        .bind(event.created_at)
        .execute(transaction)
        .await
        .map(drop)
}
