//! What is to be erased because of its age: when a photo of each album was last confirmed, and of what its owner was told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::FromRow;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::{AlbumConfig, Tenant};
use crate::model::encoding::{from_micros, to_micros};
use crate::model::erasure::{AgeingAlbum, ExpiringPart};
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::sql::albums::album_not_found;
use crate::sql::database::{Database, Transaction};
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::row_types::{convert_rows, from_json, parse_key_mode};
use crate::sql::statement::{ConnectionRef, query};
use crate::traits::Result;

/// Albums of one page.
const PAGE: i64 = 200;

/// How many albums a process remembers to have noted; of others it asks the database.
const MAX_NOTED: usize = 4096;

/// By how much later than it was an album's last confirmation may be taken to be: a note of it is written this rarely.
const NOTE_INTERVAL: Duration = Duration::from_hours(1);

/// An album whose confirmations nobody has noted yet, because processes of an earlier version took them, is as old as its last
/// processed photo.
macro_rules! ageing {
    ($condition:literal) => {
        concat!(
            "select id, organization, mode, config, created_at, case when last_confirmed_at > 0 then last_confirmed_at \
             else coalesce((select max(settled_at) from photo where photo.album = album.id and settled_at is not null), 0) \
             end as last_confirmed_at, told_faces_expire_at, told_photos_expire_at, (select cast(coalesce(sum(count), 0) as bigint) from photo_count \
             where photo_count.album = album.id and state in ('queued', 'processing')) as busy from album where ",
            $condition
        )
    };
}

pub(crate) const AGEING_ALBUMS: &str = ageing!("id > $1 and closed_at is null order by id limit $2");

const AGEING_ALBUM: &str = ageing!("id = $1 and organization = $2 and mode = $3 and closed_at is null");

/// Also one that this transaction has closed.
const LOCKED_ALBUM: &str = ageing!("id = $1 and organization = $2 and mode = $3");

const FIND_AGE: &str = "find the age of an album";

/// One row, by its key, and no other lock: it can block nothing and deadlock with nothing.
const NOTE_CONFIRMATION: &str =
    "update album set last_confirmed_at = $2 where id = $1 and last_confirmed_at <= $3";

#[derive(FromRow)]
struct AgeingRow {
    id: AlbumId,
    organization: OrganizationId,
    mode: String,
    config: String,
    created_at: i64,
    told_faces_expire_at: i64,
    told_photos_expire_at: i64,
    last_confirmed_at: i64,
    busy: i64,
}

impl TryFrom<AgeingRow> for AgeingAlbum {
    type Error = StoreError;
    fn try_from(row: AgeingRow) -> Result<Self> {
        let config: AlbumConfig = from_json(&row.config)?;
        Ok(Self {
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            has_faces: config.face.enabled,
            retention: config.retention,
            // What was confirmed within an interval after a note is not noted: nothing is erased too early.
            counted_from: match row.last_confirmed_at {
                0 => from_micros(row.created_at)?,
                noted => from_micros(noted)? + NOTE_INTERVAL,
            },
            is_busy: row.busy > 0,
            told_faces_expire_at: from_micros(row.told_faces_expire_at)?,
            told_photos_expire_at: from_micros(row.told_photos_expire_at)?,
        })
    }
}

/// Returns open albums after this one, in the order of their ids; none at the end.
pub(crate) async fn list_ageing(database: &Database, after: Option<AlbumId>) -> Result<Vec<AgeingAlbum>> {
    const OPERATION: &str = "find albums by their age";
    let rows: Vec<AgeingRow> = query(OPERATION, AGEING_ALBUMS)
        .bind(after.unwrap_or(AlbumId(uuid::Uuid::nil())))
        .bind(PAGE)
        .fetch_all(&mut database.acquire_reader(OPERATION).await?)
        .await?;
    convert_rows(rows)
}

/// Returns an open album of this tenant with its age.
pub(crate) async fn get_ageing(database: &Database, tenant: &Tenant, album: AlbumId) -> Result<AgeingAlbum> {
    let mut reader = database.acquire_reader(FIND_AGE).await?;
    load_ageing(AGEING_ALBUM, &mut reader, tenant, album).await
}

/// Makes sure that an album is as it was when its age was read: a photo may have been confirmed since, or the rule changed. The
/// transaction has locked the album: a confirmation is noted there before it is made, and waits.
///
/// # Errors
/// `Conflict` when it has changed.
pub(super) async fn require_unchanged(transaction: &mut Transaction, read: &AgeingAlbum) -> Result<()> {
    let now = load_ageing(LOCKED_ALBUM, transaction, &read.tenant, read.id).await?;
    if now == *read {
        return Ok(());
    }
    let what = format!("album {} has changed since its age was read", read.id);
    Err(StoreError::new(StoreErrorKind::Conflict, what))
}

