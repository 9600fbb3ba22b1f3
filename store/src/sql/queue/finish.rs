//! Finishes photos: writes their results, or the reason of their failure. Every function runs inside the caller's
//! transaction.

use std::collections::{BTreeMap, HashMap};

use crate::model::credit::UsageOperation;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sealing::MasterSecret;
use crate::sql::changes::{ChangeKind, RecordedChange, record_changes};
use crate::sql::costs::{CostEntries, add_to_photo};
use crate::sql::credits::ledger::{Ledger, LedgerEntries, Writer};
use crate::sql::database::Transaction;
use crate::sql::dialect::PhotoRowState;
use crate::sql::erasures::guard::{empty_erased_texts, forget_vectors, leave_out_erased};
use crate::sql::start_lists::rules::JudgedBy;
use crate::sql::start_lists::versions::note_album;
use crate::sql::statement::{Statement, query};
use crate::sql::watermarks::ask_for_marks;
use crate::traits::{FinishOutcome, Lease, PhotoRef, PhotoResults, Result};

const OPERATION: &str = "finish photos";

/// Writes the results of every photo whose lease is still running, without what was erased. Returns one outcome per photo,
/// in order.
pub(crate) async fn finish_photos(
    transaction: &mut Transaction,
    photos: &mut [PhotoResults],
    judged_by: &JudgedBy,
    ledger: &Ledger,
    master: Option<&MasterSecret>,
) -> Result<FinishedPhotos> {
    let keys: Vec<PhotoRef> = photos.iter().map(|results| photo_ref(&results.lease)).collect();
    let mut locked = transaction.queue_writes().lock_photos(&keys).await?;
    let mut outcomes = Vec::with_capacity(photos.len());
    let mut done = Vec::with_capacity(photos.len());
    for results in photos.iter_mut() {
        let outcome = check_lease(&mut locked, &results.lease);
        if outcome == FinishOutcome::Done {
            done.push(results);
        }
        outcomes.push(outcome);
    }
    if done.is_empty() {
        return Ok(FinishedPhotos { outcomes, outdated: Vec::new() });
    }
    let left_out = leave_out_erased(transaction, OPERATION, &mut done, master).await?;
    let done: Vec<&PhotoResults> = done.into_iter().map(|results| &*results).collect();
    let keys: Vec<PhotoRef> = done.iter().map(|results| photo_ref(&results.lease)).collect();
    let now = transaction.read_clock(OPERATION).await?;
    transaction.queue_writes().mark_ready(&done, now).await?;
    transaction.queue_writes().delete_detections(&keys).await?;
    transaction.queue_writes().insert_detections(&done).await?;
    charge(transaction, &keys, &locked, ledger, now).await?;
    write_costs(transaction, done.iter().map(|results| &results.lease), ledger, now).await?;
    let mut outdated = Vec::new();
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for PhotoRef { album, photo } in keys {
        changed.entry(album).or_default().push(photo);
    }
    for (album, photos) in &changed {
        mark_judged(transaction, *album, photos, judged_by.get(album).copied().unwrap_or_default()).await?;
    }
    // Last, and in the order of the albums, whose rows this locks: see the lock order of `sql`.
    for (album, photos) in changed {
        let RecordedChange { rules_version: version, erasures, watermark_version } =
            record_changes(transaction, album, &photos, ChangeKind::Settled).await?;
        if left_out.get(&album).copied().unwrap_or_default() != erasures {
            // Something was erased since it was left out. From now on the album is locked.
            forget_vectors(transaction, OPERATION, album, &photos).await?;
            empty_erased_texts(transaction, OPERATION, album, &photos, master).await?;
        }
        let is_marked = |results: &&PhotoResults| results.watermark_version == watermark_version;
        if !done.iter().filter(|results| results.lease.album == album).all(is_marked) {
            // The watermark was changed meanwhile.
            ask_for_marks(transaction, OPERATION, album).await?;
        }
        if judged_by.get(&album) != Some(&version) {
            outdated.push(album);
            note_album(transaction, OPERATION, album).await?;
        }
    }
    Ok(FinishedPhotos { outcomes, outdated })
}

