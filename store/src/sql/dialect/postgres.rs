//! Postgres: a statement for all photos, their values in arrays.
//!
//! What a transaction changes it has locked before, by [`LOCK`], in the order of the photos' keys: two transactions that
//! want some of the same photos meet at the first of them, and one waits for the other there.

use std::collections::{HashMap, HashSet};

use super::{LeaseWindow, PhotoRowState, PhotoStateRow, QueueWrites, album_not_found};
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{BoundingBox, NewPhoto};
use crate::search::faces::Change;
use crate::sql::connection::timed::TimedConnection;
use crate::sql::error::fault;
use crate::sql::row_types::{index_state_to_str, micros, vector_to_bytes};
use crate::sql::statement::strip_nul;
use crate::traits::{PhotoRef, PhotoResults, Result, UnpublishedPhoto};
use async_trait::async_trait;

/// The lock that an update takes, taken beforehand; it lets those pass who only refer to the photo.
const LOCK_PHOTOS: &str = "select album, id, state, attempts, lease, lease_until from photo \
     where (album, id) in (select * from unnest($1::uuid[], $2::uuid[])) \
     and (select closed_at from album where album.id = photo.album) is null \
     order by album, id for no key update";

/// The photos of running leases, locked in the same order.
macro_rules! held_by_leases {
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
            .map_err(fault("lock photos"))?;
        rows.into_iter().map(PhotoStateRow::into_state).collect()
    }

    async fn insert_photos(
        &mut self,
        album: AlbumId,
        photos: Vec<(PhotoId, NewPhoto)>,
        now: i64,
    ) -> Result<()> {
        let (ids, photos): (Vec<PhotoId>, Vec<NewPhoto>) = photos.into_iter().unzip();
        let (names, types): (Vec<String>, Vec<String>) = photos
            .into_iter()
            .map(|photo| (strip_nul(photo.filename), strip_nul(photo.content_type)))
            .unzip();
        let expected = ids.len() as u64;
        // The album is held before its photos, which nobody else knows of yet.
        let inserted = sqlx::query(
            "with home as materialized (select id from album where id = $1 and closed_at is null for key share) \
             insert into photo (album, id, filename, content_type, state, created_at, updated_at) \
             select home.id, new.id, filename, content_type, 'awaiting_upload', $5, $5 \
             from home, unnest($2::uuid[], $3::text[], $4::text[]) as new (id, filename, content_type)",
        )
        .bind(album)
        .bind(ids)
        .bind(names)
        .bind(types)
        .bind(now)
        .execute(self)
        .await
        .map_err(fault("expect photos"))?
        .rows_affected();
        if inserted == expected { Ok(()) } else { Err(album_not_found(album)) }
    }

    async fn queue_photos(&mut self, photos: &[PhotoRef], now: i64) -> Result<()> {
        let (albums, ids) = unzip_refs(photos.iter().copied());
        sqlx::query(
            "update photo set state = 'queued', confirmed_at = $3, updated_at = $3, published_at = null \
             from unnest($1::uuid[], $2::uuid[]) as asked (album, id) \
             where photo.album = asked.album and photo.id = asked.id and photo.state = 'awaiting_upload'",
        )
        .bind(albums)
        .bind(ids)
        .bind(now)
        .execute(self)
        .await
        .map_err(fault("confirm photos"))
        .map(drop)
    }

    async fn assign_leases(
        &mut self,
        photos: &[(PhotoRef, LeaseId)],
        term: LeaseWindow,
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
        .bind(term.until)
        .bind(term.now)
        .fetch_all(self)
        .await
        .map_err(fault("lease photos"))?;
        Ok(queued.into_iter().collect())
    }

    async fn renew_leases(&mut self, leases: &[LeaseId], until: i64) -> Result<HashSet<LeaseId>> {
        let renewed: Vec<LeaseId> = sqlx::query_scalar(held_by_leases!("update photo set lease_until = $2"))
            .bind(leases)
            .bind(until)
            .fetch_all(self)
            .await
            .map_err(fault("renew leases"))?;
        Ok(renewed.into_iter().collect())
    }

    async fn release_leases(&mut self, leases: &[LeaseId], now: i64) -> Result<()> {
        sqlx::query(held_by_leases!(
            "update photo set state = 'queued', attempts = attempts - 1, lease = null, lease_until = 0, \
             updated_at = $2, published_at = null, confirmed_at = confirmed_at + 1"
        ))
        .bind(leases)
        .bind(now)
        .execute(self)
        .await
        .map_err(fault("give photos back"))
        .map(drop)
    }

    async fn mark_ready(&mut self, photos: &[&PhotoResults], now: i64) -> Result<()> {
        let (albums, ids) = unzip_refs(photos.iter().map(|finished| photo_ref(finished)));
        let side = |side: fn(&PhotoResults) -> u32| -> Vec<i64> {
            photos.iter().map(|finished| i64::from(side(finished))).collect()
        };
        let times: Vec<Option<i64>> = photos.iter().map(|finished| finished.taken_at.map(micros)).collect();
        let cameras: Vec<Option<String>> =
            photos.iter().map(|finished| finished.camera.clone().map(strip_nul)).collect();
        sqlx::query(
            "update photo set state = 'ready', width = seen.width, height = seen.height, \
             taken_at = seen.taken_at, camera = seen.camera, settled_at = $7, updated_at = $7, attempts = 0, \
             lease = null, lease_until = 0 \
             from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[]) \
             as seen (album, id, width, height, taken_at, camera) \
             where photo.album = seen.album and photo.id = seen.id",
        )
        .bind(albums)
        .bind(ids)
        .bind(side(|finished| finished.size.width))
        .bind(side(|finished| finished.size.height))
        .bind(times)
        .bind(cameras)
        .bind(now)
        .execute(self)
        .await
        .map_err(fault("finish photos"))
        .map(drop)
    }

    async fn delete_detections(&mut self, photos: &[PhotoRef]) -> Result<bool> {
        let (albums, ids) = unzip_refs(photos.iter().copied());
        let faces = sqlx::query(
            "delete from face where (album, photo) in (select * from unnest($1::uuid[], $2::uuid[]))",
        )
        .bind(&albums)
        .bind(&ids)
        .execute(&mut *self)
        .await
        .map_err(fault("forget faces"))?
        .rows_affected();
        sqlx::query(
            "delete from seen_text where (album, photo) in (select * from unnest($1::uuid[], $2::uuid[]))",
        )
        .bind(albums)
        .bind(ids)
        .execute(self)
        .await
        .map_err(fault("forget texts"))?;
        Ok(faces > 0)
    }

    async fn insert_detections(&mut self, photos: &[&PhotoResults]) -> Result<()> {
        insert_faces(self, photos).await?;
        insert_texts(self, photos).await
    }

    async fn record_change(&mut self, album: AlbumId, change: Change, photos: &[PhotoId]) -> Result<()> {
        sqlx::query(
            "insert into photo_change (album, change, photo, mark) select $1, $2, photo, $4 \
             from unnest($3::uuid[]) as changed (photo) on conflict do nothing",
        )
        .bind(album)
        .bind(change.number)
        .bind(photos)
        .bind(change.nonce)
        .execute(self)
        .await
        .map_err(fault("note a change"))
        .map(drop)
    }

    async fn mark_published(&mut self, photos: &[UnpublishedPhoto], now: i64) -> Result<()> {
        let named: Vec<PhotoRef> = photos.iter().map(|unpublished| unpublished.photo).collect();
        let held = self.lock_photos(&named).await?;
        // No others: a photo of a closed album, whose rows are being deleted, would be locked out of turn.
        let photos = photos.iter().filter(|unpublished| held.contains_key(&unpublished.photo));
        let (albums, ids) = unzip_refs(photos.clone().map(|unpublished| unpublished.photo));
        let turns: Vec<i64> = photos.map(|unpublished| unpublished.confirmed_at).collect();
        sqlx::query(
            "update photo set published_at = $4 \
             from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as named (album, id, confirmed_at) \
             where photo.album = named.album and photo.id = named.id \
             and photo.confirmed_at = named.confirmed_at",
        )
        .bind(albums)
        .bind(ids)
        .bind(turns)
        .bind(now)
        .execute(self)
        .await
        .map_err(fault("note published photos"))
        .map(drop)
    }
}

