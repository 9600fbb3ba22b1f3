//! Makes events of what happened: of changes of albums, of albums that have become idle, and of the events that other
//! transactions left in the outbox. Every function runs inside a transaction of the one process that has the task.
//!
//! Photos are told from `photo_change`, which numbers the changes of an album without gaps. A photo is told in the state that
//! it has now: one that is queued again is told when it has settled, one that was deleted is not told. Changes by which no
//! photo settles, as when a list of bibs changes or somebody is erased, are passed over.
//!
//! Locks rows of `album_change_feed`, then rows of `event_cursor`, and waits for nothing that a writer of an album locks
//! before them: only at first, holding nothing, for the writer of an album that is overdue, for half a second.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use sqlx::FromRow;
use uuid::Uuid;

use crate::model::album::Tenant;
use crate::model::event::{EventType, PublishedEvents};
use crate::model::ids::{AlbumId, EventId, OrganizationId, PhotoId};
use crate::model::photo::{PhotoState, StateCounts};
use crate::sql::database::Transaction;
use crate::sql::events::gathering::{
    ChangedPhoto, Changes, PHOTOS_PER_EVENT, Settled, end_at_full_event, lock_overdue, read_changes,
};
use crate::sql::photos::load_counts;
use crate::sql::row_types::{parse_key_mode, parse_photo_state, to_json};
use crate::sql::statement::{Statement, query};
use crate::sql::webhooks::deliveries::{PublishedEvent, Subscriber, list_subscribers};
use crate::traits::Result;

pub(crate) const OPERATION: &str = "publish events";

/// How long photos of an album are gathered before they are told, from the first: 500,000 photos are 2,000 events.
pub(crate) const GATHER_MICROS: i64 = 2_000_000;

/// Albums and pending events of one transaction.
const ALBUMS_PER_TURN: i64 = 16;
const PENDING_PER_TURN: i64 = 200;

/// How long nothing may have settled until an album is idle, and how often that is told at most.
const IDLE_AFTER_MICROS: i64 = 10_000_000;
const IDLE_INTERVAL_MICROS: i64 = 60_000_000;

/// Counts, up to one of each kind, the changes, pending events and idle albums that are due.
pub(crate) const COUNT_DUE: Statement = Statement::PerDialect {
    sqlite: "select count(*) from ( \
             select 1 from (select 1 from album_change_feed \
             where since <= cast(unixepoch('now', 'subsec') * 1000000 as integer) - $1 limit 1) \
             union all select 1 from (select 1 from event_outbox limit 1) \
             union all select 1 from (select 1 from event_cursor \
             where idle_check_at <= cast(unixepoch('now', 'subsec') * 1000000 as integer) limit 1))",
    postgres: "select count(*) from ( \
               select 1 from (select 1 from album_change_feed where since \
               <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 limit 1) as changed \
               union all select 1 from (select 1 from event_outbox limit 1) as pending \
               union all select 1 from (select 1 from event_cursor where idle_check_at \
               <= (extract(epoch from statement_timestamp()) * 1000000)::bigint limit 1) as idle) as due",
};

/// Leaves out albums whose changes are being written: they are taken at the next turn, with these changes, or when they are overdue.
pub(crate) const CHANGED_ALBUMS: Statement = Statement::PerDialect {
    sqlite: "select album from album_change_feed where since <= $1 order by since limit $2",
    postgres: "select album from album_change_feed where since <= $1 order by since limit $2 \
               for update skip locked",
};

pub(crate) const IDLE_ALBUMS: &str =
    "select album from event_cursor where idle_check_at <= $1 order by idle_check_at limit $2";

/// Whether an album has changes that are not told yet, and when the last of its photos settled that still are.
pub(crate) const LAST_SETTLED: &str = "select (select count(*) from album_change_feed where album = $1), \
     coalesce((select max(settled_at) from photo where album = $1 and settled_at is not null), 0)";

/// With whether it was charged, as photos are that become ready, before it last settled.
macro_rules! photo_states {
    ($is_named:literal) => {
        concat!(
            "select id, state, failure, cast(case when charged_at < settled_at then 1 else 0 end as bigint), \
             coalesce(settled_at, 0) from photo where album = $1 and ",
            $is_named
        )
    };
}

const PHOTO_STATES: Statement = Statement::PerDialect {
    sqlite: photo_states!("id in (select unhex(value) from json_each($2))"),
    postgres: photo_states!("id = any($2)"),
};

/// Deletes what it returns.
const TAKE_PENDING: &str = "delete from event_outbox where id in (select id from event_outbox order by id limit $1) \
     returning id, organization, mode, type, album, data, created_at";

