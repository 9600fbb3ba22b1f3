//! Deletes old events, and remembers of each tenant up to where.

use std::collections::BTreeMap;

use crate::model::ids::OrganizationId;
use crate::sql::database::Transaction;
use crate::sql::statement::query;
use crate::traits::Result;

pub(crate) const OPERATION: &str = "delete old events";

/// How many events one transaction looks at.
const BATCH: i64 = 1000;

/// How much longer an event is kept while a delivery of it is pending. The attempts end after a day, but begin late where nothing
/// ran meanwhile. Not longer: the events of all tenants after it are kept too, and where the secret of a webhook cannot be opened
/// a delivery waits for ever.
const MAX_PENDING_MICROS: i64 = 3 * 86_400_000_000;

const OLDEST: &str = "select told.sequence, told.organization, told.mode, told.created_at, \
     (select count(*) from webhook_delivery as delivery where delivery.event = told.sequence and delivery.state = 'pending') \
     from event as told order by told.sequence limit $1";

/// Deletes the oldest events, those from before `before` (microseconds); returns how many. An event that is younger than
/// its number suggests keeps those after it for a while, and so does one with a pending delivery.
pub(crate) async fn remove_expired(transaction: &mut Transaction, before: i64) -> Result<u64> {
    // Tests of webhooks have no event, and wait for none.
    let tests = "delete from webhook_delivery where event is null and created_at < $1";
    query(OPERATION, tests).bind(before).execute(&mut *transaction).await?;
    let oldest: Vec<(i64, OrganizationId, String, i64, i64)> =
        query(OPERATION, OLDEST).bind(BATCH).fetch_all(&mut *transaction).await?;
    let mut lost: BTreeMap<(OrganizationId, String), i64> = BTreeMap::new();
    let mut last = None;
    for (sequence, organization, mode, created_at, pending) in oldest {
        let kept_from = if pending > 0 { before - MAX_PENDING_MICROS } else { before };
        if created_at >= kept_from {
            break;
        }
        lost.insert((organization, mode), sequence);
        last = Some(sequence);
    }
    let Some(last) = last else { return Ok(0) };
    for ((organization, mode), sequence) in lost {
        let record = "insert into event_loss (organization, mode, sequence) values ($1, $2, $3) \
                      on conflict (organization, mode) do update set sequence = excluded.sequence";
        query(OPERATION, record)
            .bind(organization)
            .bind(mode)
            .bind(sequence)
            .execute(&mut *transaction)
            .await?;
    }
    // Deliveries of events that are no longer there say nothing any more.
    let deliveries = "delete from webhook_delivery where event <= $1";
    query(OPERATION, deliveries).bind(last).execute(&mut *transaction).await?;
    query(OPERATION, "delete from event where sequence <= $1").bind(last).execute(transaction).await
}