fn photo_ref(finished: &PhotoResults) -> PhotoRef {
    PhotoRef { album: finished.lease.album, photo: finished.lease.photo }
}

fn unzip_refs(photos: impl Iterator<Item = PhotoRef>) -> (Vec<AlbumId>, Vec<PhotoId>) {
    photos.map(|PhotoRef { album, photo }| (album, photo)).unzip()
}

/// What was seen, column by column.
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
    fn push(&mut self, finished: &PhotoResults, place: &BoundingBox, confidence: f64) {
        self.albums.push(finished.lease.album);
        self.photos.push(finished.lease.photo);
        self.tops.push(place.top);
        self.lefts.push(place.left);
        self.widths.push(place.width);
        self.heights.push(place.height);
        self.confidences.push(confidence);
    }
}

async fn insert_faces(link: &mut TimedConnection, photos: &[&PhotoResults]) -> Result<()> {
    let mut seen = DetectionColumns::default();
    let (mut reasons, mut models, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
    for finished in photos {
        for face in &finished.faces {
            seen.push(finished, &face.bounding_box, face.confidence);
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
    .bind(seen.albums)
    .bind(seen.photos)
    .bind(seen.tops)
    .bind(seen.lefts)
    .bind(seen.widths)
    .bind(seen.heights)
    .bind(seen.confidences)
    .bind(reasons)
    .bind(models)
    .bind(vectors)
    .execute(link)
    .await
    .map_err(fault("keep faces"))
    .map(drop)
}

async fn insert_texts(link: &mut TimedConnection, photos: &[&PhotoResults]) -> Result<()> {
    let mut seen = DetectionColumns::default();
    let (mut readings, mut standings) = (Vec::new(), Vec::new());
    for finished in photos {
        for text in &finished.texts {
            seen.push(finished, &text.bounding_box, text.confidence);
            readings.push(strip_nul(text.text.clone()));
            standings.push(index_state_to_str(text.index_state));
        }
    }
    if readings.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into seen_text (album, photo, box_top, box_left, box_width, box_height, confidence, text, \
         standing) select * from unnest($1::uuid[], $2::uuid[], $3::float8[], $4::float8[], \
         $5::float8[], $6::float8[], $7::float8[], $8::text[], $9::text[])",
    )
    .bind(seen.albums)
    .bind(seen.photos)
    .bind(seen.tops)
    .bind(seen.lefts)
    .bind(seen.widths)
    .bind(seen.heights)
    .bind(seen.confidences)
    .bind(readings)
    .bind(standings)
    .execute(link)
    .await
    .map_err(fault("keep texts"))
    .map(drop)
}
