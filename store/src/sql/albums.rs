//! Albums.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Database, Statement, query};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::{Album, AlbumChange, AlbumPage, AlbumQuery, NewAlbum, Tenant};
use crate::model::ids::{AlbumId, OrganizationId};
use crate::search::faces::FaceCache;
use crate::sql::row_types::{self, AlbumRow, micros, now, parse_key_mode, to_json};
use crate::traits::{Albums, Result};

/// How many rows go in one transaction when an album is deleted. A hundred thousand photos at once would keep every
/// confirmation waiting for seconds.
const DELETE_BATCH: i64 = 500;

/// Some rows of each table that names an album, on Postgres in the order in which they are locked: photos with what was
/// seen in them, changes, selfies.
const DELETE_ALBUM_ROWS: [Statement; 3] = [
    Statement::PerDialect {
        sqlite: "delete from photo where album = $1 \
                 and id in (select id from photo where album = $1 order by id limit $2)",
        postgres: "with first as materialized \
                   (select id from photo where album = $1 order by id limit $2 for update) \
                   delete from photo where album = $1 and id in (select id from first)",
    },
    Statement::PerDialect {
        sqlite: "delete from photo_change where album = $1 and (change, photo) in \
                 (select change, photo from photo_change where album = $1 order by change, photo limit $2)",
        postgres: "with first as materialized (select change, photo from photo_change \
                   where album = $1 order by change, photo limit $2 for update) \
                   delete from photo_change using first where photo_change.album = $1 \
                   and photo_change.change = first.change and photo_change.photo = first.photo",
    },
    Statement::PerDialect {
        sqlite: "delete from probe where album = $1 \
                 and id in (select id from probe where album = $1 order by id limit $2)",
        postgres: "with first as materialized \
                   (select id from probe where album = $1 order by id limit $2 for update) \
                   delete from probe where album = $1 and id in (select id from first)",
    },
];

/// Waits for those who are adding photos to it, and keeps others from beginning to. An album that is closed stays as it
/// is, and is found.
const CLOSE_ALBUM: Statement = Statement::PerDialect {
    sqlite: "update album set closed_at = coalesce(closed_at, $4) \
             where id = $1 and organization = $2 and mode = $3",
    postgres: "with gone as materialized \
               (select id from album where id = $1 and organization = $2 and mode = $3 for update) \
               update album set closed_at = coalesce(closed_at, $4) from gone where album.id = gone.id",
};

const CLOSED_ALBUMS: &str =
    "select id, organization, mode from album where closed_at < $1 order by closed_at limit 100";

macro_rules! album_columns {
    () => {
        "id, organization, mode, created_by, title, cover_url, tags, config, created_at, updated_at"
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

    /// Removes some rows of the album, by one of [`DELETE_SOME`]; answers how many.
    async fn delete_batch(&self, id: AlbumId, some: Statement) -> Result<u64> {
        const OPERATION: &str = "delete what is in an album";
        let mut transaction = self.database.write(OPERATION).await?;
        let deleted = query(OPERATION, some).bind(id).bind(DELETE_BATCH).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        Ok(deleted)
    }
}

#[async_trait]
impl Albums for SqlAlbums {
    async fn create(&self, album: NewAlbum) -> Result<Album> {
        const OPERATION: &str = "make an album";
        let mut transaction = self.database.write(OPERATION).await?;
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
            .bind(now())
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
            .fetch_optional(&mut self.database.reader(OPERATION).await?)
            .await?;
        row.ok_or_else(|| album_not_found(id))?.try_into()
    }

    /// In one statement: two changes at once leave what each of them names. No two changes of an album have one time.
    async fn update(&self, tenant: &Tenant, id: AlbumId, change: AlbumChange) -> Result<Album> {
        const OPERATION: &str = "change an album";
        let update = concat!(
            "update album set title = coalesce($4, title), title_folded = coalesce($5, title_folded), \
             cover_url = case $6 when 1 then $7 else cover_url end, tags = coalesce($8, tags), \
             config = coalesce($9, config), \
             updated_at = case when $10 > updated_at then $10 else updated_at + 1 end \
             where id = $1 and organization = $2 and mode = $3 and closed_at is null \
             and updated_at = coalesce($11, updated_at) returning ",
            album_columns!()
        );
        let mut transaction = self.database.write(OPERATION).await?;
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
            .bind(now())
            .bind(change.unchanged_since.map(micros))
            .fetch_optional(&mut transaction)
            .await?;
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
        let mut transaction = self.database.write(OPERATION).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let close = query(OPERATION, CLOSE_ALBUM)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(now);
        if close.execute(&mut transaction).await? == 0 {
            return Err(album_not_found(id));
        }
        transaction.commit(OPERATION).await?;
        self.face_cache.forget_album(id);
        Ok(())
    }

    /// In steps, the album itself last. No photo comes in meanwhile, so that nothing of it is locked after the album, and
    /// what is left when a call broke off is known by its album.
    async fn delete(&self, tenant: &Tenant, id: AlbumId) -> Result<()> {
        const OPERATION: &str = "delete an album";
        self.close(tenant, id).await?;
        for some in DELETE_ALBUM_ROWS {
            while self.delete_batch(id, some).await? > 0 {}
        }
        let mut transaction = self.database.write(OPERATION).await?;
        query(OPERATION, "delete from album where id = $1").bind(id).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    async fn list_closed(&self, before: OffsetDateTime) -> Result<Vec<(Tenant, AlbumId)>> {
        const OPERATION: &str = "find closed albums";
        let rows: Vec<(AlbumId, OrganizationId, String)> = query(OPERATION, CLOSED_ALBUMS)
            .bind(micros(before))
            .fetch_all(&mut self.database.reader(OPERATION).await?)
            .await?;
        let known = |(id, organization, mode): (AlbumId, OrganizationId, String)| {
            Ok((Tenant { organization, mode: parse_key_mode(&mode)? }, id))
        };
        rows.into_iter().map(known).collect()
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
        // One more than asked tells whether there is a next page.
        .bind(i64::from(filter.limit) + 1)
        .fetch_all(&mut snapshot)
        .await?;
        let (total,): (i64,) = query(
            OPERATION,
            "select count(*) from album where organization = $1 and mode = $2 and closed_at is null \
             and ($3 is null or title_folded like $3 escape '\\')",
        )
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(title.clone())
        .fetch_one(&mut snapshot)
        .await?;
        let mut albums: Vec<Album> = row_types::convert_rows(rows)?;
        let more = albums.len() > filter.limit as usize;
        albums.truncate(filter.limit as usize);
        let next = if more { albums.last().map(|album| album.id) } else { None };
        Ok(AlbumPage { albums, next, total: total.unsigned_abs() })
    }
}

fn album_not_found(id: AlbumId) -> StoreError {
    StoreError::not_found(format!("album {id}"))
}

/// The `like` pattern of a folded title that contains `text`.
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
