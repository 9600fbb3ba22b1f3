//! Photos in the database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::encoding::{now_micros, to_micros};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{
    CameraCount, DetectedFace, DetectedText, NewPhoto, Photo, PhotoPage, PhotoQuery, StateCounts, TakenQuery,
};
use crate::search::faces::FaceCache;
use crate::sql::changes::{ChangeKind, record_changes};
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::{FaceRow, PhotoRow, TextRow, convert_rows, parse_photo_state};
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::{Photos, Result};
use crate::turns::{Turns, current_organization};

macro_rules! select_photo {
    ($rest:literal) => {
        concat!(
            "select album, id, filename, content_type, state, failure, width, height, taken_at, camera, \
             skipped_runners, marked_version, created_at, updated_at from photo ",
            $rest
        )
    };
}

pub(crate) const PHOTOS_BY_ID: Statement = Statement::PerDialect {
    sqlite: select_photo!("where album = $1 and id in (select unhex(value) from json_each($2))"),
    postgres: select_photo!("where album = $1 and id = any($2)"),
};

/// Pages with and without a filter are two statements: one with an optional filter could use neither index.
pub(crate) const PHOTO_PAGE: &str = select_photo!("where album = $1 and id > $2 order by id limit $3");

/// Selects the ids in a nested query: without it SQLite scans all photos of the album by primary key.
pub(crate) const PHOTO_PAGE_BY_STATE: &str = select_photo!(
    "where album = $1 and id in \
     (select id from photo where album = $1 and state = $4 and id > $2 order by id limit $3) order by id"
);

/// Photos that have pictures, as [`Photo::has_pictures`] says: the next that are ready and the next that are processed again, of
/// each as many as fit on a page. Each has an index, so that no page reads what visitors do not see.
pub(crate) const SHOWN_PAGE: &str = select_photo!(
    "where album = $1 and id in (select id from \
     (select id from photo where album = $1 and state = 'ready' and id > $2 order by id limit $3) as ready \
     union all select id from (select id from photo where album = $1 and state in ('queued', 'processing') \
     and width is not null and id > $2 order by id limit $3) as again) order by id limit $3"
);

/// Those of them that are processed again, up to a limit.
pub(crate) const COUNT_SHOWN_AGAIN: &str = "select count(*) from (select id from photo where album = $1 \
     and state in ('queued', 'processing') and width is not null limit $2) as again";

/// So many entries of an index are counted without a turn of those that read whole albums: they take a fraction of a
/// millisecond.
const FEW: u32 = 1_000;

/// Sums the counts that the database's triggers keep: a few rows, however many photos the album has.
pub(crate) const COUNT_BY_STATE: &str =
    "select state, cast(sum(count) as bigint) from photo_count where album = $1 group by state";

/// Uses the clock that writes `settled_at`: the server's, and this machine's for a file. On Postgres `statement_timestamp`,
/// because an index range cannot end at a clock value that changes during the statement.
pub(crate) const COUNT_SETTLED: Statement = Statement::PerDialect {
    sqlite: "select count(*) from photo where album = $1 \
             and settled_at > cast(unixepoch('now', 'subsec') * 1000000 as integer) - $2",
    postgres: "select count(*) from photo where album = $1 \
               and settled_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2",
};

/// Selects or counts the photos of one camera, or, as `of_any_camera`, those of all. Two statements of each: one with an
/// optional camera could not use the index by camera.
macro_rules! taken {
    (of_any_camera, $select:literal, $rest:literal) => {
        taken!($select, " where album = $1 and cast($3 as text) is null", $rest)
    };
    (of_camera, $select:literal, $rest:literal) => {
        taken!($select, " where album = $1 and camera = $3", $rest)
    };
    ($select:literal, $of:literal, $rest:literal) => {
        concat!(
            $select,
            $of,
            " and (cast($2 as text) is null or state = $2) and (cast($4 as bigint) is null or taken_at >= $4) \
             and (cast($5 as bigint) is null or taken_at < $5)",
            $rest
        )
    };
}

