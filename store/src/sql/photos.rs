//! Photos of albums.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::finish::note_changes;
use super::{Database, Statement, sql};
use crate::error::StoreError;
use crate::face_index::FaceCache;
use crate::ids::{AlbumId, PhotoId};
use crate::photo::{NewPhoto, Photo, PhotoPage, PhotoQuery, PhotoState, SeenFace, SeenText, StateCounts};
use crate::rows::{self, FaceRow, PhotoRow, TextRow, now, state_of};
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

pub(super) const MANY: Statement = Statement::Each {
    sqlite: select_photo!("where album = $1 and id in (select unhex(value) from json_each($2))"),
    postgres: select_photo!("where album = $1 and id = any($2)"),
};

/// Two texts for pages, not one with an optional filter: that one could use neither index.
pub(super) const PAGE: &str = select_photo!("where album = $1 and id > $2 order by id limit $3");

/// The ids first: without the nested query SQLite walks all photos of the album by their key.
pub(super) const PAGE_OF_STATE: &str = select_photo!(
    "where album = $1 and id in \
     (select id from photo where album = $1 and state = $4 and id > $2 order by id limit $3) order by id"
);

/// By the clock that writes `settled_at`: the server's, and this machine's for a file. Postgres looks at its clock once a
/// statement here: a range of an index cannot end at a time that moves.
pub(super) const SETTLED: Statement = Statement::Each {
    sqlite: "select count(*) from photo where album = $1 \
             and settled_at > cast(unixepoch('now', 'subsec') * 1000000 as integer) - $2",
    postgres: "select count(*) from photo where album = $1 \
               and settled_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2",
};

pub(crate) struct SqlPhotos {
    database: Database,
    faces: Arc<FaceCache>,
}

impl SqlPhotos {
    pub(crate) fn new(database: Database, faces: Arc<FaceCache>) -> Self {
        Self { database, faces }
    }
}

#[async_trait]
impl Photos for SqlPhotos {
    async fn create(&self, album: AlbumId, photos: Vec<NewPhoto>) -> Result<Vec<PhotoId>> {
        const WHAT: &str = "expect photos";
        let new: Vec<(PhotoId, NewPhoto)> =
            photos.into_iter().map(|photo| (PhotoId::generate(), photo)).collect();
        let ids = new.iter().map(|(id, _)| *id).collect();
        let mut transaction = self.database.write(WHAT).await?;
        transaction.bulk().expect(album, new, now()).await?;
        transaction.commit(WHAT).await?;
        Ok(ids)
    }

    async fn get(&self, album: AlbumId, id: PhotoId) -> Result<Photo> {
        const WHAT: &str = "get a photo";
        let row: Option<PhotoRow> = sql(WHAT, select_photo!("where album = $1 and id = $2"))
            .bind(album)
            .bind(id)
            .fetch_optional(&mut self.database.reader(WHAT).await?)
            .await?;
        row.ok_or_else(|| not_found(id))?.try_into()
    }

    async fn get_many(&self, album: AlbumId, ids: &[PhotoId]) -> Result<Vec<Photo>> {
        const WHAT: &str = "get photos";
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<PhotoRow> =
            sql(WHAT, MANY).bind(album).bind(ids).fetch_all(&mut self.database.reader(WHAT).await?).await?;
        rows::all(rows)
    }

    async fn seen(&self, album: AlbumId, id: PhotoId) -> Result<(Vec<SeenFace>, Vec<SeenText>)> {
        const WHAT: &str = "get what was seen in a photo";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let faces: Vec<FaceRow> = sql(
            WHAT,
            "select box_top, box_left, box_width, box_height, confidence, unindexed, model, embedding \
             from face where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut snapshot)
        .await?;
        let texts: Vec<TextRow> = sql(
            WHAT,
            "select text, box_top, box_left, box_width, box_height, confidence, standing \
             from seen_text where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut snapshot)
        .await?;
        Ok((rows::all(faces)?, rows::all(texts)?))
    }

    async fn list(&self, album: AlbumId, query: PhotoQuery) -> Result<PhotoPage> {
        const WHAT: &str = "list photos";
        let mut snapshot = self.database.snapshot(WHAT).await?;
        let after = query.after.unwrap_or(PhotoId(uuid::Uuid::nil()));
        let (page, count) = match query.state {
            Some(_) => (PAGE_OF_STATE, "select count(*) from photo where album = $1 and state = $2"),
            None => (PAGE, "select count(*) from photo where album = $1"),
        };
        let mut page = sql(WHAT, page).bind(album).bind(after).bind(i64::from(query.limit) + 1);
        let mut count = sql(WHAT, count).bind(album);
        if let Some(state) = query.state {
            page = page.bind(state.as_str());
            count = count.bind(state.as_str());
        }
        let rows: Vec<PhotoRow> = page.fetch_all(&mut snapshot).await?;
        let (total,): (i64,) = count.fetch_one(&mut snapshot).await?;
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
        let deleted = sql(WHAT, "delete from photo where album = $1 and id = $2")
            .bind(album)
            .bind(id)
            .execute(&mut transaction)
            .await?;
        if deleted == 0 {
            return Err(not_found(id));
        }
        note_changes(&mut transaction, album, &[id]).await?;
        transaction.commit(WHAT).await?;
        self.faces.forget_photo(album, id).await;
        Ok(())
    }

    async fn counts(&self, album: AlbumId) -> Result<StateCounts> {
        const WHAT: &str = "count photos";
        let count = "select state, count(*) from photo where album = $1 group by state";
        let rows: Vec<(String, i64)> =
            sql(WHAT, count).bind(album).fetch_all(&mut self.database.reader(WHAT).await?).await?;
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

    async fn settled_within(&self, album: AlbumId, window: Duration) -> Result<u64> {
        const WHAT: &str = "count settled photos";
        let (count,): (i64,) = sql(WHAT, SETTLED)
            .bind(album)
            .bind(i64::try_from(window.as_micros()).unwrap_or(i64::MAX))
            .fetch_one(&mut self.database.reader(WHAT).await?)
            .await?;
        Ok(count.unsigned_abs())
    }
}

fn not_found(id: PhotoId) -> StoreError {
    StoreError::not_found(format!("photo {id}"))
}
