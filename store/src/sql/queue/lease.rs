//! Taking photos from the queue. Everything here runs inside the caller's transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::finish::fail_locked_photo;
use crate::metric_names;
use crate::model::album::AlbumConfig;
use crate::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sql::dialect::{LeaseCandidate, LeaseWindow, PhotoRowState};
use crate::sql::queue::fair_share::{FairShare, albums_with_photos, select_albums};
use crate::sql::row_types::{from_json, from_micros};
use crate::sql::{Statement, Transaction, query};
use crate::traits::{Lease, Named, PhotoRef, Result};

const OPERATION: &str = "lease photos";

/// Albums with fresh photos.
pub(crate) const ALBUMS_WITH_FRESH_PHOTOS: Statement =
    Statement::Portable(albums_with_photos!("state = 'queued' and attempts = 0"));

/// Postgres passes over rows that another worker is taking at this moment.
macro_rules! each_skipping_locked {
    ($text:literal) => {
        Statement::PerDialect { sqlite: $text, postgres: concat!($text, " for no key update skip locked") }
    };
}

/// The fresh photos of an album that wait longest.
pub(crate) const OLDEST_FRESH_PHOTOS: Statement = each_skipping_locked!(
    "select id from photo where state = 'queued' and attempts = 0 and album = $1 \
     order by confirmed_at, id limit $2"
);

/// The suspect whose lease lapsed first.
pub(crate) const NEXT_CRASH_SUSPECT: Statement = each_skipping_locked!(
    "select album, id, attempts from photo \
     where state in ('queued', 'processing') and attempts > 0 and lease_until <= $1 \
     and (select closed_at from album where album.id = photo.album) is null \
     order by lease_until limit 1"
);

/// Fresh photos, from the albums after `cursor` in turn; within an album the longest confirmed first.
pub(crate) async fn lease_fresh(
    transaction: &mut Transaction,
    limit: usize,
    term: LeaseWindow,
    cursor: &mut Option<AlbumId>,
) -> Result<Vec<Lease>> {
    let albums = select_albums(transaction, ALBUMS_WITH_FRESH_PHOTOS, limit, cursor).await?;
    let mut turns = FairShare::new(albums, limit);
    let mut leases = Vec::new();
    let mut known = AlbumCache::new();
    while let Some(turn) = turns.next_share() {
        let waiting = load_oldest_fresh(transaction, turn.album, turn.limit).await?;
        leases.extend(assign_leases(transaction, &waiting, term, &mut known).await?);
        turns.record(turn, waiting.len());
    }
    Ok(leases)
}

/// What came of looking for a suspect.
pub(crate) enum SuspectLease {
    /// None waits.
    None,
    /// One was leased.
    Leased(Lease),
    /// One had reached its attempt limit and became failed. Its album is locked now: the next suspect takes another
    /// transaction.
    Failed,
}

/// The suspect that lapsed the longest ago.
pub(crate) async fn lease_suspect(
    transaction: &mut Transaction,
    attempt_limit: u32,
    term: LeaseWindow,
) -> Result<SuspectLease> {
    let row: Option<(AlbumId, PhotoId, i64)> =
        query(OPERATION, NEXT_CRASH_SUSPECT).bind(term.now).fetch_optional(&mut *transaction).await?;
    let Some((album, photo, attempts)) = row else {
        return Ok(SuspectLease::None);
    };
    let photo = PhotoRef { album, photo };
    if attempts >= i64::from(attempt_limit) {
        fail_crash_suspect(transaction, photo, attempts).await?;
        return Ok(SuspectLease::Failed);
    }
    let leases =
        assign_leases(transaction, &[LeaseCandidate { photo, attempts }], term, &mut AlbumCache::new())
            .await?;
    Ok(leases.into_iter().next().map_or(SuspectLease::None, SuspectLease::Leased))
}

/// Exactly these photos, where they wait for their first lease. One answer each, in order.
pub(crate) async fn lease_named(
    transaction: &mut Transaction,
    photos: &[PhotoRef],
    attempt_limit: u32,
    term: LeaseWindow,
) -> Result<Vec<Named>> {
    let mut held = transaction.queue_writes().lock_photos(photos).await?;
    let mut fates = Vec::with_capacity(photos.len());
    for photo in photos {
        // Named twice, it is held by its first lease.
        fates.push(held.get_mut(photo).map_or(LeaseDecision::Obsolete, |standing| {
            LeaseDecision::decide(standing, attempt_limit, term)
        }));
    }
    let fresh = photos.iter().zip(&fates).filter(|(_, fate)| matches!(fate, LeaseDecision::Grant));
    let waiting: Vec<LeaseCandidate> =
        fresh.map(|(photo, _)| LeaseCandidate { photo: *photo, attempts: 0 }).collect();
    let mut leases = assign_leases(transaction, &waiting, term, &mut AlbumCache::new()).await?.into_iter();
    let mut crashed: Vec<(PhotoRef, i64)> = Vec::new();
    let mut answers = Vec::with_capacity(photos.len());
    for (photo, fate) in photos.iter().zip(fates) {
        answers.push(match fate {
            LeaseDecision::Grant => leases.next().map_or(Named::Obsolete, Named::Leased),
            LeaseDecision::CrashSuspect => Named::Suspect,
            LeaseDecision::HeldElsewhere => Named::HeldElsewhere,
            LeaseDecision::Obsolete => Named::Obsolete,
            LeaseDecision::AttemptsExhausted { attempts } => {
                crashed.push((*photo, attempts));
                Named::Obsolete
            }
        });
    }
    // Last, and in the order of the albums: their rows are locked by it.
    crashed.sort();
    for (photo, attempts) in crashed {
        fail_crash_suspect(transaction, photo, attempts).await?;
    }
    Ok(answers)
}

