//! What a message queue is told of the rows: which photos no message names yet, and which messages may be lost.

use super::turns::{Turns, albums_in_turn, albums_with_photos};
use super::{Statement, Transaction, sql};
use crate::ids::{AlbumId, PhotoId};
use crate::traits::{PhotoRef, Result, Unpublished};

/// Albums with photos to publish.
pub(super) const ALBUMS: Statement =
    Statement::Same(albums_with_photos!("state = 'queued' and published_at is null"));

/// The photos of an album that wait longest to be published, after one of them.
pub(super) const HEAD: &str = "select id, confirmed_at from photo \
     where state = 'queued' and published_at is null and album = $1 and (confirmed_at, id) > ($2, $3) \
     order by confirmed_at, id limit $4";

/// How many photos one statement puts back: locks are short, and so is what a full log has to hold.
const REPUBLISHED_AT_ONCE: i64 = 5000;

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
pub(super) const REPUBLISH: Statement = Statement::Each {
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
pub(super) async fn republish_some(transaction: &mut Transaction, before: i64) -> Result<(u64, bool)> {
    const WHAT: &str = "republish photos";
    let now = transaction.now(WHAT).await?;
    let count =
        sql(WHAT, REPUBLISH).bind(before).bind(now).bind(REPUBLISHED_AT_ONCE).execute(transaction).await?;
    Ok((count, count == REPUBLISHED_AT_ONCE as u64))
}

/// Photos to publish, from the albums after `cursor` in turn.
pub(super) async fn unpublished(
    snapshot: &mut Transaction,
    limit: usize,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<Unpublished>> {
    let albums = albums_in_turn(snapshot, ALBUMS, limit, cursor).await?;
    let beginning = (i64::MIN, PhotoId(uuid::Uuid::nil()));
    let mut turns = Turns::new(albums.into_iter().map(|album| (album, beginning)).collect(), limit);
    let mut found = Vec::new();
    while let Some(mut turn) = turns.next() {
        let (album, (time, photo)) = turn.album;
        let rows: Vec<(PhotoId, i64)> = sql("find unpublished photos", HEAD)
            .bind(album)
            .bind(time)
            .bind(photo)
            .bind(turn.share as i64)
            .fetch_all(&mut *snapshot)
            .await?;
        if let Some((photo, time)) = rows.last() {
            turn.album.1 = (*time, *photo);
        }
        turns.gave(turn, rows.len());
        found.extend(
            rows.into_iter()
                .map(|(photo, confirmed_at)| Unpublished { photo: PhotoRef { album, photo }, confirmed_at }),
        );
    }
    Ok(found)
}
