//! The ends of photos: what was read is written, or why it never will be. Everything here runs inside the caller's
//! transaction.

use std::collections::{BTreeMap, HashMap};

use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::search::faces::Change;
use crate::sql::dialect::PhotoRowState;
use crate::sql::{Transaction, query};
use crate::traits::{Finish, Lease, PhotoRef, PhotoResults, Result};

const OPERATION: &str = "finish photos";

/// Writes all of them. One answer each, in order.
pub(crate) async fn finish_photos(
    transaction: &mut Transaction,
    photos: &[PhotoResults],
) -> Result<Vec<Finish>> {
    let keys: Vec<PhotoRef> = photos.iter().map(|finished| photo_ref(&finished.lease)).collect();
    let mut held = transaction.queue_writes().lock_photos(&keys).await?;
    let mut answers = Vec::with_capacity(photos.len());
    let mut done = Vec::with_capacity(photos.len());
    for finished in photos {
        let answer = check_lease(&mut held, &finished.lease);
        if answer == Finish::Done {
            done.push(finished);
        }
        answers.push(answer);
    }
    if done.is_empty() {
        return Ok(answers);
    }
    let keys: Vec<PhotoRef> = done.iter().map(|finished| photo_ref(&finished.lease)).collect();
    let now = transaction.read_clock(OPERATION).await?;
    transaction.queue_writes().mark_ready(&done, now).await?;
    transaction.queue_writes().delete_detections(&keys).await?;
    transaction.queue_writes().insert_detections(&done).await?;
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for PhotoRef { album, photo } in keys {
        changed.entry(album).or_default().push(photo);
    }
    // Last, and in the order of the albums: where rows are locked, two workers cannot wait for each other.
    for (album, photos) in changed {
        record_changes(transaction, album, &photos).await?;
    }
    Ok(answers)
}

/// Ends a photo for good, if the lease is still the running one.
pub(crate) async fn fail_leased_photo(
    transaction: &mut Transaction,
    lease: &Lease,
    reason: FailureReason,
    detail: &str,
) -> Result<Finish> {
    let photo = photo_ref(lease);
    let mut held = transaction.queue_writes().lock_photos(&[photo]).await?;
    let answer = check_lease(&mut held, lease);
    if answer == Finish::Done {
        fail_locked_photo(transaction, photo, reason, detail).await?;
    }
    Ok(answer)
}

/// Ends a photo that is held for good; what an earlier reading saw in it goes too.
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
    if transaction.queue_writes().delete_detections(&[photo]).await? {
        record_changes(transaction, photo.album, &[photo.photo]).await?;
    }
    Ok(())
}

/// Counts the album's changes up by one and notes which photos changed.
///
/// The update locks the album's row until the commit. So changes become visible in the order of their numbers, and
/// an index that has seen change n misses nothing below it; with a sequence instead of the row a transaction could
/// take number 7, commit after number 8, and be missed by every index that looked in between.
pub(crate) async fn record_changes(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<()> {
    let (number,): (i64,) =
        query(OPERATION, "update album set changes = changes + 1 where id = $1 returning changes")
            .bind(album)
            .fetch_one(&mut *transaction)
            .await?;
    transaction.queue_writes().record_change(album, Change::new(number), photos).await
}

fn photo_ref(lease: &Lease) -> PhotoRef {
    PhotoRef { album: lease.album, photo: lease.photo }
}

/// Whether the lease may still write, or what it is told instead. It may once.
fn check_lease(held: &mut HashMap<PhotoRef, PhotoRowState>, lease: &Lease) -> Finish {
    let Some(standing) = held.get_mut(&photo_ref(lease)) else {
        return Finish::Gone;
    };
    if standing.state != PhotoState::Processing || standing.lease != Some(lease.id) {
        return Finish::Superseded;
    }
    standing.lease = None;
    Finish::Done
}
