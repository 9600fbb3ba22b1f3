//! The ends of photos: what was read is written, or why it never will be. Everything here runs inside the caller's
//! transaction.

use std::collections::{BTreeMap, HashMap};

use super::bulk::Standing;
use super::{Transaction, sql};
use crate::face_index::Change;
use crate::ids::{AlbumId, PhotoId};
use crate::photo::{FailureReason, PhotoState};
use crate::traits::{Finish, Finished, Lease, PhotoRef, Result};

const WHAT: &str = "finish photos";

/// Writes all of them. One answer each, in order.
pub(super) async fn finish_all(transaction: &mut Transaction, photos: &[Finished]) -> Result<Vec<Finish>> {
    let keys: Vec<PhotoRef> = photos.iter().map(|finished| key(&finished.lease)).collect();
    let mut held = transaction.bulk().hold(&keys).await?;
    let mut answers = Vec::with_capacity(photos.len());
    let mut done = Vec::with_capacity(photos.len());
    for finished in photos {
        let answer = judge(&mut held, &finished.lease);
        if answer == Finish::Done {
            done.push(finished);
        }
        answers.push(answer);
    }
    if done.is_empty() {
        return Ok(answers);
    }
    let keys: Vec<PhotoRef> = done.iter().map(|finished| key(&finished.lease)).collect();
    let now = transaction.now(WHAT).await?;
    transaction.bulk().settle(&done, now).await?;
    transaction.bulk().forget_seen(&keys).await?;
    transaction.bulk().insert_seen(&done).await?;
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for PhotoRef { album, photo } in keys {
        changed.entry(album).or_default().push(photo);
    }
    // Last, and in the order of the albums: where rows are locked, two workers cannot wait for each other.
    for (album, photos) in changed {
        note_changes(transaction, album, &photos).await?;
    }
    Ok(answers)
}

/// Ends a photo for good, if the lease is still the running one.
pub(super) async fn fail_leased(
    transaction: &mut Transaction,
    lease: &Lease,
    reason: FailureReason,
    detail: &str,
) -> Result<Finish> {
    let photo = key(lease);
    let mut held = transaction.bulk().hold(&[photo]).await?;
    let answer = judge(&mut held, lease);
    if answer == Finish::Done {
        fail_held(transaction, photo, reason, detail).await?;
    }
    Ok(answer)
}

/// Ends a photo that is held for good; what an earlier reading saw in it goes too.
pub(super) async fn fail_held(
    transaction: &mut Transaction,
    photo: PhotoRef,
    reason: FailureReason,
    detail: &str,
) -> Result<()> {
    let fail = "update photo set state = 'failed', failure = $3, failure_detail = $4, settled_at = $5, \
                updated_at = $5, attempts = 0, lease = null, lease_until = 0 where album = $1 and id = $2";
    let now = transaction.now(WHAT).await?;
    sql(WHAT, fail)
        .bind(photo.album)
        .bind(photo.photo)
        .bind(reason.as_str())
        .bind(detail)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    if transaction.bulk().forget_seen(&[photo]).await? {
        note_changes(transaction, photo.album, &[photo.photo]).await?;
    }
    Ok(())
}

/// Counts the album's changes up by one and notes which photos changed.
///
/// The update locks the album's row until the commit. So changes become visible in the order of their numbers, and
/// an index that has seen change n misses nothing below it; with a sequence instead of the row a transaction could
/// take number 7, commit after number 8, and be missed by every index that looked in between.
pub(super) async fn note_changes(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<()> {
    let (number,): (i64,) =
        sql(WHAT, "update album set changes = changes + 1 where id = $1 returning changes")
            .bind(album)
            .fetch_one(&mut *transaction)
            .await?;
    transaction.bulk().note_change(album, Change::numbered(number), photos).await
}

fn key(lease: &Lease) -> PhotoRef {
    PhotoRef { album: lease.album, photo: lease.photo }
}

/// Whether the lease may still write, or what it is told instead. It may once.
fn judge(held: &mut HashMap<PhotoRef, Standing>, lease: &Lease) -> Finish {
    let Some(standing) = held.get_mut(&key(lease)) else {
        return Finish::Gone;
    };
    if standing.state != PhotoState::Processing || standing.lease != Some(lease.id) {
        return Finish::Superseded;
    }
    standing.lease = None;
    Finish::Done
}
