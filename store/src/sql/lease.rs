//! Taking photos from the queue. Everything here runs inside the caller's transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::bulk::{Standing, Term, Waiting};
use super::finish::fail_held;
use super::turns::{Turns, albums_in_turn, albums_with_photos};
use super::{Statement, Transaction, sql};
use crate::album::AlbumConfig;
use crate::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::meters;
use crate::photo::{FailureReason, PhotoState};
use crate::rows::{from_json, time_of};
use crate::traits::{Lease, Named, PhotoRef, Result};

const WHAT: &str = "lease photos";

/// Albums with fresh photos.
pub(super) const ALBUMS: Statement =
    Statement::Same(albums_with_photos!("state = 'queued' and attempts = 0"));

/// Postgres passes over rows that another worker is taking at this moment.
macro_rules! each_skipping_locked {
    ($text:literal) => {
        Statement::Each { sqlite: $text, postgres: concat!($text, " for no key update skip locked") }
    };
}

/// The fresh photos of an album that wait longest.
pub(super) const HEAD: Statement = each_skipping_locked!(
    "select id from photo where state = 'queued' and attempts = 0 and album = $1 \
     order by confirmed_at, id limit $2"
);

/// The suspect whose lease lapsed first.
pub(super) const SUSPECT: Statement = each_skipping_locked!(
    "select album, id, attempts from photo \
     where state in ('queued', 'processing') and attempts > 0 and lease_until <= $1 \
     and (select closed_at from album where album.id = photo.album) is null \
     order by lease_until limit 1"
);

