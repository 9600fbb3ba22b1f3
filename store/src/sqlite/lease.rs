//! Taking photos from the queue. Everything here runs inside the caller's transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use sqlx::{Sqlite, Transaction};

use super::fault;
use super::finish::fail_row;
use crate::album::AlbumConfig;
use crate::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::photo::FailureReason;
use crate::rows::{from_json, time_of};
use crate::traits::{Lease, Result};

const WHAT: &str = "lease photos";

/// How many albums one lease looks at. A worker takes a few dozen photos at a time: with more albums than that
/// waiting, the next lease goes on where this one stopped.
const ALBUMS_AT_ONCE: usize = 16;

/// The next album with fresh photos. One probe of the index, however many photos wait.
pub(super) const NEXT_ALBUM: &str = "select album from photo where state = 'queued' and attempts = 0 \
     and album > $1 order by album limit 1";

/// The fresh photos of an album that wait longest.
pub(super) const HEAD: &str = "select id from photo where state = 'queued' and attempts = 0 and album = $1 \
     order by confirmed_at, id limit $2";

/// The suspect whose lease lapsed first.
pub(super) const SUSPECT: &str = "select album, id, attempts from photo \
     where state in ('queued', 'processing') and attempts > 0 and lease_until <= $1 \
     order by lease_until limit 1";

/// A photo about to be leased.
struct Waiting {
    album: AlbumId,
    photo: PhotoId,
    attempts: i64,
}

/// When a lease was taken and when it lapses, microseconds.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) now: i64,
    pub(super) until: i64,
}

/// Fresh photos, dealt in turn from the albums after `cursor` so that a huge album starves nobody; within an album
/// the longest confirmed first. Moves the cursor to the last album that got something.
pub(super) async fn fresh(
    transaction: &mut Transaction<'static, Sqlite>,
    limit: usize,
    term: Term,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<Lease>> {
    let albums = waiting_albums(transaction, *cursor, limit.min(ALBUMS_AT_ONCE)).await?;
    let Some(last) = albums.last() else {
        return Ok(Vec::new());
    };
    *cursor = Some(*last);
    let mut queues = Vec::with_capacity(albums.len());
    for album in albums {
        queues.push(head(transaction, album, limit).await?);
    }
    let mut leases = Vec::new();
    let mut known = HashMap::new();
    for waiting in deal(queues, limit) {
        leases.push(take(transaction, waiting, term, &mut known).await?);
    }
    Ok(leases)
}

/// One suspect, the longest lapsed first. Those at the attempt limit on the way to it become failed.
pub(super) async fn suspect(
    transaction: &mut Transaction<'static, Sqlite>,
    attempt_limit: u32,
    term: Term,
) -> Result<Option<Lease>> {
    loop {
        let row: Option<(AlbumId, PhotoId, i64)> = sqlx::query_as(SUSPECT)
            .bind(term.now)
            .fetch_optional(&mut **transaction)
            .await
            .map_err(fault(WHAT))?;
        let Some((album, photo, attempts)) = row else {
            return Ok(None);
        };
        if attempts < i64::from(attempt_limit) {
            let waiting = Waiting { album, photo, attempts };
            return take(transaction, waiting, term, &mut HashMap::new()).await.map(Some);
        }
        let detail = format!("{attempts} leases ended without a word");
        fail_row(transaction, (album, photo), FailureReason::ProcessingCrashed, &detail).await?;
    }
}

/// Up to `limit` albums with fresh photos: those after the cursor, then from the beginning up to it.
async fn waiting_albums(
    transaction: &mut Transaction<'static, Sqlite>,
    cursor: Option<AlbumId>,
    limit: usize,
) -> Result<Vec<AlbumId>> {
    let mut albums: Vec<AlbumId> = Vec::with_capacity(limit);
    let mut after = cursor.unwrap_or(AlbumId(uuid::Uuid::nil()));
    let mut wrapped = cursor.is_none();
    while albums.len() < limit {
        let next: Option<AlbumId> = sqlx::query_scalar(NEXT_ALBUM)
            .bind(after)
            .fetch_optional(&mut **transaction)
            .await
            .map_err(fault(WHAT))?;
        match next {
            Some(album) if albums.contains(&album) => break,
            Some(album) => {
                albums.push(album);
                after = album;
            }
            None if wrapped => break,
            None => {
                wrapped = true;
                after = AlbumId(uuid::Uuid::nil());
            }
        }
    }
    Ok(albums)
}

/// The photos of an album that wait longest.
async fn head(
    transaction: &mut Transaction<'static, Sqlite>,
    album: AlbumId,
    limit: usize,
) -> Result<std::vec::IntoIter<Waiting>> {
    let rows: Vec<PhotoId> = sqlx::query_scalar(HEAD)
        .bind(album)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&mut **transaction)
        .await
        .map_err(fault(WHAT))?;
    let waiting: Vec<Waiting> = rows.into_iter().map(|photo| Waiting { album, photo, attempts: 0 }).collect();
    Ok(waiting.into_iter())
}

