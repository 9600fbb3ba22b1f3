//! SQLite: one statement for all photos, with their values in a JSON list, as SQLite has no arrays. A connection is a thread,
//! so that each statement costs two switches between threads: for a photo, that is more than its work.
//!
//! A write transaction holds the lock of the whole file, so that there is nothing to lock per photo.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use serde::Serialize;
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{
    LeaseWindow, PhotoRowState, PhotoStateRow, QueueWrites, album_not_found, photo_ref, queue_uploaded,
    sqlite_detections,
};
use crate::model::encoding::to_micros;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::NewPhoto;
use crate::search::faces::Change;
use crate::sql::changes::ChangeKind;
use crate::sql::costs::SpentNumbers;
use crate::sql::credits::ledger::{Holds, balances_of_sqlite};
use crate::sql::error::store_error;
use crate::sql::row_types::to_json;
use crate::sql::statement::strip_nul;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};

/// The rows of the JSON list `$1` as a table `named` of photos, followed by further columns.
macro_rules! named_photos {
    ($columns:literal) => {
        concat!(
            "(select unhex(value ->> 0) as album, unhex(value ->> 1) as id",
            $columns,
            " from json_each($1)) as named"
        )
    };
}

/// The condition that joins [`named_photos`].
macro_rules! is_named {
    () => {
        " where photo.album = named.album and photo.id = named.id"
    };
}

macro_rules! album_is_open {
    () => {
        " and (select closed_at from album where album.id = photo.album) is null"
    };
}

macro_rules! is_running {
    () => {
        " where lease in (select unhex(value) from json_each($1)) and state = 'processing'"
    };
}

macro_rules! delete_of_photos {
    ($table:literal) => {
        concat!(
            "delete from ",
            $table,
            " where (album, photo) in (select unhex(value ->> 0), unhex(value ->> 1) from json_each($1))"
        )
    };
}

// Constants of this module for the test of query plans.

pub(in crate::sql) const LOCK_PHOTOS: &str = concat!(
    "select photo.album, photo.id, state, attempts, lease, lease_until, held, charged_at, confirmed_at from ",
    named_photos!(""),
    " cross join photo",
    is_named!(),
    album_is_open!(),
);

macro_rules! queue_photos {
    () => {
        queue_uploaded!(
            "$2",
            "$3",
            concat!(
                "size_bytes = named.size_bytes from ",
                named_photos!(", value ->> 2 as size_bytes"),
                is_named!()
            )
        )
    };
}

#[cfg(test)]
pub(in crate::sql) const QUEUE_PHOTOS: &str = queue_photos!();

/// Two statements in one call, for one switch between threads.
const QUEUE_AND_HOLD: &str = concat!(queue_photos!(), "; ", balances_of_sqlite!("$4", "$5"));

pub(in crate::sql) const ASSIGN_LEASES: &str = concat!(
    "update photo set state = 'processing', attempts = attempts + 1, lease = named.lease, lease_until = $2, \
     updated_at = $3 from ",
    named_photos!(", unhex(value ->> 2) as lease"),
    is_named!(),
    " returning lease, confirmed_at",
);

pub(in crate::sql) const RENEW_LEASES: &str =
    concat!("update photo set lease_until = $2", is_running!(), " returning lease");

pub(in crate::sql) const RELEASE_LEASES: &str = concat!(
    "update photo set state = 'queued', attempts = attempts - 1, lease = null, lease_until = 0, updated_at = $2, \
     published_at = null, confirmed_at = confirmed_at + 1",
    is_running!(),
);

