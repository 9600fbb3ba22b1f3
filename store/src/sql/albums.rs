//! Albums in the database.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use time::OffsetDateTime;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::{Album, AlbumChange, AlbumPage, AlbumQuery, NewAlbum, Tenant};
use crate::model::encoding::{now_micros, to_micros};
use crate::model::event::EventType;
use crate::model::ids::{AlbumId, OrganizationId};
use crate::search::faces::FaceCache;
use crate::sql::database::{Database, Transaction};
use crate::sql::events::outbox::{PendingEvent, insert_pending_event};
use crate::sql::photos::load_counts;
use crate::sql::row_types::{AlbumRow, convert_rows, parse_key_mode, to_json};
use crate::sql::start_lists::versions::judge_again;
use crate::sql::statement::{Statement, query};
use crate::traits::{Albums, Result};

/// How many rows one transaction deletes. A hundred thousand photos at once would block every confirmation for seconds.
const DELETE_BATCH: i64 = 500;

/// A statement that deletes up to `$2` rows of album `$1` from a table, in the order of their key. On Postgres it locks
/// them in that order first.
macro_rules! delete_rows {
    ($table:literal, $key:literal, $is_first:literal) => {
        Statement::PerDialect {
            sqlite: concat!(
                "delete from ",
                $table,
                " where album = $1 and (",
                $key,
                ") in (select ",
                $key,
                " from ",
                $table,
                " where album = $1 order by ",
                $key,
                " limit $2)"
            ),
            postgres: concat!(
                "with first as materialized (select ",
                $key,
                " from ",
                $table,
                " where album = $1 order by ",
                $key,
                " limit $2 for update) delete from ",
                $table,
                " using first where ",
                $table,
                ".album = $1 and ",
                $is_first
            ),
        }
    };
}

/// Deletes the rows of each table that refers to an album, in the order in which Postgres must lock them: photos with
/// their detections, changes, selfies, and the start list.
const DELETE_ALBUM_ROWS: [Statement; 4] = [
    delete_rows!("photo", "id", "photo.id = first.id"),
    delete_rows!(
        "photo_change",
        "change, photo",
        "(photo_change.change, photo_change.photo) = (first.change, first.photo)"
    ),
    delete_rows!("probe", "id", "probe.id = first.id"),
    delete_rows!("start_list_entry", "bib", "start_list_entry.bib = first.bib"),
];

/// Closes an album. Waits for transactions that insert photos into it and blocks new ones. Matches a closed album too and
/// leaves it unchanged. Returns when it was closed.
const CLOSE_ALBUM: Statement = Statement::PerDialect {
    sqlite: "update album set closed_at = coalesce(closed_at, $4) \
             where id = $1 and organization = $2 and mode = $3 returning closed_at",
    postgres: "with gone as materialized \
               (select id from album where id = $1 and organization = $2 and mode = $3 for update) \
               update album set closed_at = coalesce(closed_at, $4) from gone where album.id = gone.id \
               returning closed_at",
};

/// Without those that an erasure deletes: it counts their objects before it does, for its receipt, and is finished itself.
const CLOSED_ALBUMS: &str = "select id, organization, mode from album where closed_at < $1 \
     and not exists (select 1 from erasure where erasure.album = album.id and kind = 'album' and state = 'running') \
     order by closed_at limit 100";

macro_rules! album_columns {
    () => {
        "id, organization, mode, created_by, title, cover_url, tags, config, watermark_version, created_at, updated_at"
    };
}

pub(crate) struct SqlAlbums {
    database: Database,
    face_cache: Arc<FaceCache>,
}

impl SqlAlbums {
    pub(crate) fn new(database: Database, face_cache: Arc<FaceCache>) -> Self {
        Self { database, face_cache }
    }

    /// Deletes one batch of rows by one of [`DELETE_ALBUM_ROWS`]; returns how many.
    async fn delete_batch(&self, id: AlbumId, statement: Statement) -> Result<u64> {
        const OPERATION: &str = "delete the rows of an album";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let deleted =
            query(OPERATION, statement).bind(id).bind(DELETE_BATCH).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        Ok(deleted)
    }
}

