//! Watermarks in the database.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::FromRow;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::encoding::now_micros;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::watermark::{
    AlbumToMark, MarkedPhoto, Watermark, WatermarkChange, WatermarkPlacement, WatermarkPosition,
};
use crate::sql::costs::{CostEntries, SpentNumbers};
use crate::sql::credits::SharedLedger;
use crate::sql::credits::ledger::Writer;
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::{parse_name, to_json};
use crate::sql::statement::{Statement, query};
use crate::traits::{Result, Watermarks};
use crate::turns::{Turns, current_organization};

const OPERATION: &str = "change a watermark";

/// Locks the album, whose row is locked before that of its watermark: finishing a photo does so too.
const LOCK_ALBUM: &str = "update album set updated_at = $2 where id = $1";

const SAVE: &str = "insert into watermark as mark (album, version, picture, position, opacity, scale, asked, done) \
     values ($1, 1, $2, $3, $4, $5, 1, 0) on conflict (album) do update set version = mark.version + 1, \
     picture = coalesce(excluded.picture, mark.picture), position = excluded.position, opacity = excluded.opacity, \
     scale = excluded.scale, asked = mark.asked + 1 returning version, picture, position, opacity, scale";

const NOTE_VERSION: &str = "update album set watermark_version = $2 where id = $1";

/// Of each organization one, then a second one and so on.
const ALBUMS_TO_MARK: &str = "select album, organization, asked from (select album.id as album, album.organization, \
     watermark.asked, row_number() over (partition by album.organization order by album.id) as place \
     from watermark join album on album.id = watermark.album \
     where watermark.asked > watermark.done and album.closed_at is null) as listed order by place, album limit 100";

const UNMARKED: &str = "select id from photo where album = $1 and state = 'ready' and marked_version <> $2 and id > $3 \
     order by id limit $4";

const NOTE_MARKED: Statement = Statement::PerDialect {
    sqlite: "update photo set marked_version = $2, marked_bytes = named.bytes, cpu_us = cpu_us + named.cpu, \
             bytes_read = photo.bytes_read + named.bytes_in, bytes_written = photo.bytes_written + named.bytes from \
             (select unhex(value ->> 0) as id, value ->> 1 as cpu, value ->> 2 as bytes_in, value ->> 3 as bytes \
             from json_each($3)) as named where photo.album = $1 and photo.id = named.id and state = 'ready'",
    postgres: "with named as materialized (select (value ->> 0)::uuid as id, (value ->> 1)::bigint as cpu, \
               (value ->> 2)::bigint as bytes_in, (value ->> 3)::bigint as bytes from json_array_elements($3::json) \
               as listed (value)), locked as materialized (select photo.id from photo join named on named.id = photo.id \
               where album = $1 and state = 'ready' order by photo.id for update of photo) \
               update photo set marked_version = $2, marked_bytes = named.bytes, cpu_us = cpu_us + named.cpu, \
               bytes_read = photo.bytes_read + named.bytes_in, bytes_written = photo.bytes_written + named.bytes \
               from locked join named on named.id = locked.id where photo.album = $1 and photo.id = locked.id",
};

/// Whoever marked with another version may have written over pictures of the current one.
const ASK_FOR_CURRENT: &str =
    "update watermark set asked = asked + 1 where album = $1 and picture is not null and version <> $2";

#[derive(FromRow)]
struct WatermarkRow {
    version: i64,
    picture: Option<Vec<u8>>,
    position: String,
    opacity: f64,
    scale: f64,
}

impl WatermarkRow {
    /// `None` for one that was removed.
    fn into_watermark(self) -> Result<Option<Watermark>> {
        let Some(picture) = self.picture else { return Ok(None) };
        let placement = WatermarkPlacement {
            position: parse_name(&WatermarkPosition::ALL, WatermarkPosition::as_str, &self.position)?,
            opacity: self.opacity,
            scale: self.scale,
        };
        Ok(Some(Watermark { version: self.version, picture: picture.into(), placement }))
    }
}

/// Notes that an album, which is locked, has photos with another version of its watermark.
pub(crate) async fn ask_for_marks(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
) -> Result<()> {
    let ask = "update watermark set asked = asked + 1 where album = $1 and picture is not null";
    query(operation, ask).bind(album).execute(transaction).await.map(drop)
}

pub(crate) struct SqlWatermarks {
    database: Database,
    shared: Arc<SharedLedger>,
    /// See `SqlPhotos`.
    scans: Turns,
}

impl SqlWatermarks {
    pub(crate) fn new(database: Database, shared: Arc<SharedLedger>, scans: Turns) -> Self {
        Self { database, shared, scans }
    }

    async fn begin(&self, album: AlbumId) -> Result<Transaction> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, LOCK_ALBUM).bind(album).bind(now_micros()).execute(&mut transaction).await?;
        Ok(transaction)
    }
}

