//! Postgres: one statement for all photos, with their values in arrays.
//!
//! A transaction locks the photos that it changes beforehand, by [`LOCK_PHOTOS`], in the order of their keys: of two
//! transactions that need some of the same photos, one waits for the other at the first of them and they cannot deadlock.

use std::collections::{HashMap, HashSet};

use super::{
    LeaseWindow, PhotoRowState, PhotoStateRow, QueueWrites, album_not_found, photo_ref, queue_uploaded,
};
use crate::model::encoding::{to_micros, vector_to_bytes};
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{BoundingBox, NewPhoto, ReadText, TextLattice};
use crate::search::faces::Change;
use crate::sql::changes::ChangeKind;
use crate::sql::connection::timed::TimedConnection;
use crate::sql::costs::{SpentNumbers, to_bigint};
use crate::sql::credits::ledger::{Holds, balances_of_postgres};
use crate::sql::error::store_error;
use crate::sql::row_types::index_state_to_str;
use crate::sql::statement::strip_nul;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};
use async_trait::async_trait;

/// Takes the lock that an update takes. It does not block transactions that only refer to the photo by a foreign key.
const LOCK_PHOTOS: &str = "select album, id, state, attempts, lease, lease_until, held, charged_at, confirmed_at from photo \
     where (album, id) in (select * from unnest($1::uuid[], $2::uuid[])) \
     and (select closed_at from album where album.id = photo.album) is null \
     order by album, id for no key update";

/// Changes the photos of running leases, after locking them in the order of their keys.
macro_rules! lock_by_lease {
    ($rest:literal) => {
        concat!(
            "with held as materialized (select album, id, lease from photo \
             where lease = any($1) and state = 'processing' order by album, id for no key update) ",
            $rest,
            " from held where photo.album = held.album and photo.id = held.id returning held.lease"
        )
    };
}