#[async_trait]
impl Albums for SqlAlbums {
    async fn create(&self, album: NewAlbum) -> Result<Album> {
        const OPERATION: &str = "create an album";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let insert = concat!(
            "insert into album (id, organization, mode, created_by, title, title_folded, cover_url, tags, \
             config, created_at, updated_at) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10) returning ",
            album_columns!()
        );
        let row: AlbumRow = query(OPERATION, insert)
            .bind(AlbumId::generate())
            .bind(album.tenant.organization)
            .bind(album.tenant.mode.as_str())
            .bind(album.created_by)
            .bind(album.title.as_str())
            .bind(album.title.to_lowercase())
            .bind(album.cover_url)
            .bind(to_json(&album.tags)?)
            .bind(to_json(&album.config)?)
            .bind(now_micros())
            .fetch_one(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        row.try_into()
    }

    async fn get(&self, tenant: &Tenant, id: AlbumId) -> Result<Album> {
        const OPERATION: &str = "get an album";
        let get = concat!(
            "select ",
            album_columns!(),
            " from album where id = $1 and organization = $2 and mode = $3 and closed_at is null"
        );
        let row: Option<AlbumRow> = query(OPERATION, get)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.ok_or_else(|| album_not_found(id))?.try_into()
    }

    /// In one statement, so that concurrent updates of different fields both take effect. No two updates of an album have
    /// the same `updated_at`.
    async fn update(&self, tenant: &Tenant, id: AlbumId, change: AlbumChange) -> Result<Album> {
        const OPERATION: &str = "update an album";
        let update = concat!(
            "update album set title = coalesce($4, title), title_folded = coalesce($5, title_folded), \
             cover_url = case $6 when 1 then $7 else cover_url end, tags = coalesce($8, tags), \
             config = coalesce($9, config), \
             faces_erased_at = case $12 when 1 then null else faces_erased_at end, \
             updated_at = case when $10 > updated_at then $10 else updated_at + 1 end \
             where id = $1 and organization = $2 and mode = $3 and closed_at is null \
             and updated_at = coalesce($11, updated_at) returning ",
            album_columns!()
        );
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let row: Option<AlbumRow> = query(OPERATION, update)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(change.title.clone())
            .bind(change.title.map(|title| title.to_lowercase()))
            .bind(i64::from(change.cover_url.is_some()))
            .bind(change.cover_url.flatten())
            .bind(change.tags.as_ref().map(to_json).transpose()?)
            .bind(change.config.as_ref().map(to_json).transpose()?)
            .bind(now_micros())
            .bind(change.unchanged_since.map(to_micros))
            .bind(i64::from(change.config.as_ref().is_some_and(|config| config.face.enabled)))
            .fetch_optional(&mut transaction)
            .await?;
        if change.judge_again && row.is_some() {
            judge_again(&mut transaction, OPERATION, id).await?;
        }
        transaction.commit(OPERATION).await?;
        match row {
            Some(row) => row.try_into(),
            None if change.unchanged_since.is_some() => {
                let changed = self.get(tenant, id).await?.updated_at;
                let what = format!("album {id} was changed at {changed}");
                Err(StoreError::new(StoreErrorKind::Conflict, what))
            }
            None => Err(album_not_found(id)),
        }
    }

    async fn close(&self, tenant: &Tenant, id: AlbumId) -> Result<()> {
        const OPERATION: &str = "close an album";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        close(&mut transaction, OPERATION, tenant, id, "request").await?;
        transaction.commit(OPERATION).await?;
        self.face_cache.forget_album(id);
        Ok(())
    }

    /// In batches, the album itself last. The album is closed, so that no photo is added meanwhile; the rows that an
    /// interrupted call leaves are found by their album.
    async fn delete(&self, tenant: &Tenant, id: AlbumId) -> Result<()> {
        const OPERATION: &str = "delete an album";
        self.close(tenant, id).await?;
        for statement in DELETE_ALBUM_ROWS {
            while self.delete_batch(id, statement).await? > 0 {}
        }
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, "delete from album where id = $1").bind(id).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    async fn list_closed(&self, before: OffsetDateTime) -> Result<Vec<(Tenant, AlbumId)>> {
        const OPERATION: &str = "find closed albums";
        let rows: Vec<(AlbumId, OrganizationId, String)> = query(OPERATION, CLOSED_ALBUMS)
            .bind(to_micros(before))
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let to_key = |(id, organization, mode): (AlbumId, OrganizationId, String)| {
            Ok((Tenant { organization, mode: parse_key_mode(&mode)? }, id))
        };
        rows.into_iter().map(to_key).collect()
    }

    async fn list(&self, tenant: &Tenant, filter: AlbumQuery) -> Result<AlbumPage> {
        const OPERATION: &str = "list albums";
        let title = filter.title.as_deref().map(like_pattern);
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let rows: Vec<AlbumRow> = query(
            OPERATION,
            concat!(
                "select ",
                album_columns!(),
                " from album where organization = $1 and mode = $2 and id < $3 and closed_at is null \
             and ($4 is null or title_folded like $4 escape '\\') order by id desc limit $5"
            ),
        )
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(filter.after.unwrap_or(AlbumId(uuid::Uuid::max())))
        .bind(title.clone())
        // One more than the limit shows whether there is a next page.
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(&mut snapshot)
        .await?;
        // Counting reads every album of the organization: once for a list, not for each of its pages.
        let total = match filter.after {
            None => Some(count_albums(&mut snapshot, tenant, title).await?),
            Some(_) => None,
        };
        let mut albums: Vec<Album> = convert_rows(rows)?;
        let more = albums.len() > filter.limit as usize;
        albums.truncate(filter.limit as usize);
        let next = if more { albums.last().map(|album| album.id) } else { None };
        Ok(AlbumPage { albums, next, total })
    }
}

/// Closes an album as [`Albums::close`] does; the event says why.
pub(crate) async fn close(
    transaction: &mut Transaction,
    operation: &'static str,
    tenant: &Tenant,
    id: AlbumId,
    cause: &str,
) -> Result<()> {
    let now = transaction.read_clock(operation).await?;
    let closed: Option<(i64,)> = query(operation, CLOSE_ALBUM)
        .bind(id)
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(now)
        .fetch_optional(&mut *transaction)
        .await?;
    let (closed_at,) = closed.ok_or_else(|| album_not_found(id))?;
    // Else it is told already.
    if closed_at != now {
        return Ok(());
    }
    let photos = load_counts(operation, id, &mut *transaction).await?.total();
    let data = json!({ "albumId": id, "photos": photos, "cause": cause });
    let (tenant, event_type) = (*tenant, EventType::AlbumDeleted);
    let event = PendingEvent { tenant, event_type, album: Some(id), data, created_at: now };
    insert_pending_event(transaction, operation, &event).await
}

/// Counts the albums of a tenant whose title is like `title`, in the snapshot of the list.
async fn count_albums(snapshot: &mut Transaction, tenant: &Tenant, title: Option<String>) -> Result<u64> {
    let (total,): (i64,) = query(
        "count albums",
        "select count(*) from album where organization = $1 and mode = $2 and closed_at is null \
         and ($3 is null or title_folded like $3 escape '\\')",
    )
    .bind(tenant.organization)
    .bind(tenant.mode.as_str())
    .bind(title)
    .fetch_one(snapshot)
    .await?;
    Ok(total.unsigned_abs())
}

pub(crate) fn album_not_found(id: AlbumId) -> StoreError {
    StoreError::not_found(format!("album {id}"))
}

/// The `like` pattern of lower-case titles that contain `text`.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.to_lowercase().chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}