/// One from each in turn, until `limit` or nothing is left.
fn deal<T>(mut queues: Vec<std::vec::IntoIter<T>>, limit: usize) -> Vec<T> {
    let mut dealt = Vec::new();
    while dealt.len() < limit {
        let before = dealt.len();
        for queue in &mut queues {
            if dealt.len() < limit {
                dealt.extend(queue.next());
            }
        }
        if dealt.len() == before {
            break;
        }
    }
    dealt
}

/// Whose an album is and how it wants its photos read.
type KnownAlbums = HashMap<AlbumId, (OrganizationId, Arc<AlbumConfig>)>;

/// Gives the photo a lease and counts the attempt.
async fn take(
    transaction: &mut Transaction<'static, Sqlite>,
    waiting: Waiting,
    term: Term,
    known: &mut KnownAlbums,
) -> Result<Lease> {
    let Waiting { album, photo, attempts } = waiting;
    let id = LeaseId::generate();
    let confirmed_at: i64 = sqlx::query_scalar(
        "update photo set state = 'processing', attempts = attempts + 1, lease = $3, lease_until = $4, \
         updated_at = $5 where album = $1 and id = $2 returning confirmed_at",
    )
    .bind(album)
    .bind(photo)
    .bind(id)
    .bind(term.until)
    .bind(term.now)
    .fetch_one(&mut **transaction)
    .await
    .map_err(fault(WHAT))?;
    let (organization, config) = match known.entry(album) {
        Entry::Occupied(known) => known.get().clone(),
        Entry::Vacant(unknown) => unknown.insert(owner_and_config(transaction, album).await?).clone(),
    };
    let attempt = u32::try_from(attempts + 1).unwrap_or(u32::MAX);
    Ok(Lease { id, photo, album, organization, config, attempt, confirmed_at: time_of(confirmed_at)? })
}

async fn owner_and_config(
    transaction: &mut Transaction<'static, Sqlite>,
    album: AlbumId,
) -> Result<(OrganizationId, Arc<AlbumConfig>)> {
    let (organization, config): (OrganizationId, String) =
        sqlx::query_as("select organization, config from album where id = $1")
            .bind(album)
            .fetch_one(&mut **transaction)
            .await
            .map_err(fault(WHAT))?;
    Ok((organization, Arc::new(from_json(&config)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dealing_takes_turns_and_fills_up_from_who_has_more() {
        let queues = || vec![vec![1, 2, 3, 4, 5].into_iter(), vec![10].into_iter(), vec![20, 21].into_iter()];
        assert_eq!(deal(queues(), 2), [1, 10]);
        assert_eq!(deal(queues(), 6), [1, 10, 20, 2, 21, 3]);
        assert_eq!(deal(queues(), 100), [1, 10, 20, 2, 21, 3, 4, 5]);
        assert_eq!(deal(Vec::<std::vec::IntoIter<i32>>::new(), 5), [0; 0]);
    }
}
