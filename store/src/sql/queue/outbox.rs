//! What a message queue is told of the rows: which photos no message names yet, and which messages may be lost.

use crate::model::ids::{AlbumId, PhotoId};
use crate::sql::queue::fair_share::{FairShare, albums_with_photos, select_albums};
use crate::sql::{Statement, Transaction, query};
use crate::traits::{PhotoRef, Result, UnpublishedPhoto};

/// Albums with photos to publish.
pub(crate) const ALBUMS_WITH_UNPUBLISHED: Statement =
    Statement::Portable(albums_with_photos!("state = 'queued' and published_at is null"));

/// The photos of an album that wait longest to be published, after one of them.
pub(crate) const OLDEST_UNPUBLISHED: &str = "select id, confirmed_at from photo \
     where state = 'queued' and published_at is null and album = $1 and (confirmed_at, id) > ($2, $3) \
     order by confirmed_at, id limit $4";

/// How many photos one statement puts back: locks are short, and so is what a full log has to hold.
const REPUBLISH_BATCH: i64 = 5000;

/// What waits was published in vain; what lapsed waits again, and its old lease may not write any more.
macro_rules! unpublish {
    () => {
        "update photo set published_at = null, state = 'queued', lease = null, lease_until = 0 "
    };
}

macro_rules! lost {
    () => {
        "select album, id from photo where published_at < $1 and state in ('queued', 'processing') \
         and (state = 'queued' or lease_until <= $2) order by published_at limit $3"
    };
}

/// Postgres passes over rows that someone is at work on at this moment; the next sweep finds them.
pub(crate) const REPUBLISH: Statement = Statement::PerDialect {
    sqlite: concat!(unpublish!(), "where (album, id) in (", lost!(), ")"),
    postgres: concat!(
        "with lost as materialized (",
        lost!(),
        " for no key update skip locked) ",
        unpublish!(),
        "from lost where photo.album = lost.album and photo.id = lost.id"
    ),
};

/// Some photos published before `before` that wait or whose lease lapsed; answers how many, and whether to go on.
pub(crate) async fn republish_batch(transaction: &mut Transaction, before: i64) -> Result<(u64, bool)> {
    const OPERATION: &str = "republish photos";
    let now = transaction.read_clock(OPERATION).await?;
    let count =
        query(OPERATION, REPUBLISH).bind(before).bind(now).bind(REPUBLISH_BATCH).execute(transaction).await?;
    Ok((count, count == REPUBLISH_BATCH as u64))
}

/// Photos to publish, from the albums after `cursor` in turn.
pub(crate) async fn list_unpublished(
    snapshot: &mut Transaction,
    limit: usize,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<UnpublishedPhoto>> {
    let albums = select_albums(snapshot, ALBUMS_WITH_UNPUBLISHED, limit, cursor).await?;
    let beginning = (i64::MIN, PhotoId(uuid::Uuid::nil()));
    let mut turns = FairShare::new(albums.into_iter().map(|album| (album, beginning)).collect(), limit);
    let mut found = Vec::new();
    while let Some(mut turn) = turns.next_share() {
        let (album, (time, photo)) = turn.album;
        let rows: Vec<(PhotoId, i64)> = query("find unpublished photos", OLDEST_UNPUBLISHED)
            .bind(album)
            .bind(time)
            .bind(photo)
            .bind(turn.limit as i64)
            .fetch_all(&mut *snapshot)
            .await?;
        if let Some((photo, time)) = rows.last() {
            turn.album.1 = (*time, *photo);
        }
        turns.record(turn, rows.len());
        found.extend(rows.into_iter().map(|(photo, confirmed_at)| UnpublishedPhoto {
            photo: PhotoRef { album, photo },
            confirmed_at,
        }));
    }
    Ok(found)
}