/// What finishing photos did.
pub(crate) struct FinishedPhotos {
    /// One for each photo, in order.
    pub(crate) outcomes: Vec<FinishOutcome>,
    /// Albums whose rules are newer than those by which their photos were judged.
    pub(crate) outdated: Vec<AlbumId>,
}

/// Notes by which version photos were judged; making them ready has set it to 0.
async fn mark_judged(
    transaction: &mut Transaction,
    album: AlbumId,
    photos: &[PhotoId],
    version: i64,
) -> Result<()> {
    if version == 0 {
        return Ok(());
    }
    let photos: Vec<uuid::Uuid> = photos.iter().map(|photo| photo.0).collect();
    query(OPERATION, MARK_JUDGED).bind(album).bind(version).bind(photos).execute(transaction).await.map(drop)
}

const MARK_JUDGED: Statement = Statement::PerDialect {
    sqlite: "update photo set list_version = $2 where album = $1 and id in (select unhex(value) from json_each($3))",
    postgres: "update photo set list_version = $2 where album = $1 and id = any($3)",
};

/// Writes what attempts cost that end now.
async fn write_costs(
    transaction: &mut Transaction,
    leases: impl Iterator<Item = &Lease> + Clone + Send,
    ledger: &Ledger,
    now: i64,
) -> Result<()> {
    let tenants = ledger.tenants_of(transaction, leases.clone().map(|lease| lease.album)).await?;
    let mut entries = CostEntries::default();
    for lease in leases {
        if let Some(tenant) = tenants.get(&lease.album) {
            entries.add(tenant, lease);
        }
    }
    entries.write(transaction, ledger, Writer::Worker, now).await
}

/// Spends what is held for photos that become ready for the first time.
async fn charge(
    transaction: &mut Transaction,
    photos: &[PhotoRef],
    locked: &HashMap<PhotoRef, PhotoRowState>,
    ledger: &Ledger,
    now: i64,
) -> Result<()> {
    let tenants = ledger.tenants_of(transaction, photos.iter().map(|photo| photo.album)).await?;
    let mut entries = LedgerEntries::default();
    for photo in photos {
        let (Some(row), Some(tenant)) = (locked.get(photo), tenants.get(&photo.album)) else { continue };
        entries.hold(tenant, -row.held);
        if !row.is_charged {
            entries.spend(tenant, row.held);
            entries.count(tenant, photo.album, UsageOperation::Photo, row.held);
        }
    }
    entries.write(transaction, ledger, Writer::Worker, now).await
}

/// Why a photo failed.
#[derive(Clone, Copy)]
pub(crate) struct PhotoFailure<'a> {
    pub(crate) reason: FailureReason,
    /// For operators.
    pub(crate) detail: &'a str,
}

/// A locked photo that has failed.
pub(crate) struct FailedPhoto<'a> {
    pub(crate) photo: PhotoRef,
    /// What is held for it, thousandths of a credit.
    pub(crate) held: i64,
    pub(crate) failure: PhotoFailure<'a>,
    /// Of the attempt that ends; `None` where its worker is dead, and with it what it cost.
    pub(crate) lease: Option<&'a Lease>,
}

/// Marks a photo as failed, if the lease is still running.
pub(crate) async fn fail_leased_photo(
    transaction: &mut Transaction,
    lease: &Lease,
    failure: PhotoFailure<'_>,
    ledger: &Ledger,
) -> Result<FinishOutcome> {
    let photo = photo_ref(lease);
    let mut locked = transaction.queue_writes().lock_photos(&[photo]).await?;
    let outcome = check_lease(&mut locked, lease);
    if outcome == FinishOutcome::Done {
        let held = locked.get(&photo).map_or(0, |row| row.held);
        let failed = FailedPhoto { photo, held, failure, lease: Some(lease) };
        fail_locked_photos(transaction, &[failed], ledger).await?;
    }
    Ok(outcome)
}

