//! Which changes of an album are told now: whole ones, of so many photos that a transaction stays short.
//!
//! While many photos settle, the last event of each turn would be nearly empty: the photos beyond the last full event wait
//! for the next turn, unless they have waited long enough.

use sqlx::FromRow;

use super::publisher::OPERATION;
use crate::model::ids::{AlbumId, PhotoId};
use crate::sql::database::Transaction;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

/// Changes of one transaction, and their photos: writers of the album may have to wait for it. A change is a batch of
/// results: some dozen photos at most, and one alone where little happens.
const CHANGES_PER_TURN: i64 = 512;
const PHOTOS_PER_TURN: usize = 4096;

/// Photos of one event. An event stays under the 20 KB that receivers of webhooks are advised to accept.
pub(crate) const PHOTOS_PER_EVENT: usize = 250;

pub(crate) const CHANGED_PHOTOS: &str = "select change, photo, mark, settled from photo_change \
     where album = $1 and change >= $2 and change <= $3 order by change, photo limit $4";

/// How long changes may wait to be told until the publisher waits for their writers.
const OVERDUE_MICROS: i64 = 5_000_000;

/// The album whose changes have waited for longest, if they are overdue.
pub(crate) const OVERDUE_ALBUM: Statement = Statement::PerDialect {
    sqlite: "select album from album_change_feed \
             where since <= cast(unixepoch('now', 'subsec') * 1000000 as integer) - $1 order by since limit 1",
    postgres: "select album from album_change_feed where since \
               <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 order by since limit 1 for update",
};

/// Locks an album whose changes are overdue in the feed, unless somebody keeps it: all others would wait to be told. The publisher
/// leaves out albums whose row is locked, as that of an album which many workers finish photos of is nearly always. To be called
/// while the transaction holds nothing but its task: the writer that it waits for may itself wait for anything that the publisher
/// locks.
pub(crate) async fn lock_overdue(transaction: &mut Transaction) -> Result<()> {
    let overdue = query(OPERATION, OVERDUE_ALBUM).bind(OVERDUE_MICROS);
    transaction.lock_briefly(OPERATION, overdue).await.map(drop)
}

/// Changes of an album: how far they go, and their photos.
pub(crate) struct Changes {
    pub(crate) up_to: i64,
    pub(crate) rows: Vec<ChangedPhoto>,
}

/// A photo of a change.
#[derive(Clone, Copy, FromRow)]
pub(crate) struct ChangedPhoto {
    /// The number of the change.
    pub(crate) change: i64,
    pub(crate) photo: PhotoId,
    /// The mark of the change.
    pub(crate) mark: i64,
    /// 1 where the photo settled by it, else 0: then it is not told.
    pub(crate) settled: i64,
}

/// Reads the changes from `published` to `newest`, as many as a turn has.
pub(crate) async fn read_changes(
    transaction: &mut Transaction,
    album: AlbumId,
    [published, newest]: [i64; 2],
) -> Result<Changes> {
    let up_to = newest.min(published.saturating_add(CHANGES_PER_TURN));
    let mut rows = read_photos(transaction, album, [published, up_to], PHOTOS_PER_TURN).await?;
    let cut = match rows.last() {
        Some(last) if rows.len() == PHOTOS_PER_TURN => last.change,
        _ => return Ok(Changes { up_to, rows }),
    };
    if cut > published + 1 {
        rows.retain(|row| row.change < cut);
        return Ok(Changes { up_to: cut - 1, rows });
    }
    // One change of more photos than a turn has.
    let rows = read_photos(transaction, album, [published, published + 1], i32::MAX as usize).await?;
    Ok(Changes { up_to: published + 1, rows })
}

async fn read_photos(
    transaction: &mut Transaction,
    album: AlbumId,
    [from, to]: [i64; 2],
    limit: usize,
) -> Result<Vec<ChangedPhoto>> {
    query(OPERATION, CHANGED_PHOTOS)
        .bind(album)
        .bind(from)
        .bind(to)
        .bind(limit as i64)
        .fetch_all(transaction)
        .await
}

/// A settled photo, by the change of its album that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) change: i64,
    /// Microseconds, by the clock of the database.
    pub(crate) settled_at: i64,
}

/// Where a turn ends: changes are told as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnEnd {
    /// The last change that is told.
    pub(crate) change: i64,
    /// Since when the first photo waits that is not.
    pub(crate) since: i64,
}

/// Returns where a turn ends before the last of these photos, which are in the order of their changes; `None` where all of
/// them are told. No photo that settled at `oldest` or earlier is left for another turn.
pub(crate) fn end_at_full_event(settled: &[Settled], oldest: i64) -> Option<TurnEnd> {
    let full = settled.len() / PHOTOS_PER_EVENT * PHOTOS_PER_EVENT;
    let next = settled.get(full)?;
    // The change that the last full event cuts in two waits as a whole.
    let told = settled[..full].iter().rposition(|photo| photo.change < next.change)?;
    let left = settled[told + 1..].iter();
    let since = left.map(|photo| photo.settled_at).min()?;
    (since > oldest).then_some(TurnEnd { change: settled[told].change, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many photos in changes of `per_change`, one a millisecond from the time 0.
    fn settled(count: i64, per_change: i64) -> Vec<Settled> {
        (0..count).map(|n| Settled { change: 1 + n / per_change, settled_at: n * 1000 }).collect()
    }

    #[test]
    fn photos_beyond_the_last_full_event_wait_for_the_next_turn() {
        let end = end_at_full_event(&settled(2100, 10), -1);
        assert_eq!(end, Some(TurnEnd { change: 200, since: 2_000_000 }));
        // A change is told as a whole: 31 changes of 64 photos are 1984.
        let end = end_at_full_event(&settled(2100, 64), -1);
        assert_eq!(end, Some(TurnEnd { change: 31, since: 1_984_000 }));
    }

    #[test]
    fn few_photos_and_full_events_are_told_at_once() {
        assert_eq!(end_at_full_event(&[], -1), None);
        assert_eq!(end_at_full_event(&settled(249, 10), -1), None);
        assert_eq!(end_at_full_event(&settled(500, 10), -1), None);
        assert_eq!(end_at_full_event(&settled(400, 400), -1), None, "one change is told as a whole");
    }

    #[test]
    fn no_photo_waits_longer_than_it_may() {
        let photos = settled(2100, 10);
        assert_eq!(end_at_full_event(&photos, 2_000_000), None);
        assert!(end_at_full_event(&photos, 1_999_999).is_some());
        // Also where a later change settled earlier: clocks of a database may be set back.
        let mut photos = photos;
        photos[2099].settled_at = 0;
        assert_eq!(end_at_full_event(&photos, 0), None);
    }
}