/// Publishes some of what is due.
pub(crate) async fn publish(transaction: &mut Transaction) -> Result<PublishedEvents> {
    lock_overdue(transaction).await?;
    let now = transaction.read_clock(OPERATION).await?;
    let mut turn =
        Turn { transaction, now, published: PublishedEvents::default(), subscribers: HashMap::new() };
    let changed: Vec<(AlbumId,)> = query(OPERATION, CHANGED_ALBUMS)
        .bind(now - GATHER_MICROS)
        .bind(ALBUMS_PER_TURN)
        .fetch_all(&mut *turn.transaction)
        .await?;
    turn.published.has_more |= changed.len() as i64 == ALBUMS_PER_TURN;
    for (album,) in changed {
        turn.publish_changes(album).await?;
    }
    let idle: Vec<(AlbumId,)> = query(OPERATION, IDLE_ALBUMS)
        .bind(now)
        .bind(ALBUMS_PER_TURN)
        .fetch_all(&mut *turn.transaction)
        .await?;
    for (album,) in idle {
        turn.check_idle(album).await?;
    }
    turn.publish_pending().await?;
    Ok(turn.published)
}

/// One transaction of the publisher.
struct Turn<'t> {
    transaction: &'t mut Transaction,
    /// Microseconds.
    now: i64,
    published: PublishedEvents,
    /// The webhooks of each tenant with an event of this turn.
    subscribers: HashMap<Tenant, Vec<Subscriber>>,
}

/// An event to number.
struct NewEvent {
    id: EventId,
    tenant: Tenant,
    event_type: String,
    album: Option<AlbumId>,
    data: String,
    created_at: i64,
}

/// An album that is not closed.
struct OpenAlbum {
    id: AlbumId,
    tenant: Tenant,
    changes: i64,
}

/// How far the publisher has got in an album.
#[derive(Clone, Copy, Default, FromRow)]
struct Cursor {
    published: i64,
    mark: Option<i64>,
    idle_told_at: i64,
}

/// What is told of a photo.
struct SettledPhoto {
    event_type: EventType,
    data: Value,
}

