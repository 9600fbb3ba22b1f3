//! Leases photos of the queue. Every function that writes runs inside the caller's transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::finish::{FailedPhoto, PhotoFailure, fail_locked_photos};
use crate::metric_names;
use crate::model::album::AlbumConfig;
use crate::model::encoding::from_micros;
use crate::model::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
use crate::model::photo::{BoundingBox, FailureReason, PhotoState};
use crate::sql::credits::ledger::Ledger;
use crate::sql::database::{Database, Transaction};
use crate::sql::dialect::{LeaseCandidate, LeaseWindow, PhotoRowState};
use crate::sql::erasures::guard::load_places;
use crate::sql::queue::selection::{
    Quota, Turns, WaitingPhotos, albums_with_photos, oldest_photos, organizations_with_photos, select_photos,
};
use crate::sql::row_types::from_json;
use crate::sql::statement::{Statement, query};
use crate::traits::{Lease, NamedLease, PhotoRef, Result};

const OPERATION: &str = "lease photos";

/// A statement that locks what it selects; on Postgres it skips rows that another worker has locked.
macro_rules! skip_locked {
    ($text:expr) => {
        Statement::PerDialect { sqlite: $text, postgres: concat!($text, " for no key update skip locked") }
    };
}

/// Fresh photos. They are locked until the transaction ends, also those that are not leased.
pub(crate) const FRESH_PHOTOS: WaitingPhotos = WaitingPhotos {
    organizations: Statement::Portable(organizations_with_photos!("state = 'queued' and attempts = 0")),
    albums: Statement::Portable(albums_with_photos!("state = 'queued' and attempts = 0")),
    photos: skip_locked!(oldest_photos!("state = 'queued' and attempts = 0")),
};

/// The crash suspect whose lease expired first.
pub(crate) const NEXT_CRASH_SUSPECT: Statement = skip_locked!(
    "select album, id, attempts, held from photo \
     where state in ('queued', 'processing') and attempts > 0 and lease_until <= $1 \
     and (select closed_at from album where album.id = photo.album) is null \
     order by lease_until limit 1"
);

/// Whether fresh photos of other organizations than these wait.
pub(crate) async fn has_waiting_beside(
    database: &Database,
    organizations: &[OrganizationId],
) -> Result<bool> {
    const OPERATION: &str = "find organizations with waiting photos";
    // One more than these: at least one is another then.
    let limit = i64::try_from(organizations.len()).unwrap_or(i64::MAX).saturating_add(1);
    let waiting = query(OPERATION, FRESH_PHOTOS.organizations).bind(OrganizationId(Uuid::nil())).bind(limit);
    let waiting: Vec<(OrganizationId,)> =
        waiting.fetch_all(&mut database.acquire_reader(OPERATION).await?).await?;
    Ok(waiting.iter().any(|(waiting,)| !organizations.contains(waiting)))
}

/// Leases the fresh photos whose turn it is.
pub(crate) async fn lease_fresh(
    transaction: &mut Transaction,
    limit: usize,
    window: LeaseWindow,
    max_cells: u32,
    turns: &mut Turns,
) -> Result<Vec<Lease>> {
    let quota = Quota::Photos(limit);
    let selected = select_photos(transaction, &FRESH_PHOTOS, quota, max_cells, turns).await?;
    let candidates: Vec<LeaseCandidate> = selected
        .photos
        .iter()
        .map(|selected| LeaseCandidate { photo: selected.photo, attempts: 0 })
        .collect();
    assign_leases(transaction, &candidates, window).await
}

/// The result of [`lease_suspect`].
pub(crate) enum SuspectLease {
    /// No crash suspect waits.
    None,
    /// One was leased.
    Leased(Lease),
    /// One had reached its attempt limit and became failed. Its album is locked now, so that the next suspect needs
    /// another transaction.
    Failed,
}

