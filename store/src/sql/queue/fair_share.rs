//! Shares the places of a lease or an outbox read between albums, so that a huge album does not starve small ones. Knows
//! no photo.

use std::collections::VecDeque;

use crate::model::ids::AlbumId;
use crate::sql::database::Transaction;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

/// How many albums one call reads. A worker leases a few dozen photos at a time; with more albums than this waiting, the
/// next call continues after the last of them.
const ALBUMS_PER_CALL: usize = 16;

/// The open albums after `$1` that have photos matching the condition, `$2` at most: one index probe per album, however
/// many photos wait.
macro_rules! albums_with_photos {
    ($condition:literal) => {
        concat!(
            "with recursive waiting (album) as (select * from (select album from photo where ",
            $condition,
            " and album > $1 order by album limit 1) as first union all \
             select (select photo.album from photo where ",
            $condition,
            " and photo.album > waiting.album order by photo.album limit 1) \
             from waiting where waiting.album is not null) \
             select album from waiting where album is not null \
             and (select closed_at from album where album.id = waiting.album) is null limit $2"
        )
    };
}
pub(crate) use albums_with_photos;

/// Returns up to `limit` albums that the statement finds: those after the cursor, then from the beginning up to it. Moves
/// the cursor to the last of them.
pub(crate) async fn select_albums(
    transaction: &mut Transaction,
    statement: Statement,
    limit: usize,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<AlbumId>> {
    let limit = limit.min(ALBUMS_PER_CALL);
    let nil = AlbumId(uuid::Uuid::nil());
    let last = cursor.unwrap_or(nil);
    let mut albums = load_albums_after(transaction, statement, last, limit).await?;
    if albums.len() < limit && last != nil {
        let first = load_albums_after(transaction, statement, nil, limit - albums.len()).await?;
        albums.extend(first.into_iter().take_while(|album| *album <= last));
    }
    *cursor = albums.last().copied().or(*cursor);
    Ok(albums)
}

async fn load_albums_after(
    transaction: &mut Transaction,
    statement: Statement,
    after: AlbumId,
    limit: usize,
) -> Result<Vec<AlbumId>> {
    let query = query("find albums with work", statement).bind(after).bind(limit as i64);
    let rows: Vec<(AlbumId,)> = query.fetch_all(transaction).await?;
    Ok(rows.into_iter().map(|(album,)| album).collect())
}

/// Shares a number of places fairly between albums.
pub(crate) struct FairShare<T> {
    albums: VecDeque<T>,
    remaining: usize,
}

/// An album and how many places it may fill now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share<T> {
    pub(crate) album: T,
    pub(crate) limit: usize,
}

impl<T: Copy> FairShare<T> {
    pub(crate) fn new(albums: Vec<T>, limit: usize) -> Self {
        Self { albums: albums.into(), remaining: limit }
    }

    /// Returns the next album with an equal share of the remaining places; `None` when no place or no album is left.
    pub(crate) fn next_share(&mut self) -> Option<Share<T>> {
        let limit = (self.remaining / self.albums.len().max(1)).max(1);
        if self.remaining == 0 {
            return None;
        }
        self.albums.pop_front().map(|album| Share { album, limit })
    }

    /// Records how many places the album filled. One that filled its share gets another, if places remain after the other
    /// albums.
    pub(crate) fn record(&mut self, share: Share<T>, count: usize) {
        self.remaining -= count.min(self.remaining);
        if count == share.limit {
            self.albums.push_back(share.album);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many places albums with these numbers of photos fill.
    fn distribute(photos: &[usize], limit: usize) -> Vec<usize> {
        let mut given = vec![0; photos.len()];
        let mut shares = FairShare::new((0..photos.len()).collect(), limit);
        while let Some(share) = shares.next_share() {
            let count = share.limit.min(photos[share.album] - given[share.album]);
            given[share.album] += count;
            shares.record(share, count);
        }
        given
    }

    #[test]
    fn albums_share_the_limit_and_larger_ones_fill_it_up() {
        assert_eq!(distribute(&[5, 1, 2], 2), [1, 1, 0]);
        assert_eq!(distribute(&[5, 1, 2], 6), [3, 1, 2]);
        assert_eq!(distribute(&[5, 1, 2], 100), [5, 1, 2]);
        assert_eq!(distribute(&[200, 4], 64), [60, 4]);
        assert_eq!(distribute(&[9, 0, 9], 8), [4, 0, 4]);
        assert_eq!(distribute(&[], 5), [0; 0]);
    }
}