/// Marks locked photos as failed, releases what is held for them and deletes the detections of an earlier attempt. A change
/// of their albums even if there were none: failures are told.
pub(crate) async fn fail_locked_photos(
    transaction: &mut Transaction,
    failed: &[FailedPhoto<'_>],
    ledger: &Ledger,
) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let fail = "update photo set state = 'failed', failure = $3, failure_detail = $4, settled_at = $5, \
                updated_at = $5, attempts = 0, lease = null, lease_until = 0, held = 0 \
                where album = $1 and id = $2";
    let now = transaction.read_clock(OPERATION).await?;
    let keys: Vec<PhotoRef> = failed.iter().map(|failed| failed.photo).collect();
    let tenants = ledger.tenants_of(transaction, keys.iter().map(|photo| photo.album)).await?;
    let mut entries = LedgerEntries::default();
    for FailedPhoto { photo, held, failure, lease } in failed {
        if let Some(lease) = lease {
            add_to_photo(transaction, OPERATION, lease).await?;
        }
        query(OPERATION, fail)
            .bind(photo.album)
            .bind(photo.photo)
            .bind(failure.reason.as_str())
            .bind(failure.detail)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        if let Some(tenant) = tenants.get(&photo.album) {
            entries.hold(tenant, -held);
            entries.count(tenant, photo.album, UsageOperation::PhotoFailed, 0);
        }
    }
    transaction.queue_writes().delete_detections(&keys).await?;
    entries.write(transaction, ledger, Writer::Worker, now).await?;
    write_costs(transaction, failed.iter().filter_map(|failed| failed.lease), ledger, now).await?;
    record_changes_of(transaction, keys.into_iter()).await
}

/// Gives photos back to the queue whose leases are still running, and writes what the attempts cost.
pub(crate) async fn release_photos(
    transaction: &mut Transaction,
    leases: &[Lease],
    ledger: &Ledger,
) -> Result<()> {
    let keys: Vec<PhotoRef> = leases.iter().map(photo_ref).collect();
    let mut locked = transaction.queue_writes().lock_photos(&keys).await?;
    let is_running = |lease: &&Lease| check_lease(&mut locked, lease) == FinishOutcome::Done;
    let running: Vec<&Lease> = leases.iter().filter(is_running).collect();
    if running.is_empty() {
        return Ok(());
    }
    let now = transaction.read_clock(OPERATION).await?;
    for lease in &running {
        add_to_photo(transaction, OPERATION, lease).await?;
    }
    let ids: Vec<LeaseId> = running.iter().map(|lease| lease.id).collect();
    transaction.queue_writes().release_leases(&ids, now).await?;
    let mut entries = CostEntries::default();
    let tenants = ledger.tenants_of(transaction, running.iter().map(|lease| lease.album)).await?;
    for lease in running {
        if let Some(tenant) = tenants.get(&lease.album) {
            entries.add_stages(tenant, lease);
        }
    }
    entries.write(transaction, ledger, Writer::Worker, now).await
}

/// Records the changes of photos: last in a transaction, and in the order of the albums, whose rows this locks. See the lock
/// order of `sql`.
async fn record_changes_of(
    transaction: &mut Transaction,
    photos: impl Iterator<Item = PhotoRef>,
) -> Result<()> {
    let mut changed: BTreeMap<AlbumId, Vec<PhotoId>> = BTreeMap::new();
    for PhotoRef { album, photo } in photos {
        changed.entry(album).or_default().push(photo);
    }
    for (album, photos) in changed {
        record_changes(transaction, album, &photos, ChangeKind::Settled).await?;
    }
    Ok(())
}

fn photo_ref(lease: &Lease) -> PhotoRef {
    PhotoRef { album: lease.album, photo: lease.photo }
}

/// Whether the lease may write. A second call for the same lease returns `Superseded`.
fn check_lease(locked: &mut HashMap<PhotoRef, PhotoRowState>, lease: &Lease) -> FinishOutcome {
    let Some(row) = locked.get_mut(&photo_ref(lease)) else {
        return FinishOutcome::Gone;
    };
    if row.state != PhotoState::Processing || row.lease != Some(lease.id) {
        return FinishOutcome::Superseded;
    }
    row.lease = None;
    FinishOutcome::Done
}
