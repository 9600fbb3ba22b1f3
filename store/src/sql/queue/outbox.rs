//! The outbox: queued photos for which no message is published yet, and published ones whose message may be lost.

use crate::model::ids::{AlbumId, PhotoId};
use crate::sql::database::Transaction;
use crate::sql::queue::fair_share::{FairShare, albums_with_photos, select_albums};
use crate::sql::statement::{Statement, query};
use crate::traits::{PhotoRef, Result, UnpublishedPhoto};

/// Albums with unpublished photos.
pub(crate) const ALBUMS_WITH_UNPUBLISHED: Statement =
    Statement::Portable(albums_with_photos!("state = 'queued' and published_at is null"));

/// The unpublished photos of an album in the order of their confirmation, after the photo `$3` confirmed at `$2`.
pub(crate) const OLDEST_UNPUBLISHED: &str = "select id, confirmed_at from photo \
     where state = 'queued' and published_at is null and album = $1 and (confirmed_at, id) > ($2, $3) \
     order by confirmed_at, id limit $4";

/// How many photos one statement makes unpublished. Small enough for short locks and a short write-ahead log.
const REPUBLISH_BATCH: i64 = 5000;

/// A photo whose lease expired waits again, and its old lease may not write any more.
macro_rules! unpublish {
    () => {
        "update photo set published_at = null, state = 'queued', lease = null, lease_until = 0 "
    };
}

/// Photos that still wait although they were published before `$1`, or whose lease expired before `$2`.
macro_rules! select_lost {
    () => {
        "select album, id from photo where published_at < $1 and state in ('queued', 'processing') \
         and (state = 'queued' or lease_until <= $2) order by published_at limit $3"
    };
}

/// Postgres skips rows that another transaction has locked; the next run finds them.
pub(crate) const REPUBLISH: Statement = Statement::PerDialect {
    sqlite: concat!(unpublish!(), "where (album, id) in (", select_lost!(), ")"),
    postgres: concat!(
        "with lost as materialized (",
        select_lost!(),
        " for no key update skip locked) ",
        unpublish!(),
        "from lost where photo.album = lost.album and photo.id = lost.id"
    ),
};

/// Makes one batch of lost photos unpublished; returns how many, and whether there may be more.
pub(crate) async fn republish_batch(transaction: &mut Transaction, before: i64) -> Result<(u64, bool)> {
    const OPERATION: &str = "republish photos";
    let now = transaction.read_clock(OPERATION).await?;
    let count =
        query(OPERATION, REPUBLISH).bind(before).bind(now).bind(REPUBLISH_BATCH).execute(transaction).await?;
    Ok((count, count == REPUBLISH_BATCH as u64))
}

/// Returns unpublished photos and moves the cursor. The albums after it share `limit`.
pub(crate) async fn list_unpublished(
    snapshot: &mut Transaction,
    limit: usize,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<UnpublishedPhoto>> {
    let albums = select_albums(snapshot, ALBUMS_WITH_UNPUBLISHED, limit, cursor).await?;
    let beginning = (i64::MIN, PhotoId(uuid::Uuid::nil()));
    let mut shares = FairShare::new(albums.into_iter().map(|album| (album, beginning)).collect(), limit);
    let mut found = Vec::new();
    while let Some(mut share) = shares.next_share() {
        let (album, (time, photo)) = share.album;
        let rows: Vec<(PhotoId, i64)> = query("find unpublished photos", OLDEST_UNPUBLISHED)
            .bind(album)
            .bind(time)
            .bind(photo)
            .bind(share.limit as i64)
            .fetch_all(&mut *snapshot)
            .await?;
        if let Some((photo, time)) = rows.last() {
            share.album.1 = (*time, *photo);
        }
        shares.record(share, rows.len());
        found.extend(rows.into_iter().map(|(photo, confirmed_at)| UnpublishedPhoto {
            photo: PhotoRef { album, photo },
            confirmed_at,
        }));
    }
    Ok(found)
}
