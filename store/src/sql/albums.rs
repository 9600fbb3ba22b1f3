//! Albums.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Database, Statement, sql};
use crate::album::{Album, AlbumChange, AlbumPage, AlbumQuery, NewAlbum, Tenant};
use crate::error::{StoreError, StoreErrorKind};
use crate::face_index::FaceCache;
use crate::ids::{AlbumId, OrganizationId};
use crate::rows::{self, AlbumRow, json_of, micros, mode_of, now};
use crate::traits::{Albums, Result};

/// How many rows go in one transaction when an album is deleted. A hundred thousand photos at once would keep every
/// confirmation waiting for seconds.
const DELETE_AT_ONCE: i64 = 500;

/// Some rows of each table that names an album, on Postgres in the order in which they are locked: photos with what was
/// seen in them, changes, selfies.
const DELETE_SOME: [Statement; 3] = [
    Statement::Each {
        sqlite: "delete from photo where album = $1 \
                 and id in (select id from photo where album = $1 order by id limit $2)",
        postgres: "with first as materialized \
                   (select id from photo where album = $1 order by id limit $2 for update) \
                   delete from photo where album = $1 and id in (select id from first)",
    },
    Statement::Each {
        sqlite: "delete from photo_change where album = $1 and (change, photo) in \
                 (select change, photo from photo_change where album = $1 order by change, photo limit $2)",
        postgres: "with first as materialized (select change, photo from photo_change \
                   where album = $1 order by change, photo limit $2 for update) \
                   delete from photo_change using first where photo_change.album = $1 \
                   and photo_change.change = first.change and photo_change.photo = first.photo",
    },
    Statement::Each {
        sqlite: "delete from probe where album = $1 \
                 and id in (select id from probe where album = $1 order by id limit $2)",
        postgres: "with first as materialized \
                   (select id from probe where album = $1 order by id limit $2 for update) \
                   delete from probe where album = $1 and id in (select id from first)",
    },
];

/// Waits for those who are adding photos to it, and keeps others from beginning to. An album that is closed stays as it
/// is, and is found.
const CLOSE: Statement = Statement::Each {
    sqlite: "update album set closed_at = coalesce(closed_at, $4) \
             where id = $1 and organization = $2 and mode = $3",
    postgres: "with gone as materialized \
               (select id from album where id = $1 and organization = $2 and mode = $3 for update) \
               update album set closed_at = coalesce(closed_at, $4) from gone where album.id = gone.id",
};

const CLOSED: &str =
    "select id, organization, mode from album where closed_at < $1 order by closed_at limit 100";

macro_rules! album_columns {
    () => {
        "id, organization, mode, created_by, title, cover_url, tags, config, created_at, updated_at"
    };
}

pub(crate) struct SqlAlbums {
    database: Database,
    faces: Arc<FaceCache>,
}

impl SqlAlbums {
    pub(crate) fn new(database: Database, faces: Arc<FaceCache>) -> Self {
        Self { database, faces }
    }

    /// Removes some rows of the album, by one of [`DELETE_SOME`]; answers how many.
    async fn delete_some(&self, id: AlbumId, some: Statement) -> Result<u64> {
        const WHAT: &str = "delete what is in an album";
        let mut transaction = self.database.write(WHAT).await?;
        let deleted = sql(WHAT, some).bind(id).bind(DELETE_AT_ONCE).execute(&mut transaction).await?;
        transaction.commit(WHAT).await?;
        Ok(deleted)
    }
}

#[async_trait]
impl Albums for SqlAlbums {
    async fn create(&self, album: NewAlbum) -> Result<Album> {
        const WHAT: &str = "make an album";
        let mut transaction = self.database.write(WHAT).await?;
        let insert = concat!(
            "insert into album (id, organization, mode, created_by, title, title_folded, cover_url, tags, \
             config, created_at, updated_at) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10) returning ",
            album_columns!()
        );
        let row: AlbumRow = sql(WHAT, insert)
            .bind(AlbumId::generate())
            .bind(album.tenant.organization)
            .bind(album.tenant.mode.as_str())
            .bind(album.created_by)
            .bind(album.title.as_str())
            .bind(album.title.to_lowercase())
            .bind(album.cover_url)
            .bind(json_of(&album.tags)?)
            .bind(json_of(&album.config)?)
            .bind(now())
            .fetch_one(&mut transaction)
            .await?;
        transaction.commit(WHAT).await?;
        row.try_into()
    }

    async fn get(&self, tenant: &Tenant, id: AlbumId) -> Result<Album> {
        const WHAT: &str = "get an album";
        let get = concat!(
            "select ",
            album_columns!(),
            " from album where id = $1 and organization = $2 and mode = $3 and closed_at is null"
        );
        let row: Option<AlbumRow> = sql(WHAT, get)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .fetch_optional(&mut self.database.reader(WHAT).await?)
            .await?;
        row.ok_or_else(|| not_found(id))?.try_into()
    }