#[async_trait]
impl Watermarks for SqlWatermarks {
    async fn get(&self, album: AlbumId) -> Result<Option<Watermark>> {
        const OPERATION: &str = "read a watermark";
        let read = "select version, picture, position, opacity, scale from watermark where album = $1";
        let row: Option<WatermarkRow> = query(OPERATION, read)
            .bind(album)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(row.map(WatermarkRow::into_watermark).transpose()?.flatten())
    }

    async fn version(&self, album: AlbumId) -> Result<i64> {
        const OPERATION: &str = "read the version of a watermark";
        let version: Option<(i64,)> =
            query(OPERATION, "select watermark_version from album where id = $1 and closed_at is null")
                .bind(album)
                .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        Ok(version.map_or(0, |(version,)| version))
    }

    async fn set(&self, album: AlbumId, change: WatermarkChange) -> Result<Watermark> {
        let mut transaction = self.begin(album).await?;
        let row: WatermarkRow = query(OPERATION, SAVE)
            .bind(album)
            .bind(change.picture.map(|picture| picture.to_vec()))
            .bind(change.placement.position.as_str())
            .bind(change.placement.opacity)
            .bind(change.placement.scale)
            .fetch_one(&mut transaction)
            .await?;
        let missing = || StoreError::new(StoreErrorKind::NotFound, "a picture to keep");
        let watermark = row.into_watermark()?.ok_or_else(missing)?;
        query(OPERATION, NOTE_VERSION).bind(album).bind(watermark.version).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        Ok(watermark)
    }

    async fn remove(&self, album: AlbumId) -> Result<()> {
        let mut transaction = self.begin(album).await?;
        query(OPERATION, "update watermark set picture = null, done = asked where album = $1")
            .bind(album)
            .execute(&mut transaction)
            .await?;
        query(OPERATION, NOTE_VERSION).bind(album).bind(0_i64).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    async fn count_unmarked(&self, album: AlbumId, version: i64) -> Result<u64> {
        const OPERATION: &str = "count photos to mark";
        let count =
            "select count(*) from photo where album = $1 and state = 'ready' and marked_version <> $2";
        let _turn = self.scans.take(current_organization()).await;
        let (photos,): (i64,) = query(OPERATION, count)
            .bind(album)
            .bind(version)
            .fetch_one(&mut self.database.begin_scan(OPERATION).await?)
            .await?;
        Ok(photos.unsigned_abs())
    }

    async fn find_marked(&self, album: AlbumId) -> Result<Option<PhotoId>> {
        const OPERATION: &str = "find a marked photo";
        let find = "select id from photo where album = $1 and state = 'ready' and marked_version > 0 \
                    order by id desc limit 1";
        let _turn = self.scans.take(current_organization()).await;
        let row: Option<(PhotoId,)> = query(OPERATION, find)
            .bind(album)
            .fetch_optional(&mut self.database.begin_scan(OPERATION).await?)
            .await?;
        Ok(row.map(|(photo,)| photo))
    }

    async fn list_albums_to_mark(&self) -> Result<Vec<AlbumToMark>> {
        const OPERATION: &str = "list albums to mark";
        let rows: Vec<(AlbumId, _, i64)> = query(OPERATION, ALBUMS_TO_MARK)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows
            .into_iter()
            .map(|(album, organization, asked)| AlbumToMark { album, organization, asked })
            .collect())
    }

    async fn list_unmarked(
        &self,
        album: AlbumId,
        version: i64,
        after: Option<PhotoId>,
        limit: u32,
    ) -> Result<Vec<PhotoId>> {
        const OPERATION: &str = "list photos to mark";
        let rows: Vec<(PhotoId,)> = query(OPERATION, UNMARKED)
            .bind(album)
            .bind(version)
            .bind(after.unwrap_or(PhotoId(uuid::Uuid::nil())))
            .bind(i64::from(limit))
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(rows.into_iter().map(|(photo,)| photo).collect())
    }

    async fn note_marked(&self, album: AlbumId, photos: &[MarkedPhoto], version: i64) -> Result<()> {
        let rows = photos.iter().map(|MarkedPhoto { photo, spent }| {
            let SpentNumbers { cpu_us, bytes_read, bytes_written, .. } = SpentNumbers::of(spent);
            (photo.0.simple().to_string(), cpu_us, bytes_read, bytes_written)
        });
        let rows = to_json(&rows.collect::<Vec<_>>())?;
        let ledger = &self.shared.ledger;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, NOTE_MARKED).bind(album).bind(version).bind(rows).execute(&mut transaction).await?;
        let now = transaction.read_clock(OPERATION).await?;
        let mut entries = CostEntries::default();
        if let Some(tenant) = ledger.tenants_of(&mut transaction, [album].into_iter()).await?.get(&album) {
            entries.add_marks(tenant, album, photos);
        }
        entries.write(&mut transaction, ledger, Writer::Api, now).await?;
        query(OPERATION, ASK_FOR_CURRENT).bind(album).bind(version).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }

    async fn note_all_marked(&self, done: AlbumToMark) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let settle = "update watermark set done = $2 where album = $1 and done < $2";
        query(OPERATION, settle).bind(done.album).bind(done.asked).execute(&mut transaction).await?;
        transaction.commit(OPERATION).await
    }
}
