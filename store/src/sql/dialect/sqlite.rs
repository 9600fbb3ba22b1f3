//! SQLite: one statement per photo. A write transaction holds the lock of the whole file, so that there is nothing to lock
//! per photo.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::{LeaseWindow, PhotoRowState, PhotoStateRow, QueueWrites, album_not_found, queue_uploaded};
use crate::model::encoding::{to_micros, vector_to_bytes};
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{DetectedFace, DetectedText, NewPhoto};
use crate::search::faces::Change;
use crate::sql::error::store_error;
use crate::sql::row_types::index_state_to_str;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};

/// Public for the test of query plans.
pub(in crate::sql) const RENEW_LEASE: &str =
    "update photo set lease_until = $2 where lease = $1 and state = 'processing'";

#[async_trait]
impl QueueWrites for SqliteConnection {
    async fn lock_photos(&mut self, photos: &[PhotoRef]) -> Result<HashMap<PhotoRef, PhotoRowState>> {
        let mut locked = HashMap::with_capacity(photos.len());
        for PhotoRef { album, photo } in photos {
            let row: Option<PhotoStateRow> = sqlx::query_as(
                "select album, id, state, attempts, lease, lease_until from photo where album = $1 and id = $2 \
                 and (select closed_at from album where album.id = photo.album) is null",
            )
            .bind(album)
            .bind(photo)
            .fetch_optional(&mut *self)
            .await
            .map_err(store_error("lock photos"))?;
            locked.extend(row.map(PhotoStateRow::into_state).transpose()?);
        }
        Ok(locked)
    }

    async fn insert_photos(
        &mut self,
        album: AlbumId,
        photos: Vec<(PhotoId, NewPhoto)>,
        now: i64,
    ) -> Result<()> {
        for (id, photo) in photos {
            let inserted = sqlx::query(
                "insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
                 select id, $2, $3, $4, 'awaiting_upload', $5, $5 from album where id = $1 and closed_at is null",
            )
            .bind(album)
            .bind(id)
            .bind(photo.filename)
            .bind(photo.content_type)
            .bind(now)
            .execute(&mut *self)
            .await
            .map_err(store_error("create photos"))?;
            if inserted.rows_affected() == 0 {
                return Err(album_not_found(album));
            }
        }
        Ok(())
    }

    async fn queue_photos(&mut self, uploads: &[(PhotoRef, Option<i64>)], now: i64) -> Result<()> {
        for (PhotoRef { album, photo }, size_bytes) in uploads {
            sqlx::query(queue_uploaded!("size_bytes = $3 where album = $1 and id = $2"))
                .bind(album)
                .bind(photo)
                .bind(size_bytes)
                .bind(now)
                .execute(&mut *self)
                .await
                .map_err(store_error("confirm photos"))?;
        }
        Ok(())
    }