async fn load_ageing<'c>(
    statement: &'static str,
    on: impl Into<ConnectionRef<'c>>,
    tenant: &Tenant,
    album: AlbumId,
) -> Result<AgeingAlbum> {
    let row: Option<AgeingRow> = query(FIND_AGE, statement)
        .bind(album)
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .fetch_optional(on)
        .await?;
    row.ok_or_else(|| album_not_found(album))?.try_into()
}

/// The albums whose confirmations this process has noted of late.
#[derive(Default)]
pub(crate) struct NotedConfirmations(HashMap<AlbumId, Instant>);

impl NotedConfirmations {
    /// Notes that photos of these albums are about to be confirmed, each album at most once an hour.
    pub(crate) async fn note(
        &mut self,
        database: &Database,
        albums: impl Iterator<Item = AlbumId>,
    ) -> Result<()> {
        for album in albums {
            if self.0.get(&album).is_some_and(|noted| noted.elapsed() < NOTE_INTERVAL) {
                continue;
            }
            note_confirmation(database, album).await?;
            if self.0.len() >= MAX_NOTED {
                self.0.retain(|_, noted| noted.elapsed() < NOTE_INTERVAL);
            }
            if self.0.len() < MAX_NOTED {
                self.0.insert(album, Instant::now());
            }
        }
        Ok(())
    }
}

async fn note_confirmation(database: &Database, album: AlbumId) -> Result<()> {
    const OPERATION: &str = "note a confirmation";
    let mut transaction = database.begin_write(OPERATION).await?;
    let now = transaction.read_clock(OPERATION).await?;
    let interval = i64::try_from(NOTE_INTERVAL.as_micros()).unwrap_or(i64::MAX);
    query(OPERATION, NOTE_CONFIRMATION)
        .bind(album)
        .bind(now)
        .bind(now - interval)
        .execute(&mut transaction)
        .await?;
    transaction.commit(OPERATION).await
}

/// Tells the owner of an album what is going to be erased, and when.
pub(crate) async fn tell(
    database: &Database,
    album: &AgeingAlbum,
    part: ExpiringPart,
    at: time::OffsetDateTime,
) -> Result<()> {
    const OPERATION: &str = "tell that an album expires";
    let note = match part {
        ExpiringPart::Faces => {
            "update album set told_faces_expire_at = $2 where id = $1 and told_faces_expire_at <> $2"
        }
        ExpiringPart::Photos => {
            "update album set told_photos_expire_at = $2 where id = $1 and told_photos_expire_at <> $2"
        }
    };
    let mut transaction = database.begin_write(OPERATION).await?;
    let now = transaction.read_clock(OPERATION).await?;
    // Else another process has told it.
    if query(OPERATION, note).bind(album.id).bind(to_micros(at)).execute(&mut transaction).await? > 0 {
        let at = at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
        let event = PendingEvent {
            tenant: album.tenant,
            event_type: EventType::AlbumExpiring,
            album: Some(album.id),
            data: json!({ "albumId": album.id, "at": at, "what": part.as_str() }),
            created_at: now,
        };
        insert_pending_event(&mut transaction, OPERATION, &event).await?;
    }
    transaction.commit(OPERATION).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::AlbumFixture;
    use crate::sql::tests::open_store;

    #[tokio::test]
    async fn confirmations_are_noted_once_an_hour_and_missed_where_an_earlier_version_took_them() {
        let (_folder, store, database) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let album = fixture.album;
        let noted = async || -> i64 {
            let noted = "select last_confirmed_at from album where id = $1";
            sqlx::query_scalar(noted).bind(album).fetch_one(&database.reader).await.unwrap()
        };
        let created = store.albums.get(&fixture.tenant, album).await.unwrap().created_at;
        assert_eq!(noted().await, 0);
        fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        let first = noted().await;
        assert!(first >= to_micros(created));
        fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        assert_eq!(noted().await, first, "within the hour");

        let forget = "update album set last_confirmed_at = 0 where id = $1";
        sqlx::query(forget).bind(album).execute(&database.writer).await.unwrap();
        let counted_from = store.erasures.get_ageing(&fixture.tenant, album).await.unwrap().counted_from;
        assert!(to_micros(counted_from) > first, "as old as the last processed photo");
    }
}