pub(in crate::sql) const MARK_READY: &str = concat!(
    "update photo set state = 'ready', width = named.width, height = named.height, taken_at = named.taken_at, \
     camera = named.camera, skipped_runners = named.skipped_runners, settled_at = $2, updated_at = $2, \
     attempts = 0, lease = null, lease_until = 0, held = 0, list_version = 0, \
     marked_version = named.marked, picture_bytes = named.picture_bytes, \
     marked_bytes = coalesce(named.marked_bytes, photo.marked_bytes), cpu_us = cpu_us + named.cpu, \
     device_us = device_us + named.device, bytes_read = photo.bytes_read + named.bytes_in, \
     bytes_written = photo.bytes_written + named.bytes_out, charged_at = min(coalesce(charged_at, $2), $2) from ",
    named_photos!(
        ", value ->> 2 as width, value ->> 3 as height, value ->> 4 as taken_at, value ->> 5 as camera, \
         value ->> 6 as skipped_runners, value ->> 7 as cpu, value ->> 8 as device, value ->> 9 as bytes_in, \
         value ->> 10 as bytes_out, value ->> 11 as marked, \
         value ->> 12 as picture_bytes, value ->> 13 as marked_bytes"
    ),
    is_named!(),
);

pub(in crate::sql) const MARK_PUBLISHED: &str = concat!(
    "update photo set published_at = $2 from ",
    named_photos!(", value ->> 2 as confirmed_at"),
    is_named!(),
    " and photo.confirmed_at = named.confirmed_at",
    album_is_open!(),
);

pub(in crate::sql) const DELETE_FACES: &str = delete_of_photos!("face");

pub(in crate::sql) const DELETE_TEXTS: &str = delete_of_photos!("seen_text");

#[async_trait]
impl QueueWrites for SqliteConnection {
    async fn lock_photos(&mut self, photos: &[PhotoRef]) -> Result<HashMap<PhotoRef, PhotoRowState>> {
        let named = json_rows(photos.iter().map(|photo| key_of(*photo)))?;
        let rows: Vec<PhotoStateRow> = sqlx::query_as(LOCK_PHOTOS)
            .bind(named)
            .fetch_all(self)
            .await
            .map_err(store_error("lock photos"))?;
        rows.into_iter().map(PhotoStateRow::into_state).collect()
    }

    async fn insert_photos(
        &mut self,
        album: AlbumId,
        photos: Vec<(PhotoId, NewPhoto)>,
        now: i64,
    ) -> Result<()> {
        let expected = photos.len() as u64;
        let rows = json_rows(
            photos
                .into_iter()
                .map(|(id, photo)| (hex(id.0), strip_nul(photo.filename), strip_nul(photo.content_type))),
        )?;
        let inserted = sqlx::query(
            "insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
             select album.id, unhex(value ->> 0), value ->> 1, value ->> 2, 'awaiting_upload', $3, $3 \
             from album cross join json_each($1) where album.id = $2 and closed_at is null",
        )
        .bind(rows)
        .bind(album)
        .bind(now)
        .execute(self)
        .await
        .map_err(store_error("create photos"))?
        .rows_affected();
        if inserted == expected { Ok(()) } else { Err(album_not_found(album)) }
    }

    async fn queue_photos(
        &mut self,
        uploads: &[(PhotoRef, Option<i64>)],
        holds: &Holds,
        now: i64,
    ) -> Result<()> {
        let rows = uploads.iter().map(|(photo, size_bytes)| {
            let (album, id) = key_of(*photo);
            (album, id, *size_bytes)
        });
        sqlx::query(QUEUE_AND_HOLD)
            .bind(json_rows(rows)?)
            .bind(now)
            .bind(holds.price)
            .bind(holds.balances.as_str())
            .bind(holds.part)
            .execute(self)
            .await
            .map_err(store_error("confirm photos"))
            .map(drop)
    }