    async fn assign_leases(
        &mut self,
        photos: &[(PhotoRef, LeaseId)],
        window: LeaseWindow,
    ) -> Result<HashMap<LeaseId, i64>> {
        let mut queued = HashMap::with_capacity(photos.len());
        for (PhotoRef { album, photo }, lease) in photos {
            let confirmed_at: i64 = sqlx::query_scalar(
                "update photo set state = 'processing', attempts = attempts + 1, lease = $3, lease_until = $4, \
                 updated_at = $5 where album = $1 and id = $2 returning confirmed_at",
            )
            .bind(album)
            .bind(photo)
            .bind(lease)
            .bind(window.until)
            .bind(window.now)
            .fetch_one(&mut *self)
            .await
            .map_err(store_error("lease photos"))?;
            queued.insert(*lease, confirmed_at);
        }
        Ok(queued)
    }

    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>> {
        let mut running = HashSet::with_capacity(leases.len());
        for lease in leases {
            let renewed = sqlx::query(RENEW_LEASE)
                .bind(lease)
                .bind(until)
                .execute(&mut *self)
                .await
                .map_err(store_error("renew leases"))?;
            if renewed.rows_affected() > 0 {
                running.insert(*lease);
            }
        }
        Ok(running)
    }

    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()> {
        for lease in leases {
            sqlx::query(
                "update photo set state = 'queued', attempts = attempts - 1, lease = null, lease_until = 0, \
                 updated_at = $2, published_at = null, confirmed_at = confirmed_at + 1 where lease = $1 and state = 'processing'",
            )
            .bind(lease)
            .bind(now)
            .execute(&mut *self)
            .await
            .map_err(store_error("release photos"))?;
        }
        Ok(())
    }

    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()> {
        for results in photos {
            sqlx::query(
                "update photo set state = 'ready', width = $3, height = $4, taken_at = $5, camera = $6, \
                 skipped_runners = $7, settled_at = $8, updated_at = $8, attempts = 0, lease = null, lease_until = 0 \
                 where album = $1 and id = $2",
            )
            .bind(results.lease.album)
            .bind(results.lease.photo)
            .bind(i64::from(results.size.width))
            .bind(i64::from(results.size.height))
            .bind(results.taken_at.map(to_micros))
            .bind(results.camera.as_deref())
            .bind(i64::from(results.skipped_runners))
            .bind(now)
            .execute(&mut *self)
            .await
            .map_err(store_error("finish photos"))?;
        }
        Ok(())
    }

    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<()> {
        for PhotoRef { album, photo } in photos {
            sqlx::query("delete from face where album = $1 and photo = $2")
                .bind(album)
                .bind(photo)
                .execute(&mut *self)
                .await
                .map_err(store_error("delete faces"))?;
            sqlx::query("delete from seen_text where album = $1 and photo = $2")
                .bind(album)
                .bind(photo)
                .execute(&mut *self)
                .await
                .map_err(store_error("delete texts"))?;
        }
        Ok(())
    }

    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()> {
        for results in photos {
            let photo = PhotoRef { album: results.lease.album, photo: results.lease.photo };
            for face in &results.faces {
                insert_face(self, photo, face).await?;
            }
            for text in &results.texts {
                insert_text(self, photo, text).await?;
            }
        }
        Ok(())
    }

    async fn record_change(&mut self, album: AlbumId, change: Change, photos: &[PhotoId]) -> Result<()> {
        for photo in photos {
            sqlx::query(
                "insert into photo_change (album, change, photo, mark) values ($1, $2, $3, $4) \
                 on conflict do nothing",
            )
            .bind(album)
            .bind(change.number)
            .bind(photo)
            .bind(change.nonce)
            .execute(&mut *self)
            .await
            .map_err(store_error("record a change"))?;
        }
        Ok(())
    }

    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()> {
        for UnpublishedPhoto { photo, confirmed_at } in photos {
            sqlx::query(
                "update photo set published_at = $4 where album = $1 and id = $2 and confirmed_at = $3 \
                 and (select closed_at from album where album.id = photo.album) is null",
            )
            .bind(photo.album)
            .bind(photo.photo)
            .bind(confirmed_at)
            .bind(now)
            .execute(&mut *self)
            .await
            .map_err(store_error("mark photos as published"))?;
        }
        Ok(())
    }
}

async fn insert_face(
    connection: &mut SqliteConnection,
    PhotoRef { album, photo }: PhotoRef,
    face: &DetectedFace,
) -> Result<()> {
    sqlx::query(
        "insert into face (album, photo, box_top, box_left, box_width, box_height, confidence, unindexed, \
         model, embedding) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(album)
    .bind(photo)
    .bind(face.bounding_box.top)
    .bind(face.bounding_box.left)
    .bind(face.bounding_box.width)
    .bind(face.bounding_box.height)
    .bind(face.confidence)
    .bind(face.unindexed.map(|reason| reason.as_str()))
    .bind(face.embedding.as_ref().map(|embedding| embedding.model.as_str()))
    .bind(face.embedding.as_ref().map(|embedding| vector_to_bytes(&embedding.vector)))
    .execute(connection)
    .await
    .map_err(store_error("insert faces"))
    .map(drop)
}

async fn insert_text(
    connection: &mut SqliteConnection,
    PhotoRef { album, photo }: PhotoRef,
    text: &DetectedText,
) -> Result<()> {
    sqlx::query(
        "insert into seen_text (album, photo, text, box_top, box_left, box_width, box_height, confidence, \
         standing) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(album)
    .bind(photo)
    .bind(text.text.as_str())
    .bind(text.bounding_box.top)
    .bind(text.bounding_box.left)
    .bind(text.bounding_box.width)
    .bind(text.bounding_box.height)
    .bind(text.confidence)
    .bind(index_state_to_str(text.index_state))
    .execute(connection)
    .await
    .map_err(store_error("insert texts"))
    .map(drop)
}