/// Reads the album until the page is full.
const TAKEN_PAGE: &str = taken!(
    of_any_camera,
    "select album, id, filename, content_type, state, failure, width, height, taken_at, camera, \
     skipped_runners, marked_version, created_at, updated_at from photo",
    " and id > $6 order by id limit $7"
);

/// Selects the ids in a nested query, as [`PHOTO_PAGE_BY_STATE`]: the index by camera has all that it asks for.
pub(crate) const TAKEN_PAGE_BY_CAMERA: &str = concat!(
    select_photo!("where album = $1 and id in ("),
    taken!(of_camera, "select id from photo", " and id > $6 order by id limit $7"),
    ") order by id"
);

/// Reads the album.
const COUNT_TAKEN: &str = taken!(of_any_camera, "select count(*) from photo", "");
pub(crate) const COUNT_TAKEN_BY_CAMERA: &str = taken!(of_camera, "select count(*) from photo", "");

/// The cameras with most photos, and after each the photos of all cameras. Reads their index.
pub(crate) const COUNT_BY_CAMERA: &str = "select camera, photos, cast(sum(photos) over () as bigint) as known from \
     (select camera, count(*) as photos from photo where album = $1 and camera is not null group by camera) as counted \
     order by photos desc, camera limit $2";

/// The most cameras that are told of an album.
const MAX_CAMERAS: usize = 1_000;

/// Makes a page of rows, of which one more than the limit shows whether there is a next page, and where that begins.
fn split_page(rows: Vec<PhotoRow>, limit: u32) -> Result<(Vec<Photo>, Option<PhotoId>)> {
    let mut photos: Vec<Photo> = convert_rows(rows)?;
    let more = photos.len() > limit as usize;
    photos.truncate(limit as usize);
    let next = if more { photos.last().map(|photo| photo.id) } else { None };
    Ok((photos, next))
}

fn to_page(rows: Vec<PhotoRow>, limit: u32, total: u64) -> Result<PhotoPage> {
    let (photos, next) = split_page(rows, limit)?;
    Ok(PhotoPage { photos, next, total })
}

pub(crate) struct SqlPhotos {
    database: Database,
    face_cache: Arc<FaceCache>,
    /// For what reads every photo of an album: one at a time, so that readers and cores are left for what reads a few rows.
    scans: Turns,
}

impl SqlPhotos {
    pub(crate) fn new(database: Database, face_cache: Arc<FaceCache>, scans: Turns) -> Self {
        Self { database, face_cache, scans }
    }
}

#[async_trait]
impl Photos for SqlPhotos {
    async fn create(&self, album: AlbumId, photos: Vec<NewPhoto>) -> Result<Vec<PhotoId>> {
        const OPERATION: &str = "create photos";
        let new: Vec<(PhotoId, NewPhoto)> =
            photos.into_iter().map(|photo| (PhotoId::generate(), photo)).collect();
        let ids = new.iter().map(|(id, _)| *id).collect();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        transaction.queue_writes().insert_photos(album, new, now_micros()).await?;
        transaction.commit(OPERATION).await?;
        Ok(ids)
    }

    async fn get(&self, album: AlbumId, id: PhotoId) -> Result<Photo> {
        const OPERATION: &str = "get a photo";
        let row: Option<PhotoRow> = query(OPERATION, select_photo!("where album = $1 and id = $2"))
            .bind(album)
            .bind(id)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.ok_or_else(|| photo_not_found(id))?.try_into()
    }

    async fn get_many(&self, album: AlbumId, ids: &[PhotoId]) -> Result<Vec<Photo>> {
        const OPERATION: &str = "get photos";
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows: Vec<PhotoRow> = query(OPERATION, PHOTOS_BY_ID)
            .bind(album)
            .bind(ids)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        convert_rows(rows)
    }

