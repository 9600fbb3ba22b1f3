//! What is to be erased because of its age: when the last photo of each album was processed, and of what its owner was told.

use serde_json::json;
use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::album::{AlbumConfig, Tenant};
use crate::model::encoding::{from_micros, to_micros};
use crate::model::erasure::{AgeingAlbum, ExpiringPart};
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::sql::database::Database;
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::row_types::{convert_rows, from_json, parse_key_mode};
use crate::sql::statement::query;
use crate::traits::Result;

/// Albums of one page.
const PAGE: i64 = 200;

/// One index probe per album: the index of settled photos ends with the last one.
pub(crate) const AGEING_ALBUMS: &str = "select id, organization, mode, config, created_at, told_faces_expire_at, \
     told_photos_expire_at, (select max(settled_at) from photo where photo.album = album.id and settled_at is not null) \
     as settled_at, (select cast(coalesce(sum(count), 0) as bigint) from photo_count \
     where photo_count.album = album.id and state in ('queued', 'processing')) as busy from album where id > $1 and closed_at is null \
     order by id limit $2";

#[derive(FromRow)]
struct AgeingRow {
    id: AlbumId,
    organization: OrganizationId,
    mode: String,
    config: String,
    created_at: i64,
    told_faces_expire_at: i64,
    told_photos_expire_at: i64,
    settled_at: Option<i64>,
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
            last_used_at: from_micros(row.settled_at.unwrap_or(row.created_at))?,
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