impl Turn<'_> {
    /// Tells the photos of the next changes of an album. The album stays in the feed if there are more.
    async fn publish_changes(&mut self, album: AlbumId) -> Result<()> {
        let Some(album) = self.find_open_album(album).await? else { return self.leave_feed(album).await };
        let cursor = "select published, mark, idle_told_at from event_cursor where album = $1";
        let cursor: Option<Cursor> =
            query(OPERATION, cursor).bind(album.id).fetch_optional(&mut *self.transaction).await?;
        let cursor = cursor.unwrap_or_default();
        let read = read_changes(self.transaction, album.id, [cursor.published, album.changes]).await?;
        let Changes { up_to: read_to, rows } = read;
        let is_another = |row: &ChangedPhoto| {
            row.change == cursor.published && cursor.mark.is_some_and(|known| known != row.mark)
        };
        if cursor.published > album.changes || rows.iter().any(is_another) {
            tracing::warn!(album.id = %album.id, "the changes of an album are not those that were published: continuing at its present");
            self.move_cursor(album.id, Cursor { published: album.changes, mark: None, ..cursor }, None)
                .await?;
            return self.leave_feed(album.id).await;
        }
        let (places, photos) = self.find_settled(&album, cursor.published, &rows).await?;
        let end = end_at_full_event(&places, self.now - GATHER_MICROS);
        let told = end.map_or(places.len(), |end| places.partition_point(|place| place.change <= end.change));
        self.publish_photos(&album, &photos[..told]).await?;
        let up_to = end.map_or(read_to, |end| end.change);
        let mark = rows.iter().find(|row| row.change == up_to).map(|row| row.mark);
        let idle_check_at = (told > 0).then(|| {
            (self.now + IDLE_AFTER_MICROS).max(cursor.idle_told_at.saturating_add(IDLE_INTERVAL_MICROS))
        });
        self.move_cursor(album.id, Cursor { published: up_to, mark, ..cursor }, idle_check_at).await?;
        match end {
            _ if up_to >= album.changes => self.leave_feed(album.id).await,
            Some(end) if read_to >= album.changes => self.stay_in_feed(album.id, end.since).await,
            _ => {
                self.published.has_more = true;
                Ok(())
            }
        }
    }

    /// Returns the photos that settled by changes after `published` and still are, in the state that they have now, each once.
    async fn find_settled(
        &mut self,
        album: &OpenAlbum,
        published: i64,
        rows: &[ChangedPhoto],
    ) -> Result<(Vec<Settled>, Vec<SettledPhoto>)> {
        type StateRow = (PhotoId, String, Option<String>, i64, i64);
        let mut seen = HashSet::new();
        let is_new =
            |row: &&ChangedPhoto| row.change > published && row.settled == 1 && seen.insert(row.photo);
        let new: Vec<(i64, PhotoId)> =
            rows.iter().filter(is_new).map(|row| (row.change, row.photo)).collect();
        let ids: Vec<Uuid> = new.iter().map(|(_, photo)| photo.0).collect();
        let states: Vec<StateRow> =
            query(OPERATION, PHOTO_STATES).bind(album.id).bind(ids).fetch_all(&mut *self.transaction).await?;
        let states: HashMap<PhotoId, StateRow> = states.into_iter().map(|row| (row.0, row)).collect();
        let (mut places, mut photos) = (Vec::new(), Vec::new());
        for (change, photo) in new {
            let Some((_, state, failure, again, settled_at)) = states.get(&photo) else { continue };
            let told = match parse_photo_state(state)? {
                PhotoState::Ready => SettledPhoto {
                    event_type: EventType::PhotoReady,
                    data: json!({ "photoId": photo, "again": *again == 1 }),
                },
                PhotoState::Failed => SettledPhoto {
                    event_type: EventType::PhotoFailed,
                    data: json!({ "photoId": photo, "reason": failure }),
                },
                PhotoState::AwaitingUpload | PhotoState::Queued | PhotoState::Processing => continue,
            };
            places.push(Settled { change, settled_at: *settled_at });
            photos.push(told);
        }
        Ok((places, photos))
    }

    async fn publish_photos(&mut self, album: &OpenAlbum, photos: &[SettledPhoto]) -> Result<()> {
        for event_type in [EventType::PhotoReady, EventType::PhotoFailed] {
            let of_type = photos.iter().filter(|photo| photo.event_type == event_type);
            let of_type: Vec<&Value> = of_type.map(|photo| &photo.data).collect();
            for photos in of_type.chunks(PHOTOS_PER_EVENT) {
                let data = json!({ "albumId": album.id, "photos": photos, "count": photos.len() });
                self.publish_of_album(album, event_type, &data).await?;
            }
        }
        Ok(())
    }

    /// Tells that an album is idle, or looks again when it may be.
    async fn check_idle(&mut self, album: AlbumId) -> Result<()> {
        let set = "update event_cursor set idle_check_at = $2, idle_told_at = coalesce($3, idle_told_at) where album = $1";
        let (mut check_at, mut told_at) = (None, None);
        if let Some(album) = self.find_open_album(album).await? {
            let counts = load_counts(OPERATION, album.id, &mut *self.transaction).await?;
            let idle_from = self.find_idle_time(album.id, &counts).await?;
            if idle_from > self.now {
                check_at = Some(idle_from);
            } else {
                told_at = Some(self.now);
                self.publish_of_album(&album, EventType::AlbumIdle, &idle_data(album.id, &counts)).await?;
            }
        }
        query(OPERATION, set)
            .bind(album)
            .bind(check_at)
            .bind(told_at)
            .execute(&mut *self.transaction)
            .await
            .map(drop)
    }

    /// Returns from when on an album of these counts is idle, if nothing happens until then. It was at work until now where
    /// photos settled that are not told yet: they are told first. To be called after the counts were read: what settles
    /// between the two statements is then seen by one of them.
    async fn find_idle_time(&mut self, album: AlbumId, counts: &StateCounts) -> Result<i64> {
        let (untold, settled_at): (i64, i64) =
            query(OPERATION, LAST_SETTLED).bind(album).fetch_one(&mut *self.transaction).await?;
        let is_at_work = counts.queued + counts.processing > 0 || untold > 0;
        let worked_until = if is_at_work { self.now } else { settled_at };
        Ok(worked_until.saturating_add(IDLE_AFTER_MICROS))
    }

    /// Numbers the events that other transactions left.
    async fn publish_pending(&mut self) -> Result<()> {
        type PendingRow = (EventId, OrganizationId, String, String, Option<AlbumId>, String, i64);
        let mut pending: Vec<PendingRow> =
            query(OPERATION, TAKE_PENDING).bind(PENDING_PER_TURN).fetch_all(&mut *self.transaction).await?;
        self.published.has_more |= pending.len() as i64 == PENDING_PER_TURN;
        pending.sort_by_key(|(id, ..)| *id);
        for (id, organization, mode, event_type, album, data, created_at) in pending {
            let tenant = Tenant { organization, mode: parse_key_mode(&mode)? };
            self.publish_event(NewEvent { id, tenant, event_type, album, data, created_at }).await?;
        }
        Ok(())
    }

    async fn publish_of_album(
        &mut self,
        album: &OpenAlbum,
        event_type: EventType,
        data: &Value,
    ) -> Result<()> {
        let event = NewEvent {
            id: EventId::generate(),
            tenant: album.tenant,
            event_type: event_type.as_str().to_owned(),
            album: Some(album.id),
            data: to_json(data)?,
            created_at: self.now,
        };
        self.publish_event(event).await
    }

    async fn publish_event(&mut self, event: NewEvent) -> Result<()> {
        let insert = "insert into event (id, organization, mode, type, album, data, created_at) \
                      values ($1, $2, $3, $4, $5, $6, $7) returning sequence";
        let (sequence,): (i64,) = query(OPERATION, insert)
            .bind(event.id)
            .bind(event.tenant.organization)
            .bind(event.tenant.mode.as_str())
            .bind(event.event_type.as_str())
            .bind(event.album)
            .bind(event.data)
            .bind(event.created_at)
            .fetch_one(&mut *self.transaction)
            .await?;
        if !self.subscribers.contains_key(&event.tenant) {
            let subscribers = list_subscribers(self.transaction, &event.tenant).await?;
            self.subscribers.insert(event.tenant, subscribers);
        }
        let published =
            PublishedEvent { sequence, id: event.id, event_type: &event.event_type, album: event.album };
        for subscriber in self.subscribers.get(&event.tenant).into_iter().flatten() {
            if subscriber.wants(&published) {
                subscriber.deliver(self.transaction, &published, self.now).await?;
            }
        }
        self.published.events += 1;
        Ok(())
    }

    async fn find_open_album(&mut self, id: AlbumId) -> Result<Option<OpenAlbum>> {
        let find = "select organization, mode, changes from album where id = $1 and closed_at is null";
        let row: Option<(OrganizationId, String, i64)> =
            query(OPERATION, find).bind(id).fetch_optional(&mut *self.transaction).await?;
        let Some((organization, mode, changes)) = row else { return Ok(None) };
        Ok(Some(OpenAlbum { id, tenant: Tenant { organization, mode: parse_key_mode(&mode)? }, changes }))
    }

    /// `idle_check_at` stays as it is where it is `None`.
    async fn move_cursor(&mut self, album: AlbumId, to: Cursor, idle_check_at: Option<i64>) -> Result<()> {
        let set = "insert into event_cursor (album, published, mark, idle_check_at) values ($1, $2, $3, $4) \
                   on conflict (album) do update set published = excluded.published, mark = excluded.mark, \
                   idle_check_at = coalesce(excluded.idle_check_at, event_cursor.idle_check_at)";
        query(OPERATION, set)
            .bind(album)
            .bind(to.published)
            .bind(to.mark)
            .bind(idle_check_at)
            .execute(&mut *self.transaction)
            .await
            .map(drop)
    }

    /// The next turn of the album begins when its oldest photo has waited long enough.
    async fn stay_in_feed(&mut self, album: AlbumId, since: i64) -> Result<()> {
        query(OPERATION, "update album_change_feed set since = $2 where album = $1")
            .bind(album)
            .bind(since)
            .execute(&mut *self.transaction)
            .await
            .map(drop)
    }

    async fn leave_feed(&mut self, album: AlbumId) -> Result<()> {
        query(OPERATION, "delete from album_change_feed where album = $1")
            .bind(album)
            .execute(&mut *self.transaction)
            .await
            .map(drop)
    }
}