/// Fresh photos, from the albums after `cursor` in turn; within an album the longest confirmed first.
pub(super) async fn fresh(
    transaction: &mut Transaction,
    limit: usize,
    term: Term,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<Lease>> {
    let albums = albums_in_turn(transaction, ALBUMS, limit, cursor).await?;
    let mut turns = Turns::new(albums, limit);
    let mut leases = Vec::new();
    let mut known = KnownAlbums::new();
    while let Some(turn) = turns.next() {
        let waiting = head(transaction, turn.album, turn.share).await?;
        leases.extend(take(transaction, &waiting, term, &mut known).await?);
        turns.gave(turn, waiting.len());
    }
    Ok(leases)
}

/// What came of looking for a suspect.
pub(super) enum Suspect {
    /// None waits.
    None,
    /// One was leased.
    Leased(Lease),
    /// One had reached its attempt limit and became failed. Its album is locked now: the next suspect takes another
    /// transaction.
    Failed,
}

/// The suspect that lapsed the longest ago.
pub(super) async fn suspect(
    transaction: &mut Transaction,
    attempt_limit: u32,
    term: Term,
) -> Result<Suspect> {
    let row: Option<(AlbumId, PhotoId, i64)> =
        sql(WHAT, SUSPECT).bind(term.now).fetch_optional(&mut *transaction).await?;
    let Some((album, photo, attempts)) = row else {
        return Ok(Suspect::None);
    };
    let photo = PhotoRef { album, photo };
    if attempts >= i64::from(attempt_limit) {
        fail_crashed(transaction, photo, attempts).await?;
        return Ok(Suspect::Failed);
    }
    let leases = take(transaction, &[Waiting { photo, attempts }], term, &mut KnownAlbums::new()).await?;
    Ok(leases.into_iter().next().map_or(Suspect::None, Suspect::Leased))
}

/// Exactly these photos, where they wait for their first lease. One answer each, in order.
pub(super) async fn named(
    transaction: &mut Transaction,
    photos: &[PhotoRef],
    attempt_limit: u32,
    term: Term,
) -> Result<Vec<Named>> {
    let mut held = transaction.bulk().hold(photos).await?;
    let mut fates = Vec::with_capacity(photos.len());
    for photo in photos {
        // Named twice, it is held by its first lease.
        fates
            .push(held.get_mut(photo).map_or(Fate::Over, |standing| Fate::of(standing, attempt_limit, term)));
    }
    let fresh = photos.iter().zip(&fates).filter(|(_, fate)| matches!(fate, Fate::Fresh));
    let waiting: Vec<Waiting> = fresh.map(|(photo, _)| Waiting { photo: *photo, attempts: 0 }).collect();
    let mut leases = take(transaction, &waiting, term, &mut KnownAlbums::new()).await?.into_iter();
    let mut crashed: Vec<(PhotoRef, i64)> = Vec::new();
    let mut answers = Vec::with_capacity(photos.len());
    for (photo, fate) in photos.iter().zip(fates) {
        answers.push(match fate {
            Fate::Fresh => leases.next().map_or(Named::Over, Named::Leased),
            Fate::Suspect => Named::Suspect,
            Fate::Held => Named::Held,
            Fate::Over => Named::Over,
            Fate::Crashed { attempts } => {
                crashed.push((*photo, attempts));
                Named::Over
            }
        });
    }
    // Last, and in the order of the albums: their rows are locked by it.
    crashed.sort();
    for (photo, attempts) in crashed {
        fail_crashed(transaction, photo, attempts).await?;
    }
    Ok(answers)
}

/// What a named photo's standing means for who names it.
enum Fate {
    Fresh,
    Suspect,
    Held,
    Over,
    Crashed { attempts: i64 },
}

impl Fate {
    /// Moves the standing on to what it will be.
    fn of(standing: &mut Standing, attempt_limit: u32, term: Term) -> Self {
        let attempts = standing.attempts;
        match standing.state {
            PhotoState::Processing if standing.lease_until > term.now => Self::Held,
            PhotoState::Queued | PhotoState::Processing if attempts >= i64::from(attempt_limit) => {
                standing.state = PhotoState::Failed;
                Self::Crashed { attempts }
            }
            PhotoState::Queued | PhotoState::Processing if attempts > 0 => Self::Suspect,
            PhotoState::Queued | PhotoState::Processing => {
                standing.state = PhotoState::Processing;
                standing.lease_until = i64::MAX;
                Self::Fresh
            }
            PhotoState::AwaitingUpload | PhotoState::Ready | PhotoState::Failed => Self::Over,
        }
    }
}

async fn fail_crashed(transaction: &mut Transaction, photo: PhotoRef, attempts: i64) -> Result<()> {
    let detail = format!("{attempts} leases ended without a word");
    fail_held(transaction, photo, FailureReason::ProcessingCrashed, &detail).await?;
    // Nobody else tells: its workers are dead. A transaction that does not commit counts it once more.
    let reason = FailureReason::ProcessingCrashed.as_str();
    metrics::counter!(meters::PHOTOS_FAILED, "reason" => reason).increment(1);
    tracing::info!(photo.id = %photo.photo, album.id = %photo.album, reason, detail, "photo failed");
    Ok(())
}

/// The photos of an album that wait longest.
async fn head(transaction: &mut Transaction, album: AlbumId, limit: usize) -> Result<Vec<Waiting>> {
    let rows: Vec<(PhotoId,)> = sql(WHAT, HEAD).bind(album).bind(limit as i64).fetch_all(transaction).await?;
    Ok(rows.into_iter().map(|(photo,)| Waiting { photo: PhotoRef { album, photo }, attempts: 0 }).collect())
}

/// Whose an album is and how it wants its photos read.
type KnownAlbums = HashMap<AlbumId, (OrganizationId, Arc<AlbumConfig>)>;

/// Gives the photos leases and counts the attempts. One lease each, in order.
async fn take(
    transaction: &mut Transaction,
    waiting: &[Waiting],
    term: Term,
    known: &mut KnownAlbums,
) -> Result<Vec<Lease>> {
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let taken: Vec<(PhotoRef, LeaseId)> =
        waiting.iter().map(|waiting| (waiting.photo, LeaseId::generate())).collect();
    let queued = transaction.bulk().take(&taken, term).await?;
    let mut leases = Vec::with_capacity(taken.len());
    for ((PhotoRef { album, photo }, id), Waiting { attempts, .. }) in taken.into_iter().zip(waiting) {
        let (organization, config) = match known.entry(album) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => unknown.insert(owner_and_config(transaction, album).await?).clone(),
        };
        let attempt = u32::try_from(attempts + 1).unwrap_or(u32::MAX);
        // A photo whose row was locked by this transaction is there.
        let confirmed_at = time_of(queued.get(&id).copied().unwrap_or(term.now))?;
        leases.push(Lease { id, photo, album, organization, config, attempt, confirmed_at });
    }
    Ok(leases)
}

async fn owner_and_config(
    transaction: &mut Transaction,
    album: AlbumId,
) -> Result<(OrganizationId, Arc<AlbumConfig>)> {
    let (organization, config): (OrganizationId, String) =
        sql(WHAT, "select organization, config from album where id = $1")
            .bind(album)
            .fetch_one(transaction)
            .await?;
    Ok((organization, Arc::new(from_json(&config)?)))
}
