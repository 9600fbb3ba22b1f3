//! Events in the database: their list, and in [`publisher`] how they get there.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod ageing;
pub(crate) mod gathering;
pub(crate) mod outbox;
pub(crate) mod pruning;
pub(crate) mod publisher;
pub(crate) mod retention;

use async_trait::async_trait;
use sqlx::FromRow;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::StoreError;
use crate::metric_names;
use crate::model::album::Tenant;
use crate::model::encoding::{from_micros, to_micros};
use crate::model::event::{Event, EventLoss, EventPage, EventQuery, KeptChanges, PublishedEvents};
use crate::model::ids::{AlbumId, EventId, OrganizationId};
use crate::model::process::TaskLease;
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::{convert_rows, from_json, parse_key_mode};
use crate::sql::statement::{Statement, query};
use crate::sql::tasks::fence;
use crate::traits::{EventPublisher, Events, Result};

macro_rules! select_event {
    ($rest:literal) => {
        concat!("select sequence, id, organization, mode, type, album, data, created_at from event ", $rest)
    };
}

/// Without a filter for albums when `$4` is 0.
pub(crate) const EVENT_PAGE: Statement = Statement::PerDialect {
    sqlite: select_event!(
        "where organization = $1 and mode = $2 and sequence > $3 and ($4 = 0 or album = $5) \
         and type in (select value from json_each($6)) order by sequence limit $7"
    ),
    postgres: select_event!(
        "where organization = $1 and mode = $2 and sequence > $3 and ($4 = 0 or album = $5) \
         and type = any($6) order by sequence limit $7"
    ),
};

/// Without a filter for types: also those of a newer version.
pub(crate) const ALL_EVENTS_PAGE: &str = select_event!(
    "where organization = $1 and mode = $2 and sequence > $3 and ($4 = 0 or album = $5) \
     order by sequence limit $6"
);

pub(crate) const EVENTS_AFTER: &str = select_event!("where sequence > $1 order by sequence limit $2");

pub(crate) const NEWEST_OF_TENANT: &str =
    "select coalesce(max(sequence), 0) from event where organization = $1 and mode = $2";

pub(crate) struct SqlEvents {
    database: Database,
}

impl SqlEvents {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

#[derive(FromRow)]
struct EventRow {
    sequence: i64,
    id: EventId,
    organization: OrganizationId,
    mode: String,
    r#type: String,
    album: Option<AlbumId>,
    data: String,
    created_at: i64,
}

impl TryFrom<EventRow> for Event {
    type Error = StoreError;
    fn try_from(row: EventRow) -> Result<Self> {
        Ok(Self {
            sequence: row.sequence,
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            event_type: row.r#type,
            album: row.album,
            data: from_json(&row.data)?,
            created_at: from_micros(row.created_at)?,
        })
    }
}

#[async_trait]
impl Events for SqlEvents {
    async fn list(&self, tenant: &Tenant, filter: EventQuery) -> Result<EventPage> {
        const OPERATION: &str = "list events";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let newest = newest_of(&mut snapshot, tenant).await?;
        let last = newest.max(lost_up_to(&mut snapshot, tenant).await?);
        let after = filter.after.min(last);
        let page = if filter.types.is_empty() { Statement::Portable(ALL_EVENTS_PAGE) } else { EVENT_PAGE };
        let mut page = query(OPERATION, page)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(after)
            .bind(i64::from(filter.album.is_some()))
            .bind(filter.album.unwrap_or(AlbumId(Uuid::nil())));
        if !filter.types.is_empty() {
            let types: Vec<String> =
                filter.types.iter().map(|event_type| event_type.as_str().to_owned()).collect();
            page = page.bind(types);
        }
        let rows: Vec<EventRow> = page.bind(i64::from(filter.limit)).fetch_all(&mut snapshot).await?;
        let events: Vec<Event> = convert_rows(rows)?;
        let is_full = events.len() >= filter.limit as usize;
        let up_to = match events.last() {
            Some(event) if is_full => event.sequence,
            _ => last.max(after),
        };
        Ok(EventPage { events, up_to })
    }

