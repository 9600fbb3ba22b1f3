//! Finishes photos: writes their results, or the reason of their failure. Every function runs inside the caller's
//! transaction.

use std::collections::{BTreeMap, HashMap};

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sql::changes::record_changes;
use crate::sql::database::Transaction;
use crate::sql::dialect::PhotoRowState;
use crate::sql::start_lists::note_album;
use crate::sql::statement::{Statement, query};
use crate::traits::{FinishOutcome, Lease, PhotoRef, PhotoResults, Result};

const OPERATION: &str = "finish photos";

/// Writes the results of every photo whose lease is still running. Returns one outcome per photo, in order.
pub(crate) async fn finish_photos(
    transaction: &mut Transaction,
    photos: &[PhotoResults],
    judged_by: &JudgedBy,
) -> Result<FinishedPhotos> {
    let keys: Vec<PhotoRef> = photos.iter().map(|results| photo_ref(&results.lease)).collect();
    let mut locked = transaction.queue_writes().lock_photos(&keys).await?;
    let mut outcomes = Vec::with_capacity(photos.len());
    let mut done = Vec::with_capacity(photos.len());
    for results in photos {
        let outcome = check_lease(&mut locked, &results.lease);
        if outcome == FinishOutcome::Done {
            done.push(results);
        }
        outcomes.push(outcome);
    }
    if done.is_empty() {
        return Ok(FinishedPhotos { outcomes, outdated: Vec::new() });
    }
    let keys: Vec<PhotoRef> = done.iter().map(|results| photo_ref(&results.lease)).collect();
    let now = transaction.read_clock(OPERATION).await?;
    transaction.queue_writes().mark_ready(&done, now).await?;
    transaction.queue_writes().delete_detections(&keys).await?;
    transaction.queue_writes().insert_detections(&done).await?;
    let mut outdated = Vec::new();
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for PhotoRef { album, photo } in keys {
        changed.entry(album).or_default().push(photo);
    }
    for (album, photos) in &changed {
        mark_judged(transaction, *album, photos, judged_by.get(album).copied().unwrap_or_default()).await?;
    }
    // Last, and in the order of the albums, whose rows this locks: see the lock order of `sql`.
    for (album, photos) in changed {
        let version = record_changes(transaction, album, &photos).await?;
        if judged_by.get(&album) != Some(&version) {
            outdated.push(album);
            note_album(transaction, OPERATION, album).await?;
        }
    }
    Ok(FinishedPhotos { outcomes, outdated })
}

/// What finishing photos did.
pub(crate) struct FinishedPhotos {
    /// One for each photo, in order.
    pub(crate) outcomes: Vec<FinishOutcome>,
    /// Albums whose rules are newer than those by which their photos were judged.
    pub(crate) outdated: Vec<AlbumId>,
}

/// The versions of the rules by which the texts of photos were judged.
pub(crate) type JudgedBy = HashMap<AlbumId, i64>;

/// Notes by which version photos were judged, which is 0 by itself.
async fn mark_judged(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
    version: i64,
) -> Result<()> {
    if version == 0 {
        return Ok(());
    }
    let photos: Vec<uuid::Uuid> = photos.iter().map(|photo| photo.0).collect();
    query(OPERATION, MARK_JUDGED).bind(album).bind(version).bind(photos).execute(transaction).await.map(drop)
}

const MARK_JUDGED: Statement = Statement::PerDialect {
    sqlite: "update photo set list_version = $2 where album = $1 and id in (select unhex(value) from json_each($3))",
    postgres: "update photo set list_version = $2 where album = $1 and id = any($3)",
};

/// Marks a photo as failed, if the lease is still running.
pub(crate) async fn fail_leased_photo(
    transaction: &mut Transaction,
    lease: &Lease,
    reason: FailureReason,
    detail: &str,
) -> Result<FinishOutcome> {
    let photo = photo_ref(lease);
    let mut locked = transaction.queue_writes().lock_photos(&[photo]).await?;
    let outcome = check_lease(&mut locked, lease);
    if outcome == FinishOutcome::Done {
        fail_locked_photo(transaction, photo, reason, detail).await?;
    }
    Ok(outcome)
}

/// Marks a locked photo as failed and deletes the detections of an earlier attempt. A change of its album even if there
/// were none: its failure is told.
pub(crate) async fn fail_locked_photo(
    transaction: &mut Transaction,
    photo: PhotoRef,
    reason: FailureReason,
    detail: &str,
) -> Result<()> {
    let fail = "update photo set state = 'failed', failure = $3, failure_detail = $4, settled_at = $5, \
                updated_at = $5, attempts = 0, lease = null, lease_until = 0 where album = $1 and id = $2";
    let now = transaction.read_clock(OPERATION).await?;
    query(OPERATION, fail)
        .bind(photo.album)
        .bind(photo.photo)
        .bind(reason.as_str())
        .bind(detail)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    transaction.queue_writes().delete_detections(&[photo]).await?;
    record_changes(transaction, photo.album, &[photo.photo]).await.map(drop)
}

fn photo_ref(lease: &Lease) -> PhotoRef {
    PhotoRef { album: lease.album, photo: lease.photo }
}

/// Whether the lease may write. A second call for the same lease returns `Superseded`.
fn check_lease(locked: &mut HashMap<PhotoRef, PhotoRowState>, lease: &Lease) -> FinishOutcome {
    let Some(row) = locked.get_mut(&photo_ref(lease)) else {
        return FinishOutcome::Gone;
    };
    if row.state != PhotoState::Processing || row.lease != Some(lease.id) {
        return FinishOutcome::Superseded;
    }
    row.lease = None;
    FinishOutcome::Done
}