    async fn get_detections(
        &self,
        album: AlbumId,
        id: PhotoId,
    ) -> Result<(Vec<DetectedFace>, Vec<DetectedText>)> {
        const OPERATION: &str = "get the detections of a photo";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let faces: Vec<FaceRow> = query(
            OPERATION,
            "select box_top, box_left, box_width, box_height, confidence, unindexed, model, embedding \
             from face where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut snapshot)
        .await?;
        let texts: Vec<TextRow> = query(
            OPERATION,
            "select text, box_top, box_left, box_width, box_height, confidence, max_confidence, standing, read_as, \
             read_confidence, read_standing from seen_text where album = $1 and photo = $2 order by id",
        )
        .bind(album)
        .bind(id)
        .fetch_all(&mut snapshot)
        .await?;
        Ok((convert_rows(faces)?, convert_rows(texts)?))
    }

    async fn list(&self, album: AlbumId, filter: PhotoQuery) -> Result<PhotoPage> {
        const OPERATION: &str = "list photos";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let after = filter.after.unwrap_or(PhotoId(uuid::Uuid::nil()));
        let page = if filter.state.is_some() { PHOTO_PAGE_BY_STATE } else { PHOTO_PAGE };
        let mut page = query(OPERATION, page).bind(album).bind(after).bind(i64::from(filter.limit) + 1);
        if let Some(state) = filter.state {
            page = page.bind(state.as_str());
        }
        let rows: Vec<PhotoRow> = page.fetch_all(&mut snapshot).await?;
        let counts = load_counts(OPERATION, album, &mut snapshot).await?;
        let total = filter.state.map_or_else(|| counts.total(), |state| counts.get(state));
        to_page(rows, filter.limit, total)
    }

    async fn list_shown(
        &self,
        album: AlbumId,
        after: Option<PhotoId>,
        limit: u32,
    ) -> Result<(Vec<Photo>, Option<PhotoId>)> {
        const OPERATION: &str = "list photos with pictures";
        let rows: Vec<PhotoRow> = query(OPERATION, SHOWN_PAGE)
            .bind(album)
            .bind(after.unwrap_or(PhotoId(uuid::Uuid::nil())))
            .bind(i64::from(limit) + 1)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        split_page(rows, limit)
    }

    async fn count_shown(&self, album: AlbumId) -> Result<u64> {
        const OPERATION: &str = "count photos with pictures";
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let again = count_shown_again(OPERATION, album, FEW + 1, &mut snapshot).await?;
        if again <= u64::from(FEW) {
            return Ok(load_counts(OPERATION, album, &mut snapshot).await?.ready + again);
        }
        drop(snapshot);
        let _turn = self.scans.take(current_organization()).await;
        let mut snapshot = self.database.begin_scan(OPERATION).await?;
        let again = count_shown_again(OPERATION, album, u32::MAX, &mut snapshot).await?;
        Ok(load_counts(OPERATION, album, &mut snapshot).await?.ready + again)
    }

    async fn list_taken(&self, album: AlbumId, asked: TakenQuery) -> Result<PhotoPage> {
        const OPERATION: &str = "list photos by how they were taken";
        let _turn = self.scans.take(current_organization()).await;
        let mut snapshot = self.database.begin_scan(OPERATION).await?;
        let filter = |statement| {
            query(OPERATION, statement)
                .bind(album)
                .bind(asked.page.state.map(|state| state.as_str().to_owned()))
                .bind(asked.camera.clone())
                .bind(asked.from.map(to_micros))
                .bind(asked.until.map(to_micros))
        };
        let (page, count) = match asked.camera {
            Some(_) => (TAKEN_PAGE_BY_CAMERA, COUNT_TAKEN_BY_CAMERA),
            None => (TAKEN_PAGE, COUNT_TAKEN),
        };
        let after = asked.page.after.unwrap_or(PhotoId(uuid::Uuid::nil()));
        let limit = asked.page.limit;
        let page = filter(page).bind(after).bind(i64::from(limit) + 1);
        let rows: Vec<PhotoRow> = page.fetch_all(&mut snapshot).await?;
        let total = match asked.known_total {
            Some(total) => total,
            None => {
                let (total,): (i64,) = filter(count).fetch_one(&mut snapshot).await?;
                total.unsigned_abs()
            }
        };
        to_page(rows, limit, total)
    }

    async fn count_by_camera(&self, album: AlbumId) -> Result<Vec<CameraCount>> {
        const OPERATION: &str = "list cameras";
        let _turn = self.scans.take(current_organization()).await;
        let mut snapshot = self.database.begin_scan(OPERATION).await?;
        let cameras = query(OPERATION, COUNT_BY_CAMERA).bind(album).bind(MAX_CAMERAS as i64);
        let rows: Vec<(String, i64, i64)> = cameras.fetch_all(&mut snapshot).await?;
        let known = rows.first().map_or(0, |(_, _, known)| known.unsigned_abs());
        let states: Vec<(String, i64)> =
            query(OPERATION, COUNT_BY_STATE).bind(album).fetch_all(&mut snapshot).await?;
        let photos: u64 = states.iter().map(|(_, count)| count.unsigned_abs()).sum();
        let named = rows.into_iter().map(|(camera, count, _)| (Some(camera), count.unsigned_abs()));
        let unknown = photos.saturating_sub(known);
        let mut cameras: Vec<_> = named.chain((unknown > 0).then_some((None, unknown))).collect();
        cameras.sort_by_key(|(_, photos)| std::cmp::Reverse(*photos));
        cameras.truncate(MAX_CAMERAS);
        Ok(cameras.into_iter().map(|(camera, photos)| CameraCount { camera, photos }).collect())
    }

    async fn delete(&self, album: AlbumId, id: PhotoId) -> Result<()> {
        const OPERATION: &str = "delete a photo";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let deleted = query(OPERATION, "delete from photo where album = $1 and id = $2")
            .bind(album)
            .bind(id)
            .execute(&mut transaction)
            .await?;
        if deleted == 0 {
            return Err(photo_not_found(id));
        }
        record_changes(&mut transaction, album, &[id], ChangeKind::Content).await?;
        transaction.commit(OPERATION).await?;
        self.face_cache.forget_photo(album, id).await;
        Ok(())
    }

    async fn count_by_state(&self, album: AlbumId) -> Result<StateCounts> {
        const OPERATION: &str = "count photos";
        load_counts(OPERATION, album, &mut self.database.acquire_reader(OPERATION).await?).await
    }

    async fn count_settled_within(&self, album: AlbumId, window: Duration) -> Result<u64> {
        const OPERATION: &str = "count settled photos";
        let (count,): (i64,) = query(OPERATION, COUNT_SETTLED)
            .bind(album)
            .bind(i64::try_from(window.as_micros()).unwrap_or(i64::MAX))
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(count.unsigned_abs())
    }
}

pub(crate) async fn load_counts<'c>(
    operation: &'static str,
    album: AlbumId,
    on: impl Into<ConnectionRef<'c>>,
) -> Result<StateCounts> {
    let rows: Vec<(String, i64)> = query(operation, COUNT_BY_STATE).bind(album).fetch_all(on).await?;
    let mut counts = StateCounts::default();
    for (state, count) in rows {
        *counts.get_mut(parse_photo_state(&state)?) = count.unsigned_abs();
    }
    Ok(counts)
}

/// Counts the photos with pictures that are processed again, up to a limit.
async fn count_shown_again(
    operation: &'static str,
    album: AlbumId,
    limit: u32,
    snapshot: &mut Transaction,
) -> Result<u64> {
    let count = query(operation, COUNT_SHOWN_AGAIN).bind(album).bind(i64::from(limit));
    let (again,): (i64,) = count.fetch_one(snapshot).await?;
    Ok(again.unsigned_abs())
}

fn photo_not_found(id: PhotoId) -> StoreError {
    StoreError::not_found(format!("photo {id}"))
}