/// What a named photo's standing means for who names it.
enum LeaseDecision {
    Grant,
    CrashSuspect,
    HeldElsewhere,
    Obsolete,
    AttemptsExhausted { attempts: i64 },
}

impl LeaseDecision {
    /// Moves the standing on to what it will be.
    fn decide(standing: &mut PhotoRowState, attempt_limit: u32, term: LeaseWindow) -> Self {
        let attempts = standing.attempts;
        match standing.state {
            PhotoState::Processing if standing.lease_until > term.now => Self::HeldElsewhere,
            PhotoState::Queued | PhotoState::Processing if attempts >= i64::from(attempt_limit) => {
                standing.state = PhotoState::Failed;
                Self::AttemptsExhausted { attempts }
            }
            PhotoState::Queued | PhotoState::Processing if attempts > 0 => Self::CrashSuspect,
            PhotoState::Queued | PhotoState::Processing => {
                standing.state = PhotoState::Processing;
                standing.lease_until = i64::MAX;
                Self::Grant
            }
            PhotoState::AwaitingUpload | PhotoState::Ready | PhotoState::Failed => Self::Obsolete,
        }
    }
}

async fn fail_crash_suspect(transaction: &mut Transaction, photo: PhotoRef, attempts: i64) -> Result<()> {
    let detail = format!("{attempts} leases ended without a word");
    fail_locked_photo(transaction, photo, FailureReason::ProcessingCrashed, &detail).await?;
    // Nobody else tells: its workers are dead. A transaction that does not commit counts it once more.
    let reason = FailureReason::ProcessingCrashed.as_str();
    metrics::counter!(metric_names::PHOTOS_FAILED, "reason" => reason).increment(1);
    tracing::info!(photo.id = %photo.photo, album.id = %photo.album, reason, detail, "photo failed");
    Ok(())
}

/// The photos of an album that wait longest.
async fn load_oldest_fresh(
    transaction: &mut Transaction,
    album: AlbumId,
    limit: usize,
) -> Result<Vec<LeaseCandidate>> {
    let rows: Vec<(PhotoId,)> =
        query(OPERATION, OLDEST_FRESH_PHOTOS).bind(album).bind(limit as i64).fetch_all(transaction).await?;
    Ok(rows
        .into_iter()
        .map(|(photo,)| LeaseCandidate { photo: PhotoRef { album, photo }, attempts: 0 })
        .collect())
}

/// Whose an album is and how it wants its photos read.
type AlbumCache = HashMap<AlbumId, (OrganizationId, Arc<AlbumConfig>)>;

/// Gives the photos leases and counts the attempts. One lease each, in order.
async fn assign_leases(
    transaction: &mut Transaction,
    waiting: &[LeaseCandidate],
    term: LeaseWindow,
    known: &mut AlbumCache,
) -> Result<Vec<Lease>> {
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let taken: Vec<(PhotoRef, LeaseId)> =
        waiting.iter().map(|waiting| (waiting.photo, LeaseId::generate())).collect();
    let queued = transaction.queue_writes().assign_leases(&taken, term).await?;
    let mut leases = Vec::with_capacity(taken.len());
    for ((PhotoRef { album, photo }, id), LeaseCandidate { attempts, .. }) in taken.into_iter().zip(waiting) {
        let (organization, config) = match known.entry(album) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                unknown.insert(load_owner_and_config(transaction, album).await?).clone()
            }
        };
        let attempt = u32::try_from(attempts + 1).unwrap_or(u32::MAX);
        // A photo whose row was locked by this transaction is there.
        let confirmed_at = from_micros(queued.get(&id).copied().unwrap_or(term.now))?;
        leases.push(Lease { id, photo, album, organization, config, attempt, confirmed_at });
    }
    Ok(leases)
}

async fn load_owner_and_config(
    transaction: &mut Transaction,
    album: AlbumId,
) -> Result<(OrganizationId, Arc<AlbumConfig>)> {
    let (organization, config): (OrganizationId, String) =
        query(OPERATION, "select organization, config from album where id = $1")
            .bind(album)
            .fetch_one(transaction)
            .await?;
    Ok((organization, Arc::new(from_json(&config)?)))
}