    /// In one statement: two changes at once leave what each of them names. No two changes of an album have one time.
    async fn update(&self, tenant: &Tenant, id: AlbumId, change: AlbumChange) -> Result<Album> {
        const WHAT: &str = "change an album";
        let update = concat!(
            "update album set title = coalesce($4, title), title_folded = coalesce($5, title_folded), \
             cover_url = case $6 when 1 then $7 else cover_url end, tags = coalesce($8, tags), \
             config = coalesce($9, config), \
             updated_at = case when $10 > updated_at then $10 else updated_at + 1 end \
             where id = $1 and organization = $2 and mode = $3 and closed_at is null \
             and updated_at = coalesce($11, updated_at) returning ",
            album_columns!()
        );
        let mut transaction = self.database.write(WHAT).await?;
        let row: Option<AlbumRow> = sql(WHAT, update)
            .bind(id)
            .bind(tenant.organization)
            .bind(tenant.mode.as_str())
            .bind(change.title.clone())
            .bind(change.title.map(|title| title.to_lowercase()))
            .bind(i64::from(change.cover_url.is_some()))
            .bind(change.cover_url.flatten())
            .bind(change.tags.as_ref().map(json_of).transpose()?)
            .bind(change.config.as_ref().map(json_of).transpose()?)
            .bind(now())
            .bind(change.unchanged_since.map(micros))
            .fetch_optional(&mut transaction)
            .await?;
        transaction.commit(WHAT).await?;
        match row {
            Some(row) => row.try_into(),
            None if change.unchanged_since.is_some() => {
                let changed = self.get(tenant, id).await?.updated_at;
                let what = format!("album {id} was changed at {changed}");
                Err(StoreError::new(StoreErrorKind::Conflict, what))
            }
            None => Err(not_found(id)),
        }
    }

    async fn close(&self, tenant: &Tenant, id: AlbumId) -> Result<()> {
        const WHAT: &str = "close an album";
        let mut transaction = self.database.write(WHAT).await?;
        let now = transaction.now(WHAT).await?;
        let close = sql(WHAT, CLOSE).bind(id).bind(tenant.organization).bind(tenant.mode.as_str()).bind(now);
        if close.execute(&mut transaction).await? == 0 {
            return Err(not_found(id));
        }
        transaction.commit(WHAT).await?;
        self.faces.forget_album(id);
        Ok(())
    }

    /// In steps, the album itself last. No photo comes in meanwhile, so that nothing of it is locked after the album, and
    /// what is left when a call broke off is known by its album.
    async fn delete(&self, tenant: &Tenant, id: AlbumId) -> Result<()> {
        const WHAT: &str = "delete an album";
        self.close(tenant, id).await?;
        for some in DELETE_SOME {
            while self.delete_some(id, some).await? > 0 {}
        }
        let mut transaction = self.database.write(WHAT).await?;
        sql(WHAT, "delete from album where id = $1").bind(id).execute(&mut transaction).await?;
        transaction.commit(WHAT).await
    }

    async fn closed(&self, before: OffsetDateTime) -> Result<Vec<(Tenant, AlbumId)>> {
        const WHAT: &str = "find closed albums";
        let rows: Vec<(AlbumId, OrganizationId, String)> =
            sql(WHAT, CLOSED).bind(micros(before)).fetch_all(&mut self.database.reader(WHAT).await?).await?;
        let known = |(id, organization, mode): (AlbumId, OrganizationId, String)| {
            Ok((Tenant { organization, mode: mode_of(&mode)? }, id))
        };
        rows.into_iter().map(known).collect()
    }

    async fn list(&self, tenant: &Tenant, query: AlbumQuery) -> Result<AlbumPage> {
        const WHAT: &str = "list albums";
        let title = query.title.as_deref().map(containing);
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let rows: Vec<AlbumRow> = sql(
            WHAT,
            concat!(
                "select ",
                album_columns!(),
                " from album where organization = $1 and mode = $2 and id < $3 and closed_at is null \
             and ($4 is null or title_folded like $4 escape '\\') order by id desc limit $5"
            ),
        )
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(query.after.unwrap_or(AlbumId(uuid::Uuid::max())))
        .bind(title.clone())
        // One more than asked tells whether there is a next page.
        .bind(i64::from(query.limit) + 1)
        .fetch_all(&mut snapshot)
        .await?;
        let (total,): (i64,) = sql(
            WHAT,
            "select count(*) from album where organization = $1 and mode = $2 and closed_at is null \
             and ($3 is null or title_folded like $3 escape '\\')",
        )
        .bind(tenant.organization)
        .bind(tenant.mode.as_str())
        .bind(title.clone())
        .fetch_one(&mut snapshot)
        .await?;
        let mut albums: Vec<Album> = rows::all(rows)?;
        let more = albums.len() > query.limit as usize;
        albums.truncate(query.limit as usize);
        let next = if more { albums.last().map(|album| album.id) } else { None };
        Ok(AlbumPage { albums, next, total: total.unsigned_abs() })
    }
}

fn not_found(id: AlbumId) -> StoreError {
    StoreError::not_found(format!("album {id}"))
}

/// The `like` pattern of a folded title that contains `text`.
fn containing(text: &str) -> String {
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
