//! Finishes photos: writes their results, or the reason of their failure. Every function runs inside the caller's
//! transaction.
//!
//! A photo of an album that is reprocessed may be with a worker, which has the settings of before. It stays there until its
//! attempt ends, and then waits again instead if the settings are others by now.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::album::AlbumConfig;
use crate::model::credit::UsageOperation;
use crate::model::encoding::to_micros;
use crate::model::ids::{AlbumId, LeaseId, PhotoId};
use crate::model::photo::{FailureReason, PhotoState};
use crate::sealing::MasterSecret;
use crate::sql::changes::{ChangeKind, RecordedChange, record_changes};
use crate::sql::costs::{CostEntries, add_to_photo};
use crate::sql::credits::ledger::{Ledger, LedgerEntries, Writer};
use crate::sql::database::Transaction;
use crate::sql::dialect::PhotoRowState;
use crate::sql::erasures::guard::{empty_erased_texts, forget_vectors, leave_out_erased};
use crate::sql::row_types::from_json;
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
    let EndedLeases { locked, outcomes, mut done, given_back } = end_leases(transaction, photos).await?;
    let now = transaction.read_clock(OPERATION).await?;
    give_back(transaction, &given_back, now).await?;
    if done.is_empty() {
        write_costs(transaction, &[], &given_back, ledger, now).await?;
        return Ok(FinishedPhotos { outcomes, outdated: Vec::new() });
    }
    let left_out = leave_out_erased(transaction, OPERATION, &mut done, master).await?;
    let done: Vec<&PhotoResults> = done.into_iter().map(|results| &*results).collect();
    let leases: Vec<&Lease> = done.iter().map(|results| &results.lease).collect();
    let keys: Vec<PhotoRef> = leases.iter().map(|lease| photo_ref(lease)).collect();
    transaction.queue_writes().mark_ready(&done, now).await?;
    transaction.queue_writes().delete_detections(&keys).await?;
    transaction.queue_writes().insert_detections(&done).await?;
    charge(transaction, &keys, &locked, ledger, now).await?;
    write_costs(transaction, &leases, &given_back, ledger, now).await?;
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

/// Attempts that end in one transaction.
struct EndedLeases<'p> {
    /// Their photos, as they were before.
    locked: HashMap<PhotoRef, PhotoRowState>,
    /// One for each, in order.
    outcomes: Vec<FinishOutcome>,
    /// Those whose results are to be written.
    done: Vec<&'p mut PhotoResults>,
    /// Those whose photos wait again instead.
    given_back: Vec<&'p Lease>,
}

/// Locks photos and says which of them may be written.
async fn end_leases<'p>(
    transaction: &mut Transaction,
    photos: &'p mut [PhotoResults],
) -> Result<EndedLeases<'p>> {
    let leases: Vec<&Lease> = photos.iter().map(|results| &results.lease).collect();
    let keys: Vec<PhotoRef> = leases.iter().map(|lease| photo_ref(lease)).collect();
    let mut locked = transaction.queue_writes().lock_photos(&keys).await?;
    let superseded = find_asked_again(transaction, &locked, &leases).await?;
    let mut outcomes = Vec::with_capacity(photos.len());
    let (mut done, mut given_back) = (Vec::with_capacity(photos.len()), Vec::new());
    for results in photos {
        match check_lease(&mut locked, &results.lease) {
            FinishOutcome::Done if superseded.contains(&results.lease.id) => {
                outcomes.push(FinishOutcome::Superseded);
                given_back.push(&results.lease);
            }
            FinishOutcome::Done => {
                outcomes.push(FinishOutcome::Done);
                done.push(results);
            }
            outcome => outcomes.push(outcome),
        }
    }
    Ok(EndedLeases { locked, outcomes, done, given_back })
}