/// Leases the crash suspect whose lease expired first.
pub(crate) async fn lease_suspect(
    transaction: &mut Transaction,
    attempt_limit: u32,
    window: LeaseWindow,
    ledger: &Ledger,
) -> Result<SuspectLease> {
    let row: Option<(AlbumId, PhotoId, i64, i64)> =
        query(OPERATION, NEXT_CRASH_SUSPECT).bind(window.now).fetch_optional(&mut *transaction).await?;
    let Some((album, photo, attempts, held)) = row else {
        return Ok(SuspectLease::None);
    };
    let photo = PhotoRef { album, photo };
    if attempts >= i64::from(attempt_limit) {
        fail_crash_suspects(transaction, &[CrashSuspect { photo, attempts, held }], ledger).await?;
        return Ok(SuspectLease::Failed);
    }
    let leases = assign_leases(transaction, &[LeaseCandidate { photo, attempts }], window).await?;
    Ok(leases.into_iter().next().map_or(SuspectLease::None, SuspectLease::Leased))
}

/// Leases exactly these photos, if they are fresh. Returns one outcome per photo, in order.
pub(crate) async fn lease_named(
    transaction: &mut Transaction,
    photos: &[PhotoRef],
    attempt_limit: u32,
    window: LeaseWindow,
    ledger: &Ledger,
) -> Result<Vec<NamedLease>> {
    let mut locked = transaction.queue_writes().lock_photos(photos).await?;
    let mut decisions = Vec::with_capacity(photos.len());
    for photo in photos {
        // A photo that is named twice is leased once: deciding changes its row state.
        decisions.push(
            locked
                .get_mut(photo)
                .map_or(LeaseDecision::Obsolete, |row| LeaseDecision::decide(row, attempt_limit, window)),
        );
    }
    let fresh =
        photos.iter().zip(&decisions).filter(|(_, decision)| matches!(decision, LeaseDecision::Grant));
    let candidates: Vec<LeaseCandidate> =
        fresh.map(|(photo, _)| LeaseCandidate { photo: *photo, attempts: 0 }).collect();
    let mut leases = assign_leases(transaction, &candidates, window).await?.into_iter();
    let mut crashed: Vec<CrashSuspect> = Vec::new();
    let mut outcomes = Vec::with_capacity(photos.len());
    for (photo, decision) in photos.iter().zip(decisions) {
        outcomes.push(match decision {
            LeaseDecision::Grant => leases.next().map_or(NamedLease::Obsolete, NamedLease::Leased),
            LeaseDecision::CrashSuspect => NamedLease::CrashSuspect,
            LeaseDecision::HeldElsewhere => NamedLease::HeldElsewhere,
            LeaseDecision::Obsolete => NamedLease::Obsolete,
            LeaseDecision::AttemptsExhausted { attempts } => {
                let held = locked.get(photo).map_or(0, |row| row.held);
                crashed.push(CrashSuspect { photo: *photo, attempts, held });
                NamedLease::Obsolete
            }
        });
    }
    // Last, because this locks the rows of albums: see the lock order of `sql`.
    fail_crash_suspects(transaction, &crashed, ledger).await?;
    Ok(outcomes)
}

/// Whether a photo that a message names can be leased.
enum LeaseDecision {
    Grant,
    CrashSuspect,
    HeldElsewhere,
    Obsolete,
    AttemptsExhausted { attempts: i64 },
}

impl LeaseDecision {
    /// Decides, and changes `row` to the state that the photo will have.
    fn decide(row: &mut PhotoRowState, attempt_limit: u32, window: LeaseWindow) -> Self {
        let attempts = row.attempts;
        match row.state {
            PhotoState::Processing if row.lease_until > window.now => Self::HeldElsewhere,
            PhotoState::Queued | PhotoState::Processing if attempts >= i64::from(attempt_limit) => {
                row.state = PhotoState::Failed;
                Self::AttemptsExhausted { attempts }
            }
            PhotoState::Queued | PhotoState::Processing if attempts > 0 => Self::CrashSuspect,
            PhotoState::Queued | PhotoState::Processing => {
                row.state = PhotoState::Processing;
                row.lease_until = i64::MAX;
                Self::Grant
            }
            PhotoState::AwaitingUpload | PhotoState::Ready | PhotoState::Failed => Self::Obsolete,
        }
    }
}

/// A locked photo at its attempt limit.
struct CrashSuspect {
    photo: PhotoRef,
    attempts: i64,
    /// What is held for it, thousandths.
    held: i64,
}