    async fn assign_leases(
        &mut self,
        photos: &[(PhotoRef, LeaseId)],
        window: LeaseWindow,
    ) -> Result<HashMap<LeaseId, i64>> {
        let rows = photos.iter().map(|(photo, lease)| {
            let (album, id) = key_of(*photo);
            (album, id, hex(lease.0))
        });
        let queued: Vec<(LeaseId, i64)> = sqlx::query_as(ASSIGN_LEASES)
            .bind(json_rows(rows)?)
            .bind(window.until)
            .bind(window.now)
            .fetch_all(self)
            .await
            .map_err(store_error("lease photos"))?;
        Ok(queued.into_iter().collect())
    }

    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>> {
        let renewed: Vec<LeaseId> = sqlx::query_scalar(RENEW_LEASES)
            .bind(json_rows(leases.iter().map(|lease| hex(lease.0)))?)
            .bind(until)
            .fetch_all(self)
            .await
            .map_err(store_error("renew leases"))?;
        Ok(renewed.into_iter().collect())
    }

    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()> {
        sqlx::query(RELEASE_LEASES)
            .bind(json_rows(leases.iter().map(|lease| hex(lease.0)))?)
            .bind(now)
            .execute(self)
            .await
            .map_err(store_error("release photos"))
            .map(drop)
    }

    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()> {
        let rows = photos.iter().map(|results| {
            let (album, id) = key_of(photo_ref(results));
            let taken_at = results.taken_at.map(to_micros);
            let camera = results.camera.clone().map(strip_nul);
            let size = results.size;
            let SpentNumbers { cpu_us, device_us, bytes_read, bytes_written } =
                SpentNumbers::of(&results.lease.spent.total());
            let (width, height, skipped) = (size.width, size.height, results.skipped_runners);
            (
                album,
                id,
                width,
                height,
                taken_at,
                camera,
                skipped,
                cpu_us,
                device_us,
                bytes_read,
                bytes_written,
                results.watermark_version,
                results.pictures.picture_bytes,
                results.pictures.marked_bytes,
            )
        });
        sqlx::query(MARK_READY)
            .bind(json_rows(rows)?)
            .bind(now)
            .execute(self)
            .await
            .map_err(store_error("finish photos"))
            .map(drop)
    }

    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<()> {
        let named = json_rows(photos.iter().map(|photo| key_of(*photo)))?;
        sqlx::query(DELETE_FACES)
            .bind(&named)
            .execute(&mut *self)
            .await
            .map_err(store_error("delete faces"))?;
        sqlx::query(DELETE_TEXTS)
            .bind(named)
            .execute(self)
            .await
            .map_err(store_error("delete texts"))
            .map(drop)
    }

    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()> {
        sqlite_detections::insert(self, photos).await
    }

    async fn record_change(
        &mut self,
        album: AlbumId,
        change: Change,
        photos: &[PhotoId],
        kind: ChangeKind,
    ) -> Result<()> {
        sqlx::query(
            "insert into photo_change (album, change, photo, mark, settled) select $2, $3, unhex(value), $4, $5 \
             from json_each($1) where true on conflict do nothing",
        )
        .bind(json_rows(photos.iter().map(|photo| hex(photo.0)))?)
        .bind(album)
        .bind(change.number)
        .bind(change.nonce)
        .bind(i64::from(kind == ChangeKind::Settled))
        .execute(self)
        .await
        .map_err(store_error("record a change"))
        .map(drop)
    }

    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()> {
        let rows = photos.iter().map(|UnpublishedPhoto { photo, confirmed_at }| {
            let (album, id) = key_of(*photo);
            (album, id, *confirmed_at)
        });
        sqlx::query(MARK_PUBLISHED)
            .bind(json_rows(rows)?)
            .bind(now)
            .execute(self)
            .await
            .map_err(store_error("mark photos as published"))
            .map(drop)
    }
}

/// A JSON list of rows, for `json_each`.
fn json_rows<T: Serialize>(rows: impl Iterator<Item = T>) -> Result<String> {
    to_json(&rows.collect::<Vec<_>>())
}

/// An id as `unhex` reads it.
fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

fn key_of(PhotoRef { album, photo }: PhotoRef) -> (String, String) {
    (hex(album.0), hex(photo.0))
}