#[async_trait]
impl QueueWrites for TimedConnection {
    async fn lock_photos(&mut self, photos: &[PhotoRef]) -> Result<HashMap<PhotoRef, PhotoRowState>> {
        let (albums, ids) = unzip_refs(photos.iter().copied());
        let rows: Vec<PhotoStateRow> = sqlx::query_as(LOCK_PHOTOS)
            .bind(albums)
            .bind(ids)
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
        let (ids, photos): (Vec<PhotoId>, Vec<NewPhoto>) = photos.into_iter().unzip();
        let (filenames, content_types): (Vec<String>, Vec<String>) = photos
            .into_iter()
            .map(|photo| (strip_nul(photo.filename), strip_nul(photo.content_type)))
            .unzip();
        let expected = ids.len() as u64;
        // The album is locked before its photos, which is safe: no other transaction knows these photos yet.
        let inserted = sqlx::query(
            "with home as materialized (select id from album where id = $1 and closed_at is null for key share) \
             insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
             select home.id, new.id, filename, content_type, 'awaiting_upload', $5, $5 \
             from home, unnest($2::uuid[], $3::text[], $4::text[]) as new (id, filename, content_type)",
        )
        .bind(album)
        .bind(ids)
        .bind(filenames)
        .bind(content_types)
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
        let (albums, ids) = unzip_refs(uploads.iter().map(|(photo, _)| *photo));
        let sizes: Vec<Option<i64>> = uploads.iter().map(|(_, size_bytes)| *size_bytes).collect();
        sqlx::query(concat!(
            "with balances as (",
            balances_of_postgres!("$6", "$7"),
            ") ",
            queue_uploaded!(
                "$4",
                "$5",
                "size_bytes = uploaded.size_bytes \
             from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as uploaded (album, id, size_bytes) \
             where photo.album = uploaded.album and photo.id = uploaded.id"
            )
        ))
        .bind(albums)
        .bind(ids)
        .bind(sizes)
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
        let (albums, ids) = unzip_refs(photos.iter().map(|(photo, _)| *photo));
        let leases: Vec<LeaseId> = photos.iter().map(|(_, lease)| *lease).collect();
        let queued: Vec<(LeaseId, i64)> = sqlx::query_as(
            "update photo set state = 'processing', attempts = attempts + 1, lease = taken.lease, \
             lease_until = $4, updated_at = $5 \
             from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as taken (album, id, lease) \
             where photo.album = taken.album and photo.id = taken.id \
             returning photo.lease, photo.confirmed_at",
        )
        .bind(albums)
        .bind(ids)
        .bind(leases)
        .bind(window.until)
        .bind(window.now)
        .fetch_all(self)
        .await
        .map_err(store_error("lease photos"))?;
        Ok(queued.into_iter().collect())
    }

    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>> {
        let renewed: Vec<LeaseId> = sqlx::query_scalar(lock_by_lease!("update photo set lease_until = $2"))
            .bind(leases)
            .bind(until)
            .fetch_all(self)
            .await
            .map_err(store_error("renew leases"))?;
        Ok(renewed.into_iter().collect())
    }

    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()> {
        sqlx::query(lock_by_lease!(
            "update photo set state = 'queued', attempts = attempts - 1, lease = null, lease_until = 0, \
             updated_at = $2, published_at = null, confirmed_at = confirmed_at + 1"
        ))
        .bind(leases)
        .bind(now)
        .execute(self)
        .await
        .map_err(store_error("release photos"))
        .map(drop)
    }

    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()> {
        let (albums, ids) = unzip_refs(photos.iter().map(|results| photo_ref(results)));
        let number = |number: fn(&PhotoResults) -> u32| -> Vec<i64> {
            photos.iter().map(|results| i64::from(number(results))).collect()
        };
        let spent = |column: fn(&SpentNumbers) -> i64| -> Vec<i64> {
            photos.iter().map(|results| column(&SpentNumbers::of(&results.lease.spent.total()))).collect()
        };
        let times: Vec<Option<i64>> = photos.iter().map(|results| results.taken_at.map(to_micros)).collect();
        let cameras: Vec<Option<String>> =
            photos.iter().map(|results| results.camera.clone().map(strip_nul)).collect();
        sqlx::query(
            "update photo set state = 'ready', width = seen.width, height = seen.height, \
             taken_at = seen.taken_at, camera = seen.camera, skipped_runners = seen.skipped_runners, settled_at = $8, \
             updated_at = $8, attempts = 0, lease = null, lease_until = 0, held = 0, list_version = 0, \
             marked_version = seen.marked, picture_bytes = seen.picture_bytes, \
             marked_bytes = coalesce(seen.marked_bytes, photo.marked_bytes), charged_at = least(charged_at, $8), cpu_us = cpu_us + seen.cpu, device_us = device_us + seen.device, \
             bytes_read = photo.bytes_read + seen.bytes_in, bytes_written = photo.bytes_written + seen.bytes_out \
             from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], \
             $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[]) as seen (album, id, width, height, taken_at, camera, \
             skipped_runners, cpu, device, bytes_in, bytes_out, marked, picture_bytes, marked_bytes) \
             where photo.album = seen.album and photo.id = seen.id",
        )
        .bind(albums)
        .bind(ids)
        .bind(number(|results| results.size.width))
        .bind(number(|results| results.size.height))
        .bind(times)
        .bind(cameras)
        .bind(number(|results| results.skipped_runners))
        .bind(now)
        .bind(spent(|spent| spent.cpu_us))
        .bind(spent(|spent| spent.device_us))
        .bind(spent(|spent| spent.bytes_read))
        .bind(spent(|spent| spent.bytes_written))
        .bind(photos.iter().map(|results| results.watermark_version).collect::<Vec<i64>>())
        .bind(photos.iter().map(|results| to_bigint(results.pictures.picture_bytes)).collect::<Vec<i64>>())
        .bind(photos.iter().map(|results| results.pictures.marked_bytes.map(to_bigint)).collect::<Vec<_>>())
        .execute(self)
        .await
        .map_err(store_error("finish photos"))
        .map(drop)
    }

    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<()> {
        let (albums, ids) = unzip_refs(photos.iter().copied());
        sqlx::query(
            "delete from face where (album, photo) in (select * from unnest($1::uuid[], $2::uuid[]))",
        )
        .bind(&albums)
        .bind(&ids)
        .execute(&mut *self)
        .await
        .map_err(store_error("delete faces"))?;
        sqlx::query(
            "delete from seen_text where (album, photo) in (select * from unnest($1::uuid[], $2::uuid[]))",
        )
        .bind(albums)
        .bind(ids)
        .execute(self)
        .await
        .map_err(store_error("delete texts"))
        .map(drop)
    }

    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()> {
        insert_faces(self, photos).await?;
        insert_texts(self, photos).await
    }

    async fn record_change(
        &mut self,
        album: AlbumId,
        change: Change,
        photos: &[PhotoId],
        kind: ChangeKind,
    ) -> Result<()> {
        sqlx::query(
            "insert into photo_change (album, change, photo, mark, settled) select $1, $2, photo, $4, $5 \
             from unnest($3::uuid[]) as changed (photo) on conflict do nothing",
        )
        .bind(album)
        .bind(change.number)
        .bind(photos)
        .bind(change.nonce)
        .bind(i64::from(kind == ChangeKind::Settled))
        .execute(self)
        .await
        .map_err(store_error("record a change"))
        .map(drop)
    }

    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()> {
        let named: Vec<PhotoRef> = photos.iter().map(|unpublished| unpublished.photo).collect();
        let locked = self.lock_photos(&named).await?;
        // Only those that were locked: updating a photo of a closed album, whose rows are being deleted, would lock it
        // out of order.
        let photos = photos.iter().filter(|unpublished| locked.contains_key(&unpublished.photo));
        let (albums, ids) = unzip_refs(photos.clone().map(|unpublished| unpublished.photo));
        let confirmed_at: Vec<i64> = photos.map(|unpublished| unpublished.confirmed_at).collect();
        sqlx::query(
            "update photo set published_at = $4 \
             from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as named (album, id, confirmed_at) \
             where photo.album = named.album and photo.id = named.id \
             and photo.confirmed_at = named.confirmed_at",
        )
        .bind(albums)
        .bind(ids)
        .bind(confirmed_at)
        .bind(now)
        .execute(self)
        .await
        .map_err(store_error("mark photos as published"))
        .map(drop)
    }
}