fn idle_data(album: AlbumId, counts: &StateCounts) -> Value {
    json!({
        "albumId": album,
        "total": counts.total(),
        "ready": counts.ready,
        "failed": counts.failed,
        "awaitingUpload": counts.awaiting_upload,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conformance::AlbumFixture;
    use crate::model::ids::ProcessId;
    use crate::model::process::Task;
    use crate::sql::tests::open_store;

    /// A publisher that goes on at the present of an album, because a server has lost changes, tells no photos before.
    #[tokio::test]
    async fn an_album_whose_photo_has_just_settled_is_not_idle_even_if_nothing_is_left_to_tell() {
        let (_folder, store, database) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        for go_on in [
            "insert into event_cursor (album, published, idle_check_at) values ($1, 1, 1)",
            "delete from album_change_feed where album = $1",
        ] {
            sqlx::query(go_on).bind(fixture.album).execute(&database.writer).await.unwrap();
        }
        let hour = Duration::from_secs(3600);
        let lease = store.tasks.take(Task::EventPublisher, ProcessId::generate(), hour).await;
        let lease = lease.unwrap().unwrap();
        let publish = async || store.event_publisher.publish(lease).await.unwrap().events;
        assert_eq!(publish().await, 0);
        let pause = "select idle_check_at - (select settled_at from photo where album = $1) \
                     from event_cursor where album = $1";
        let pause: i64 =
            sqlx::query_scalar(pause).bind(fixture.album).fetch_one(&database.reader).await.unwrap();
        assert_eq!(pause, IDLE_AFTER_MICROS, "looked at again when ten seconds have passed");
        store.age_events(fixture.album, Duration::from_secs(10)).await.unwrap();
        assert_eq!(publish().await, 1);
    }
}
