//! The ends of photos: what was read is written, or why it never will be. Everything here runs inside the caller's
//! transaction.

use std::collections::BTreeMap;

use sqlx::{Sqlite, Transaction};

use super::fault;
use crate::ids::{AlbumId, LeaseId, PhotoId};
use crate::photo::{FailureReason, SeenFace, SeenText};
use crate::rows::{bytes_of, micros, now, standing_name};
use crate::traits::{Finish, Finished, Lease, Result};

const WHAT: &str = "finish photos";

/// A photo by its whole key.
type PhotoKey = (AlbumId, PhotoId);

/// Writes all of them. One answer each, in order.
pub(super) async fn finish_all(
    transaction: &mut Transaction<'static, Sqlite>,
    photos: &[Finished],
) -> Result<Vec<Finish>> {
    let mut answers = Vec::with_capacity(photos.len());
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for finished in photos {
        let Lease { album, photo, .. } = finished.lease;
        if !settle(transaction, finished).await? {
            answers.push(why_not(transaction, (album, photo)).await?);
            continue;
        }
        forget_seen(transaction, (album, photo)).await?;
        for face in &finished.faces {
            insert_face(transaction, (album, photo), face).await?;
        }
        for text in &finished.texts {
            insert_text(transaction, (album, photo), text).await?;
        }
        changed.entry(album).or_default().push(photo);
        answers.push(Finish::Done);
    }
    // Last, and in the order of the albums: where rows are locked, two workers cannot wait for each other.
    for (album, photos) in changed {
        note_changes(transaction, album, &photos).await?;
    }
    Ok(answers)
}

/// Ends a photo for good, if the lease is still the running one.
pub(super) async fn fail_leased(
    transaction: &mut Transaction<'static, Sqlite>,
    lease: &Lease,
    reason: FailureReason,
    detail: &str,
) -> Result<Finish> {
    let held: Option<i64> = sqlx::query_scalar(
        "select 1 from photo where album = $1 and id = $2 and lease = $3 and state = 'processing'",
    )
    .bind(lease.album)
    .bind(lease.photo)
    .bind(lease.id)
    .fetch_optional(&mut **transaction)
    .await
    .map_err(fault(WHAT))?;
    if held.is_none() {
        return why_not(transaction, (lease.album, lease.photo)).await;
    }
    fail_row(transaction, (lease.album, lease.photo), reason, detail).await?;
    Ok(Finish::Done)
}

/// Ends a photo for good; what an earlier reading saw in it goes too.
pub(super) async fn fail_row(
    transaction: &mut Transaction<'static, Sqlite>,
    (album, photo): PhotoKey,
    reason: FailureReason,
    detail: &str,
) -> Result<()> {
    sqlx::query(
        "update photo set state = 'failed', failure = $3, failure_detail = $4, settled_at = $5, \
         updated_at = $5, attempts = 0, lease = null, lease_until = 0 where album = $1 and id = $2",
    )
    .bind(album)
    .bind(photo)
    .bind(reason.as_str())
    .bind(detail)
    .bind(now())
    .execute(&mut **transaction)
    .await
    .map_err(fault(WHAT))?;
    if forget_seen(transaction, (album, photo)).await? {
        note_changes(transaction, album, &[photo]).await?;
    }
    Ok(())
}

/// Counts the album's changes up by one and notes which photos changed.
///
/// The update locks the album's row until the commit. So changes become visible in the order of their numbers, and
/// an index that has seen change n misses nothing below it; with a sequence instead of the row a transaction could
/// take number 7, commit after number 8, and be missed by every index that looked in between.
pub(super) async fn note_changes(
    transaction: &mut Transaction<'static, Sqlite>,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<()> {
    let change: i64 =
        sqlx::query_scalar("update album set changes = changes + 1 where id = $1 returning changes")
            .bind(album)
            .fetch_one(&mut **transaction)
            .await
            .map_err(fault(WHAT))?;
    for photo in photos {
        sqlx::query(
            "insert into photo_change (album, change, photo) values ($1, $2, $3) on conflict do nothing",
        )
        .bind(album)
        .bind(change)
        .bind(photo)
        .execute(&mut **transaction)
        .await
        .map_err(fault(WHAT))?;
    }
    Ok(())
}

/// Makes the photo ready under the fence of its lease; answers whether the lease was still the running one.
async fn settle(transaction: &mut Transaction<'static, Sqlite>, finished: &Finished) -> Result<bool> {
    let id: LeaseId = finished.lease.id;
    let settled = sqlx::query(
        "update photo set state = 'ready', width = $4, height = $5, taken_at = $6, camera = $7, \
         settled_at = $8, updated_at = $8, attempts = 0, lease = null, lease_until = 0 \
         where album = $1 and id = $2 and lease = $3 and state = 'processing'",
    )
    .bind(finished.lease.album)
    .bind(finished.lease.photo)
    .bind(id)
    .bind(i64::from(finished.size.width))
    .bind(i64::from(finished.size.height))
    .bind(finished.taken_at.map(micros))
    .bind(finished.camera.as_deref())
    .bind(now())
    .execute(&mut **transaction)
    .await
    .map_err(fault(WHAT))?
    .rows_affected();
    Ok(settled > 0)
}

/// What a lease that may not write is told.
async fn why_not(transaction: &mut Transaction<'static, Sqlite>, (album, photo): PhotoKey) -> Result<Finish> {
    let there: Option<i64> = sqlx::query_scalar("select 1 from photo where album = $1 and id = $2")
        .bind(album)
        .bind(photo)
        .fetch_optional(&mut **transaction)
        .await
        .map_err(fault(WHAT))?;
    Ok(if there.is_some() { Finish::Superseded } else { Finish::Gone })
}

/// Removes what an earlier reading saw; answers whether there were faces.
async fn forget_seen(
    transaction: &mut Transaction<'static, Sqlite>,
    (album, photo): PhotoKey,
) -> Result<bool> {
    let faces = sqlx::query("delete from face where album = $1 and photo = $2")
        .bind(album)
        .bind(photo)
        .execute(&mut **transaction)
        .await
        .map_err(fault(WHAT))?
        .rows_affected();
    sqlx::query("delete from seen_text where album = $1 and photo = $2")
        .bind(album)
        .bind(photo)
        .execute(&mut **transaction)
        .await
        .map_err(fault(WHAT))?;
    Ok(faces > 0)
}

async fn insert_face(
    transaction: &mut Transaction<'static, Sqlite>,
    (album, photo): PhotoKey,
    face: &SeenFace,
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
    .bind(face.embedding.as_ref().map(|embedding| bytes_of(&embedding.vector)))
    .execute(&mut **transaction)
    .await
    .map_err(fault(WHAT))
    .map(drop)
}

async fn insert_text(
    transaction: &mut Transaction<'static, Sqlite>,
    (album, photo): PhotoKey,
    text: &SeenText,
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
    .bind(standing_name(text.standing))
    .execute(&mut **transaction)
    .await
    .map_err(fault(WHAT))
    .map(drop)
}
