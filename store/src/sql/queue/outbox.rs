//! The outbox: queued photos for which no message is published yet, and published ones whose message may be lost.

use crate::sql::database::Transaction;
use crate::sql::queue::selection::{
    Quota, Turns, WaitingPhotos, albums_with_photos, oldest_photos, organizations_with_photos, select_photos,
};
use crate::sql::statement::{Statement, query};
use crate::traits::{Result, UnpublishedPhoto, UnpublishedPhotos};

/// Unpublished photos.
pub(crate) const UNPUBLISHED_PHOTOS: WaitingPhotos = WaitingPhotos {
    organizations: Statement::Portable(organizations_with_photos!(
        "state = 'queued' and published_at is null"
    )),
    albums: Statement::Portable(albums_with_photos!("state = 'queued' and published_at is null")),
    photos: Statement::Portable(oldest_photos!("state = 'queued' and published_at is null")),
};

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

/// Returns the unpublished photos whose turn it is, until they cost `max_cost`.
pub(crate) async fn list_unpublished(
    snapshot: &mut Transaction,
    max_cost: u64,
    max_cells: u32,
    turns: &mut Turns,
) -> Result<UnpublishedPhotos> {
    let quota = Quota::Cost(max_cost);
    let selected = select_photos(snapshot, &UNPUBLISHED_PHOTOS, quota, max_cells, turns).await?;
    let photos = selected
        .photos
        .into_iter()
        .map(|selected| UnpublishedPhoto { photo: selected.photo, confirmed_at: selected.confirmed_at });
    Ok(UnpublishedPhotos { photos: photos.collect(), cost: selected.cost })
}