/// Returns the running leases of locked photos that were asked for again since, and whose albums have other settings by now.
/// With the same settings the results would be the same.
async fn find_asked_again(
    transaction: &mut Transaction,
    locked: &HashMap<PhotoRef, PhotoRowState>,
    leases: &[&Lease],
) -> Result<HashSet<LeaseId>> {
    let mut configs: HashMap<AlbumId, AlbumConfig> = HashMap::new();
    let mut found = HashSet::new();
    for lease in leases {
        let row = locked.get(&photo_ref(lease)).filter(|row| row.lease == Some(lease.id));
        let leased_at = to_micros(lease.confirmed_at);
        if row.is_none_or(|row| row.confirmed_at == Some(leased_at)) {
            continue;
        }
        let config = match configs.entry(lease.album) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(load_config(transaction, lease.album).await?),
        };
        if *config != *lease.config {
            found.insert(lease.id);
        }
    }
    Ok(found)
}

async fn load_config(transaction: &mut Transaction, album: AlbumId) -> Result<AlbumConfig> {
    let load = "select config from album where id = $1";
    // The row exists: it outlives its photos, and one of them is locked.
    let (config,): (String,) = query(OPERATION, load).bind(album).fetch_one(transaction).await?;
    from_json(&config)
}

/// Gives locked photos of running leases back to the queue. What their attempts cost, [`write_costs`] writes.
async fn give_back(transaction: &mut Transaction, leases: &[&Lease], now: i64) -> Result<()> {
    if leases.is_empty() {
        return Ok(());
    }
    for lease in leases {
        add_to_photo(transaction, OPERATION, lease).await?;
    }
    let ids: Vec<LeaseId> = leases.iter().map(|lease| lease.id).collect();
    transaction.queue_writes().release_leases(&ids, now).await
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

/// Writes what attempts cost that end now: those that `ended` with an outcome, and those whose photos wait again.
async fn write_costs(
    transaction: &mut Transaction,
    ended: &[&Lease],
    given_back: &[&Lease],
    ledger: &Ledger,
    now: i64,
) -> Result<()> {
    let albums = ended.iter().chain(given_back).map(|lease| lease.album);
    let tenants = ledger.tenants_of(transaction, albums).await?;
    let mut entries = CostEntries::default();
    for lease in ended {
        if let Some(tenant) = tenants.get(&lease.album) {
            entries.add(tenant, lease);
        }
    }
    for lease in given_back {
        if let Some(tenant) = tenants.get(&lease.album) {
            entries.add_stages(tenant, lease);
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

/// Marks a photo as failed, if the lease is still running and no other settings are asked for.
pub(crate) async fn fail_leased_photo(
    transaction: &mut Transaction,
    lease: &Lease,
    failure: PhotoFailure<'_>,
    ledger: &Ledger,
) -> Result<FinishOutcome> {
    let photo = photo_ref(lease);
    let mut locked = transaction.queue_writes().lock_photos(&[photo]).await?;
    let asked_again = find_asked_again(transaction, &locked, &[lease]).await?;
    let outcome = check_lease(&mut locked, lease);
    if outcome != FinishOutcome::Done {
        return Ok(outcome);
    }
    if asked_again.contains(&lease.id) {
        let now = transaction.read_clock(OPERATION).await?;
        give_back(transaction, &[lease], now).await?;
        write_costs(transaction, &[], &[lease], ledger, now).await?;
        return Ok(FinishOutcome::Superseded);
    }
    let held = locked.get(&photo).map_or(0, |row| row.held);
    let failed = FailedPhoto { photo, held, failure, lease: Some(lease) };
    fail_locked_photos(transaction, &[failed], ledger).await?;
    Ok(FinishOutcome::Done)
}

/// Marks locked photos as failed, releases what is held for them and deletes the detections of an earlier attempt. Their size
/// is forgotten, by which photos that wait are known to have pictures: those of failed photos are garbage. A change of their
/// albums even if there were no detections: failures are told.
pub(crate) async fn fail_locked_photos(
    transaction: &mut Transaction,
    failed: &[FailedPhoto<'_>],
    ledger: &Ledger,
) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let fail = "update photo set state = 'failed', failure = $3, failure_detail = $4, settled_at = $5, \
                updated_at = $5, attempts = 0, lease = null, lease_until = 0, held = 0, width = null, height = null \
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
    let ended: Vec<&Lease> = failed.iter().filter_map(|failed| failed.lease).collect();
    write_costs(transaction, &ended, &[], ledger, now).await?;
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
    give_back(transaction, &running, now).await?;
    write_costs(transaction, &[], &running, ledger, now).await
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
