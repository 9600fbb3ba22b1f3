//! Photos of albums.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Database, fault};
use crate::error::StoreError;
use crate::face_index::FaceCache;
use crate::ids::{AlbumId, PhotoId};
use crate::photo::{NewPhoto, Photo, PhotoPage, PhotoQuery, PhotoState, SeenFace, SeenText, StateCounts};
use crate::rows::{self, FaceRow, PhotoRow, TextRow, json_of, micros, now, state_of};
use crate::sqlite::finish::note_changes;
use crate::traits::{Photos, Result};

macro_rules! select_photo {
    ($rest:literal) => {
        concat!(
            "select album, id, filename, content_type, state, failure, width, height, taken_at, camera, \
             created_at, updated_at from photo ",
            $rest
        )
    };
}

/// SQLite has no arrays: ids travel as a JSON list of hexadecimal texts.
pub(super) const MANY: &str =
    select_photo!("where album = $1 and id in (select unhex(value) from json_each($2))");

/// Two texts for pages, not one with an optional filter: that one could use neither index.
pub(super) const PAGE: &str = select_photo!("where album = $1 and id > $2 order by id limit $3");

/// The ids first: without the nested query SQLite walks all photos of the album by their key.
pub(super) const PAGE_OF_STATE: &str = select_photo!(
    "where album = $1 and id in \
     (select id from photo where album = $1 and state = $4 and id > $2 order by id limit $3) order by id"
);

pub(crate) struct SqlitePhotos {
    database: Database,
    faces: Arc<FaceCache>,
}

impl SqlitePhotos {
    pub(crate) fn new(database: Database, faces: Arc<FaceCache>) -> Self {
        Self { database, faces }
    }
}

#[async_trait]
impl Photos for SqlitePhotos {
    async fn create(&self, album: AlbumId, photos: Vec<NewPhoto>) -> Result<Vec<PhotoId>> {
        const WHAT: &str = "expect photos";
        let now = now();
        let mut ids = Vec::with_capacity(photos.len());
        let mut transaction = self.database.write(WHAT).await?;
        for photo in photos {
            let id = PhotoId::generate();
            sqlx::query(
                "insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
                 values ($1, $2, $3, $4, 'awaiting_upload', $5, $5)",
            )
            .bind(album)
            .bind(id)
            .bind(photo.filename)
            .bind(photo.content_type)
            .bind(now)
            .execute(&mut *transaction)
            .await
            .map_err(fault(WHAT))?;
            ids.push(id);
        }
        transaction.commit().await.map_err(fault(WHAT))?;
        Ok(ids)
    }

    async fn get(&self, album: AlbumId, id: PhotoId) -> Result<Photo> {
        let row: Option<PhotoRow> = sqlx::query_as(select_photo!("where album = $1 and id = $2"))
            .bind(album)
            .bind(id)
            .fetch_optional(&self.database.reader)
            .await
            .map_err(fault("get a photo"))?;
        row.ok_or_else(|| not_found(id))?.try_into()
    }

    async fn get_many(&self, album: AlbumId, ids: &[PhotoId]) -> Result<Vec<Photo>> {
        let ids: Vec<String> = ids.iter().map(|id| id.0.simple().to_string()).collect();
        let rows: Vec<PhotoRow> = sqlx::query_as(MANY)
            .bind(album)
            .bind(json_of(&ids)?)
            .fetch_all(&self.database.reader)
            .await
            .map_err(fault("get photos"))?;
        rows::all(rows)
    }

    async fn seen(&self, album: AlbumId, id: PhotoId) -> Result<(Vec<SeenFace>, Vec<SeenText>)> {
        const WHAT: &str = "get what was seen in a photo";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let faces: Vec<FaceRow> = sqlx::query_as(
            "select box_top, box_left, box_width, box_height, confidence, unindexed, model, embedding \
             from face where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut *snapshot)
        .await
        .map_err(fault(WHAT))?;
        let texts: Vec<TextRow> = sqlx::query_as(
            "select text, box_top, box_left, box_width, box_height, confidence, standing \
             from seen_text where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut *snapshot)
        .await
        .map_err(fault(WHAT))?;
        Ok((rows::all(faces)?, rows::all(texts)?))
    }

    async fn list(&self, album: AlbumId, query: PhotoQuery) -> Result<PhotoPage> {
        const WHAT: &str = "list photos";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let after = query.after.unwrap_or(PhotoId(uuid::Uuid::nil()));
        let page = match query.state {
            Some(state) => sqlx::query_as(PAGE_OF_STATE)
                .bind(album)
                .bind(after)
                .bind(i64::from(query.limit) + 1)
                .bind(state.as_str()),
            None => sqlx::query_as(PAGE).bind(album).bind(after).bind(i64::from(query.limit) + 1),
        };
        let rows: Vec<PhotoRow> = page.fetch_all(&mut *snapshot).await.map_err(fault(WHAT))?;
        let total: i64 = match query.state {
            Some(state) => sqlx::query_scalar("select count(*) from photo where album = $1 and state = $2")
                .bind(album)
                .bind(state.as_str()),
            None => sqlx::query_scalar("select count(*) from photo where album = $1").bind(album),
        }
        .fetch_one(&mut *snapshot)
        .await
        .map_err(fault(WHAT))?;
        let mut photos: Vec<Photo> = rows::all(rows)?;
        // One more than asked tells whether there is a next page.
        let more = photos.len() > query.limit as usize;
        photos.truncate(query.limit as usize);
        let next = if more { photos.last().map(|photo| photo.id) } else { None };
        Ok(PhotoPage { photos, next, total: total.unsigned_abs() })
    }

    async fn delete(&self, album: AlbumId, id: PhotoId) -> Result<()> {
        const WHAT: &str = "delete a photo";
        let mut transaction = self.database.write(WHAT).await?;
        let deleted = sqlx::query("delete from photo where album = $1 and id = $2")
            .bind(album)
            .bind(id)
            .execute(&mut *transaction)
            .await
            .map_err(fault(WHAT))?
            .rows_affected();
        if deleted == 0 {
            return Err(not_found(id));
        }
        note_changes(&mut transaction, album, &[id]).await?;
        transaction.commit().await.map_err(fault(WHAT))?;
        self.faces.forget_photo(album, id).await;
        Ok(())
    }

    async fn counts(&self, album: AlbumId) -> Result<StateCounts> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("select state, count(*) from photo where album = $1 group by state")
                .bind(album)
                .fetch_all(&self.database.reader)
                .await
                .map_err(fault("count photos"))?;
        let mut counts = StateCounts::default();
        for (state, count) in rows {
            let count = count.unsigned_abs();
            match state_of(&state)? {
                PhotoState::AwaitingUpload => counts.awaiting_upload = count,
                PhotoState::Queued => counts.queued = count,
                PhotoState::Processing => counts.processing = count,
                PhotoState::Ready => counts.ready = count,
                PhotoState::Failed => counts.failed = count,
            }
        }
        Ok(counts)
    }

    async fn settled_since(&self, album: AlbumId, since: OffsetDateTime) -> Result<u64> {
        let count: i64 =
            sqlx::query_scalar("select count(*) from photo where album = $1 and settled_at >= $2")
                .bind(album)
                .bind(micros(since))
                .fetch_one(&self.database.reader)
                .await
                .map_err(fault("count settled photos"))?;
        Ok(count.unsigned_abs())
    }
}

fn not_found(id: PhotoId) -> StoreError {
    StoreError::not_found(format!("photo {id}"))
}