fn unzip_refs(photos: impl Iterator<Item = PhotoRef>) -> (Vec<AlbumId>, Vec<PhotoId>) {
    photos.map(|PhotoRef { album, photo }| (album, photo)).unzip()
}

/// The columns that faces and texts share, one value per detection.
#[derive(Default)]
struct DetectionColumns {
    albums: Vec<AlbumId>,
    photos: Vec<PhotoId>,
    tops: Vec<f64>,
    lefts: Vec<f64>,
    widths: Vec<f64>,
    heights: Vec<f64>,
    confidences: Vec<f64>,
}

impl DetectionColumns {
    fn push(&mut self, results: &PhotoResults, bounding_box: &BoundingBox, confidence: f64) {
        self.albums.push(results.lease.album);
        self.photos.push(results.lease.photo);
        self.tops.push(bounding_box.top);
        self.lefts.push(bounding_box.left);
        self.widths.push(bounding_box.width);
        self.heights.push(bounding_box.height);
        self.confidences.push(confidence);
    }
}

async fn insert_faces(connection: &mut TimedConnection, photos: &[&PhotoResults]) -> Result<()> {
    let mut columns = DetectionColumns::default();
    let (mut reasons, mut models, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
    for results in photos {
        for face in &results.faces {
            columns.push(results, &face.bounding_box, face.confidence);
            reasons.push(face.unindexed.map(|reason| reason.as_str()));
            models.push(face.embedding.as_ref().map(|embedding| embedding.model.as_str()));
            vectors.push(face.embedding.as_ref().map(|embedding| vector_to_bytes(&embedding.vector)));
        }
    }
    if vectors.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into face (album, photo, box_top, box_left, box_width, box_height, confidence, unindexed, \
         model, embedding) select * from unnest($1::uuid[], $2::uuid[], $3::float8[], $4::float8[], \
         $5::float8[], $6::float8[], $7::float8[], $8::text[], $9::text[], $10::bytea[])",
    )
    .bind(columns.albums)
    .bind(columns.photos)
    .bind(columns.tops)
    .bind(columns.lefts)
    .bind(columns.widths)
    .bind(columns.heights)
    .bind(columns.confidences)
    .bind(reasons)
    .bind(models)
    .bind(vectors)
    .execute(connection)
    .await
    .map_err(store_error("insert faces"))
    .map(drop)
}

async fn insert_texts(connection: &mut TimedConnection, photos: &[&PhotoResults]) -> Result<()> {
    let mut columns = DetectionColumns::default();
    let mut texts = Vec::new();
    for results in photos {
        for text in &results.texts {
            columns.push(results, &text.bounding_box, text.confidence);
            texts.push(text);
        }
    }
    if texts.is_empty() {
        return Ok(());
    }
    let read = || texts.iter().map(|text| text.read.as_ref());
    let lattices = || texts.iter().map(|text| text.lattice.as_ref());
    let standing = |read: &ReadText| index_state_to_str(read.index_state);
    let bytes = |lattice: &TextLattice| lattice.lattice.as_bytes().to_vec();
    sqlx::query(
        "insert into seen_text (album, photo, box_top, box_left, box_width, box_height, confidence, text, \
         standing, read_as, read_confidence, read_standing, recogniser, lattice, \
         max_confidence) select * from unnest($1::uuid[], $2::uuid[], $3::float8[], $4::float8[], $5::float8[], $6::float8[], \
         $7::float8[], $8::text[], $9::text[], $10::text[], $11::float8[], $12::text[], $13::text[], $14::bytea[], \
         $15::float8[])",
    )
    .bind(columns.albums)
    .bind(columns.photos)
    .bind(columns.tops)
    .bind(columns.lefts)
    .bind(columns.widths)
    .bind(columns.heights)
    .bind(columns.confidences)
    .bind(texts.iter().map(|text| strip_nul(text.text.clone())).collect::<Vec<_>>())
    .bind(texts.iter().map(|text| index_state_to_str(text.index_state)).collect::<Vec<_>>())
    .bind(read().map(|read| Some(strip_nul(read?.text.clone()))).collect::<Vec<_>>())
    .bind(read().map(|read| Some(read?.confidence)).collect::<Vec<_>>())
    .bind(read().map(|read| read.map(standing)).collect::<Vec<_>>())
    .bind(lattices().map(|lattice| Some(lattice?.recogniser.clone())).collect::<Vec<_>>())
    .bind(lattices().map(|lattice| lattice.map(bytes)).collect::<Vec<_>>())
    .bind(texts.iter().map(|text| text.max_confidence).collect::<Vec<_>>())
    .execute(connection)
    .await
    .map_err(store_error("insert texts"))
    .map(drop)
}