    async fn read_after(&self, sequence: i64, limit: u32) -> Result<Vec<Event>> {
        const OPERATION: &str = "read events";
        let rows: Vec<EventRow> = query(OPERATION, EVENTS_AFTER)
            .bind(sequence)
            .bind(i64::from(limit))
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        convert_rows(rows)
    }

    async fn newest(&self) -> Result<i64> {
        const OPERATION: &str = "find the newest event";
        let (newest,): (i64,) = query(OPERATION, "select coalesce(max(sequence), 0) from event")
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(newest)
    }

    async fn find_loss(&self, tenant: &Tenant, after: i64) -> Result<Option<EventLoss>> {
        const OPERATION: &str = "find lost events";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let lost = lost_up_to(&mut snapshot, tenant).await?;
        let newest = newest_of(&mut snapshot, tenant).await?;
        let resume_after = if after < lost {
            lost
        } else if after > newest.max(lost) {
            newest
        } else {
            return Ok(None);
        };
        let oldest = select_event!(
            "where organization = $1 and mode = $2 and sequence > $3 order by sequence limit 1"
        );
        let oldest: Option<EventRow> = query(OPERATION, oldest)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(lost)
            .fetch_optional(&mut snapshot)
            .await?;
        let oldest = oldest.map(|row| from_micros(row.created_at)).transpose()?;
        Ok(Some(EventLoss { resume_after, oldest }))
    }
}

/// The sequence of the newest event of a tenant; 0 if there is none.
async fn newest_of(snapshot: &mut Transaction, tenant: &Tenant) -> Result<i64> {
    let (newest,): (i64,) = query("find the newest event", NEWEST_OF_TENANT)
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .fetch_one(snapshot)
        .await?;
    Ok(newest)
}

/// The sequence of the newest event of a tenant that was deleted; 0 if none was.
async fn lost_up_to(snapshot: &mut Transaction, tenant: &Tenant) -> Result<i64> {
    let lost: Option<(i64,)> =
        query("find lost events", "select sequence from event_loss where organization = $1 and mode = $2")
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(snapshot)
            .await?;
    Ok(lost.map_or(0, |(sequence,)| sequence))
}

#[async_trait]
impl EventPublisher for SqlEvents {
    async fn is_due(&self) -> Result<bool> {
        const OPERATION: &str = "look for events to publish";
        let (due,): (i64,) = query(OPERATION, publisher::COUNT_DUE)
            .bind(publisher::GATHER_MICROS)
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(due > 0)
    }

    async fn publish(&self, lease: TaskLease) -> Result<PublishedEvents> {
        const OPERATION: &str = publisher::OPERATION;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        let published = publisher::publish(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        metrics::counter!(metric_names::EVENTS_PUBLISHED).increment(published.events);
        Ok(published)
    }

    async fn has_expired(&self, before: OffsetDateTime) -> Result<bool> {
        const OPERATION: &str = retention::OPERATION;
        let oldest: Option<(i64,)> =
            query(OPERATION, "select created_at from event order by sequence limit 1")
                .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        Ok(oldest.is_some_and(|(created_at,)| created_at < to_micros(before)))
    }

    async fn remove_expired(&self, lease: TaskLease, before: OffsetDateTime) -> Result<u64> {
        const OPERATION: &str = retention::OPERATION;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        let removed = retention::remove_expired(&mut transaction, to_micros(before)).await?;
        transaction.commit(OPERATION).await?;
        Ok(removed)
    }

    async fn has_prunable_changes(&self, kept: &KeptChanges) -> Result<bool> {
        let mut snapshot = self.database.begin_snapshot(pruning::OPERATION).await?;
        pruning::has_prunable(&mut snapshot, kept).await
    }

    async fn prune_changes(&self, lease: TaskLease, kept: &KeptChanges) -> Result<u64> {
        const OPERATION: &str = pruning::OPERATION;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        let deleted = pruning::prune(&mut transaction, kept).await?;
        transaction.commit(OPERATION).await?;
        Ok(deleted)
    }
}