async fn fail_crash_suspects(
    transaction: &mut Transaction,
    crashed: &[CrashSuspect],
    ledger: &Ledger,
) -> Result<()> {
    let details: Vec<String> = crashed
        .iter()
        .map(|suspect| format!("{} leases expired without a result", suspect.attempts))
        .collect();
    let failed: Vec<FailedPhoto<'_>> = crashed
        .iter()
        .zip(&details)
        .map(|(CrashSuspect { photo, held, .. }, detail)| {
            let failure = PhotoFailure { reason: FailureReason::ProcessingCrashed, detail };
            FailedPhoto { photo: *photo, held: *held, failure, lease: None }
        })
        .collect();
    fail_locked_photos(transaction, &failed, ledger).await?;
    for FailedPhoto { photo, failure, .. } in failed {
        // Counted here because its workers are dead. A transaction that does not commit counts it once too often.
        let (reason, detail) = (failure.reason.as_str(), failure.detail);
        metrics::counter!(metric_names::PHOTOS_FAILED, "reason" => reason).increment(1);
        tracing::info!(photo.id = %photo.photo, album.id = %photo.album, reason, detail, "failed a crash suspect at its attempt limit");
    }
    Ok(())
}

/// What leases of photos of an album say of it.
#[derive(Clone)]
struct LeasedAlbum {
    organization: OrganizationId,
    config: Arc<AlbumConfig>,
    /// Whether faces or bibs were erased in it.
    has_erasures: bool,
    /// The version of its watermark; 0 without one.
    watermark_version: i64,
}

/// Assigns a lease to each locked photo and counts the attempts. Returns the leases in order.
///
/// Reads their albums after the photos were locked. When an album is reprocessed after its settings have changed, the lease of
/// a photo either has the new settings, or reprocessing blocks on the row's lock until the lease is committed and marks the photo.
async fn assign_leases(
    transaction: &mut Transaction,
    candidates: &[LeaseCandidate],
    window: LeaseWindow,
) -> Result<Vec<Lease>> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let assigned: Vec<(PhotoRef, LeaseId)> =
        candidates.iter().map(|candidate| (candidate.photo, LeaseId::generate())).collect();
    let queued = transaction.queue_writes().assign_leases(&assigned, window).await?;
    let mut known: HashMap<AlbumId, LeasedAlbum> = HashMap::new();
    let mut leases = Vec::with_capacity(assigned.len());
    for ((PhotoRef { album, photo }, id), LeaseCandidate { attempts, .. }) in
        assigned.into_iter().zip(candidates)
    {
        let LeasedAlbum { organization, config, has_erasures, watermark_version } = match known.entry(album) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => unknown.insert(load_album(transaction, album).await?).clone(),
        };
        let attempt = u32::try_from(attempts + 1).unwrap_or(u32::MAX);
        // The row exists: this transaction has locked it.
        let confirmed_at = from_micros(queued.get(&id).copied().unwrap_or(window.now))?;
        let erased_places =
            if has_erasures { load_erased_places(transaction, album, photo).await? } else { Vec::new() };
        leases.push(Lease {
            id,
            photo,
            album,
            organization,
            config,
            attempt,
            confirmed_at,
            erased_places,
            watermark_version,
            spent: Arc::default(),
        });
    }
    Ok(leases)
}

async fn load_album(transaction: &mut Transaction, album: AlbumId) -> Result<LeasedAlbum> {
    const LOAD: &str = "select organization, config, erasures, watermark_version from album where id = $1";
    let (organization, config, erasures, watermark_version): (OrganizationId, String, i64, i64) =
        query(OPERATION, LOAD).bind(album).fetch_one(transaction).await?;
    let config = Arc::new(from_json(&config)?);
    Ok(LeasedAlbum { organization, config, has_erasures: erasures > 0, watermark_version })
}

async fn load_erased_places(
    transaction: &mut Transaction,
    album: AlbumId,
    photo: PhotoId,
) -> Result<Vec<BoundingBox>> {
    let mut places = load_places(transaction, OPERATION, album, std::iter::once(photo)).await?;
    Ok(places.remove(&photo).unwrap_or_default())
}
