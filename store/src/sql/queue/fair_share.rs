//! Deals places to albums in turns, so that a huge album starves nobody. Knows no photo.

use std::collections::VecDeque;

use crate::model::ids::AlbumId;
use crate::sql::statement::query;
use crate::sql::{Statement, Transaction};
use crate::traits::Result;

/// How many albums one call looks at. A worker takes a few dozen photos at a time: with more albums than that waiting,
/// the next call goes on where this one stopped.
const ALBUMS_PER_CALL: usize = 16;

/// The albums after `$1` with photos of this kind that nobody has closed, `$2` at most: one probe of the index for each,
/// however many photos wait.
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

/// Up to `limit` albums that the statement finds: those after the cursor, then from the beginning up to it. Moves the
/// cursor to the last of them.
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

/// Places left, and the albums that may have photos for them.
pub(crate) struct FairShare<T> {
    albums: VecDeque<T>,
    remaining: usize,
}

/// An album and how many photos it may give now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share<T> {
    pub(crate) album: T,
    pub(crate) limit: usize,
}

impl<T: Copy> FairShare<T> {
    pub(crate) fn new(albums: Vec<T>, limit: usize) -> Self {
        Self { albums: albums.into(), remaining: limit }
    }

    /// The next album: what is left is shared alike among those that wait.
    pub(crate) fn next_share(&mut self) -> Option<Share<T>> {
        let share = (self.remaining / self.albums.len().max(1)).max(1);
        if self.remaining == 0 {
            return None;
        }
        self.albums.pop_front().map(|album| Share { album, limit: share })
    }

    /// Notes what the album gave. One that gave its share has another turn, if there are places after the others.
    pub(crate) fn record(&mut self, turn: Share<T>, count: usize) {
        self.remaining -= count.min(self.remaining);
        if count == turn.limit {
            self.albums.push_back(turn.album);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What albums with so many photos give.
    fn distribute(photos: &[usize], limit: usize) -> Vec<usize> {
        let mut given = vec![0; photos.len()];
        let mut turns = FairShare::new((0..photos.len()).collect(), limit);
        while let Some(turn) = turns.next_share() {
            let count = turn.limit.min(photos[turn.album] - given[turn.album]);
            given[turn.album] += count;
            turns.record(turn, count);
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
